"""A teacher and a file of text: no task, no label, no dev file and no method is named."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from datasets import Dataset
from scipy.special import rel_entr
from scipy.stats import spearmanr
from sklearn.metrics import f1_score
from typer.testing import CliRunner

import kind_models as kinds
import limbeck
import tiny_runs as tiny
from embedding.tiny_embedders import embedder, encoder
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.recipe import Recipe
from limbeck.recipe.teacher_text import WHY
from limbeck.records import Record
from limbeck.run import beside_teacher, teacher_labels
from limbeck.run.distill import plan_run
from limbeck.run.rows import load_rows
from limbeck.scoring import ScoredModel
from limbeck.support.errors import LimbeckError
from limbeck.support.files import TEACHER_LABELS
from limbeck.tables import build_table, render
from limbeck.tables.classes import confusion_table, disagreement_table
from limbeck.tasks import TASK_TYPES

QUICK = ("--layers", "1", "--epochs", "1", "--max-length", "24")
SETTINGS: dict[str, Any] = {"student.layers": 1, "epochs": 1, "max_length": 24, "floor": False}
LABELS = "teacher_label"


def texts(count: int = 120) -> list[str]:
    draw, found = random.Random(0), dict[str, None]()
    while len(found) < count:
        found[" ".join(draw.choices(tiny.WORDS, k=draw.randint(3, 9)))] = None
    return [*found]


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def save(model: Any, folder: Path, tokenizer: Any = None) -> Path:
    model.save_pretrained(folder)
    (tokenizer or tiny.tokenizer()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Teachers of several kinds, and text."""
    folder = tmp_path_factory.mktemp("text")
    save(tiny.knowing_teacher(3), folder / "classes")
    save(tiny.bert(3, id2label={0: "LABEL_0"}, initializer_range=0.5), folder / "number")
    several = {"id2label": dict(enumerate("abc")), "problem_type": "multi_label_classification"}
    save(tiny.bert(3, initializer_range=0.5, **several), folder / "several")
    save(embedder(3), folder / "embedder")
    save(kinds.model("masked"), folder / "masked", kinds.tokenizer())
    (folder / "text.txt").write_text("\n".join(texts()) + "\n", encoding="utf-8")
    return folder


