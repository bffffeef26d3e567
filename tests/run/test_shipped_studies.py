"""Every shipped study at its smallest scale, on the first of its tasks and one seed: all rows come out.

The studies share their runs, as a user's do.
"""

from __future__ import annotations

import csv
from html import unescape
from itertools import product

import pytest

from limbeck.lab.study import SharedRuns, StudyPlan, carry_out, load_study, shipped, write_study

pytestmark = pytest.mark.slow


def rows_of(study) -> list[str]:
    """What rows are called: a method, and what an axis is set to where it is not the depth, a column.

    A method that sets the group of an axis' key has no word of it: without a first stage none is on a task.
    """
    axes = {key: values for key, values in study.axes.items() if key != "student.layers"}
    conditions = [list(zip(axes, values, strict=True)) for values in product(*axes.values())]
    found = []
    for label in study.methods:
        groups = tuple(f"{key}." for key in study.method_of(label).settings)
        for one in conditions:
            words = [f"{key}={value}" for key, value in one if not key.startswith(groups)]
            found.append(" ".join([label, *words]))
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> SharedRuns:
    # Figures of some studies look at students that another study's table has too.
    return SharedRuns(tmp_path_factory.mktemp("studies") / "runs", keep_students=True)


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_study_comes_out_whole(name, runs, tmp_path) -> None:
    study = load_study(name, scale="pocket")
    # A deviation needs two.
    deviations = study.printed is not None and study.printed.what == "deviation"
    seeds = study.seeds[: 2 if deviations else 1]
    study = study.model_copy(update={"tasks": study.tasks[:1], "seeds": seeds})
    plan = StudyPlan.of(study)
    assert carry_out(plan, runs) == []
    table, page = write_study(plan, runs, tmp_path)
    wanted = set(rows_of(study))
    assert {row.label for row in table.rows if row.role == "student"} >= wanted
    for row in table.rows:
        for cell in row.cells.values():
            assert cell.mean is not None or row.role == "teacher"
            assert not cell.failed
    with (tmp_path / "table.csv").open(encoding="utf-8") as stream:
        assert {row["method"] for row in csv.DictReader(stream)} >= wanted
    for figure in study.figures:
        assert list(tmp_path.glob(f"{figure}*.png")), figure
    assert study.title in unescape(page.read_text(encoding="utf-8"))
