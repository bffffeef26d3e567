"""Oracles: every sign flip tried in a loop, p-values and Holm's procedure worked by hand."""

from __future__ import annotations

import itertools
import random

import pytest
from scipy import stats

from limbeck.support.errors import LimbeckError
from limbeck.tables import Baseline, build_table, render
from limbeck.tables.against import compare_rows
from limbeck.tables.model import TableColumn
from synthetic_records import a_run, a_study


def runs_of(method: str, task: str, scores: dict[int, float]):
    return [a_run(method, seed, score, task=task) for seed, score in scores.items()]


def row_of(table, label: str):
    return next(row for row in table.rows if row.label == label)


def cell_of(table, label: str, title: str):
    key = next(column.key for column in table.columns if column.title == title)
    return row_of(table, label).cells[key]


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


# --- the average's test is a test of the printed average ----------------------------------------


def test_the_averages_mark_does_not_contradict_the_printed_averages():
    # RTE: 1 below over 20 seeds; SST-2: 3 above over 2. Mean of the tasks' means: 1 above.
    runs = runs_of("finetune", "rte", {s: 70.0 + 0.01 * (s % 3) for s in range(20)})
    runs += runs_of("kd", "rte", {s: 69.0 + 0.01 * (s % 3) for s in range(20)})
    runs += runs_of("finetune", "sst2", {1: 80.0, 2: 80.5})
    runs += runs_of("kd", "sst2", {1: 83.0, 2: 83.5})
    table = build_table(runs, baseline=Baseline("finetune", correction="column"))
    kd, plain = row_of(table, "kd").average, row_of(table, "finetune").average
    assert kd.mean - plain.mean == pytest.approx(1.0)
    assert kd.comparison.difference == pytest.approx(1.0)
    # RTE's twenty flips move the average by at most .5, SST-2's two by .75 each: as far out as 1
    # is every flip that leaves SST-2's two alike, half of all.
    assert kd.comparison.p == pytest.approx(0.5, abs=0.03)
    assert kd.marker == ""


@pytest.mark.parametrize("seed", range(5))
def test_the_averages_test_by_trying_every_flip(seed):
    draw = random.Random(seed)
    seeds = {"rte": (1, 2, 3, 4, 5), "sst2": (1, 2), "mrpc": (3, 4, 5)}
    ours = {task: {s: draw.gauss(1.0, 2.0) for s in some} for task, some in seeds.items()}
    runs = [
        run
        for task, differences in ours.items()
        for run in runs_of("finetune", task, dict.fromkeys(differences, 70.0))
        + runs_of("kd", task, {s: 70.0 + d for s, d in differences.items()})
    ]
    table = build_table(runs, baseline=Baseline("finetune", correction="column"))

    def printed(signs: dict[tuple[str, int], int]) -> float:
        return mean(mean(signs[t, s] * d for s, d in some.items()) for t, some in ours.items())

    units = [(task, s) for task, some in ours.items() for s in some]
    observed = printed(dict.fromkeys(units, 1))
    as_far = total = 0
    for flips in itertools.product((1, -1), repeat=len(units)):
        total += 1
        as_far += abs(printed(dict(zip(units, flips, strict=True)))) >= abs(observed) - 1e-9
    found = row_of(table, "kd").average.comparison
    assert found.difference == pytest.approx(observed)
    assert found.p == pytest.approx(as_far / total)
    assert found.pairs == 10


def test_the_note_says_for_which_tasks_the_average_speaks():
    notes = " ".join(build_table(a_study(), baseline="finetune").notes)
    assert "for only these tasks" in notes


# --- what was tested is what is shown -----------------------------------------------------------


def half_paired():
    """kd shows 56.0 beside 72.8, but on the two seeds that both have it is steadily above."""
    return [
        *runs_of("finetune", "rte", {1: 68.0, 2: 68.1, 6: 75.9, 7: 76.0, 8: 76.0}),
        *runs_of("kd", "rte", {1: 70.0, 2: 70.1001, 3: 45.0, 4: 47.0, 5: 48.0}),
    ]