def command(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["distill", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def run(
    place: Path, out: Path, teacher: str, data: Path, *more: Any, floor: bool = False
) -> tuple[Record, str]:
    given = ("--teacher", place / teacher, "--data", data, "--out", out, *QUICK, *more)
    said = command(*given, f"floor={floor}".lower())
    return Record.load(out), said


def held_out(record: Record, split: str) -> Dataset:
    return Dataset.from_parquet(record.recipe[split])


def logits(folder: Path, auto: Any, *columns: list[str]) -> np.ndarray:
    """One row at a time, by Hugging Face alone."""
    model, tokenizer = auto.from_pretrained(folder).eval(), hf.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        found = [
            model(**tokenizer(*row, truncation=True, max_length=24, return_tensors="pt")).logits[0]
            for row in zip(*columns, strict=True)
        ]
    return torch.stack(found).numpy()


CLASSIFIER = hf.AutoModelForSequenceClassification


@pytest.fixture(scope="module")
def classes(place, tmp_path_factory) -> tuple[Path, Record, str]:
    out = tmp_path_factory.mktemp("runs") / "classes"
    return (out, *run(place, out, "classes", place / "text.txt", floor=True))


def test_every_usual_method_has_its_reason():
    assert {kind.distilled_by for kind in map(TASK_TYPES.get, TASK_TYPES)} | {"kd-soft"} == {*WHY}


def test_classes_are_scored_by_the_teachers_own(place, classes):
    out, record, said = classes
    assert (record.method, record.examples.labels) == ("kd-soft", "teacher")
    assert f"Why: {WHY['kd-soft']}" in said
    for split in ("dev", "test"):
        rows = held_out(record, split)
        theirs = logits(place / "classes", CLASSIFIER, rows["text"])
        ours = logits(out / "student", CLASSIFIER, rows["text"])
        assert rows[LABELS] == theirs.argmax(1).tolist()
        share = 100 * np.mean([a.argmax() == b.argmax() for a, b in zip(ours, theirs, strict=True)])
        assert set(record.scores[split]) == {"agreement", "primary"}
        assert record.scores[split]["agreement"] == pytest.approx(share)
        p, q = (np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (ours, theirs))
        middle = (p + q) / 2
        bits = (rel_entr(p, middle) + rel_entr(q, middle)).sum(1) / 2 / np.log(2)
        assert record.classification[split].divergence == pytest.approx(bits.mean(), abs=1e-5)


@pytest.mark.slow
def test_no_text_is_both_trained_on_and_scored(place, tmp_path):
    """Every text stands in the file three times."""
    data = tmp_path / "again.txt"
    data.write_text("\n".join(texts() * 3) + "\n", encoding="utf-8")
    record, _ = run(place, tmp_path / "run", "classes", data)
    dev, test = ({*held_out(record, split)["text"]} for split in ("dev", "test"))
    assert (len(dev), len(test), dev & test) == (12, 12, set())
    assert record.examples.train == 3 * (120 - 24)
    assert record.examples.unlabelled_in_scored_splits == 3 * 24


def test_agreement_is_said_everywhere(classes):
    out, record, said = classes
    assert "agreement with the teacher on 12 held-out texts" in said
    assert "Method: kd-soft" in said
    card = (out / "student" / "README.md").read_text("utf-8")
    page = (out / "report.html").read_text("utf-8")
    table = render(build_table([record]), "markdown")
    for text in (card, page, table):
        assert "agreement with the teacher on 12 dev and 12 test held-out texts" in text
    for text in (said, card.partition("## Size")[0], table):
        assert "accuracy" not in text
        assert "kept" not in text
    assert not re.search(r"(?i)>\s*accuracy", page)
    assert "model-index" not in card


def test_nothing_is_called_right_and_nothing_a_label(classes):
    """Labels are the teacher's predictions: a student agrees with them or not."""
    out, record, _ = classes
    page = (out / "report.html").read_text("utf-8")
    card = (out / "student" / "README.md").read_text("utf-8").partition("## Training")[0]
    shown = page.rpartition("Runs and recipes")[0]
    for text in (shown, card):
        assert "has right" not in text
        assert "right predictions" not in text
    assert "Rows by teacher and prediction" in shown
    assert "Rows by label" not in shown
    found = record.classification["dev"]
    assert confusion_table(found, found.student).cells[0][0] == "teacher ↓ predicted →"
    assert disagreement_table(found).cells[0] == ["row", "student", "teacher", "text"]
    assert "rows only student predicts as the teacher" in card
    footer = render(build_table([record]), "markdown")
    assert "training rows and the teacher's labels" in footer.replace("\\", "")


def test_words_alone_are_as_many_as_the_teachers_that_labeled(classes):
    other = classes[1].model_copy(deep=True)
    other.teacher.path = "runs/another"
    rows = [row.label for row in build_table([classes[1], other]).rows if row.role == "floor"]
    assert rows == [
        "words alone, 96 rows, labels of another, 3 layers",
        "words alone, 96 rows, labels of classes, 3 layers",
    ]
    assert [row.label for row in build_table([classes[1]]).rows if row.role == "floor"] == [
        "words alone"
    ]


@pytest.mark.slow
def test_one_epoch_is_no_epochs_and_one_layer_no_layers(place, tmp_path):
    said = command(
        *("--teacher", place / "classes", "--data", place / "text.txt", "--out", tmp_path / "run"),
        *("--layers", "1", "--epochs", "1", "--max-length", "24", "floor=false"),
    )
    assert "1 epoch at" in said
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "1 layers" not in page.rpartition("Runs and recipes")[0]
    assert "student of 1 layer by kd-soft" in page


def test_a_missing_file_is_said_before_any_method(place, tmp_path):
    said = command("--teacher", place / "classes", "--data", tmp_path / "nowhere.txt", code=2)
    assert "there is no such file" in said
    assert "ethod:" not in said


def test_labeled_rows_are_scored_by_labels_afterwards(classes, tmp_path):
    every = [one for one in texts() if ("good" in one) != ("bad" in one)]
    labels = ["positive" if "good" in one else "negative" for one in every]
    data = write(tmp_path / "labeled.csv", {"text": every, "label": labels})
    ours = logits(classes[0] / "student", CLASSIFIER, every).argmax(1)
    right = np.mean([("negative", "positive")[a] == b for a, b in zip(ours, labels, strict=True)])
    found = limbeck.evaluate(classes[0], data=str(data))
    assert found["accuracy"] == pytest.approx(100 * right)
    # An export of it is measured on them by the same labels.
    rows = ScoredModel.open(classes[0]).rows(RowsAsked(data=str(data))).rows
    assert rows["label"][:] == [int(label == "positive") for label in labels]


@pytest.mark.slow
def test_numbers_by_rank_and_error(place, tmp_path):
    record, _ = run(place, tmp_path / "run", "number", place / "text.txt")
    rows = held_out(record, "dev")
    theirs = logits(place / "number", CLASSIFIER, rows["text"])[:, 0]
    ours = logits(tmp_path / "run" / "student", CLASSIFIER, rows["text"])[:, 0]
    error = np.sqrt(sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)) / len(ours))
    scores = record.scores["dev"]
    assert scores["rank_agreement"] == pytest.approx(100 * spearmanr(ours, theirs)[0], abs=1e-3)
    assert scores["relative_error"] == pytest.approx(100 * error / np.std(theirs), rel=1e-4)


