"""`limbeck submit`: GLUE's own files from tiny runs, held against transformers' own predictions; refusals."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.lab.submitting import GLUE_FILES, GlueFile, submission
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.plain import loads

# As a submission formatter of others has them (jiant, `benchmarks.py`).
PUBLISHED = {
    "CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv",
    "QQP.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv",
}  # fmt: skip
SMALL = (
    GlueFile("SST-2.tsv", "sst2", "test", 5),
    GlueFile("STS-B.tsv", "stsb", "test", 4),
    GlueFile("MNLI-m.tsv", "mnli", "test", 3),
    GlueFile("MNLI-mm.tsv", "mnli", "test_mismatched", 2),
    GlueFile("AX.tsv", "mnli", "diagnostic", 6),
)
NLI = ("entailment", "neutral", "contradiction")


def write(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def pairs(count: int) -> list[str]:
    texts = tiny.sentences(count + 1)
    return [f"{texts[row]}\t{texts[row + 1]}" for row in range(count)]


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """A folder in GLUE's layout: three tasks, and the diagnostic rows."""
    root = tmp_path_factory.mktemp("glue")
    texts = tiny.sentences(12)
    labelled = [f"{text}\t{1 - row % 2}" for row, text in enumerate(texts)]
    for split in ("train", "dev"):
        write(root / f"SST-2/{split}.tsv", "sentence\tlabel", labelled)
        scored = [f"{pair}\t{row % 6}" for row, pair in enumerate(pairs(12))]
        write(root / f"STS-B/{split}.tsv", "sentence1\tsentence2\tscore", scored)
    inferred = [f"{pair}\t{NLI[row % 3]}" for row, pair in enumerate(pairs(12))]
    for file in ("train", "dev_matched", "dev_mismatched"):
        write(root / f"MNLI/{file}.tsv", "sentence1\tsentence2\tgold_label", inferred)
    write(
        root / "SST-2/test.tsv", "index\tsentence", [f"{n}\t{t}" for n, t in enumerate(texts[:5])]
    )
    two = "index\tsentence1\tsentence2"
    for file, count in {
        "STS-B/test": 4, "MNLI/test_matched": 3, "MNLI/test_mismatched": 2, "diagnostic/diagnostic": 6,
    }.items():  # fmt: skip
        rows = [f"{at}\t{pair}" for at, pair in enumerate(pairs(count))]
        write(root / f"{file}.tsv", two, rows)
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory, glue) -> dict[str, Path]:
    """A finished run of each of the three tasks."""
    place = tmp_path_factory.mktemp("runs")
    start = tiny.save(tiny.bert(1, initializer_range=0.5), place / "start")
    for task in ("sst2", "stsb", "mnli"):
        settings = {
            "student.init": str(start),
            "epochs": 1,
            "batch_size": 4,
            "seed": 3,
            "max_length": 24,
        }
        limbeck.distill("finetune", task=task, data=str(glue), out=str(place / task), **settings)
    return {task: place / task for task in ("sst2", "stsb", "mnli")}


@pytest.fixture
def small(monkeypatch):
    """The benchmark with three tasks of a few rows."""
    monkeypatch.setattr(submission, "GLUE_FILES", SMALL)
    monkeypatch.setattr(submission, "GLUE_FILES", SMALL)


