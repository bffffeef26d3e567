"""Teachers with another vocabulary: the same answers under other ids teach the same student."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE, WordLevel, WordPiece
from tokenizers.processors import RobertaProcessing
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizerFast,
)

import tiny_runs as tiny
from limbeck.activations import ActivationKey, Request, capture
from limbeck.data.encoding import spans_of
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError


def other_tokenizer() -> PreTrainedTokenizerFast:
    """The words of `tiny.tokenizer` in the opposite order, and a word more."""
    words = [*tiny.SPECIAL, *reversed(tiny.WORDS), "more"]
    vocabulary = {word: number for number, word in enumerate(words)}
    return tiny.tokenizer_of(WordLevel(vocabulary, unk_token="[UNK]"))


@pytest.fixture(scope="module")
def foreign(place) -> str:
    """The place's teacher under other ids: what it answers is the same to the bit."""
    teacher = tiny.knowing_teacher(4)
    old, tokens = tiny.tokenizer().get_vocab(), other_tokenizer()
    before = teacher.bert.embeddings.word_embeddings.weight.detach()
    after = torch.zeros(len(tokens), before.shape[1])
    for word, number in tokens.get_vocab().items():
        if word in old:
            after[number] = before[old[word]]
    teacher.resize_token_embeddings(len(tokens))
    with torch.no_grad():
        teacher.bert.embeddings.word_embeddings.weight.copy_(after)
    folder = place / "foreign"
    teacher.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return str(folder)


