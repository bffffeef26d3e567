"""Every shipped study at its smallest scale, on the first of its tasks and one seed: all rows come out.

The studies share their runs, as a user's do.
"""

from __future__ import annotations

import csv

import pytest

from limbeck.study import SharedRuns, StudyPlan, carry_out, load_study, shipped, write_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> SharedRuns:
    return SharedRuns(tmp_path_factory.mktemp("studies") / "runs", keep_students=False)


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_study_comes_out_whole(name, runs, tmp_path) -> None:
    study = load_study(name, scale="pocket")
    # A deviation needs two.
    deviations = study.printed is not None and study.printed.what == "deviation"
    seeds = study.seeds[: 2 if deviations else 1]
    study = study.model_copy(update={"tasks": study.tasks[:1], "seeds": seeds})
    # Studies share their runs; those whose figures look at students keep them.
    runs = SharedRuns(runs.path.parent / "kept", True) if study.keep_students else runs
    plan = StudyPlan.of(study)
    assert carry_out(plan, runs) == []
    table, page = write_study(plan, runs, tmp_path)
    assert {row.label for row in table.rows if row.role == "student"} >= set(study.methods)
    for row in table.rows:
        for cell in row.cells.values():
            assert cell.mean is not None or row.role == "teacher"
            assert not cell.failed
    with (tmp_path / "table.csv").open(encoding="utf-8") as stream:
        assert {row["method"] for row in csv.DictReader(stream)} >= set(study.methods)
    for figure in study.figures:
        assert list(tmp_path.glob(f"{figure}*.png")), figure
    assert study.title in page.read_text(encoding="utf-8")