def read(archive: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(archive) as packed:
        return {name: packed.read(name).decode().splitlines() for name in packed.namelist()}


def outputs_of(run: Path, rows: list[str]) -> list[torch.Tensor]:
    """By transformers alone, a row at a time."""
    model = AutoModelForSequenceClassification.from_pretrained(run / "student").eval()
    tokenizer = AutoTokenizer.from_pretrained(run / "student")
    with torch.no_grad():
        return [
            model(**tokenizer(*row.split("\t"), return_tensors="pt", return_token_type_ids=False)).logits[0]
            if "\t" not in row
            else model(**tokenizer(*row.split("\t"), return_tensors="pt")).logits[0]
            for row in rows
        ]  # fmt: skip


def test_the_files_are_those_of_the_benchmark():
    assert {file.name for file in GLUE_FILES} == PUBLISHED
    assert {file.words for file in GLUE_FILES} == {
        (), ("0", "1"), NLI, ("entailment", "not_entailment"),
    }  # fmt: skip


def test_the_files_hold_what_transformers_predicts(runs, small, tmp_path):
    found = limbeck.submit([*runs.values()], tmp_path / "glue.zip")
    files = read(tmp_path / "glue.zip")
    assert list(files) == [file.name for file in SMALL] == list(found.rows)
    assert found.missing == []
    assert all(lines[0] == "index\tprediction" for lines in files.values())
    sst2 = [int(logits.argmax()) for logits in outputs_of(runs["sst2"], tiny.sentences(5))]
    assert files["SST-2.tsv"][1:] == [f"{at}\t{one}" for at, one in enumerate(sst2)]
    for name, count in {"MNLI-m.tsv": 3, "MNLI-mm.tsv": 2, "AX.tsv": 6}.items():
        model = AutoModelForSequenceClassification.from_pretrained(runs["mnli"] / "student")
        expected = [
            model.config.id2label[int(logits.argmax())]
            for logits in outputs_of(runs["mnli"], pairs(count))
        ]
        assert files[name][1:] == [f"{at}\t{word}" for at, word in enumerate(expected)]
        assert set(expected) <= set(NLI)
    scores = [min(max(float(one), 0.0), 5.0) for one in outputs_of(runs["stsb"], pairs(4))]
    written = [float(line.split("\t")[1]) for line in files["STS-B.tsv"][1:]]
    assert written == pytest.approx(scores, abs=6e-4)
    assert not (tmp_path / "glue.zip.rows").exists()


def test_a_number_is_kept_within_the_benchmarks_bounds():
    lines = submission._lines(SMALL[1], [{"prediction": one} for one in (-0.3, 5.21, 2.34567, 0.0)])
    assert lines[1:] == ["0\t0.000", "1\t5.000", "2\t2.346", "3\t0.000"]


@pytest.mark.slow
def test_a_killed_call_goes_on_with_the_files_it_had(runs, small, tmp_path, monkeypatch):
    whole = limbeck.submit([*runs.values()], tmp_path / "whole.zip").path.read_bytes()
    real, seen = submission.predict, []

    def killed_at_third(run, rows, **settings):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(len(rows))
        return real(run, rows, **settings)

    monkeypatch.setattr(submission, "predict", killed_at_third)
    with pytest.raises(KeyboardInterrupt):
        limbeck.submit([*runs.values()], tmp_path / "glue.zip")
    assert not (tmp_path / "glue.zip").exists()
    again = []
    monkeypatch.setattr(
        submission,
        "predict",
        lambda *args, **named: again.append(len(args[1])) or real(*args, **named),
    )
    limbeck.submit([*runs.values()], tmp_path / "glue.zip")
    assert (seen, again) == ([5, 4], [3, 2, 6])
    assert (tmp_path / "glue.zip").read_bytes() == whole


def test_all_that_is_missing_is_said_together(runs, tmp_path):
    ended = CliRunner().invoke(
        app,
        [
            "submit",
            str(runs["sst2"]),
            str(runs["sst2"]),
            str(tmp_path),
            "--out",
            str(tmp_path / "a.tar"),
        ],
    )
    assert ended.exit_code == 2
    with pytest.raises(LimbeckError) as failed:
        limbeck.submit([runs["sst2"], runs["sst2"], tmp_path], tmp_path / "a.tar")
    said = str(failed.value)
    for part in (
        "is no .zip file", "are both runs of sst2", "is no run folder", "cola, mrpc, stsb, qqp, mnli, qnli, rte, wnli",
        "5 test rows of sst2, and the benchmark scores 1,821",
    ):  # fmt: skip
        assert part in said


@pytest.mark.parametrize(
    ("name", "said"),
    [("model.safetensors", "has no student"), ("tokenizer.json", "changed since the run wrote it")],
)
def test_a_damaged_student_is_named_before_anything_is_predicted(runs, tmp_path, name, said):
    run = shutil.copytree(runs["sst2"], tmp_path / "run")
    (run / "student" / name).unlink()
    problems: list[Problem] = []
    assert not submission.submitted_runs([run], problems, partial=True)
    assert said in problems[0].message


def test_a_part_of_the_benchmark_has_to_be_asked_for(runs, small, tmp_path):
    with pytest.raises(LimbeckError, match="no run of stsb, mnli"):
        limbeck.submit([runs["sst2"]], tmp_path / "glue.zip")
    found = limbeck.submit([runs["sst2"]], tmp_path / "glue.zip", partial=True)
    assert list(found.rows) == ["SST-2.tsv"]
    assert found.missing == ["STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"]
    with pytest.raises(LimbeckError, match="is there already"):
        limbeck.submit([runs["sst2"]], tmp_path / "glue.zip", partial=True)


def test_rows_that_are_not_there_are_named(glue, tmp_path):
    with pytest.raises(LimbeckError, match=r"STS-B.tsv: .* has no test rows of stsb"):
        bare = tmp_path / "STS-B"
        bare.mkdir()
        for split in ("train", "dev"):
            (bare / f"{split}.tsv").write_bytes((glue / f"STS-B/{split}.tsv").read_bytes())
        submission.glue_test_rows(SMALL[1], str(tmp_path))


def test_a_row_or_class_that_is_missing_is_refused():
    with pytest.raises(LimbeckError, match="row 1 has no prediction"):
        submission._lines(
            SMALL[0], [{"prediction": one} for one in ["positive", None] * 2 + ["negative"]]
        )
    with pytest.raises(LimbeckError, match="predicts 'fine', which is no class of sst2"):
        submission._lines(SMALL[0], [{"prediction": "fine"}] * 5)


# ---- limbeck evaluate --predictions ----


def test_a_split_without_labels_is_predicted(runs, tmp_path):
    ended = CliRunner().invoke(
        app,
        [
            "evaluate",
            str(runs["mnli"]),
            "--split",
            "test_mismatched",
            "--predictions",
            str(tmp_path / "p.csv"),
        ],
    )
    assert ended.exit_code == 0, ended.output
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "premise,hypothesis,prediction," + ",".join(
        f"probability_{one}" for one in NLI
    )
    logits = outputs_of(runs["mnli"], pairs(2))
    for line, row in zip(lines[1:], logits, strict=True):
        shares = [float(one) for one in line.split(",")[3:]]
        assert shares == pytest.approx(row.softmax(-1).tolist(), abs=1e-5)


def test_a_split_with_labels_is_scored_too(runs, tmp_path):
    ended = CliRunner().invoke(
        app, ["evaluate", str(runs["sst2"]), "--predictions", str(tmp_path / "p.jsonl")]
    )
    assert "accuracy" in ended.output
    lines = [loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["positive", "negative"] * 6
    right = [line["prediction"] == line["label"] for line in lines]
    assert f"accuracy {100 * sum(right) / 12:.1f}" in ended.output
