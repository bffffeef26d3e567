"""From the study of all nine tasks to the archive that the benchmark takes, at the smallest size."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

import limbeck
from limbeck.lab.study import SharedRuns, StudyPlan, carry_out, load_study
from limbeck.lab.submitting import GLUE_FILES, submission

STUDY = "rail-kd-table-2-glue"
# The benchmark's sample submission: a file's rows, and the words that its predictions are written in.
INFERENCE, THREE = {"entailment", "not_entailment"}, {"entailment", "neutral", "contradiction"}
BENCHMARK = {
    "CoLA.tsv": (1063, {"0", "1"}),
    "SST-2.tsv": (1821, {"0", "1"}),
    "MRPC.tsv": (1725, {"0", "1"}),
    "STS-B.tsv": (1379, None),
    "QQP.tsv": (390_965, {"0", "1"}),
    "MNLI-m.tsv": (9796, THREE),
    "MNLI-mm.tsv": (9847, THREE),
    "QNLI.tsv": (5463, INFERENCE),
    "RTE.tsv": (3000, INFERENCE),
    "WNLI.tsv": (146, {"0", "1"}),
    "AX.tsv": (1104, THREE),
}
# The released test files: their columns behind `index`, and how many rows they have here.
TEST_FILES = {
    "CoLA/test": ("sentence", 3),
    "SST-2/test": ("sentence", 4),
    "MRPC/test": ("#1 ID\t#2 ID\t#1 String\t#2 String", 5),
    "STS-B/test": ("sentence1\tsentence2", 3),
    "QQP/test": ("question1\tquestion2", 4),
    "MNLI/test_matched": ("sentence1\tsentence2", 5),
    "MNLI/test_mismatched": ("sentence1\tsentence2", 6),
    "QNLI/test": ("question\tsentence", 7),
    "RTE/test": ("sentence1\tsentence2", 3),
    "WNLI/test": ("sentence1\tsentence2", 4),
    "diagnostic/diagnostic": ("sentence1\tsentence2", 2),
}
FILE_OF = dict(zip(TEST_FILES, BENCHMARK, strict=True))
# And of the labelled files, which a task's folder has too: their columns, and a row.
LABELLED = {
    "CoLA": ("", "gj04\t1\t\ta film"),
    "SST-2": ("sentence\tlabel", "a film\t1"),
    "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t7\t8\ta film\tone film"),
    "STS-B": ("index\tsentence1\tsentence2\tscore", "0\ta film\tone film\t4.5"),
    "QQP": ("id\tquestion1\tquestion2\tis_duplicate", "0\ta film\tone film\t1"),
    "MNLI": ("index\tsentence1\tsentence2\tgold_label", "0\ta film\tone film\tneutral"),
    "QNLI": ("index\tquestion\tsentence\tlabel", "0\ta film\tone film\tentailment"),
    "RTE": ("index\tsentence1\tsentence2\tlabel", "0\ta film\tone film\tentailment"),
    "WNLI": ("index\tsentence1\tsentence2\tlabel", "0\ta film\tone film\t1"),
}


@pytest.fixture
def glue(tmp_path) -> Path:
    """GLUE's released test files, with few rows each, and one row of training and dev."""
    root = tmp_path / "glue"
    for name, (columns, rows) in TEST_FILES.items():
        path = root / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        width = columns.count("\t") + 1
        lines = [f"{n}\t" + "\t".join(f"film {n} {c}" for c in range(width)) for n in range(rows)]
        path.write_text("\n".join([f"index\t{columns}", *lines]) + "\n", encoding="utf-8")
    for task, (header, row) in LABELLED.items():
        devs = ("dev_matched", "dev_mismatched") if task == "MNLI" else ("dev",)
        for split in ("train", *devs):
            text = "\n".join([*([header] if header else []), row]) + "\n"
            (root / task / f"{split}.tsv").write_text(text, encoding="utf-8")
    return root


def test_the_rows_are_as_many_as_the_benchmark_scores():
    assert {file.name: file.rows for file in GLUE_FILES} == {
        name: rows for name, (rows, _) in BENCHMARK.items()
    }


@pytest.mark.slow
def test_the_study_of_all_nine_tasks_gives_a_whole_archive(glue, tmp_path, monkeypatch):
    study = load_study(STUDY, scale="pocket")
    assert study.keep_students
    label = "w/o KD"
    small = {"student.init": "pocket-1-16-2", "epochs": 1, "train_rows": 32, "batch_size": 16}
    study = study.model_copy(
        update={"methods": {label: study.methods[label]}, "teachers": None, "students": small}
    )
    runs = SharedRuns(tmp_path / "runs", keep_students=study.keep_students)
    assert carry_out(StudyPlan.of(study), runs) == []
    few = tuple(
        type(file)(file.name, file.task, file.split, rows)
        for file in GLUE_FILES
        for name, (_, rows) in TEST_FILES.items()
        if FILE_OF[name] == file.name
    )
    monkeypatch.setattr(submission, "GLUE_FILES", few)
    monkeypatch.setattr(submission, "GLUE_FILES", few)
    # As the first line of the study's file says it, for another row.
    found = limbeck.submit(
        sorted((tmp_path / "runs").glob("*-finetune-s1-*/")), tmp_path / "glue.zip", data=glue
    )
    assert found.missing == []
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert {*archive.namelist()} == {*BENCHMARK}
        for name, (_, rows) in TEST_FILES.items():
            text = archive.read(FILE_OF[name]).decode()
            table = list(csv.reader(io.StringIO(text), delimiter="\t"))
            assert table[0] == ["index", "prediction"]
            assert [row[0] for row in table[1:]] == [str(n) for n in range(rows)]
            words = BENCHMARK[FILE_OF[name]][1]
            for _, prediction in table[1:]:
                assert prediction in words if words else 0 <= float(prediction) <= 5
