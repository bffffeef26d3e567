"""Students that generate: rows, labels, scores and whole runs, against transformers' own loss."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import kind_models as tiny
import tiny_runs
from limbeck.activations import Request, capture
from limbeck.data import Collator, encode, load_task
from limbeck.data.splits import make_split
from limbeck.evaluation.model_outputs import compact_outputs_of
from limbeck.objectives import ModelShape, Shape
from limbeck.objectives.predictions import LogitMse, LogitMseSpec
from limbeck.preflight.data_checks import check_truncation
from limbeck.preflight.model_checks import check_direction
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.begin import new_record
from limbeck.run.prepare import prepare
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import CAUSAL_LM, ScoredSplit, Task
from tiny_language_models import language_model

SENTENCES = ["ann saw rome .", "annabelle lee saw the cat .", "the cat saw lee in rome .",
             "lee and ann saw rome .", "in rome the cat saw annabelle ."]  # fmt: skip
WORDS = ["<pad>", "<unk>", "</s>", "<user>", "<model>", "ann", "lee", "saw", "the", "cat", "in", "rome", ".", "who",
         "?"]  # fmt: skip
ID = {word: number for number, word in enumerate(WORDS)}
TEXT = Task(
    "m",
    "m",
    ("text",),
    (),
    ("accuracy", "perplexity"),
    "accuracy",
    label_column="text",
    kind=CAUSAL_LM,
)
ASKED = Task("m", "m", ("prompt", "answer"), (), ("accuracy", "perplexity"), "accuracy", label_column="answer",
             kind=CAUSAL_LM)  # fmt: skip
CHAT = (
    "{% for turn in messages %}{% if turn['role'] == 'user' %}<user> {{ turn['content'] }} {% else %}"
    "<model> {{ turn['content'] }} </s>{% endif %}{% endfor %}{% if add_generation_prompt %}<model> {% endif %}"
)
LAYER = "model.layers.{}.mlp.up_proj.weight"
TEXTS = ["ann saw the cat in rome .", "lee saw rome .", "the cat saw lee and ann in rome ."]


def tokenizer(side: str = "right", chat: str | None = None) -> hf.PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel(ID, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", padding_side=side,
        chat_template=chat, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def ids(text: str) -> list[int]:
    return [ID.get(word, 1) for word in text.split()]


def texts_encoded(length: int = 16, rows=TEXTS):
    rows = make_split(TEXT, {"text": list(rows)}, None)
    return encode(rows, TEXT, tokenizer(), length)


def answers_encoded(chat: str | None, length: int = 16):
    rows = make_split(ASKED, {"prompt": ["who saw rome ?"], "answer": ["ann ."]}, None)
    return encode(rows, ASKED, tokenizer(chat=chat), length)


def test_all_tokens_of_a_text_and_its_end_are_labels():
    encoded, cut = texts_encoded()
    for text, row in zip(TEXTS, encoded, strict=True):
        assert row["input_ids"] == row["labels"] == [*ids(text), ID["</s>"]]
    assert cut == 0
    shorter, cut = texts_encoded(4)
    assert cut == 2
    assert shorter["input_ids"][0] == ids("ann saw the cat")
    exact, cut = texts_encoded(7, TEXTS[:1])
    assert (exact["input_ids"][0], cut) == (ids(TEXTS[0]), 0)


def test_a_truncated_text_has_no_end_where_the_tokenizer_writes_it_either():
    words = tokenizer()
    end = ("</s>", ID["</s>"])
    words.backend_tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [end])
    rows = make_split(TEXT, {"text": TEXTS}, None)
    encoded, cut = encode(rows, TEXT, words, 6)
    assert cut == 2
    assert [row["labels"] for row in encoded] == [
        ids("ann saw the cat in"), ids("lee saw rome . </s>"), ids("the cat saw lee and"),
    ]  # fmt: skip


@pytest.mark.parametrize(("chat", "prompt", "answer"), [
    (None, "who saw rome ?", "ann . </s>"), (CHAT, "<user> who saw rome ? <model>", "ann . </s>"),
])  # fmt: skip
def test_of_a_prompt_and_its_answer_the_answer_alone_is_learned(chat, prompt, answer):
    (row,), cut = answers_encoded(chat)
    assert (row["input_ids"], cut) == (ids(prompt) + ids(answer), 0)
    assert row["labels"] == [-100] * len(ids(prompt)) + ids(answer)
    (row,), cut = answers_encoded(chat, 3)
    assert (row["labels"], cut) == ([-100] * 3, 1)


@pytest.mark.parametrize("chat", [None, CHAT])
def test_preflight_names_the_length_that_truncates_nothing(chat):
    """The chat template's tokens and the end count."""
    words = tokenizer(chat=chat)
    rows = make_split(ASKED, {"prompt": ["who saw rome ?"], "answer": ["ann ."]}, None)
    (said,) = check_truncation(ASKED, {"train": rows}, {"train": 1}, words, 5)
    longest = len(answers_encoded(chat, 99)[0][0]["input_ids"])
    assert f"longest has {longest} tokens" in said.message
    assert answers_encoded(chat, longest)[1] == 0
    assert answers_encoded(chat, longest - 1)[1] == 1


