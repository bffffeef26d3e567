"""A paper's numbers stand beside those of the runs, in every form of the table, and change none of them."""

from __future__ import annotations

import csv
import io

import pytest

from limbeck.lab.study.figure_spec import beside_printed, in_order
from limbeck.report import write_report
from limbeck.tables import build_table, render
from synthetic_records import a_run

PRINTED = {
    "kd": {"RTE": 68.5, "MRPC": 90.3, "CoLA": 55.8, "average": 80.0},
    "finetune": {"RTE": 61.7, "MRPC": 90.0, "CoLA": 53.3, "average": 79.0},
}


@pytest.fixture
def runs():
    return [
        a_run(method, seed, score, task=task)
        for method, score in (("kd", 71.0), ("finetune", 70.0), ("kd soft", 72.0))
        for task in ("rte", "mrpc")
        for seed in (1, 2)
    ]


@pytest.fixture
def table(runs):
    return beside_printed(build_table(runs), PRINTED, decimals=1, source="Table 9 of a paper")


def cells(table, row):
    return {
        column.title: next(one for one in table.rows if one.label == row).cells[column.key].printed
        for column in table.columns
    }


def test_numbers_stand_in_their_cells(runs, table) -> None:
    assert cells(table, "kd") == {"MRPC": "90.3", "RTE": "68.5"}
    assert cells(table, "kd soft") == {"MRPC": None, "RTE": None}
    plain = build_table(runs)
    assert not plain.has_printed
    for mine, theirs in zip(table.rows, plain.rows, strict=True):
        for key, cell in mine.cells.items():
            assert (cell.mean, cell.n) == (theirs.cells[key].mean, theirs.cells[key].n)


def test_an_average_is_the_papers_only_of_all_its_columns(runs, table) -> None:
    """(68.5 + 90.3) / 2, as CoLA is not in the table; with it left out of the paper too, the paper's own."""
    averages = {row.label: row.average.printed for row in table.rows if row.role == "student"}
    assert averages == {"finetune": "75.8", "kd": "79.4", "kd soft": None}
    assert table.notes[-1] == (
        "In square brackets: Table 9 of a paper, as printed. Its averages here are of these columns "
        "alone, without CoLA."
    )
    two = {row: {k: v for k, v in own.items() if k != "CoLA"} for row, own in PRINTED.items()}
    whole = beside_printed(build_table(runs), two, decimals=2, source="it")
    assert {row.label: row.average.printed for row in whole.rows}["kd"] == "80.00"


def test_every_form_shows_them(runs, table, tmp_path) -> None:
    assert r"\[68.5\]" in render(table, "markdown")
    assert r"{\scriptsize[68.5]}" in render(table, "latex")
    assert "[68.5]" in render(table, "terminal")
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert {row["method"]: row["RTE printed"] for row in rows if row["role"] == "student"} == {
        "finetune": "61.7", "kd": "68.5", "kd soft": "",
    }  # fmt: skip
    page = write_report(runs, tmp_path, table=table, about=[("Cost", ["two minutes & more"])])
    text = page.read_text(encoding="utf-8")
    assert "[68.5]" in text
    assert "two minutes &amp; more" in text


def test_rows_have_the_papers_order(table) -> None:
    ordered = in_order(table, ["kd soft", "kd", "finetune"])
    assert [row.label for row in ordered.rows] == ["teacher", "kd soft", "kd", "finetune"]


TEST = {"kd": {"RTE": 60.6, "MRPC": 87.7, "average": 79.2}, "finetune": {"MRPC": 87.2}}


def test_numbers_of_the_test_files_stand_behind_those_of_dev(runs) -> None:
    """RAIL-KD prints both; its averages are of columns that are not all here: (60.6 + 87.7) / 2."""
    table = beside_printed(build_table(runs), PRINTED, decimals=1, source="a paper", test=TEST)
    kd = next(row for row in render(table, "markdown").splitlines() if row.startswith("| kd |"))
    assert r"\[90.3 / 87.7\]" in kd and r"\[68.5 / 60.6\]" in kd and r"\[79.4 / 74.2\]" in kd
    # Where the paper has no number of the test files, dev's stands alone.
    plain = next(row for row in table.rows if row.label == "finetune")
    assert {key: cell.printed_test for key, cell in plain.cells.items() if cell.printed_test} == {
        key: "87.2" for key in plain.cells if "mrpc" in key
    }
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert (rows["kd"]["RTE printed"], rows["kd"]["RTE printed test"]) == ("68.5", "60.6")
    assert rows["kd"]["average printed test"] == "74.2"
    assert "Ours are of dev" in table.notes[-1]
    assert not beside_printed(build_table(runs), PRINTED, decimals=1, source="it").has_printed_test


def test_a_papers_speed_up_stands_in_the_measured_column(runs) -> None:
    said = {"kd": {"RTE": 68.5, "training-speedup": 1.96}, "finetune": {"training-speedup": 1}}
    found = build_table(runs, baseline="finetune", facts=["kept", "training-speedup"])
    table = beside_printed(found, said, decimals=1, source="it")
    shown = {row.label: row.facts["training-speedup"].printed for row in table.rows}
    assert shown == {"teacher": None, "finetune": "1.00", "kd": "1.96", "kd soft": None}
    kd = next(row for row in render(table, "markdown").splitlines() if row.startswith("| kd |"))
    assert kd.endswith(r" \[1.96\] |")
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert rows["kd"]["training-speedup printed"] == "1.96"
    # A speed-up is no column of scores, and an average over none is the paper's own.
    assert "averages here" not in table.notes[-1]