@pytest.mark.slow
def test_several_labels_by_equal_decisions(place, tmp_path):
    record, _ = run(place, tmp_path / "run", "several", place / "text.txt")
    rows = held_out(record, "test")
    theirs = logits(place / "several", CLASSIFIER, rows["text"]) >= 0  # a probability of one half
    assert rows[LABELS] == [[c for c in range(3) if row[c]] for row in theirs]
    limits = np.array([record.thresholds[name] for name in "abc"])
    ours = logits(tmp_path / "run" / "student", CLASSIFIER, rows["text"])
    given = 1 / (1 + np.exp(-ours)) >= limits
    assert record.scores["test"]["agreement"] == pytest.approx(100 * (given == theirs).mean())
    overlap = f1_score(theirs, given, average="micro", zero_division=0)
    assert record.scores["test"]["overlap"] == pytest.approx(100 * overlap)


def test_embeddings_by_cosine_and_similarities(place, tmp_path):
    record, _ = run(place, tmp_path / "run", "embedder", place / "text.txt")
    assert record.method == "embedding-mse"
    rows = held_out(record, "test")

    def embed(folder: Path, sentences: list[str]) -> np.ndarray:
        model = SENTENCE_EMBEDDERS.from_pretrained(folder).eval()
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            found = [model(**tokenizer(one, return_tensors="pt")).logits[0] for one in sentences]
        return torch.stack(found).numpy()

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    sides = [place / "embedder", tmp_path / "run" / "student"]
    first = [embed(side, rows["sentence1"]) for side in sides]
    second = [embed(side, rows["sentence2"]) for side in sides]
    pairs = [
        [cosine(*pair) for pair in zip(a, b, strict=True)]
        for a, b in zip(first, second, strict=True)
    ]
    scores = record.scores["test"]
    assert scores["rank_agreement"] == pytest.approx(100 * spearmanr(*pairs)[0], abs=1e-3)
    alike = np.mean([cosine(a, b) for a, b in zip(*first, strict=True)])
    assert scores["cosine"] == pytest.approx(100 * alike, abs=1e-3)
    held = {*rows["sentence1"], *held_out(record, "dev")["sentence1"]}
    assert (record.examples.train, len(held)) == (96, 24)


