"""Every average that the papers print, recomputed from the cells they print, by their profile.

Cells are rounded, so a recomputed mean may lie one unit of the last decimal from the printed one:
half for the cells' own rounding, half for the average's. What lies further off the papers got wrong,
or another table's numbers were copied.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from limbeck.tables.profiles import get_profile, weighted_mean

TABLES = yaml.safe_load(
    Path(__file__).with_name("printed_averages.yaml").read_text(encoding="utf-8")
)

WRONG_IN_THE_PAPER = {
    ("RAIL-KD", "2, dev", "w/o KD"),
    # The cells of the first three rows are mostly the dev set's, their averages are not.
    ("RAIL-KD", "3, test", "Teacher"),
    ("RAIL-KD", "3, test", "w/o KD"),
    ("RAIL-KD", "3, test", "Vanilla KD"),
    ("CR-ILD", "6, 20 % noise", "PKD"),
    ("SKDBERT", "2", "BERT SMALL"),
    ("SKDBERT", "2", "SKDBERT 4"),
}


def as_scores(profile: str, titles: list[str], cells: list[float]) -> dict:
    """Printed cells as a run's scores: every metric of a column's is the number in its cell."""
    found: dict[str, dict] = {}
    for task, columns in get_profile(profile).columns.items():
        for column in columns:
            if column.title in titles:
                cell = cells[titles.index(column.title)]
                for split in column.splits:
                    metrics = dict.fromkeys(column.metrics.split("+"), cell)
                    found.setdefault(task, {}).setdefault(split, {}).update(metrics)
    return found


def profile_average(profile: str, tasks: dict) -> float | None:
    columns = get_profile(profile).columns
    return weighted_mean(
        [(one.weight, one.value(tasks[task])) for task in tasks for one in columns.get(task, ())]
    )


def recomputed(table: dict, cells: list[float]) -> float:
    if table["profile"] is None:
        return sum(cells) / len(cells)
    scores = as_scores(table["profile"], table["columns"], cells)
    average = profile_average(table["profile"], scores)
    assert average is not None
    return average


def name(table: dict) -> str:
    return f"{table['paper']} {table['table']}"


@pytest.mark.parametrize("table", TABLES, ids=name)
def test_the_profile_gives_the_papers_averages(table):
    unit = 10.0 ** -table["decimals"]
    off = {
        label
        for label, (*cells, printed) in table["rows"].items()
        if abs(recomputed(table, cells) - printed) > unit + 1e-9
    }
    here = (table["paper"], table["table"])
    assert off == {label for *place, label in WRONG_IN_THE_PAPER if tuple(place) == here}


def test_every_table_is_read_as_it_was_typed():
    rows = {
        paper: sum(len(t["rows"]) for t in TABLES if t["paper"] == paper)
        for paper in ("RAIL-KD", "ALP-KD", "CR-ILD", "SKDBERT")
    }
    assert rows == {"RAIL-KD": 14 + 14 + 3 + 4 + 14, "ALP-KD": 26, "CR-ILD": 35, "SKDBERT": 33}
    for table in TABLES:
        assert {len(cells) for cells in table["rows"].values()} == {len(table["columns"]) + 1}


@pytest.mark.parametrize(
    ("table", "profile", "other"),
    [("2, test", "rail", "rail-once"), ("3, dev", "rail-once", "rail")],
)
def test_mnli_counts_twice_in_one_table_of_rail_kd_and_once_in_another(table, profile, other):
    (found,) = [t for t in TABLES if (t["paper"], t["table"]) == ("RAIL-KD", table)]
    off = {
        name: sum(
            abs(recomputed(found | {"profile": name}, cells) - printed)
            for *cells, printed in found["rows"].values()
        )
        for name in (profile, other)
    }
    assert off[profile] < 0.5 * off[other]


def test_rails_average_by_hand():
    # Table 2, the teacher on the dev sets: MNLI's 84.7 twice, nine numbers: 753.4 / 9.
    cells = [61.3, 93.0, 90.6, 88.4, 91.0, 84.7, 91.5, 68.2]
    titles = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE"]
    scores = as_scores("rail", titles, cells)
    assert profile_average("rail", scores) == pytest.approx(753.4 / 9)
    assert profile_average("rail-once", scores) == pytest.approx(668.7 / 8)


def test_a_tables_average_counts_mnli_as_its_profile_does():
    from limbeck.tables import build_table
    from synthetic_records import a_run

    mnli = {
        "dev": {"accuracy": 80.0, "primary": 80.0},
        "dev_mismatched": {"accuracy": 82.0, "primary": 82.0},
    }
    runs = [a_run(m, s, 60.0 + s) for m in ("finetune", "kd") for s in (1, 2)]
    runs += [
        a_run(m, s, 80.0, task="mnli", scores=mnli) for m in ("finetune", "kd") for s in (1, 2)
    ]
    averages = {
        profile: build_table(runs, profile=profile, baseline="finetune").rows[-1].average.mean
        for profile in ("rail", "rail-once")
    }
    assert averages == {
        "rail": pytest.approx((61.5 + 81 + 81) / 3),
        "rail-once": pytest.approx((61.5 + 81) / 2),
    }