def weights(run: Path) -> bytes:
    return (run / "student" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("cache", [pytest.param("never", marks=pytest.mark.slow), "always"])
def test_a_foreign_teacher_teaches_what_it_would_in_the_students_words(
    recipe, foreign, tmp_path, monkeypatch, cache
):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    given = {"cache": cache, "batch_size": 27}
    own = distill(recipe("kd", **given), tmp_path / "own", report=False)
    other = distill(recipe("kd", **given, teacher=foreign), tmp_path / "other")
    assert other.record.execution.teacher_outputs == {
        "1": "stored" if cache == "always" else "live"
    }
    assert weights(own.path) == weights(other.path)
    if cache == "never":
        assert "Layer similarity" not in (other.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_of_several_teachers_may_be_foreign(recipe, place, foreign, tmp_path):
    tiny.save(tiny.knowing_teacher(6), place / "deeper")
    others = {"teacher": None, "epochs": 1}
    first = [str(place / "teacher"), str(place / "deeper")]
    own = recipe("skd-uniform", teachers=first, **others)
    mixed = recipe("skd-uniform", teachers=[foreign, first[1]], **others)
    runs = [distill(one, tmp_path / str(n), report=False) for n, one in enumerate((own, mixed))]
    assert weights(runs[0].path) == weights(runs[1].path)


@pytest.mark.parametrize(
    ("method", "cache"),
    [
        ("internal-kd", "never"),
        ("pkd-skip", "never"),
        pytest.param("tinybert", "always", marks=pytest.mark.slow),
        pytest.param("minilmv2", "never", marks=pytest.mark.slow),
        pytest.param("contextual-kd", "never", marks=pytest.mark.slow),
        pytest.param("bert-emd", "always", marks=pytest.mark.slow),
        pytest.param("rail-kd-l", "always", marks=pytest.mark.slow),
        pytest.param("minilm", "always", marks=pytest.mark.slow),
        pytest.param("l-ild", "never", marks=pytest.mark.slow),
    ],
)
def test_layers_of_a_foreign_teacher_teach_what_they_would_in_the_students_tokens(
    recipe, foreign, tmp_path, monkeypatch, method, cache
):
    """Equal pieces under other ids: the alignment is the identity, and the student the same to the bit."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    given = {"cache": cache, "batch_size": 27}
    own = distill(recipe(method, **given), tmp_path / "own", report=False)
    other = distill(recipe(method, **given, teacher=foreign), tmp_path / "other", report=False)
    assert weights(own.path) == weights(other.path)


# A teacher of another family: RoBERTa, whose tokens are merged from bytes, for a BERT that reads pieces of words.


def knowing_roberta(tokens: RobertaTokenizerFast) -> RobertaForSequenceClassification:
    """As `tiny.knowing_teacher`: attention carries the pieces of `good` and `bad` to the head."""
    config = RobertaConfig(
        vocab_size=len(tokens),
        hidden_size=tiny.WIDTH,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
        id2label={0: "negative", 1: "positive"},
    )
    teacher, eye = RobertaForSequenceClassification(config), torch.eye(tiny.WIDTH)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for name, weight in teacher.named_parameters():
            weight.normal_(0, 0.01).add_("LayerNorm.weight" in name)
        for word, value in (("good", 1.0), ("bad", -1.0)):
            pieces = tokens(word, add_special_tokens=False)["input_ids"]
            teacher.roberta.embeddings.word_embeddings.weight[pieces, 0] = value
        for layer in teacher.roberta.encoder.layer:
            layer.attention.self.value.weight.add_(eye)
            layer.attention.output.dense.weight.add_(eye)
        teacher.classifier.dense.weight.add_(eye)
        teacher.classifier.out_proj.weight[:, 0] = torch.tensor([-1.0, 1.0])
    return teacher.eval()


@pytest.fixture(scope="module")
def roberta(place) -> str:
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=276, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(tiny.sentences(60), trainer)
    backend.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    folder = place / "roberta"
    tokens = RobertaTokenizerFast(tokenizer_object=backend)
    knowing_roberta(tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def pieces(place) -> str:
    """A BERT that has some words whole, and reads the others in pieces."""
    signs = sorted(set("".join(tiny.WORDS)))
    starts, ends = [word[:2] for word in tiny.WORDS if len(word) > 1], ["##ood", "##lm", "##ry"]
    listed = dict.fromkeys([*tiny.SPECIAL, "good", "the", *signs, *starts, *ends])
    vocabulary = {
        token: number for number, token in enumerate([*listed, *(f"##{s}" for s in signs)])
    }
    folder = place / "pieces"
    tiny.bert(2, vocab_size=len(vocabulary), max_position_embeddings=64).save_pretrained(folder)
    tiny.tokenizer_of(WordPiece(vocabulary, unk_token="[UNK]")).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def pairs(place) -> dict:
    """Rows of two texts each."""
    texts = tiny.sentences(60)
    with (place / "pairs.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["one", "other", "verdict"])
        for row, text in enumerate(texts):
            writer.writerow(
                [text, texts[(row * 7 + 4) % 60], "negative" if row % 2 else "positive"]
            )
    return {"data": str(place / "pairs.csv"), "text_columns": ["one", "other"]}


def whose(encoded, texts: int) -> list[set]:
    """By token what it stands for: characters of a text, or its role by where it stands among the texts."""
    found, before = [], 0
    for text, (start, end) in zip(
        encoded.sequence_ids(0), encoded["offset_mapping"][0], strict=True
    ):
        if text is None:
            found.append({("special", before)})
        else:
            found.append({(text, at) for at in range(start, end)})
            before = text + 1
    if texts == 2:  # RoBERTa marks the border by two tokens, of which BERT's only one is the first
        doubled = [at for at, one in enumerate(found) if one == {("special", 1)}][1:]
        for at in doubled:
            found[at] = set()
    return found


@pytest.mark.parametrize("texts", [1, 2])
def test_states_are_those_of_the_tokens_with_the_same_characters(
    recipe, roberta, pieces, pairs, texts
):
    """What the run's teacher shows of a batch, against loops over both tokenizers' own offsets."""
    given = pairs if texts == 2 else {}
    prepared = prepare(recipe("internal-kd", teacher=roberta, **{"student.init": pieces}, **given))
    inputs = prepared.last
    rows = inputs.rows.encoded.select([7, 0, 12, 3])
    batch = inputs.collator(prepared.tokenizer)(list(rows))
    request = Request.hidden([2]) | Request.attention([3]) | Request.hidden([2], pool="mean")
    asked = (
        ActivationKey("hidden", 2),
        ActivationKey("probabilities", 3),
        ActivationKey("hidden", 2, "mean"),
    )
    trace = inputs.teacher(batch, request)
    states, maps, pooled = (trace[seen] for seen in asked)
    own = [AutoTokenizer.from_pretrained(folder) for folder in (pieces, roberta)]
    model = inputs.teacher.model
    split = 0
    for row, number in enumerate(batch["index"].tolist()):
        raw = inputs.rows.raw[number]
        written = [raw[name] for name in inputs.rows.task.text_columns]
        ours, theirs = (
            one(
                *written,
                return_offsets_mapping=True,
                return_tensors="pt",
                truncation=True,
                max_length=24,
            )
            for one in own
        )
        read = {name: theirs[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            alone = capture(model, read, request)
        hidden, attention, mean = (alone[seen][0] for seen in asked)
        torch.testing.assert_close(pooled[row], mean)
        assert not states.requires_grad
        assert not maps.requires_grad
        student, teacher = whose(ours, texts), whose(theirs, texts)
        shares = torch.tensor([[float(len(a & b)) for b in teacher] for a in student])
        given_to = shares / shares.sum(0).clamp(min=1)
        assert torch.equal(trace.mask()[row, : len(student)], shares.sum(1) > 0)
        assert not trace.mask()[row, len(student) :].any()
        shares = shares / shares.sum(1, keepdim=True).clamp(min=1)
        split += int(((shares > 0) & (shares < 1)).sum())
        torch.testing.assert_close(states[row, : len(student)], shares @ hidden)
        # What a teacher's token without a partner (a space, a second mark) was given goes to the others.
        kept = attention * (given_to.sum(0) > 0)
        expected = shares @ (kept / kept.sum(-1, keepdim=True)) @ given_to.T
        torch.testing.assert_close(maps[row][:, : len(student), : len(student)], expected)
        sums = maps[row][:, : len(student)].sum(-1)
        torch.testing.assert_close(sums, (shares.sum(1) > 0).float().expand_as(sums))
    assert split > 10


@pytest.mark.parametrize(
    "method",
    [
        "internal-kd",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("minilmv2", "tinybert")),
    ],
)
def test_a_byte_level_teacher_teaches_layers_to_a_student_of_word_pieces(
    recipe, roberta, pieces, pairs, tmp_path, monkeypatch, method
):
    """Stored outputs are those of the live teacher, but for float16; and the terms fall."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    given = {"teacher": roberta, "student.init": pieces, "epochs": 3, "max_length": 48, **pairs}
    runs = {
        cache: distill(recipe(method, cache=cache, **given), tmp_path / cache, report=False)
        for cache in ("never", "always")
    }
    assert {run.record.execution.teacher_outputs["1"] for run in runs.values()} == {
        "live",
        "stored",
    }
    losses = {
        name: [one.train["loss"] for one in run.record.epochs if one.stage == 1]
        for name, run in runs.items()
    }
    assert losses["never"][-1] < losses["never"][0]
    assert losses["always"] == pytest.approx(losses["never"], rel=1e-2)


def test_attention_of_a_causal_teacher_is_refused(recipe, place, tmp_path):
    """Both pieces of one of its tokens would attend to each other."""
    for name, tokens in {"causal": tiny.tokenizer(), "causal-foreign": other_tokenizer()}.items():
        config = GPT2Config(
            vocab_size=len(tokens),
            n_positions=24,
            n_embd=tiny.WIDTH,
            n_layer=2,
            n_head=2,
            pad_token_id=0,
            id2label={0: "negative", 1: "positive"},
        )
        GPT2ForSequenceClassification(config).save_pretrained(place / name)
        tokens.save_pretrained(place / name)
    given = {"teacher": str(place / "causal-foreign"), "student.init": str(place / "causal")}
    with pytest.raises(LimbeckError, match="pieces of one token of a causal teacher"):
        distill(recipe("internal-kd", **given), tmp_path / "run")


def test_spans_that_are_not_of_the_encoded_tokens_are_refused(recipe):
    prepared = prepare(recipe("kd"))
    rows = prepared.train
    given = rows.raw, rows.task, prepared.tokenizer
    spans = spans_of(rows.encoded, *given, rows.max_length)[0]["spans"].reshape(-1, 3)
    text = rows.raw[0][rows.task.text_columns[0]]
    assert [text[start:end] for segment, start, end in spans if segment == 0] == text.split()
    assert (spans[0].tolist(), spans[-1].tolist()) == ([2, 0, 1], [3, 0, 1])
    with pytest.raises(LimbeckError, match="its tokens do not come from its texts"):
        spans_of(rows.encoded, *given, 4)


def test_terms_that_tokens_of_two_tokenizers_cannot_serve_are_refused(recipe, foreign, tmp_path):
    for method, reason in {
        "tinybert-released": "padding counts",
        "cr-ild": "mixup: teacher and student have different tokens",
    }.items():
        with pytest.raises(LimbeckError, match=reason):
            distill(recipe(method, teacher=foreign), tmp_path / method)
