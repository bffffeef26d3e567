"""Oracles: lines of the four formats written out, and their numbers read back."""

from __future__ import annotations

import csv
import io

import pytest

from limbeck.records import Record
from limbeck.support.cells import duration, magnitude, milliseconds
from limbeck.support.errors import LimbeckError
from limbeck.tables import FACTS, FORMATS, Baseline, build_table, render
from synthetic_records import a_run, a_study


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_every_row_and_column(form):
    shown = render(build_table(a_study(), facts=list(FACTS), baseline="finetune"), form, width=200)
    for text in ("teacher", "finetune", "rail-kd-l", "SST-2", "RTE", "average"):
        assert text in shown


def test_markdown_line_by_line():
    lines = render(build_table(a_study(), baseline="finetune"), "markdown").splitlines()
    assert lines[0] == "**Scores (profile glue)**"
    assert lines[2] == "| method | layers | SST-2 | RTE | average | parameters | % of teacher |"
    assert lines[3] == "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[4] == "| teacher | 12 | 90.0 | 90.0 | 90.0 | 66.4M | 100.0 |"
    assert lines[6] == "| kd | 3 | 81.0 ± 0.5 | 73.0 ± 2.0 | 77.0 ± 1.1 | 29.4M | 85.6 |"
    assert "76.1 ± 1.1 ▲" in lines[7]
    assert "Profile glue: the benchmark" in lines[9]
    assert "3 seeds" in lines[11]


def test_latex_is_booktabs_and_escaped():
    shown = render(build_table([a_run("my_method", 1, 80.0)]), "latex")
    assert shown.count(r"\toprule") == shown.count(r"\bottomrule") == 1
    assert r"my\_method & 3 & 80.0 & " in shown
    assert r"\% of teacher" in shown
    assert shown.count("{") == shown.count("}")
    marked = render(build_table(a_study(), baseline="finetune"), "latex")
    assert r"76.1{\scriptsize\,$\pm$\,1.1}$^{\uparrow}$" in marked
    assert not any(ord(character) > 126 for character in marked)


def test_csv_keeps_full_numbers():
    facts = ["layers", "latency", "kept"]
    table = build_table(a_study(), baseline=Baseline("finetune", correction="column"), facts=facts)
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert float(rows["kd"]["RTE mean"]) == 73.0
    assert float(rows["kd"]["RTE sd"]) == 2.0
    assert float(rows["kd"]["RTE p"]) == pytest.approx(0.0741799, abs=1e-6)
    assert rows["rail-kd-l"]["SST-2 p"] == ""
    assert float(rows["kd"]["latency spread"]) == 0.4
    assert rows["teacher"]["role"] == "teacher"


def test_unknown_words_name_the_choices():
    runs = a_study()
    with pytest.raises(LimbeckError, match="did you mean 'glue'"):
        build_table(runs, profile="gleu")
    with pytest.raises(LimbeckError, match=r"unknown baseline 'finetun'"):
        build_table(runs, baseline="finetun")
    with pytest.raises(LimbeckError, match="unknown fact column"):
        build_table(runs, facts=["flop"])
    with pytest.raises(LimbeckError, match="unknown format"):
        render(build_table(runs), "html")
    with pytest.raises(LimbeckError, match="no records"):
        build_table([])


@pytest.mark.parametrize(
    ("value", "text"),
    [(950, "950"), (66_400_000, "66.4M"), (999_900, "1.00M"), (2.73e9, "2.73G"), (110e6, "110M")],
)
def test_magnitudes(value, text):
    assert magnitude(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.21, "3.2 s"), (61, "61 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_records_are_not_changed_by_being_shown():
    runs = a_study()
    before = [run.model_dump() for run in runs]
    build_table(runs, baseline="kd", facts=list(FACTS))
    assert [run.model_dump() for run in runs] == before
    assert all(isinstance(run, Record) for run in runs)


def test_a_spread_has_its_values_decimals():
    assert milliseconds(20.04, 1.0) == ("20.0", "1.0")
    assert milliseconds(3.1415, 0.05) == ("3.14", "0.05")
    assert milliseconds(250.4) == ("250", "")