@pytest.mark.slow
def test_rerankers_by_the_ranks_of_each_query(place, tmp_path):
    draw, every = random.Random(1), texts()
    rows = [(query, passage) for query in every[:20] for passage in draw.sample(every[20:], 5)]
    queries, passages = map(list, zip(*rows, strict=True))
    data = write(tmp_path / "rank.csv", {"query": queries, "passage": passages})
    record, _ = run(place, tmp_path / "run", "number", data)
    assert (record.method, record.recipe["kind"]) == ("listwise-kl", "pair-score")
    found = held_out(record, "dev")
    columns = found["query"][:], found["passage"][:]
    theirs = logits(place / "number", CLASSIFIER, *columns)[:, 0]
    ours = logits(tmp_path / "run" / "student", CLASSIFIER, *columns)[:, 0]
    own = [np.array([q == one for q in columns[0]]) for one in dict.fromkeys(columns[0])]
    assert [rows.sum() for rows in own] == [5, 5]
    expected = np.mean([spearmanr(ours[rows], theirs[rows])[0] for rows in own])
    assert record.scores["dev"]["rank_agreement"] == pytest.approx(100 * expected, abs=1e-3)


@pytest.mark.parametrize("kind", [pytest.param("tokens", marks=pytest.mark.slow), "spans"])
def test_words_and_answers_where_the_rows_have_them(kind, tmp_path):
    teacher = save(kinds.model(kind), tmp_path / "teacher", kinds.tokenizer())
    draw = random.Random(0)
    some = [draw.choices(["ann", "lee", "saw", "rome", "the", "cat"], k=7) for _ in range(60)]
    rows = [
        {"tokens": words} if kind == "tokens" else {"question": "who ?", "context": " ".join(words)}
        for words in some
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    record, said = run(tmp_path, tmp_path / "run", "teacher", data)
    assert record.method == "kd-soft"
    found = held_out(record, "dev")
    assert "agreement with the teacher" in said
    auto = {"tokens": hf.AutoModelForTokenClassification, "spans": hf.AutoModelForQuestionAnswering}
    model, tokenizer = auto[kind].from_pretrained(teacher).eval(), kinds.tokenizer()
    for row in found.select(range(5)):
        if kind == "tokens":  # every word is one piece
            batch = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
            tags = model(**batch).logits[0].argmax(-1)[1:-1]
            assert row[LABELS] == tags.tolist()
            continue
        batch = tokenizer(row["question"], row["context"], return_tensors="pt")
        outputs = model(**batch)
        start, end = outputs.start_logits[0], outputs.end_logits[0]
        inside = range(4, len(start) - 1)  # behind [CLS] who ? [SEP]
        best = max(
            ((a, b) for a in inside for b in inside if a <= b),
            key=lambda pair: float(start[pair[0]] + end[pair[1]]),
        )
        words = row["context"].split()[best[0] - 4 : best[1] - 3]
        assert row[LABELS]["text"] == [" ".join(words)]
        begin = row[LABELS]["answer_start"][0]
        assert row["context"][begin:].startswith(" ".join(words))


def test_pairs_of_texts_and_their_student_takes_no_single_ones(place, tmp_path):
    every = texts()
    data = write(tmp_path / "pairs.tsv.csv", {"premise": every[:60], "hypothesis": every[60:]})
    record, _ = run(place, tmp_path / "pairs", "classes", data)
    rows = held_out(record, "dev")
    theirs = logits(place / "classes", CLASSIFIER, rows["premise"], rows["hypothesis"])
    assert rows[LABELS] == theirs.argmax(1).tolist()
    with pytest.raises(LimbeckError, match=r"reads 2 of a row.*\n.*a file with 2 columns of text"):
        limbeck.distill(
            teacher=str(tmp_path / "pairs"),
            data=str(place / "text.txt"),
            out=tmp_path / "run",
            **SETTINGS,
        )


def test_dev_rows_with_labels_replace_agreement(place, tmp_path):
    every = [one for one in texts() if ("good" in one) != ("bad" in one)]
    labels = ["positive" if "good" in one else "negative" for one in every]
    dev = write(tmp_path / "dev.csv", {"text": every[:30], "label": labels[:30]})
    (tmp_path / "rest.txt").write_text("\n".join(every[30:]), encoding="utf-8")
    record, said = run(place, tmp_path / "run", "classes", tmp_path / "rest.txt", "--dev", dev)
    assert (record.method, record.examples.labels) == ("kd-soft", None)
    assert "accuracy" in record.scores["dev"]
    assert "agreement with the teacher" not in said
    assert not (tmp_path / TEACHER_LABELS).exists()


@pytest.mark.slow
def test_a_file_with_labels_is_labeled_data(place, tmp_path):
    every = [one for one in texts() if ("good" in one) != ("bad" in one)]
    labels = ["positive" if "good" in one else "negative" for one in every]
    usual = write(tmp_path / "usual.csv", {"text": every, "label": labels})
    record, _ = run(place, tmp_path / "usual", "classes", usual)
    assert (record.method, record.examples.labels) == ("kd", None)
    unusual = write(tmp_path / "unusual.csv", {"text": every, "verdict": labels})
    record, said = run(place, tmp_path / "unusual", "classes", unusual)
    assert record.examples.labels == "teacher"
    assert "column 'verdict'" in said
    assert "--label-column verdict" in said


def test_python_and_objects(place, tmp_path):
    model = CLASSIFIER.from_pretrained(place / "classes")
    rows = Dataset.from_dict({"text": texts()})
    found = limbeck.distill(
        teacher=model, tokenizer=tiny.tokenizer(), data=rows, out=tmp_path / "run", **SETTINGS
    )
    assert found.record.method == "kd-soft"
    assert set(found.scores["dev"]) == {"agreement", "primary"}
    assert found.record.examples.train == 96
    again = limbeck.distill(
        teacher=model, tokenizer=tiny.tokenizer(), data=texts(), out=tmp_path / "list", **SETTINGS
    )
    assert again.scores == found.scores


@pytest.mark.slow
def test_labels_of_others_are_left_unread_and_words_alone_are_not_held_against_the_teacher(
    place, tmp_path
):
    rows = write(tmp_path / "rows.csv", {"text": texts(), "label": ["x", "y", "z"] * 40})
    record, _ = run(place, tmp_path / "run", "classes", rows, "--label-column", LABELS, floor=True)
    assert (record.method, record.examples.labels) == ("kd-soft", "teacher")
    assert record.floor is not None
    assert record.floor.student_tests.keys() == {"dev", "test"}
    assert record.floor.teacher_tests == {}


@pytest.mark.slow
def test_a_recipe_file(place, tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(
        f"teacher: {place / 'classes'}\ndata: {place / 'text.txt'}\nmax_length: 24\nstudent: {{layers: 1}}\n"
    )
    assert limbeck.Recipe.load(file).method == "kd-soft"
    assert limbeck.Recipe.load(file, method="logit-mse").label_column == LABELS
    shipped = limbeck.distill(file, out=tmp_path / "run", epochs=1)
    again = limbeck.evaluate(tmp_path / "run")
    assert again["agreement"] == shipped.scores["dev"]["agreement"]


def test_a_resumed_run_asks_the_teacher_once(place, tmp_path, monkeypatch):
    asked = []
    own = teacher_labels._write
    monkeypatch.setattr(teacher_labels, "_write", lambda *a: (asked.append(1), own(*a)))
    settings = {"teacher": str(place / "classes"), "data": str(place / "text.txt"), **SETTINGS}
    with monkeypatch.context() as patched:
        patched.setattr(import_module("limbeck.run.distill"), "train_stages", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            limbeck.distill(out=tmp_path / "run", **settings)
    files = {
        path: path.stat().st_mtime_ns for path in (tmp_path / TEACHER_LABELS).rglob("*.parquet")
    }
    assert len(files) == 2
    limbeck.distill(out=tmp_path / "run", **settings)
    limbeck.distill(out=tmp_path / "other", **settings, seed=1)
    assert files == {
        p: p.stat().st_mtime_ns for p in (tmp_path / TEACHER_LABELS).rglob("*.parquet")
    }
    assert asked == [1]


@pytest.mark.slow
def test_labels_are_written_whole_or_not_at_all(place, tmp_path, monkeypatch):
    settings = {"teacher": str(place / "classes"), "data": str(place / "text.txt"), **SETTINGS}
    written = Dataset.to_parquet
    monkeypatch.setattr(Dataset, "to_parquet", lambda self, file: (written(self, file), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        limbeck.distill(out=tmp_path / "run", **settings)
    assert not [*tmp_path.rglob("*.parquet")]
    monkeypatch.undo()
    assert limbeck.distill(out=tmp_path / "run", **settings).record.examples.dev == 12


@pytest.mark.parametrize(
    ("teacher", "rows", "more", "said"),
    [
        ("classes", "", (), "holds no text"),
        ("classes", "good film\n", (), "1 different text, too few"),
        ("masked", None, (), "neither a classifier nor an embedding model"),
        ("masked", None, (), "distill it as the language model that it is: --kind masked"),
        ("bare", None, (), "neither a classifier nor an embedding model"),
        ("number", None, ("--kind", "pair-score"), "a query and a passage"),
        ("classes", None, ("--test", "text.txt"), "name a dev file with labels too"),
        ("classes", None, ("--text-columns", "body"), "body"),
        ("nowhere", None, (), "no such folder"),
    ],
)
def test_errors_come_before_any_work(place, tmp_path, teacher, rows, more, said):
    data = place / "text.txt"
    if rows is not None:
        data = tmp_path / "rows.txt"
        data.write_text(rows, encoding="utf-8")
    if teacher == "bare" and not (place / "bare").exists():
        encoder(place / "bare")
    more = tuple(str(place / one) if one == "text.txt" else one for one in more)
    out = tmp_path / "run"
    found = command(
        "--teacher", place / teacher, "--data", data, "--out", out, *QUICK, *more, code=2
    )
    assert said in found
    assert not out.exists()


@pytest.mark.parametrize("method", [(), ("--method", "kd-soft")])
def test_unlabeled_text_alone_is_to_be_data(place, tmp_path, method):
    text = place / "text.txt"
    given = ("--teacher", place / "classes", *method, "--out", tmp_path / "run", *QUICK)
    found = command(*given, "--unlabelled", text, "more.txt", code=2)
    assert (
        f"write --data {text} --unlabelled more.txt instead of --unlabelled {text} more.txt"
        in found
    )
    assert "add --task" not in found


def test_a_tagger_needs_words_and_a_reader_of_pairs_two_columns(place, tmp_path):
    for kind, fix in (
        ("tokens", 'write {"tokens": ["…", "…"]} for each row'),
        ("spans", "give a table with the columns question and context"),
    ):
        teacher = save(kinds.model(kind), tmp_path / kind, kinds.tokenizer())
        found = command(
            "--teacher",
            teacher,
            "--data",
            place / "text.txt",
            "--out",
            tmp_path / "run",
            *QUICK,
            code=2,
        )
        assert fix in found
        assert "--text-columns" not in found


def test_one_answer_for_all_held_out_texts_is_no_bad_score(place, tmp_path):
    """A teacher agrees with itself: the texts are at fault, or it gives one answer everywhere."""
    model = tiny.knowing_teacher(3)
    with torch.no_grad():
        model.classifier.bias[1] = 100.0
    teacher = save(model, tmp_path / "constant")
    out = tmp_path / "run"
    found = command(
        "--teacher", teacher, "--data", place / "text.txt", "--out", out, *QUICK, code=2
    )
    assert "predicts 'positive' for all 12 held-out texts" in found
    assert "its dev score" not in found


def test_a_first_line_that_is_a_text_is_no_row_of_names(place, tmp_path):
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["a good film it is", *texts()]), encoding="utf-8")
    given = ("--teacher", place / "classes", "--data", data, "--out", tmp_path / "run", *QUICK)
    assert "looks like a text" in command(*given, code=2)


def test_a_run_was_not_trained_on_the_rows_that_it_held_out_of_the_same_text(classes):
    out, record, _ = classes
    task, rows = load_rows(Recipe.recorded(record.recipe, str(out)))
    path = str(out / "student")
    for own in (task, replace(task, name="another-name-of-the-file")):
        learned = beside_teacher._learned(path, own)
        assert not beside_teacher._learned_from(learned, path, own, "test", rows["test"])
        for split in ("dev", "test"):
            assert beside_teacher._learned_from(learned, path, own, split, rows["train"])


@pytest.mark.slow
def test_labels_that_are_gone_are_named_and_made_again(place, tmp_path):
    settings = {"teacher": str(place / "classes"), "data": str(place / "text.txt"), **SETTINGS}
    first = limbeck.distill(out=tmp_path / "run", **settings)
    shutil.rmtree(tmp_path / TEACHER_LABELS)
    with pytest.raises(LimbeckError, match="the rows that the teacher labeled are gone"):
        limbeck.evaluate(tmp_path / "run")
    again = limbeck.distill(out=tmp_path / "run", **settings)  # what the error says to do
    assert again.record == first.record  # it was not trained again
    assert limbeck.evaluate(tmp_path / "run")["agreement"] == first.scores["dev"]["agreement"]


def test_an_empty_label_column_is_no_column_of_text(place, tmp_path):
    rows = write(tmp_path / "empty.csv", {"body": texts(), "label": [""] * 120})
    given = ("--teacher", place / "classes", "--data", rows, "--out", tmp_path / "run", *QUICK)
    assert f"--label-column {LABELS}" in command(*given, code=2)
    recipe = Recipe.load(
        teacher=str(place / "classes"), data=str(rows), label_column=LABELS, max_length=24
    )
    assert plan_run(recipe, tmp_path / "run").recipe.text_columns == ["body"]


WORKER = """
import sys
from pathlib import Path
from limbeck.support.machine import is_first
from limbeck.recipe import Recipe
from limbeck.recipe import Recipe
from limbeck.run import beside_teacher, teacher_labels
from limbeck.run.rows import load_rows
from limbeck.run.distill import plan_run

place, data, rank = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if rank != "0":
    teacher_labels._write = None  # the first process alone asks the teacher
recipe = Recipe.load(teacher=str(place / "classes"), data=data, max_length=24)
try:
    recipe = plan_run(recipe, Path(sys.argv[4]) / "run").recipe
    said = str(Path(recipe.dev).is_file())
except Exception as error:
    said = f"{type(error).__name__}: {error}"
(Path(sys.argv[4]) / f"said-{rank}").write_text(said)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "said"), [(None, "True"), ("good film\n", "LimbeckError: ")])
def test_one_of_two_processes_asks_the_teacher(place, tmp_path, rows, said):
    data = place / "text.txt"
    if rows is not None:
        data = tmp_path / "one.txt"
        data.write_text(rows, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(place), str(data), str(rank), str(tmp_path)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    for rank in range(2):
        assert (tmp_path / f"said-{rank}").read_text().startswith(said)
