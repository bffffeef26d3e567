"""Runs that learn from stored outputs: no teacher is loaded, and the student is what a live one makes of it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tiny_runs as tiny
from limbeck import label
from limbeck.data import load_task
from limbeck.recipe import Recipe
from limbeck.records.words import rows_said
from limbeck.run import distill
from limbeck.run.check import warn_of_none_counted
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError

CLASSES = ("negative", "positive")


def logits_of(model, texts: list[str]) -> torch.Tensor:
    """One by one, as Hugging Face has them."""
    tokens = tiny.tokenizer()
    with torch.no_grad():
        return torch.cat(
            [model.eval()(**tokens(text, return_tensors="pt")).logits for text in texts]
        )


def write(path: Path, texts, values, what="logits", classes=CLASSES) -> Path:
    rows = [
        {"review": text, what: dict(zip(classes, row, strict=True))}
        for text, row in zip(texts, values.tolist(), strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


TEXTS = sorted(set(tiny.sentences(60)))
MORE = [f"good plot and the {word} {other}" for word in tiny.WORDS for other in tiny.WORDS]


@pytest.fixture(scope="module")
def outputs(place) -> dict[str, Path]:
    """Of a teacher of 4 layers, of another one, and its probabilities with the classes turned round."""
    model = tiny.knowing_teacher(4)
    found = logits_of(model, TEXTS)
    turned = found.double().softmax(-1).flip(1)
    return {
        "one": write(place / "one.jsonl", TEXTS, found),
        "two": write(place / "two.jsonl", TEXTS, logits_of(tiny.knowing_teacher(6), TEXTS)),
        "shares": write(
            place / "shares.jsonl", TEXTS, turned, "probabilities", tuple(reversed(CLASSES))
        ),
    }


@pytest.fixture(scope="module")
def from_outputs(recipe, outputs):
    """`from_outputs("kd-soft", "one", seed=4)`."""

    def make(method="kd-soft", *names, **changes) -> Recipe:
        given = [str(outputs[name]) for name in names or ("one",)]
        return recipe(method, **({"teacher": None, "outputs": given} | changes))

    return make


def train(recipe, folder: Path):
    return distill(recipe, out=folder, report=False)


def weights(run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "student" / "model.safetensors")


@pytest.fixture(scope="module")
def live(recipe, tmp_path_factory):
    return train(recipe("kd-soft"), tmp_path_factory.mktemp("live") / "run")


@pytest.fixture(scope="module")
def from_one(from_outputs, tmp_path_factory):
    """A run that would fail if it loaded a teacher's model."""

    def refuse(*args, **kwargs):
        raise AssertionError("a teacher's model was loaded")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("limbeck.students"), "load_model", refuse)
        return train(from_outputs(), tmp_path_factory.mktemp("from-one") / "run")


@pytest.mark.parametrize("name", ["one", "shares"])
def test_the_student_is_the_one_that_the_live_teacher_makes(
    from_outputs, from_one, live, tmp_path, name
):
    run = from_one if name == "one" else train(from_outputs("kd-soft", name), tmp_path / "run")
    expected = weights(live)
    for key, found in weights(run).items():
        torch.testing.assert_close(found, expected[key], atol=2e-4, rtol=2e-3)
    assert run.record.scores == live.record.scores


def test_no_model_is_loaded_and_the_record_says_what_taught(from_one):
    run = from_one
    (facts,) = run.record.outputs
    assert facts.path.endswith("one.jsonl") and facts.what == "logits"
    assert facts.about["classes"] == [*CLASSES] and len(facts.about["checksum"]) > 8
    assert facts.scores["dev"]["accuracy"] == 100.0
    assert run.record.teacher is None
    assert run.record.cost.teacher_flops == 0
    assert run.record.stages[0].teacher.endswith("one.jsonl")


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(from_outputs, tmp_path, monkeypatch):
    recipe = from_outputs("llkd", checkpoint_steps=3)
    whole = train(recipe, tmp_path / "whole")
    module = import_module("limbeck.run.train")
    original = module.DistillationTrainer

    def killed(*args, callbacks=(), **kwargs):
        return original(*args, callbacks=[*callbacks, tiny.Kill("step_begin", 9)], **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, "DistillationTrainer", killed)
        with pytest.raises(tiny.KilledError):
            train(recipe, tmp_path / "run")
    again = train(recipe, tmp_path / "run")
    assert all(torch.equal(found, weights(whole)[key]) for key, found in weights(again).items())
    assert [epoch.train for epoch in again.record.epochs] == [
        epoch.train for epoch in whole.record.epochs
    ]