def test_a_chat_template_that_rewrites_the_prompt_is_refused():
    with pytest.raises(LimbeckError, match="does not begin with its prompt"):
        answers_encoded("{{ messages | length }}")


def test_few_texts_are_scored_at_once(monkeypatch, settings, teachers, tmp_path):
    sizes, whole = [], CAUSAL_LM.compact_outputs

    def watched(model, batch, logits):
        sizes.append(len(logits))
        return whole(model, batch, logits)

    monkeypatch.setattr(CAUSAL_LM, "compact_outputs", watched)
    encoded, _ = texts_encoded(rows=TEXTS * 6)
    compact_outputs_of(tiny.model("causal-lm"), encoded, Collator(tokenizer(), kind=CAUSAL_LM))
    assert sizes == [8, 8, 2]
    given = settings("causal-lm", epochs=1, teacher=str(teachers["causal-lm"].path), batch_size=2)
    distill(Recipe.load("kd", **given), out=tmp_path / "run", report=False)
    assert max(sizes) == 8


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_batch_has_the_loss_of_each_text_by_itself(side):
    """Transformers' own loss of each text is the judge; nothing is predicted at padding."""
    model, encoded = tiny.model("causal-lm"), texts_encoded()[0]
    batch = Collator(tokenizer(side), kind=CAUSAL_LM)(list(encoded))
    logits = capture(model, batch, Request.of_logits()).logits
    alone, right = [], []
    for row in encoded:
        given = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            out = model(input_ids=given, labels=given)
        alone.append(out.loss.item())
        right.append((out.logits[0, :-1].argmax(-1) == given[0, 1:]).sum().item())
    assert CAUSAL_LM.hard_label(logits, batch).item() == pytest.approx(np.mean(alone), rel=1e-5)
    kept = CAUSAL_LM.compact_outputs(model, batch, logits).detach().numpy()
    counts = np.array([len(row["input_ids"]) - 1 for row in encoded])
    rows = make_split(TEXT, {"text": TEXTS}, None)
    results = CAUSAL_LM.results(TEXT, kept, ScoredSplit(encoded, rows, tokenizer()))
    assert results.scores["perplexity"] == pytest.approx(
        math.exp((counts * alone).sum() / counts.sum()), rel=1e-5
    )
    assert results.scores["accuracy"] == pytest.approx(100 * sum(right) / counts.sum())
    assert results.predictions["label"] == counts.tolist()


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_squared_errors_of_logits_by_a_loop(side, centered):
    """Each text by itself: its tokens but the last, which predicts nothing."""
    encoded = texts_encoded()[0]
    models_of = tiny.model("causal-lm"), tiny.model("causal-lm", seed=1)
    expected = []
    for row in encoded:
        given = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            ours, theirs = (one(input_ids=given).logits[0, :-1].tolist() for one in models_of)
        errors = []
        for own, other in zip(ours, theirs, strict=True):
            shift = (sum(own) - sum(other)) / len(own) if centered else 0.0
            errors.append(
                sum((a - b - shift) ** 2 for a, b in zip(own, other, strict=True)) / len(own)
            )
        expected.append(sum(errors) / len(errors))
    batch = Collator(tokenizer(side), kind=CAUSAL_LM)(list(encoded))
    settings = LogitMseSpec(compare="logit_mse", centered=centered)
    shape = Shape(*map(ModelShape.of, models_of), kind=CAUSAL_LM)
    term = LogitMse(settings, shape, "objectives.soft")
    traces = [capture(one, batch, Request.of_logits()) for one in models_of]
    found = term(*traces, batch, StepState(seed=0, step=0, progress=0.0))
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_rows_of_which_no_answer_fits_have_no_score():
    with pytest.raises(LimbeckError, match="raise max_length"):
        CAUSAL_LM.results(TEXT, np.zeros((2, 3)), ScoredSplit(None, None, None))


