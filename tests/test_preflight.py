"""Pre-flight on runs with one thing wrong each, and a whole run with nothing wrong."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from limbeck.capture import Request, Seen, capture
from limbeck.data import Task, get_task
from limbeck.errors import Problem
from limbeck.preflight import (
    Answers,
    Method,
    TeacherScore,
    TeacherSide,
    ask_teacher,
    check,
    check_class_order,
    check_columns,
    check_ids,
    check_influence,
    check_labels,
    check_output,
    check_positions,
    check_request,
    check_teacher_score,
    check_tokenizers,
    check_truncation,
    check_values,
    check_vocabulary,
    check_weights,
    constant_baseline,
    errors_of,
    measured_score,
    recorded_score,
    render,
    show,
)

SST2 = get_task("sst2")
WORDS = ["good", "bad", "film", "plot", "very", "a"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def tokenizer(words: list[str] = WORDS, special: list[str] = SPECIAL) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def config(**changes) -> BertConfig:
    settings = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "vocab_size": 10,
        "pad_token_id": 0,
        "max_position_embeddings": 16,
        "id2label": {0: "negative", 1: "positive"},
    }
    return BertConfig(**(settings | changes))


def model(**changes) -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(config(**changes)).eval()


def knowing_teacher(swapped: bool = False, **changes) -> BertForSequenceClassification:
    """A teacher that is right by construction: attention carries `good` or `bad` to the head."""
    teacher = model(**changes)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.zero_()
        for module in teacher.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
        # Attention is uniform (queries and keys are zero); values carry the embedding on to [CLS].
        embeddings = teacher.bert.embeddings.word_embeddings.weight
        embeddings[4, 0], embeddings[5, 0] = 1.0, -1.0  # good, bad
        for layer in teacher.bert.encoder.layer:
            layer.attention.self.value.weight.copy_(torch.eye(16))
            layer.attention.output.dense.weight.copy_(torch.eye(16))
        teacher.bert.pooler.dense.weight.copy_(torch.eye(16))
        sign = -1.0 if swapped else 1.0
        teacher.classifier.weight[0, 0], teacher.classifier.weight[1, 0] = -sign, sign
    return teacher


def rows(count: int = 40, **changes) -> Dataset:
    columns = {
        "sentence": [f"a {'good' if row % 2 else 'bad'} film" for row in range(count)],
        "label": [row % 2 for row in range(count)],
        "index": list(range(count)),
    }
    return Dataset.from_dict(columns | changes)


def words_of(problems: list[Problem]) -> str:
    return " | ".join(f"{problem.severity}: {problem}" for problem in problems)


# ---- data ----


def test_columns_and_splits():
    assert check_columns(SST2, {"train": rows(), "dev": rows()}, ("train", "dev")) == []
    found = check_columns(
        SST2,
        {"train": rows().remove_columns("label").rename_column("sentence", "text")},
        ("train", "dev"),
    )
    assert len(found) == 2 and errors_of(found) == found
    assert "lacks 'sentence', 'label'" in found[0].message and "text, index" in found[0].fix
    assert "no 'dev' split" in found[1].message
    empty = check_columns(SST2, {"train": rows().select([])}, ("train",))
    assert "'train' split is empty" in empty[0].message


def test_values():
    assert check_values(SST2, "train", rows()) == []
    blank = check_values(SST2, "train", rows(4, sentence=["a film", " ", None, "plot"]))
    assert "2 of 4 rows have no text" in blank[0].message and blank[0].severity == "warning"
    unlabelled = check_values(SST2, "dev", rows(4, label=[0, -1, 1, 2]))
    assert "2 of 4 labels are not 0..1: -1.0, 2.0" in unlabelled[0].message
    missing = check_values(SST2, "dev", rows(3, label=[0, None, 1]))
    assert "1 of 3 labels" in missing[0].message
    text = check_values(SST2, "dev", rows(2, label=["pos", "neg"]))
    assert "not numbers" in text[0].message
    one = check_values(SST2, "dev", rows(3, label=[1, 1, 1]))
    assert "same label, positive" in one[0].message and one[0].severity == "warning"
    stsb = get_task("stsb")
    numbers = Dataset.from_dict(
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [0.5, float("nan")]}
    )
    assert "1 of 2 labels are not a number" in check_values(stsb, "dev", numbers)[0].message


def test_ids():
    assert check_ids("train", rows()) == []
    assert "2 of 4 rows repeat" in check_ids("train", rows(4, index=[1, 1, 1, 2]))[0].message


def test_truncation_counts_and_names_the_longest():
    texts = ["a film", "a very very very bad plot", "good"]
    data = {"train": rows(3, sentence=texts, label=[0, 0, 1])}
    assert check_truncation(SST2, data, {"train": 0}, tokenizer(), 5) == []
    found = check_truncation(SST2, data, {"train": 1, "dev_mismatched": 3}, tokenizer(), 5)
    assert len(found) == 1 and found[0].severity == "warning"
    # Six words and two special tokens.
    assert "train: 1 of 3 examples (33.3 %)" in found[0].message
    assert "longest has 8 tokens" in found[0].message


# ---- models ----


def test_requests_beyond_the_model():
    two = model()
    assert check_request("teacher", two, Request.hidden([0, 2]) | Request.of_logits()) == []
    found = check_request("teacher", two, Request.hidden([1, 3, 5]))
    assert len(found) == 1
    assert "layer 3, 5" in found[0].message and "layers 1..2" in found[0].message
    found = check_request("student", two, Request.hidden([1], stack="decoder"))
    assert "no stack 'decoder'" in found[0].message
    deberta = DebertaV2ForSequenceClassification(
        DebertaV2Config(
            hidden_size=16,
            num_attention_heads=2,
            intermediate_size=24,
            num_hidden_layers=2,
            vocab_size=10,
        )
    )
    found = check_request("student", deberta, Request.attention([1], "query"))
    assert "query cannot be seen in a DebertaV2" in found[0].message


def test_tokenizers_that_agree_or_not():
    texts = ["a good film", "bad plot"]
    assert check_tokenizers(tokenizer(), tokenizer(), texts) == []
    moved = check_tokenizers(tokenizer(), tokenizer(WORDS[::-1]), texts)
    assert "6 of them under another id" in moved[0].message and moved[0].severity == "error"
    assert "'a good film' as different ids" in moved[1].message
    longer = check_tokenizers(tokenizer(), tokenizer([*WORDS, "new"]), texts)
    assert [problem.severity for problem in longer] == ["warning"]
    other = check_tokenizers(tokenizer(), tokenizer(["un", "deux"]), texts)
    assert "4 are shared" in other[0].message and other[0].severity == "error"
    swapped = check_tokenizers(
        tokenizer(), tokenizer(special=["[UNK]", "[PAD]", "[CLS]", "[SEP]"]), texts
    )
    assert "pad 0 and 1; unk 1 and 0" in words_of(swapped)


def test_vocabulary_must_fit_the_embeddings():
    assert check_vocabulary("student", model(), tokenizer()) == []
    found = check_vocabulary("student", model(vocab_size=8, pad_token_id=1), tokenizer())
    assert "ids reach 9, the embeddings 7" in found[0].message
    assert "pads with id 1" in found[1].message and found[1].severity == "warning"
    unpadded = PreTrainedTokenizerFast(tokenizer_object=tokenizer().backend_tokenizer)
    assert "no padding token" in words_of(check_vocabulary("student", model(), unpadded))


def test_positions():
    assert check_positions("student", model(), 16) == []
    assert "17 is beyond the 16" in check_positions("student", model(), 17)[0].message
    settings = config().to_dict() | {"pad_token_id": 1, "max_position_embeddings": 18}
    settings.pop("model_type")
    roberta = RobertaForSequenceClassification(RobertaConfig(**settings)).eval()
    assert check_positions("student", roberta, 16) == []
    assert errors_of(check_positions("student", roberta, 17))
    ids = torch.full((1, 17), 5)  # Hugging Face itself agrees: 16 fit, 17 do not
    roberta(input_ids=ids[:, :16])
    with pytest.raises((IndexError, RuntimeError)):
        roberta(input_ids=ids)


@pytest.mark.parametrize(
    ("names", "severity", "words"),
    [
        (("negative", "positive"), None, ""),
        (("Negative", "POSITIVE"), None, ""),
        (("positive", "negative"), "error", "another order"),
        (("LABEL_0", "LABEL_1"), "warning", "have no names"),
        (("neg", "pos"), "warning", "other names"),
        (("a", "b", "c"), "error", "has 3 outputs"),
    ],
)
def test_labels(names, severity, words):
    found = check_labels("teacher", config(id2label=dict(enumerate(names))), SST2)
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert words in words_of(found)


def test_labels_of_regression():
    stsb = get_task("stsb")
    assert check_labels("teacher", config(id2label={0: "anything"}), stsb) == []
    assert "2 outputs" in words_of(check_labels("teacher", config(), stsb))


# ---- scores ----


def test_constant_baseline_by_hand():
    # Three of four positive.
    assert constant_baseline(SST2, np.array([1, 1, 1, 0])) == (75.0, "positive")
    # MRPC: always "equivalent": accuracy 3/4, precision 3/4, recall 1, F1 6/7.
    value, answer = constant_baseline(get_task("mrpc"), np.array([1, 1, 1, 0]))
    assert answer == "equivalent" and value == pytest.approx(100 * (3 / 4 + 6 / 7) / 2)
    # QQP with two of five duplicates: the majority scores 60/2, always "duplicate" more:
    # accuracy 2/5, precision 2/5, recall 1, F1 4/7.
    value, answer = constant_baseline(get_task("qqp"), np.array([0, 0, 0, 1, 1]))
    assert answer == "duplicate" and value == pytest.approx(100 * (2 / 5 + 4 / 7) / 2)
    assert constant_baseline(get_task("cola"), np.array([1, 1, 0]))[0] == 0
    assert constant_baseline(get_task("stsb"), np.array([1.0, 4.5]))[0] == 0


def test_recorded_score_lies_in_or_above_the_teacher(tmp_path):
    student = tmp_path / "student"
    student.mkdir()
    record = {"schema": 1, "task": "sst2", "scores": {"dev": {"primary": 91.5}}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    for path in (tmp_path, student):
        score = recorded_score(path, SST2)
        assert score is not None and score.value == 91.5 and "record.json" in score.origin
    assert recorded_score(tmp_path, get_task("mrpc")) is None
    assert recorded_score("some/hub-name", SST2) is None
    (tmp_path / "record.json").write_text("{torn")
    assert recorded_score(tmp_path, SST2) is None


def test_a_teacher_that_knows_and_one_that_does_not():
    dev = rows()
    answers = ask_teacher(SST2, knowing_teacher(), tokenizer(), dev, 8)
    score = measured_score(SST2, answers)
    assert score.value == 100 and score.origin == "measured on dev"
    labels = np.asarray(dev["label"][:])
    assert check_teacher_score(SST2, score, labels) == []
    found = check_teacher_score(SST2, TeacherScore(50.0, "recorded in r"), labels)
    assert "50.0 (recorded in r) is no better than always answering" in found[0].message
    # Forty rows: three standard errors of a coin are 150 / sqrt(40) = 23.7 points.
    found = check_teacher_score(SST2, TeacherScore(73.0, ""), labels)
    assert "hardly better" in found[0].message and found[0].severity == "warning"
    assert check_teacher_score(SST2, TeacherScore(74.0, ""), labels) == []
    # A hundred rows of a correlation: 30 points.
    stsb, numbers = get_task("stsb"), np.linspace(0, 5, 100)
    assert errors_of(check_teacher_score(stsb, TeacherScore(-2.0, ""), numbers))
    assert check_teacher_score(stsb, TeacherScore(29.0, ""), numbers)[0].severity == "warning"
    assert check_teacher_score(stsb, TeacherScore(31.0, ""), numbers) == []
    sample = ask_teacher(SST2, knowing_teacher(), tokenizer(), dev, 8, rows=7)
    assert len(sample.labels) == 7 and sample.origin == "measured on 7 rows of dev"


def test_class_order_is_read_from_the_answers():
    labels = np.arange(300) % 3
    task = get_task("mnli")
    right, turned = np.eye(3)[labels], np.eye(3)[(labels + 1) % 3]
    assert check_class_order(task, Answers(right, labels, "measured")) == []
    found = check_class_order(task, Answers(turned, labels, "measured"))
    assert "class 1 means 'entailment'" in found[0].message
    assert "accuracy 100.0 instead of 0.0" in found[0].message
    guesses = np.random.default_rng(0).random((300, 3))
    assert check_class_order(task, Answers(guesses, labels, "measured")) == []
    constant = np.tile([1.0, 0.0, 0.0], (300, 1))
    assert check_class_order(task, Answers(constant, np.full(300, 2), "measured")) == []


# ---- influence ----

BATCH = {
    "input_ids": torch.tensor([[2, 4, 6, 3], [2, 5, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": torch.tensor([1, 0]),
}


def test_influence_of_each_kind_of_term():
    student = model().train()
    bank = nn.BatchNorm1d(16)  # writes its buffers on every forward, as a memory bank does

    def terms(batch):
        trace = capture(student, batch, Request.hidden([0, 1]) | Request.of_logits())
        first = trace[Seen("hidden", 1)]
        return {
            "hard": nn.functional.cross_entropy(trace.logits, batch["labels"]),
            "bank": bank(first[:, 0]).pow(2).mean() + first.mean(),
            "constant": torch.tensor(1.0),
            "detached": first.detach().mean(),
            "itself": (first - first.detach()).pow(2).mean(),
            "broken": first.mean() * float("nan"),
            "off": torch.tensor(3.0),
        }

    weights = dict.fromkeys(("hard", "bank", "constant", "detached", "itself", "broken"), 1.0)
    state, buffers = torch.get_rng_state(), [buffer.clone() for buffer in bank.buffers()]
    before = {name: weight.clone() for name, weight in student.state_dict().items()}
    found = check_influence(terms, weights | {"off": 0.0}, student, BATCH, [bank])
    by_name = {problem.message.split(":")[0].split(".")[1]: problem for problem in found}
    assert by_name.keys() == {"constant", "detached", "itself", "broken"}
    assert by_name["constant"].severity == by_name["detached"].severity == "error"
    assert by_name["itself"].severity == "warning" and "exactly zero" in by_name["itself"].message
    assert "is nan" in by_name["broken"].message
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None for weight in student.parameters())
    assert all(torch.equal(b, a) for b, a in zip(buffers, bank.buffers(), strict=True))
    assert all(torch.equal(before[name], weight) for name, weight in student.state_dict().items())


def test_influence_leaves_existing_gradients_and_notices_frozen_students():
    student = model()
    for weight in student.parameters():
        weight.grad = torch.ones_like(weight)

    def terms(batch):
        return {"hard": student(**batch).loss}

    assert check_influence(terms, {"hard": 1.0}, student, BATCH) == []
    assert all(bool((weight.grad == 1).all()) for weight in student.parameters())
    student.requires_grad_(False)
    assert "no parameter" in check_influence(terms, {"hard": 1.0}, student, BATCH)[0].message


def test_weights():
    assert check_weights({"hard": 0.5, "soft": 1}) == []
    one = check_weights({"hard": 0.5, "soft": 0.0})
    assert [problem.severity for problem in one] == ["warning"]
    assert "nothing is learned" in words_of(check_weights({"hard": 0.0}))
    assert errors_of(check_weights({"hard": float("nan")}))


# ---- output and list ----


def test_output_folder(tmp_path):
    assert check_output(tmp_path / "new" / "run") == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert "is a file" in check_output(tmp_path / "file" / "run")[0].message
    assert "cannot be written" in check_output("/proc/limbeck/run")[0].message


def test_list_shows_errors_first_each_with_its_fix():
    found = [Problem("odd [thing]", "look at it", "warning"), Problem("wrong", "mend it")]
    text = io.StringIO()
    show(found, Console(file=text, width=80))
    lines = [line.strip() for line in text.getvalue().splitlines()]
    assert lines == [
        "pre-flight: 1 error, 1 warning",
        "error  wrong",
        "fix: mend it",
        "warning  odd [thing]",
        "fix: look at it",
    ]
    assert "nothing to report" in str(render([]))


# ---- the whole ----


def arguments(task: Task = SST2, **changes):
    student = model()
    settings = {
        "task": task,
        "rows": {"train": rows(), "dev": rows(20)},
        "student": student,
        "tokenizer": tokenizer(),
        "max_length": 8,
        "teacher": TeacherSide(knowing_teacher(), tokenizer()),
        "method": Method(
            weights={"hard": 1.0},
            requests={"teacher": Request.hidden([2]), "student": Request.of_logits()},
            terms=lambda batch: {"hard": student(**batch).loss},
            batch=BATCH,
        ),
    }
    return settings | changes


def test_nothing_wrong(tmp_path):
    assert check(**arguments(), out=tmp_path / "run") == []
    assert check(**arguments(teacher=None)) == []


def test_everything_wrong_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    found = check(
        **arguments(
            rows={"train": rows(4, index=[0, 0, 1, 2])},
            teacher=TeacherSide(
                model(id2label={0: "positive", 1: "negative"}), tokenizer(WORDS[::-1])
            ),
            method=Method(weights={"hard": 0.0}, requests={"teacher": Request.hidden([9])}),
            max_length=99,
        ),
        out=tmp_path / "file",
    )
    text = words_of(found)
    for words in (
        "is a file",
        "no 'dev' split",
        "another order",
        "layer 9",
        "beyond",
        "weight is 0",
    ):
        assert words in text, words


def test_unnamed_classes_are_settled_by_the_teachers_answers():
    unnamed = {"id2label": {0: "LABEL_0", 1: "LABEL_1"}}
    right = TeacherSide(knowing_teacher(**unnamed), tokenizer())
    assert check(**arguments(teacher=right)) == []
    swapped = TeacherSide(knowing_teacher(swapped=True, **unnamed), tokenizer())
    assert "class 0 means 'positive'" in words_of(check(**arguments(teacher=swapped)))
    ignorant = model(**unnamed)
    nn.init.zeros_(ignorant.classifier.weight)
    found = words_of(check(**arguments(teacher=TeacherSide(ignorant, tokenizer()))))
    assert "no better than" in found and "have no names" in found


def test_a_bad_record_is_believed(tmp_path):
    record = {"schema": 1, "task": "sst2", "scores": {"dev": {"primary": 50.0}}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    teacher = TeacherSide(knowing_teacher(), tokenizer(), tmp_path)
    assert "50.0 (recorded in" in words_of(check(**arguments(teacher=teacher)))


def test_cut_examples_and_other_tokenizers_are_in_the_list():
    found = check(**arguments(), truncated={"train": 3})
    assert "train: 3 of 40 examples" in words_of(found)
    other = TeacherSide(knowing_teacher(), tokenizer(WORDS[::-1]))
    assert "different vocabularies" in words_of(check(**arguments(teacher=other)))