def test_examples_that_count_are_logged_and_recorded(from_outputs, outputs, place, tmp_path):
    sure = torch.tensor([0.9 if row % 4 else 0.6 for row in range(len(TEXTS))])
    right = torch.tensor([[text.startswith("bad"), text.startswith("good")] for text in TEXTS])
    shares = torch.where(right, sure[:, None], 1 - sure[:, None])
    path = write(tmp_path / "unsure.jsonl", TEXTS, shares, "probabilities")
    recipe = from_outputs("kd-soft", outputs=[str(path)], min_confidence=0.8, epochs=1)
    run = train(recipe, tmp_path / "run")
    trained = load_task(
        "reviews", place / "reviews.csv", text_columns=["review"], label_column="verdict"
    )
    unsure = {text for text, p in zip(TEXTS, sure.tolist(), strict=True) if p < 0.8}
    texts = trained[1]["train"]["sentence"][:]
    expected = 1 - sum(text in unsure for text in texts) / len(texts)
    # The last batch is smaller, and the mean is over steps.
    assert run.record.epochs[0].train["counted"] == pytest.approx(expected, abs=0.05)


# ---- several stores ----


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("wkd-uniform", {}),
        pytest.param("mt-bert", {}, marks=pytest.mark.slow),
        pytest.param("skd-uniform", {}, marks=pytest.mark.slow),
        pytest.param("wkd-teacher-rank", {}, marks=pytest.mark.slow),
        pytest.param("wkd-student-rank", {"team.student_epochs": 1}, marks=pytest.mark.slow),
        pytest.param("skd-adaptive", {"team.holdout": 8, "team.block": 2}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_several_outputs_are_a_team_as_live_teachers_are(
    recipe, from_outputs, place, tmp_path, method, more
):
    if not (place / "sixth").exists():
        tiny.save(tiny.knowing_teacher(6), place / "sixth")
    teachers = [str(place / "teacher"), str(place / "sixth")]
    changes = {"epochs": 1, **more}
    expected = train(recipe(method, teacher=None, teachers=teachers, **changes), tmp_path / "live")
    run = train(from_outputs(method, "one", "two", **changes), tmp_path / "run")
    for key, found in weights(run).items():
        torch.testing.assert_close(found, weights(expected)[key], atol=2e-4, rtol=2e-3)
    theirs = [
        (member.share, member.score, member.sampled) for member in expected.record.team.members
    ]
    assert [(m.share, m.score, m.sampled) for m in run.record.team.members] == theirs
    assert [member.name for member in run.record.team.members] == ["one.jsonl", "two.jsonl"]


# ---- rows without outputs ----


def test_rows_without_outputs_are_an_error_with_their_number_or_left_out(
    from_outputs, outputs, place, tmp_path, capsys
):
    lines = outputs["one"].read_text().splitlines(keepends=True)
    path = tmp_path / "half.jsonl"
    path.write_text("".join(lines[::2]))
    kept = {json.loads(line)["review"] for line in lines[::2]}
    recipe = from_outputs("kd-soft", outputs=[str(path)], epochs=1)
    own = {"text_columns": ["review"], "label_column": "verdict"}
    texts = load_task("reviews", place / "reviews.csv", **own)[1]["train"]["sentence"][:]
    missing = sum(text not in kept for text in texts)
    assert missing > 0
    with pytest.raises(
        LimbeckError, match=f"nothing of {missing} of {len(texts)} training rows, .* '"
    ):
        train(recipe, tmp_path / "run")
    some = recipe.model_copy(update={"missing_outputs": "drop"})
    capsys.readouterr()
    run = distill(some, tmp_path / "run", show=True, report=False)
    said = " ".join(capsys.readouterr().err.split())
    assert f"missing_outputs: {missing} of {len(texts)} training rows are left out" in said
    assert f"{missing} without stored outputs: left out" in rows_said(run.record.examples)
    assert run.record.examples.without_outputs == missing
    assert run.record.examples.train == len(texts) - missing
    assert run.record.outputs[0].scores == {}  # of dev rows it knows some alone


@pytest.fixture
def half(outputs, tmp_path) -> Path:
    """Outputs of every second text."""
    path = tmp_path / "half.jsonl"
    path.write_text("".join(outputs["one"].read_text().splitlines(keepends=True)[::2]))
    return path


def first_stage_of(recipe):
    return prepare(recipe).stages[0]


SOFT = {"objectives": {"soft": {"compare": "soft_kl"}}, "epochs": 1}


@pytest.mark.slow
def test_rows_of_a_first_stage_without_outputs_are_left_out_as_the_runs_are(
    from_outputs, half, tmp_path, capsys
):
    first = SOFT | {"train_rows": 30}
    recipe = from_outputs("kd-soft", outputs=[str(half)], epochs=1, first_stage=first)
    everyone = from_outputs("kd-soft", epochs=1, first_stage=first)
    drawn = first_stage_of(everyone).rows.raw["sentence"][:]
    known = [text for text in drawn if json.dumps(text) in half.read_text()]
    assert len(drawn) == 30 and 0 < len(known) < 30
    dropping = recipe.model_copy(update={"missing_outputs": "drop"})
    assert first_stage_of(dropping).rows.raw["sentence"][:] == known
    run = distill(dropping, tmp_path / "run", show=True, report=False)
    said = " ".join(capsys.readouterr().err.split())
    assert (
        f"first_stage: missing_outputs: {30 - len(known)} of 30 training rows are left out" in said
    )
    stage = run.record.stages[0]
    assert (stage.rows, stage.without_outputs) == (len(known), 30 - len(known))


@pytest.mark.parametrize("own", [{}, {"train_rows": 30}])
def test_a_model_that_gives_its_layers_teaches_nothing_in_a_first_stage_either(
    from_outputs, place, own
):
    start = {"teacher": str(place / "teacher"), "student.init": "teacher", "student.layers": 2}
    recipe = from_outputs("kd-soft", **start, first_stage=SOFT | own)
    first, last = prepare(recipe).stages
    assert not first.own and [one.path for one in first.readers] == recipe.outputs
    assert [one.path for one in last.readers] == recipe.outputs


def test_a_first_stage_that_looks_at_no_teacher_trains_on_rows_without_outputs(from_outputs, half):
    first = {"objectives": {"hard": {"compare": "hard_label"}}, "train_rows": 30}
    changes = {"outputs": [str(half)], "missing_outputs": "drop", "first_stage": first}
    assert len(first_stage_of(from_outputs("kd-soft", **changes)).rows.encoded) == 30


@pytest.mark.slow
def test_another_tasks_rows_are_looked_up_in_the_outputs(from_outputs, place, tmp_path):
    lines = [f"{text},{'ab'[row % 2]}" for row, text in enumerate(MORE)]
    (tmp_path / "other.csv").write_text("\n".join(["title,kind", *lines]) + "\n")
    first = SOFT | {"task": "titles", "data": str(tmp_path / "other.csv")}
    first |= {"text_columns": ["title"], "label_column": "kind"}
    for missing in ("error", "drop"):
        with pytest.raises(LimbeckError, match=r"^first_stage: .*of \d+ training rows") as none:
            train(
                from_outputs("kd-soft", first_stage=first, missing_outputs=missing),
                tmp_path / "run",
            )
        (problem,) = none.value.problems
        assert "first_stage.teacher=DIR" in problem.fix and "=drop" not in problem.fix
    known = [*TEXTS, *MORE]
    path = write(tmp_path / "all.jsonl", known, logits_of(tiny.knowing_teacher(4), known))
    stage = first_stage_of(from_outputs("kd-soft", outputs=[str(path)], first_stage=first))
    assert {*stage.rows.raw["sentence"]} <= {*MORE}
    own = {"first_stage": first | {"teacher": str(place / "teacher")}, "epochs": 1}
    run = train(from_outputs("kd-soft", **own), tmp_path / "own")
    assert [facts.teacher.rpartition("/")[2] for facts in run.record.stages] == [
        "teacher",
        "one.jsonl",
    ]


def test_no_outputs_are_of_pairs_that_the_run_makes_of_a_corpus(from_outputs, place, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(MORE))
    first = SOFT | {"corpus": {"source": str(tmp_path / "corpus.txt"), "size": 8}}
    with pytest.raises(LimbeckError, match=r"first_stage\.corpus, outputs: the pairs are made"):
        from_outputs("kd-soft", first_stage=first)
    own = first | {"teacher": str(place / "teacher")}
    stage = first_stage_of(from_outputs("kd-soft", first_stage=own))
    assert len(stage.rows.encoded) == 8


# ---- what is refused, before anything is trained ----


def wrong_labels(path: Path) -> Path:
    values = logits_of(tiny.knowing_teacher(4), TEXTS).flip(1)
    return write(path, TEXTS, values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "rail-kd-l"}, r"normalized_mse compares layers, and .*one\.jsonl holds logits"),
        ({"method": "logit-mse", "name": "shares"}, "logits themselves, and of probabilities"),
        ({"teachers": ["a"], "teacher": None}, "teachers, outputs: both set the teachers"),
        ({"names": ("one", "two")}, "outputs: 2 are given, and kd-soft learns from one"),
        ({"method": "takd", "names": ("one", "two")}, "takes their models"),
        ({"student.init": "teacher"}, "stored outputs have no layers"),
        ({"mixup.alpha": 1}, "cannot serve|stored"),
        ({"teacher_dropout": True}, "teacher_dropout: has an effect only with a model"),
        (
            {"augment.replace_by": "nearest", "augment.embeddings": "words.txt"},
            "^augment, outputs: .* augmented examples, which have no stored outputs.*\n.*give the teacher",
        ),
        (
            {"augment.model": "language", "missing_outputs": "drop"},
            "^augment, outputs: .* augmented examples, which have no stored outputs.*\n.*give the teacher",
        ),
        ({"teacher": "one"}, "the teacher is not used"),
        ({"method": "finetune"}, "no term of finetune learns from a teacher"),
    ],
)
def test_what_outputs_cannot_do_is_said(from_outputs, tmp_path, no_training, changes, words):
    changes = dict(changes)
    method = changes.pop("method", "kd-soft")
    names = changes.pop("names", (changes.pop("name", "one"),))
    with pytest.raises(LimbeckError, match=words):
        train(from_outputs(method, *names, **changes), tmp_path / "run")