def test_files_of_texts_and_of_prompts_with_answers(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS * 20))
    asked = [{"prompt": f"who {n} ?", "answer": f"ann {n}", "text": "x"} for n in range(60)]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, asked)))
    for name, columns, texts in (
        ("a.txt", None, ("text",)),
        ("b.jsonl", None, ("prompt", "answer")),
        ("b.jsonl", ["text"], ("text",)),
        ("b.jsonl", ["prompt", "text"], ("prompt", "answer")),
    ):
        task, splits = load_task(None, tmp_path / name, kind="causal-lm", text_columns=columns)
        assert (task.text_columns, task.label_column) == (texts, texts[-1])
        assert (task.metrics, task.primary) == (("accuracy", "perplexity"), "accuracy")
        assert {*splits["train"].column_names} >= {*texts}
    assert splits["train"]["answer"][0] == "x"
    with pytest.raises(LimbeckError, match="its own label"):
        load_task(None, tmp_path / "b.jsonl", kind="causal-lm", label_column="answer")


def test_a_killed_run_ends_as_an_unbroken_one_and_its_student_generates(
    settings, teachers, tmp_path
):
    given = settings(
        "causal-lm", epochs=2, teacher=str(teachers["causal-lm"].path), checkpoint_steps=2,
        **{"student.init": "teacher", "student.layers": 2},
    )  # fmt: skip
    recipe = Recipe.load("kd", **given)
    straight = distill(recipe, out=tmp_path / "straight", report=False)
    resumed = tiny_runs.continued(recipe, tmp_path / "killed", 7)
    weights = [load_file(run.path / "student" / "model.safetensors") for run in (straight, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert resumed.scores == straight.scores
    assert resumed.record.epochs[0].train.keys() == {"loss", "hard", "soft"}
    student = hf.AutoModelForCausalLM.from_pretrained(resumed.path / "student").eval()
    words = hf.AutoTokenizer.from_pretrained(resumed.path / "student")
    assert type(student) is hf.LlamaForCausalLM
    assert student.config.num_hidden_layers == 2
    assert words.model_max_length > 24  # it may write on
    asked = words("ann", return_tensors="pt", add_special_tokens=False)
    assert student.generate(**asked, max_new_tokens=5).shape[1] > 1
    again, dev = evaluate(resumed.path), resumed.scores["dev"]
    assert again == pytest.approx({name: dev[name] for name in again})
    beside = beside_by_a_loop(student, teachers["causal-lm"].student, tiny.tokenizer())
    assert (dev["teacher_agreement"], dev["teacher_kl"]) == pytest.approx(beside, rel=1e-3)


MIXTURES = {
    "soft_kl": {},
    "generalized_jsd": {"objectives.soft.beta": 0.9},
    "skewed_kl": {"objectives.soft.reverse": True},
}


@pytest.mark.parametrize("compare", MIXTURES)
def test_stored_outputs_of_some_tokens_teach_as_live_ones(compare, settings, teachers, tmp_path):
    own = {"objectives.soft.compare": compare, "objectives.soft.temperature": 2.0} | MIXTURES[
        compare
    ]
    given = settings(
        "causal-lm", epochs=1, teacher=str(teachers["causal-lm"].path),
        **{"student.init": "teacher", "student.layers": 2, "objectives.soft.tokens": "top4"}, **own,
    )  # fmt: skip
    runs = {
        mode: distill(
            Recipe.load("kd-soft", **given, cache=mode), out=tmp_path / mode, report=False
        )
        for mode in ("always", "never")
    }
    assert runs["always"].record.execution.teacher_outputs == {"1": "stored"}
    weights = [load_file(run.path / "student" / "model.safetensors") for run in runs.values()]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("compare", [*MIXTURES][1:])
def test_a_mixture_with_sampled_tokens_is_refused(compare, settings, teachers, tmp_path):
    given = settings("causal-lm", teacher=str(teachers["causal-lm"].path))
    student = {"student.init": "teacher", "student.layers": 2}
    own = {"objectives.soft.compare": compare, "objectives.soft.tokens": "sample8"}
    recipe = Recipe.load("kd-soft", **(given | student | own | MIXTURES[compare]))
    with pytest.raises(LimbeckError, match=rf"{compare} needs the teacher's probability") as caught:
        distill(recipe, out=tmp_path / "run", report=False)
    assert "objectives.soft.tokens=top8" in str(caught.value)


def test_preflight_estimates_the_memory(settings, teachers, tmp_path, capsys):
    given = settings("causal-lm", teacher=str(teachers["causal-lm"].path), epochs=1)
    student = {"student.init": "teacher", "student.layers": 2}
    distill(Recipe.load("kd", **(given | student)), out=tmp_path / "run", report=False, show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(
        r"memory: about .* at the peak of training: .* for 8 texts of \d+ tokens", said
    )


@pytest.mark.parametrize("family", ["bert", "bert decoder", "llama", "gpt2", "qwen3", "mamba"])
def test_a_model_that_sees_later_tokens_is_no_language_model(family):
    if family.startswith("bert"):
        sizes = {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
        }
        model = hf.BertLMHeadModel(
            hf.BertConfig(vocab_size=len(ID), is_decoder=family == "bert decoder", **sizes)
        )
    else:
        model = language_model(family)
    model.train()
    found = check_direction("student", model)
    assert model.training
    assert [problem.severity for problem in found] == ["error"] * (family == "bert")
    assert all("sees the tokens that it has to predict" in problem.message for problem in found)


def test_a_run_of_an_encoder_is_refused(settings, tmp_path):
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "initializer_range": 0.5,  # with the usual 0.02 some draws hardly read the other tokens
    }
    config = hf.BertConfig(vocab_size=len(tiny.tokenizer()), **sizes)
    hf.BertModel(config).save_pretrained(tmp_path / "m")
    tiny.tokenizer().save_pretrained(tmp_path / "m")
    recipe = Recipe.load(
        "finetune", **settings("causal-lm", **{"student.init": str(tmp_path / "m")})
    )
    with pytest.raises(LimbeckError, match="a BertLMHeadModel sees the tokens"):
        distill(recipe, out=tmp_path / "run")


def test_layers_are_picked_by_importance_unless_the_recipe_says_otherwise(settings, teachers):
    given = settings(
        "causal-lm", teacher=str(teachers["causal-lm"].path),
        **{"student.init": "teacher", "student.layers": 1},
    )  # fmt: skip
    whole, picked = teachers["causal-lm"].student.state_dict(), []
    for own in ({}, {"student.pick": "importance"}, {"student.pick": "last"}):
        prepared = prepare(Recipe.load("kd", **given, **own))
        kept = prepared.student.model.layers[0].mlp.up_proj.weight
        layers = [
            number for number in (1, 2, 3) if torch.equal(kept, whole[LAYER.format(number - 1)])
        ]
        picked.append(layers)
        known = new_record(Recipe.load("kd", **given, **own), prepared).picked_layers
        assert known == (None if "last" in own.values() else {"main": layers})
    assert picked == [[1], [1], [3]]


def test_activations_that_are_computed_again_change_nothing(
    settings, teachers, tmp_path, monkeypatch
):
    given = settings(
        "causal-lm", epochs=1, teacher=str(teachers["causal-lm"].path), cache="never",
        **{"student.init": "teacher", "student.layers": 2},
    )  # fmt: skip
    passes, forward = [], hf.models.llama.modeling_llama.LlamaMLP.forward

    def counted(self, states):
        passes[-1] += 1
        return forward(self, states)

    monkeypatch.setattr(hf.models.llama.modeling_llama.LlamaMLP, "forward", counted)
    weights = []
    for again in (False, True):
        passes.append(0)
        recipe = Recipe.load("rail-kd-l", **given, activation_checkpointing=again)
        run = distill(recipe, out=tmp_path / str(again), report=False)
        weights.append(load_file(run.path / "student" / "model.safetensors"))
    assert passes[1] > passes[0]
    for name in weights[0]:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-5, atol=1e-7)


def beside_by_a_loop(student, teacher, words) -> tuple[float, float]:
    """Agreement and divergence of two models, text by text and token by token, in float64."""
    same, divergences = [], []
    for text in SENTENCES:
        given = words(text, return_tensors="pt")
        with torch.no_grad():
            ours, theirs = (
                side.eval()(**given).logits[0, :-1].double() for side in (student, teacher)
            )
        for own, other in zip(ours, theirs, strict=True):
            p, q = (side.exp() / side.exp().sum() for side in (other, own))
            same.append(int(own.argmax()) == int(other.argmax()))
            divergences.append(float((p * (p / q).log()).sum()))
    return 100 * sum(same) / len(same), 100 * sum(divergences) / len(divergences)