def test_no_mark_where_the_paired_seeds_contradict_the_shown_means():
    table = build_table(half_paired(), baseline="finetune")
    cell = cell_of(table, "kd", "RTE")
    assert cell.mean < cell_of(table, "finetune", "RTE").mean
    assert cell.comparison.difference > 0
    assert cell.comparison.p < 0.05
    assert cell.marker == ""
    notes = " ".join(table.notes)
    assert "point the other way than the means shown: RTE (kd, 3 layers)" in notes


def test_fewer_pairs_than_runs_are_said_in_the_cell_and_below():
    runs = [
        *runs_of("finetune", "rte", {1: 68.0, 2: 68.1, 3: 68.2}),
        *runs_of("kd", "rte", {1: 70.0, 2: 70.1001, 9: 71.0}),
    ]
    table = build_table(runs, baseline="finetune")
    assert cell_of(table, "kd", "RTE").marker == "▲"
    assert "▲ (2 paired)" in render(table, "markdown")
    assert "Fewer seeds paired than shown: RTE (kd, 3 layers: 2)." in table.notes


def test_the_number_of_paired_seeds_is_said():
    notes = " ".join(build_table(a_study(), baseline="finetune").notes)
    assert "3 seeds paired" in notes
    assert "Fewer seeds paired" not in notes


# --- one correction for the whole table ---------------------------------------------------------


def test_holm_over_the_whole_table_by_hand():
    table = build_table(a_study(), baseline="finetune")
    # Five tests: rail-kd-l on RTE 1.2812e-4; the two averages 2/64; kd on RTE and on SST-2, whose
    # differences are 1, 2, 3 and 1, .5, 1.5, both .0741799. Sorted: ×5, ×4, ×3, ×2, ×1, each at
    # least as large as the one before.
    p = {
        "rail RTE": cell_of(table, "rail-kd-l", "RTE").comparison.p,
        "rail average": row_of(table, "rail-kd-l").average.comparison.p,
        "kd average": row_of(table, "kd").average.comparison.p,
        "kd RTE": cell_of(table, "kd", "RTE").comparison.p,
        "kd SST-2": cell_of(table, "kd", "SST-2").comparison.p,
    }
    assert p == {
        "rail RTE": pytest.approx(6.406e-4, rel=1e-3),
        "rail average": pytest.approx(0.125),
        "kd average": pytest.approx(0.125),
        "kd RTE": pytest.approx(0.1483598, abs=1e-6),
        "kd SST-2": pytest.approx(0.1483598, abs=1e-6),
    }
    assert "over the 5 tests of this table" in " ".join(table.notes)


def test_a_column_can_be_corrected_by_itself():
    table = build_table(a_study(), baseline=Baseline("finetune", correction="column"))
    assert row_of(table, "kd").average.comparison.p == pytest.approx(4 / 64)
    assert cell_of(table, "rail-kd-l", "RTE").comparison.p == pytest.approx(2 * 1.2812e-4, rel=1e-3)
    assert "over the rows of a column" in " ".join(table.notes)
    with pytest.raises(LimbeckError, match="unknown correction 'tabel'"):
        build_table(a_study(), baseline=Baseline("finetune", correction="tabel"))


@pytest.mark.slow
def test_few_tables_without_any_difference_bear_a_mark():
    tasks, seeds, tables = 5, 2, 160
    columns = [TableColumn(f"task {n}", f"task {n}", f"place {n}") for n in range(tasks)]
    rows = {0: ("finetune", 3, ()), 1: ("kd", 3, ())}
    draw, marked = random.Random(0), {"table": 0, "column": 0}
    for _ in range(tables):
        scores = {
            row: {c.key: {s: draw.gauss(70.0, 1.0) for s in range(seeds)} for c in columns}
            for row in rows
        }
        for correction, count in marked.items():
            found, _ = compare_rows(rows, scores, Baseline("finetune", correction), columns)
            some = any(t.p is not None and t.p < 0.05 for t in found.values())
            marked[correction] = count + some
    # Of tables without any difference one in twenty may bear a mark. By chance a true rate of
    # 5 % gives more than this many in fewer than one case of ten thousand.
    assert marked["table"] <= stats.binom.ppf(0.9999, tables, 0.05)
    # By columns: 1 − .95⁵ = 23 % from the tasks alone.
    assert marked["column"] >= stats.binom.ppf(0.0001, tables, 1 - 0.95**tasks)