def test_other_classes_and_another_order_than_the_labels_are_errors(
    from_outputs, tmp_path, no_training
):
    values = np.zeros((len(TEXTS), 2))
    other = write(tmp_path / "other.jsonl", TEXTS, values, classes=("no", "yes"))
    words = r"(?s)other\.jsonl holds the classes no, yes; the data's are negative, positive"
    with pytest.raises(LimbeckError, match=words):
        train(from_outputs("kd-soft", outputs=[str(other)]), tmp_path / "run")
    turned = wrong_labels(tmp_path / "turned.jsonl")
    words = r"(?s)turned\.jsonl: its classes are in another order than the data's.*names of these outputs"
    with pytest.raises(LimbeckError, match=words):
        train(from_outputs("kd-soft", outputs=[str(turned)]), tmp_path / "run")


def test_a_run_in_which_nothing_counted_says_so(caplog):
    """Of a live teacher nobody knows it beforehand."""
    for counted in (0.0, 0.1, None):
        warn_of_none_counted([{"train": {"loss": 0.1, "counted": counted}}])
    (said,) = caplog.messages
    assert said.startswith("no example counted")


def test_outputs_that_do_not_exist_are_not_called_a_store(from_outputs, tmp_path, no_training):
    with pytest.raises(LimbeckError, match=r"none\.csv does not exist"):
        train(from_outputs("kd-soft", outputs=[str(tmp_path / "none.csv")]), tmp_path / "run")


