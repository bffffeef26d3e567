"""What a table says of its seeds, and teachers that have no layers."""

from __future__ import annotations

import pytest

from limbeck.tables import build_table, render
from synthetic_records import a_run, a_teacher


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([1], "One seed each."),
        ([1, 2], "Mean ± standard deviation (n − 1) over 2 seeds."),
        ([1, 2, 3], "Mean ± standard deviation (n − 1) over 3 seeds."),
    ],
)
def test_a_table_says_over_how_many_seeds_it_is(seeds, said):
    notes = build_table([a_run("kd", seed, 70.0 + seed) for seed in seeds]).notes
    assert [note for note in notes if "seed" in note] == [said]


def test_rows_of_different_numbers_of_seeds_do_not_pass_for_alike():
    runs = [a_run("kd", 1, 71.0), a_run("kd", 2, 72.0), a_run("finetune", 1, 70.0)]
    (note,) = (note for note in build_table(runs).notes if "seed" in note)
    assert note.endswith("over seeds; n is shown if it differs from the usual.")


def test_one_run_of_two_tasks_is_one_seed_each():
    notes = build_table([a_run("kd", 1, 70.0), a_run("kd", 2, 80.0, task="sst2")]).notes
    assert "One seed each." in notes


def test_a_teacher_without_layers_has_a_row_of_its_own():
    """A convolutional network; below the transformers, with a dash where they have a number."""
    net = a_teacher(88.0, "runs/net")
    net.layers = None
    runs = [a_run("kd", 1, 80.0), a_run("kd-net", 1, 79.0, teacher=net)]
    table = build_table(runs, facts=["layers", "parameters", "kept"])
    teachers = [row for row in table.rows if row.role == "teacher"]
    assert [row.layers for row in teachers] == [12, None]
    assert [row.average.mean for row in teachers] == [90.0, 88.0]
    (shown,) = (line for line in render(table, "markdown").splitlines() if "88.0" in line)
    assert shown.split("|")[1:3] == [" teacher ", " – "]
    kept = {row.label: row.facts["kept"].value for row in table.rows if row.role == "student"}
    assert kept["kd-net"] == pytest.approx(100 * 79.0 / 88.0)
