"""`limbeck table` from run folders on disk: its rows by hand, in every form, and what it refuses."""

from __future__ import annotations

import csv

import pytest
from typer.testing import CliRunner, Result

from limbeck.cli.app import app
from synthetic_records import a_run, a_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for run in a_study():
        run.save(folder / "deeper" / f"{run.task}-{run.method}-{run.seed}")
    a_run("kd", 4, None, status="failed").save(folder / "rte-kd-4")
    return folder


def table(*arguments: object) -> Result:
    words = ["table", *map(str, arguments)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})


def rows_of(*arguments: object) -> dict[str, dict[str, str]]:
    ended = table(*arguments, "--format", "csv")
    assert ended.exit_code == 0, ended.output
    return {row["method"]: row for row in csv.DictReader(ended.stdout.splitlines())}


def test_rows_are_methods_with_means_spreads_and_counts(runs) -> None:
    rows = rows_of(runs, "--columns", "layers", "kept")
    assert list(rows) == ["teacher", "finetune", "kd", "rail-kd-l"]
    # RTE of kd: 71, 73 and 75, one run failed; SST-2: 81, 80.5 and 81.5.
    kd = {key: float(rows["kd"][key]) for key in ("RTE mean", "RTE sd", "SST-2 mean", "SST-2 sd")}
    assert kd == {"RTE mean": 73.0, "RTE sd": 2.0, "SST-2 mean": 81.0, "SST-2 sd": 0.5}
    assert (rows["kd"]["RTE n"], rows["kd"]["RTE failed"]) == ("3", "1")
    assert float(rows["kd"]["average mean"]) == 77.0
    # 77 of the teacher's 90.
    assert float(rows["kd"]["kept"]) == pytest.approx(85.5556, abs=1e-4)
    assert rows["teacher"]["role"] == "teacher"
    assert rows["rail-kd-l"]["layers"] == "3"
    assert "parameters" not in rows["kd"]


def test_a_baseline_is_tested_against_and_rows_split_by_settings(runs) -> None:
    rows = rows_of(runs, "--baseline", "kd", "--correction", "column", "--by", "lr", "student.pick")
    ours = rows["finetune lr=5e-05 student.pick=first"]
    assert (float(ours["RTE difference"]), ours["RTE pairs"]) == (-2.0, "3")
    assert 0 < float(ours["RTE p"]) < 1
    assert rows["kd lr=5e-05 student.pick=first"]["RTE p"] == ""


def test_a_files_name_says_its_form_and_the_screen_has_the_notes(runs, tmp_path) -> None:
    for name, start in (("a.md", "**Ours"), ("b.tex", "\\begin{table}")):
        ended = table(runs, "--out", tmp_path / name, "--title", "Ours")
        assert (ended.exit_code, ended.stdout) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").lstrip().startswith(start)
    shown = table(runs, "--baseline", "finetune", "--title", "Ours").stdout
    assert "76.1 ± 1.1 ▲" in shown
    assert "1 failed" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "html"], ["unknown format 'html'"]),
        (["--by", "lrr", "studnet.pick"], ["rows by 'lrr'", "did you mean 'student.pick'"]),
    ],
)
def test_what_it_does_not_know_is_refused_with_the_choices(runs, words, said) -> None:
    ended = table(runs, *words)
    assert ended.exit_code == 2
    assert all(one in ended.stderr for one in said)
    assert not ended.stdout