def test_settings_of_outputs_without_outputs_are_refused(recipe):
    with pytest.raises(LimbeckError, match="missing_outputs: has an effect only with outputs"):
        recipe("kd-soft", missing_outputs="drop")


# ---- a store that limbeck label made ----


@pytest.mark.slow
def test_a_store_that_was_labelled_teaches_as_the_model_that_labelled(
    recipe, live, place, tmp_path
):
    label(place / "teacher", place / "reviews.csv", text_columns=["review"], out=tmp_path / "store")
    given = recipe("kd-soft", teacher=None, outputs=str(tmp_path / "store"))
    run = train(given, tmp_path / "run")
    for key, found in weights(run).items():
        torch.testing.assert_close(found, weights(live)[key], atol=2e-4, rtol=2e-3)
    (facts,) = run.record.outputs
    assert facts.about["teacher"] and facts.about["fingerprint"] and facts.about["rows"]
    # The same store again is the same run; another one is not.
    assert train(given, tmp_path / "run").record == run.record


def test_a_store_is_given_as_label_returned_it(place, tmp_path):
    columns = {"text_columns": "review"}
    store = label(place / "teacher", place / "reviews.csv", **columns, out=tmp_path / "store")
    settings = {
        "student": str(place / "start"), "task": "reviews", "data": str(place / "reviews.csv"),
        "label_column": "verdict", "max_length": 24, "max_steps": 1, "report": False, **columns,
    }  # fmt: skip
    run = distill("kd-soft", tmp_path / "run", outputs=store, **settings)
    assert run.record.recipe["outputs"] == [str(tmp_path / "store")]
    again = distill("kd-soft", tmp_path / "run", outputs=[store], **settings)
    assert again.record == run.record


