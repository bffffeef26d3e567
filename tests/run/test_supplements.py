"""A first stage on other text, and runs on few or noisy rows: what is trained on, what is recorded."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import yaml

import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.records import Record
from limbeck.run import Result, distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.prepare import prepare
from limbeck.run.rows import load_rows
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError

# The package's attribute of that name is the function.
module = import_module("limbeck.run.distill")

HIDDEN = {"compare": "hidden_mse", "mapping": {"kind": "last-to-last"}}


def train(recipe, folder: Path, **settings) -> Result:
    return distill(recipe, out=folder, report=False, **settings)


@pytest.fixture
def two(recipe):
    """`two(corpus={...})`: a recipe whose first stage has these keys."""

    def make(**first):
        stage = {"objectives": {"hidden": HIDDEN}, "max_steps": 2} | first
        return recipe("kd-soft", first_stage=stage, max_steps=1)

    return make


@pytest.fixture
def other(tmp_path) -> dict:
    """Another task's file: its keys in a first stage. Three classes, where the target has two."""
    lines = ["text,kind"] + [f"{text},{'abc'[n % 3]}" for n, text in enumerate(tiny.sentences(30))]
    (tmp_path / "other.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = str(tmp_path / "other.csv")
    return {"data": data, "text_columns": ["text"], "label_column": "kind"}


@pytest.fixture
def corpus(tmp_path) -> dict:
    (tmp_path / "corpus.txt").write_text("\n".join(tiny.sentences(40)), encoding="utf-8")
    return {"source": str(tmp_path / "corpus.txt"), "size": 25, "max_tokens": 12, "seed": 2}


# ---- rows of the first stage ----


@pytest.mark.slow
def test_sentence_pairs_from_a_corpus(two, corpus, tmp_path):
    recipe = two(corpus=corpus)
    prepared = prepare(recipe)
    first = prepared.stages[0].rows
    assert len(first.encoded) == 25
    assert first.mean_tokens == pytest.approx(
        sum(len(ids) for ids in first.encoded["input_ids"]) / 25
    )
    assert max(len(ids) for ids in first.encoded["input_ids"]) <= 12
    assert "labels" not in first.encoded.column_names
    assert len(prepared.last.rows.encoded) == 54
    record = train(recipe, tmp_path / "run").record
    facts = record.stages[0]
    assert (facts.task, facts.data, facts.rows) == ("corpus", corpus["source"], 25)
    assert facts.tokens == pytest.approx(first.mean_tokens)
    assert record.recipe["first_stage"]["corpus"] == corpus | {
        "min_tokens": None,
        "pairs": "adjacent",
    }
    assert record.examples.train == 54


def test_another_tasks_text_without_its_labels(two, other, tmp_path):
    recipe = two(**other, train_rows=20)
    encoded = prepare(recipe).stages[0].rows.encoded
    # 30 rows, of which a tenth of each class is held out, then 20 drawn.
    assert (len(encoded), "labels" in encoded.column_names) == (20, False)
    facts = train(recipe, tmp_path / "run").record.stages[0]
    assert (facts.data, facts.rows, facts.steps) == (other["data"], 20, 2)


def test_fewer_rows_of_the_same_task_keep_their_labels(two):
    recipe = two(train_rows=20, objectives={"hard": {"compare": "hard_label"}})
    encoded = prepare(recipe).stages[0].rows.encoded
    assert (len(encoded), "labels" in encoded.column_names) == (20, True)


# ---- a teacher of its own ----


@pytest.mark.slow
def test_the_supplements_own_teacher(two, other, tmp_path):
    three = {"id2label": dict(enumerate("abc"))}
    place = tiny.save(tiny.bert(2, seed=5, **three), tmp_path / "other-teacher")
    recipe = two(**other, teacher=str(place))
    prepared = prepare(recipe)
    assert prepared.stages[0].teacher.config.num_labels == 3
    assert prepared.last.teacher.config.num_labels == 2
    record = train(recipe, tmp_path / "run").record
    assert [facts.teacher for facts in record.stages] == [str(place), recipe.teacher]
    soft = two(**other, teacher=str(place), objectives={"soft": {"compare": "soft_kl"}})
    with pytest.raises(LimbeckError, match=r"^first_stage\.objectives\.soft: .* 3 outputs, the"):
        train(soft, tmp_path / "soft")


@pytest.mark.slow
def test_a_run_may_have_a_teacher_in_its_first_stage_alone(two, recipe, place, tmp_path):
    """Pretrained encoder, text of a corpus, then fine-tuning: no head and no teacher of the task."""
    tiny.bert(4).bert.save_pretrained(tmp_path / "encoder")
    tiny.tokenizer().save_pretrained(tmp_path / "encoder")
    (tmp_path / "text.txt").write_text("\n".join(tiny.sentences(30)), encoding="utf-8")
    first = {
        "objectives": {"hidden": HIDDEN},
        "corpus": {"source": str(tmp_path / "text.txt"), "size": 16},
        "teacher": str(tmp_path / "encoder"),
    }
    made = recipe("finetune", first_stage=first, max_steps=1)
    record = train(made, tmp_path / "run").record
    assert record.teacher is None
    assert record.stages[0].teacher == first["teacher"]
    assert record.stages[0].teacher_flops > 0
    with pytest.raises(LimbeckError, match="teacher: method finetune learns from one"):
        train(recipe("finetune", first_stage=first | {"teacher": None}), tmp_path / "other")


def test_a_teacher_of_other_words_is_refused(two, other, tmp_path):
    place = tiny.save(tiny.bert(2), tmp_path / "other-teacher")
    words = (place / "tokenizer.json").read_text(encoding="utf-8")
    swapped = words.replace('"good"', '"x"').replace('"bad"', '"good"').replace('"x"', '"bad"')
    (place / "tokenizer.json").write_text(swapped, encoding="utf-8")
    with pytest.raises(LimbeckError, match=r"^first_stage: teacher and student have different"):
        train(two(**other, teacher=str(place)), tmp_path / "run")


# ---- data conditions of a run ----


def test_noise_is_on_the_training_rows_alone_and_recorded(recipe, place, tmp_path):
    made = recipe("finetune", label_noise=0.25, max_steps=1)
    _, noisy = load_rows(made)
    _, clean = load_task(
        "reviews", str(place / "reviews.csv"), text_columns=["review"], label_column="verdict"
    )
    assert noisy["dev"]["label"][:] == clean["dev"]["label"][:]
    pairs = zip(noisy["train"]["label"], clean["train"]["label"], strict=True)
    changed = sum(new != old for new, old in pairs)
    assert changed == 14  # 13.5 of 54
    result = train(made, tmp_path / "run")
    assert result.record.examples.relabelled == changed
    assert prepare(made).train.encoded["labels"][:] == noisy["train"]["label"][:]


@pytest.mark.slow
def test_a_teacher_of_other_rows_is_told(recipe, tmp_path, capsys):
    teacher = train(recipe("finetune", epochs=4), tmp_path / "teacher")
    few = {"teacher": str(teacher.path), "train_rows": 20, "max_steps": 1}
    train(recipe("kd", **few), tmp_path / "few", show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "teacher: it was trained on all rows as they are" in said
    assert "train_rows=null" in said
    for name, change in (("all", {"train_rows": None}), ("meant", {"teacher_rows": "any"})):
        train(recipe("kd", **(few | change)), tmp_path / name, show=True)
        assert "all rows as they are" not in capsys.readouterr().err


def test_a_run_of_a_version_with_fewer_keys_goes_on(recipe, tmp_path):
    """What it wrote lacks keys that have their defaults; with another value it is another run."""
    folder = RunFolder(tmp_path / "run")
    folder.begin(recipe(), {})
    Record(kind="distill", method="m", task="t", data="d", seed=1).save(folder.path)
    old = yaml.safe_load(folder.recipe.read_text(encoding="utf-8"))
    for key in ("first_stage", "joint", "label_noise", "stratified"):
        del old[key]
    folder.recipe.write_text(yaml.safe_dump(old), encoding="utf-8")
    assert EarlierRun(folder, recipe()).finished() is None
    with pytest.raises(LimbeckError, match=r"differ in label_noise\)"):
        EarlierRun(folder, recipe(label_noise=0.5)).finished()
