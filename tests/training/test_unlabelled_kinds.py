"""Whole runs with rows without a label, of every task type that takes them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import several_labels as several
import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.tasks import TASK_TYPES, get_task_type
from limbeck.tasks.abstract_type import no_unlabelled
from quick_cases import quick

# Each row says another thing.
TEXTS = [
    " ".join([tiny.WORDS[row % 2], *words])
    for row, words in enumerate(itertools.permutations(tiny.WORDS[2:], 3))
]


@dataclass(frozen=True)
class Case:
    """Rows of a task type, and a teacher of them.

    Attributes:
        kind: its name in a recipe.
        row: of a text the row of a file; without its label where it is not wanted.
        teacher: makes one.
        method: a method that learns from both sorts of rows.
        absent: what a training row's label is without one.
    """

    kind: str
    row: Callable[[str, bool], dict[str, Any]]
    teacher: Callable[[], Any]
    absent: Any
    method: str = "kd"


def of_text(label: Callable[[str], Any]) -> Callable[[str, bool], dict[str, Any]]:
    return lambda text, known: {"review": text} | ({"verdict": label(text)} if known else {})


def of_query(text: str, known: bool) -> dict[str, Any]:
    passages = [f"good {text.split()[1]}", "the end", "a bad plot"]
    return {"query": text, "passages": passages} | ({"labels": [1, 0, 0]} if known else {})


def praises(text: str) -> bool:
    return text.startswith("good")


def of_number():
    return tiny.knowing_teacher(3, regression=True)


CASES = {
    "classes": Case(
        "sentence",
        of_text(lambda text: "positive" if praises(text) else "negative"),
        lambda: tiny.knowing_teacher(3),
        -100,
    ),
    "numbers": Case(
        "sentence", of_text(lambda text: praises(text) + len(text) / 100), of_number, math.nan
    ),
    "several labels": Case(
        "multi-label",
        of_text(several.labels_of),
        lambda: several.knowing_teacher(3),
        [math.nan] * 3,
    ),
    "scores of pairs": Case("pair-score", of_query, of_number, math.nan),
    "lists of candidates": Case("pair-score", of_query, of_number, math.nan, "listwise-kl"),
}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def recipe_of(case: Case, folder: Path, **changes) -> Recipe:
    """16 rows with a label, or that many queries, and 24 without; two of these stand among the first 16 too."""
    (folder / "rows").mkdir()
    write(folder / "rows" / "train.jsonl", [case.row(text, True) for text in TEXTS[:16]])
    write(folder / "rows" / "dev.jsonl", [case.row(text, True) for text in TEXTS[16:24]])
    write(folder / "more.jsonl", [case.row(text, False) for text in [*TEXTS[:2], *TEXTS[24:48]]])
    tiny.save(case.teacher(), folder / "teacher")
    columns = {"text_columns": ["review"], "label_column": "verdict"}
    given = {
        "task": "own",
        "data": str(folder / "rows"),
        "kind": case.kind,
        "teacher": str(folder / "teacher"),
        "student.init": "teacher",
        "student.layers": 2,
        "unlabelled": [str(folder / "more.jsonl")],
        "epochs": 1,
        "batch_size": 12,
        "max_length": 24,
        "seed": 3,
    }
    return Recipe.load(
        case.method, **(given | ({} if case.kind == "pair-score" else columns) | changes)
    )


def test_there_is_a_case_of_every_type_that_takes_them_and_encodes_rows_in_its_own_way():
    taking = {name for name in TASK_TYPES if no_unlabelled(get_task_type(name)) is None}
    ways = [
        {type(get_task_type(name)).encode for name in names}
        for names in (taking, [case.kind for case in CASES.values()])
    ]
    assert ways[0] == ways[1]


@pytest.mark.parametrize("name", CASES)
def test_they_stand_below_the_others_as_rows_without_a_label(tmp_path, name):
    case = CASES[name]
    prepared = prepare(recipe_of(case, tmp_path))
    each = len(case.row("a long plot", True).get("passages", [""]))
    labels = prepared.train.raw.with_format("numpy")["label"][:]
    assert len(labels) == 40 * each and prepared.unlabelled.kept == 24 * each
    known = np.asarray(labels[: 16 * each], dtype=float)
    assert not np.isnan(known).any() and (known >= 0).all()
    np.testing.assert_array_equal(labels[16 * each :], [case.absent] * (24 * each))


@pytest.mark.parametrize("name", quick("classes", "lists of candidates", of=CASES))
def test_a_run_learns_from_both(tmp_path, name):
    case = CASES[name]
    result = distill(recipe_of(case, tmp_path), out=tmp_path / "run", report=False)
    (epoch,) = result.record.epochs
    assert {"hard", "soft"} < {*epoch.train} or case.method != "kd"
    assert all(math.isfinite(value) and value > 0 for value in epoch.train.values())
    found, each = result.record.examples, len(case.row("a long plot", True).get("passages", [""]))
    assert (found.labelled, found.unlabelled) == (16 * each, 24 * each)
    assert found.unlabelled_repeated == 2 * each


@pytest.mark.parametrize(
    "name", quick("classes", of=[name for name, case in CASES.items() if case.method == "kd"])
)
def test_the_settings_of_such_rows_do_what_they_say(tmp_path, name):
    """A quarter of each batch has a label, and nothing else counts in the teacher's term."""
    case = CASES[name]
    changes = {"unlabelled_weight": 0.0, "accumulation": 2, "batch_size": 4}
    if case.kind != "pair-score":
        changes["labelled_share"] = 0.25
    recipe = recipe_of(case, tmp_path, **changes)
    (epoch,) = distill(recipe, out=tmp_path / "run", report=False).record.epochs
    assert epoch.train["counted"] == pytest.approx(16 / 40 if case.kind == "pair-score" else 0.25)
    assert epoch.train["hard"] > 0