@pytest.mark.slow
def test_rows_without_labels_are_what_outputs_are_for(from_outputs, place, tmp_path):
    more = tmp_path / "more.jsonl"
    texts = ["good good end", "bad slow slow slow end", "good plot the end", "bad bad bad"]
    more.write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    logits = logits_of(tiny.knowing_teacher(4), [*TEXTS, *texts])
    path = write(tmp_path / "all.jsonl", [*TEXTS, *texts], logits)
    recipe = from_outputs(
        "pseudo-label",
        outputs=[str(path)],
        unlabelled=[str(more)],
        max_steps=1,
        min_confidence=0.5001,
    )
    run = train(recipe, tmp_path / "run")
    assert run.record.examples.unlabelled == 4
    # Of half of them nothing is known.
    half = write(tmp_path / "half.jsonl", [*TEXTS, *texts[:2]], logits[:-2])
    changes = {"outputs": [str(half)], "missing_outputs": "drop"}
    run = train(recipe.model_copy(update=changes), tmp_path / "dropped")
    assert (run.record.examples.unlabelled, run.record.examples.without_outputs) == (2, 2)


@pytest.mark.parametrize(
    ("method", "known", "changes", "said"),
    [
        (
            "kd",
            "more",
            {},
            r"objectives\.hard: it learns from labels, and no training row has one\n.*kd-soft",
        ),
        (
            "kd-soft",
            "more",
            {"labelled_share": 0.25},
            "labelled_share: 0.25, and no training rows have",
        ),
        (
            "kd-soft",
            "own",
            {"labelled_share": 0.25},
            "labelled_share: 0.25, and all training rows have",
        ),
    ],
)
def test_rows_that_are_left_must_be_those_that_terms_and_batches_need(
    from_outputs, tmp_path, method, known, changes, said
):
    more = [f"good plot number {number}" for number in range(8)]
    path = tmp_path / "more.jsonl"
    path.write_text("".join(json.dumps({"review": text}) + "\n" for text in more))
    texts = {"more": more, "own": TEXTS}[known]
    found = write(tmp_path / "known.jsonl", texts, logits_of(tiny.knowing_teacher(4), texts))
    given = {"outputs": [str(found)], "missing_outputs": "drop", "unlabelled": [str(path)]}
    with pytest.raises(LimbeckError, match=said):
        train(from_outputs(method, **given, batch_size=8, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
