"""Whole runs whose training rows have no labels, some or all of them."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.objects import read_rows
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer

# Each row says another thing.
TEXTS = [
    " ".join([tiny.WORDS[row % 2], *words])
    for row, words in enumerate(itertools.permutations(tiny.WORDS[2:], 3))
]
QUICK = {
    "max_steps": 4,
    "per_device_train_batch_size": 4,
    "use_cpu": True,
    "report_to": [],
    "save_strategy": "no",
}
COLUMNS = {"text_columns": ["review"], "label_column": "verdict"}


def verdict(text: str) -> str:
    return "positive" if text.startswith("good") else "negative"


def write(path: Path, texts, labels=None) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review"] if labels is None else ["review", "verdict"])
        columns = [texts] if labels is None else [texts, labels]
        writer.writerows(zip(*columns, strict=True))
    return path


@pytest.fixture(scope="module")
def rows(place, tmp_path_factory) -> Path:
    """Train and dev files with labels, and files of more rows."""
    folder = tmp_path_factory.mktemp("unlabelled")
    (folder / "own").mkdir()
    for name, texts in (("train", TEXTS[:24]), ("dev", TEXTS[24:36])):
        write(folder / "own" / f"{name}.csv", texts, map(verdict, texts))
    write(folder / "more.csv", TEXTS[36:60])
    write(folder / "again.csv", [*TEXTS[:2], *TEXTS[59:64]])
    write(folder / "scored.csv", TEXTS[30:38])
    return folder


def recipe(rows: Path, place: Path, method: str = "kd", **changes) -> Recipe:
    settings = {
        "task": "reviews",
        "data": str(rows / "own"),
        "teacher": str(place / "teacher"),
        "student.init": str(place / "start"),
        "unlabelled": [str(rows / "more.csv")],
        "epochs": 1,
        "batch_size": 8,
        "max_length": 24,
        "lr": 1e-2,
        "seed": 3,
    }
    return Recipe.load(method, **(settings | COLUMNS | changes))


def same(one, other) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.slow
def test_counts_stand_in_the_record_and_the_report(rows, place, tmp_path, pages):
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text('{"review": null}\n{"id": 1}\n' + json.dumps({"review": TEXTS[0]}))
    files = [str(rows / name) for name in ("more.csv", "again.csv", "scored.csv")]
    files.append(str(nothing))
    given = recipe(rows, place, unlabelled=files, unlabelled_duplicates="drop", max_steps=1)
    result = distill(given, out=tmp_path / "run")
    examples = json.loads((tmp_path / "run" / "record.json").read_text("utf-8"))["examples"]
    names = (
        "train",
        "labelled",
        "unlabelled",
        "unlabelled_in_scored_splits",
        "unlabelled_repeated",
        "unlabelled_blank",
    )
    assert [examples[name] for name in names] == [52, 24, 28, 6, 6, 2]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "24 with a label, 28 without (6 in dev or test, 6 repeated, 2 blank: left out)" in page
    assert set(result.record.epochs[0].train) >= {"hard", "soft"}


def test_rows_of_dev_are_refused_before_any_work(rows, place, tmp_path, no_training):
    given = recipe(rows, place, unlabelled=[str(rows / "scored.csv")])
    with pytest.raises(LimbeckError, match=r"6 of 8 rows .*\(6 in dev\): scored\.csv"):
        distill(given, out=tmp_path / "run")


@pytest.mark.slow
def test_the_labels_loss_is_that_of_the_labelled_rows(rows, place, tmp_path, watch_training):
    """One batch of all rows, without dropout: its term is the term of the labelled ones alone."""
    seen = []
    watch_training(lambda trainer, inputs: seen.append(inputs["labels"].tolist()))
    still = tiny.bert(3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    settings = {"batch_size": 64, "student.init": str(tiny.save(still, tmp_path / "still"))}
    both = distill(recipe(rows, place, **settings), out=tmp_path / "both", report=False)
    settings["unlabelled"] = []
    alone = distill(recipe(rows, place, **settings), out=tmp_path / "alone", report=False)
    assert [len(labels) for labels in seen] == [48, 24]
    assert seen[0].count(-100) == 24
    terms, others = (result.record.epochs[0].train for result in (both, alone))
    assert terms["hard"] == pytest.approx(others["hard"], rel=1e-5)
    assert terms["soft"] != pytest.approx(others["soft"], rel=1e-5)


@pytest.mark.slow
def test_logged_means_of_the_labels_loss_leave_out_rows_without(rows, place, tmp_path):
    """With a rate of next to nothing the mean over small batches is that over one of all labeled rows."""
    still = tiny.bert(3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    settings = {"lr": 1e-12, "student.init": str(tiny.save(still, tmp_path / "still"))}
    many = distill(recipe(rows, place, **settings, batch_size=3), out=tmp_path / "many")
    settings |= {"batch_size": 64, "unlabelled": []}
    alone = distill(recipe(rows, place, **settings), out=tmp_path / "alone", report=False)
    epoch, other = many.record.epochs[0], alone.record.epochs[0]
    assert epoch.train["hard"] == pytest.approx(other.train["hard"], rel=1e-4)
    assert (epoch.labelled, other.labelled) == (24, None)


@pytest.mark.slow
def test_a_method_of_the_teacher_alone_never_looks_at_labels(rows, place, tmp_path):
    """The same rows, labelled or not, give the very same student."""
    hidden = write(tmp_path / "more.csv", TEXTS[36:60])
    own = tmp_path / "own"
    own.mkdir()
    write(own / "dev.csv", TEXTS[24:36], map(verdict, TEXTS[24:36]))
    texts = TEXTS[:24] + TEXTS[36:60]
    write(own / "train.csv", texts, map(verdict, texts))
    labelled = recipe(rows, place, "kd-soft", data=str(own), unlabelled=[])
    full = distill(labelled, out=tmp_path / "full", report=False)
    some = distill(
        recipe(rows, place, "kd-soft", unlabelled=[str(hidden)]),
        out=tmp_path / "some",
        report=False,
    )
    write(own / "train.csv", texts, [*map(verdict, texts[:24]), *[""] * 24])
    gaps = distill(labelled, out=tmp_path / "gaps", report=False)
    write(own / "train.csv", texts)
    none = distill(labelled, out=tmp_path / "none", report=False)
    students = [result.student for result in (some, gaps, none)]
    assert all(same(full.student, student) for student in students)
    assert none.record.examples.labelled == 0 and gaps.record.examples.unlabelled == 24


def test_all_without_labels_and_a_term_that_reads_them(rows, place, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    write(own / "dev.csv", TEXTS[24:36], map(verdict, TEXTS[24:36]))
    write(own / "train.csv", TEXTS[:24])
    with pytest.raises(
        LimbeckError, match="hard: it learns from labels, and no training row"
    ) as at:
        prepare(recipe(rows, place, data=str(own)))
    assert "--method kd-soft" in at.value.problems[0].fix


def test_what_has_nothing_to_learn_from_them(rows, place, tmp_path, caplog):
    with pytest.raises(LimbeckError, match="every term of method finetune reads labels"):
        prepare(recipe(rows, place, "finetune", teacher=None))
    gaps = [verdict(text) if row % 4 < 2 else "" for row, text in enumerate(TEXTS[:40])]
    file = write(tmp_path / "reviews.csv", TEXTS[:40], gaps)
    given = {"data": str(file), "unlabelled": [], "teacher": None}
    prepared = prepare(recipe(rows, place, "finetune", **given))
    assert len(prepared.train.encoded) == 18
    assert "20 of 38 training rows have no label and are left out" in caplog.text
    with pytest.raises(LimbeckError, match="is of kind text: its decoder reads"):
        prepare(recipe(rows, place, kind="text"))


def test_python_objects_and_a_trainer(rows, place, tmp_path):
    named = distill(recipe(rows, place), out=tmp_path / "named", report=False)
    texts = {"review": TEXTS[36:60]}
    settings = recipe(rows, place).model_dump(include={"task", "data", "teacher", *COLUMNS})
    given = distill(
        "kd",
        out=tmp_path / "given",
        report=False,
        unlabelled=Dataset.from_dict(texts),
        **{"student.init": str(place / "start"), "epochs": 1, "batch_size": 8},
        max_length=24,
        lr=1e-2,
        seed=3,
        **settings,
    )
    assert same(named.student, given.student)
    assert given.record.examples.unlabelled == 24


@pytest.mark.parametrize("named", [False, True])
def test_rows_as_objects_whose_label_says_none(named):
    texts = TEXTS[:40]
    labels = [
        int(text.startswith("good")) if row % 4 < 2 else -100 for row, text in enumerate(texts)
    ]
    data = Dataset.from_dict({"text": texts, "label": labels})
    if named:
        names = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
        data = Dataset(data.data.table.cast(names.arrow_schema))
    read = read_rows(data, "reviews")
    known = [None if label == -100 else label for label in labels]
    assert read.splits["train"].with_format("arrow")[:]["label"].to_pylist() == known
    assert read_rows({"train": data, "dev": data}).splits["dev"]["label"][:] == labels


@pytest.mark.parametrize("regression", [False, True])
def test_a_trainer_takes_rows_with_and_without_labels(tmp_path, regression):
    labels = {"id2label": {0: "LABEL_0"}} if regression else {}
    data = tiny.rows(16, regression=regression)
    absent = float("nan") if regression else -100
    known = [label if n < 4 else absent for n, label in enumerate(data["labels"])]
    data = data.remove_columns("labels").add_column("labels", known)
    trainer = DistillationTrainer(
        tiny.bert(2, **labels),
        tiny.knowing_teacher(4, regression=regression),
        DistillationConfig(str(tmp_path), method="kd", **QUICK),
        train_dataset=data,
        data_collator=Collator(tiny.tokenizer()),
    )
    result = trainer.train()
    assert result.training_loss > 0
    assert all(torch.isfinite(weight).all() for weight in trainer.student.parameters())


# ---- the mix ----


def test_every_batch_has_its_share(rows, place, tmp_path, watch_training):
    seen = []
    watch_training(lambda trainer, inputs: seen.append((inputs["labels"] != -100).sum().item()))
    given = recipe(rows, place, labelled_share=0.5, epochs=2)
    result = distill(given, out=tmp_path / "run", report=False)
    # 24 unlabeled rows, 4 a batch, in each of two epochs.
    assert seen == [4] * 12
    assert result.record.stages[0].student_examples == 96
    assert [epoch.step for epoch in result.record.epochs] == [6, 12]


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.25])
def test_a_run_that_is_killed_goes_on_as_if_it_was_not(rows, place, tmp_path, monkeypatch, share):
    given = recipe(rows, place, labelled_share=share, epochs=2, checkpoint_steps=2)
    whole = distill(given, out=tmp_path / "whole", report=False)
    again = tiny.continued(given, tmp_path / "killed", 5)
    assert same(whole.student, again.student)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labelled_share": 0.01}, "labelled_share: 0.01 of batch_size 8 is no example"),
        ({"labelled_share": 0.5, "unlabelled": []}, "all training rows have a label"),
    ],
)
def test_shares_that_cannot_be_had(rows, place, changes, said):
    with pytest.raises(LimbeckError, match=said):
        prepare(recipe(rows, place, **changes))


def test_a_trainer_mixes(tmp_path):
    data = tiny.rows(18)
    known = [label if row < 4 else -100 for row, label in enumerate(data["labels"])]
    data = data.remove_columns("labels").add_column("labels", known)
    settings = QUICK | {"labelled_share": 0.5, "max_steps": -1, "num_train_epochs": 1}
    trainer = DistillationTrainer(
        tiny.bert(2),
        tiny.knowing_teacher(4),
        DistillationConfig(str(tmp_path), method="kd", **settings),
        train_dataset=data,
        data_collator=Collator(tiny.tokenizer()),
    )
    shares = [(batch["labels"] != -100).sum().item() for batch in trainer.get_train_dataloader()]
    assert shares == [2] * 7
    trainer.train()
    assert trainer.state.global_step == 7


def test_rows_of_a_release_without_its_label_column(rows, place, tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    lines = [f"{text}\t{int(text.startswith('good'))}" for text in TEXTS[:8]]
    (folder / "dev.tsv").write_text("\n".join(["sentence\tlabel", *lines]), encoding="utf-8")
    (folder / "train.tsv").write_text("\n".join(["sentence", *TEXTS[8:20]]), encoding="utf-8")
    (tmp_path / "more.tsv").write_text("\n".join(["sentence", *TEXTS[20:24]]), encoding="utf-8")
    given = {"task": "sst2", "data": str(tmp_path), "text_columns": None, "label_column": None}
    given |= {"unlabelled": [str(tmp_path / "more.tsv")]}
    prepared = prepare(recipe(rows, place, "kd-soft", **given))
    assert prepared.train.raw["label"][:] == [-100] * 16
    assert prepared.unlabelled.kept == 16


def test_a_team_that_learns_whom_to_sample_sees_its_progress_on_labelled_rows(
    rows, place, tmp_path
):
    other = tiny.save(tiny.knowing_teacher(3), tmp_path / "other")
    teachers = [str(place / "teacher"), str(other)]
    given = {"teacher": None, "teachers": teachers, "team.holdout": 6}
    prepared = prepare(recipe(rows, place, "skd-adaptive", **given))
    assert len(prepared.last.holdout) == 6 and len(prepared.train.encoded) == 42
    assert -100 not in prepared.last.holdout["labels"][:]


@pytest.mark.slow
def test_a_weight_of_unlabelled_rows_reaches_training_and_needs_such_rows(rows, place, tmp_path):
    given = recipe(rows, place, "kd-soft", unlabelled_weight=0)
    (epoch,) = distill(given, out=tmp_path / "run", report=False).record.epochs
    assert epoch.train["counted"] == pytest.approx(24 / 48)
    with pytest.raises(LimbeckError, match=r"unlabelled_weight: 0\.5, and all training rows have"):
        prepare(recipe(rows, place, unlabelled=[], unlabelled_weight=0.5))
    shutil.copytree(rows / "own", tmp_path / "none")
    write(tmp_path / "none" / "train.csv", TEXTS[:24])
    data = {"data": str(tmp_path / "none"), "unlabelled_weight": 0}
    with pytest.raises(LimbeckError, match="no training row has a label, so that none would count"):
        prepare(recipe(rows, place, "kd-soft", **data))


# ---- stages with rows of their own ----

SOFT = {"soft": {"compare": "soft_kl"}}


@pytest.fixture
def gaps(tmp_path, rows) -> Path:
    """24 rows with a label and 20 without, the texts of dev among these."""
    own = tmp_path / "gaps"
    shutil.copytree(rows / "own", own)
    texts = [*TEXTS[:24], *TEXTS[36:44], *TEXTS[24:36]]
    write(own / "train.csv", texts, [*map(verdict, TEXTS[:24]), *[""] * 20])
    return own


def texts_of(inputs) -> list[str]:
    """What a stage trains on."""
    return inputs.rows.raw[inputs.rows.task.text_columns[0]][:]


@pytest.mark.parametrize("stratified", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sample_of_a_first_stage_is_one_of_the_labelled_rows(rows, place, gaps, stratified):
    first = {"objectives": SOFT, "train_rows": 10}
    changes = {"data": str(gaps), "unlabelled_duplicates": "drop", "stratified": stratified}
    for unlabelled in ([], [str(rows / "again.csv")]):
        made = recipe(rows, place, first_stage=first, unlabelled=unlabelled, **changes)
        stages = prepare(made).stages
        sample, every = map(texts_of, stages)
        assert len(sample) == 10 and {*sample} <= {*TEXTS[:24]}
        assert stages[0].rows.raw["label"].count(-100) == 0
        assert {*every} == {*TEXTS[:24], *TEXTS[36:44], *(TEXTS[59:64] if unlabelled else ())}


def test_a_first_stage_without_a_sample_of_its_own_trains_on_all_rows(rows, place, gaps):
    changes = {"data": str(gaps), "first_stage": {"objectives": SOFT}}
    with pytest.raises(LimbeckError, match=r"12 of 44 rows .*\(12 in dev\)"):
        prepare(recipe(rows, place, **changes))
    made = recipe(rows, place, **changes, unlabelled_duplicates="drop")
    first, last = map(texts_of, prepare(made).stages)
    assert first == last and {*first} == {*TEXTS[:24], *TEXTS[36:60]}


def test_a_sample_of_another_tasks_text_counts_rows_without_labels_too(rows, place, gaps):
    first = {"objectives": SOFT, "task": "others", "data": str(gaps), "train_rows": 40, **COLUMNS}
    inputs = prepare(recipe(rows, place, first_stage=first)).stages[0]
    assert len(inputs.rows.encoded) == 40 and "labels" not in inputs.rows.encoded.column_names


def test_a_sample_of_more_rows_than_have_a_label_is_refused(rows, place, gaps):
    made = recipe(rows, place, data=str(gaps), train_rows=30, unlabelled_duplicates="drop")
    with pytest.raises(LimbeckError, match="30 of 24 training rows with a label"):
        prepare(made)
