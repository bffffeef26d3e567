"""The record of `noisy_teachers.py` as the table of the results page.

    python benchmarks/noisy_labels_table.py           # print it
    python benchmarks/noisy_labels_table.py --write   # put it in place of the one in docs/results.md

A mark says that a way of using confidence is significantly better (▲) or worse (▼) than none on outputs with the same
mistakes: paired t-tests over the students' seeds, Holm-corrected over the table, p < 0.05.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from limbeck.evaluation.compare import holm, paired, paired_t_test, summary
from noisy_teachers import METHODS, NOISE
from noisy_teachers import RECORD as NOISY
from shipping_table import replaced

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
_PLAIN = next(iter(METHODS))
_LEVEL = 0.05

Cell = tuple[str, float, str]
"""A method, and its outputs' share of mistakes and how sure they are."""


def noisy_lines(record: dict[str, Any]) -> list[str]:
    """Dev accuracy of every method at every noise, the share of examples that counted behind it."""
    found: dict[Cell, dict[int, dict[str, Any]]] = {}
    for run in record["runs"]:
        key = (run["method"], run["noise"], run["how"])
        found.setdefault(key, {})[run["seed"]] = run
    noises = [noise for noise in sorted(NOISE) if any(key[1:] == noise for key in found)]
    marks = _marks({cell: _dev(runs) for cell, runs in found.items()})
    rows = [
        (method, *(_said(found.get((method, *noise)), marks, (method, *noise)) for noise in noises))
        for method in METHODS
    ]
    return _table(("learns by", *(_heading(*noise) for noise in noises)), rows)


def _dev(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    return {seed: run["dev"] for seed, run in runs.items()}


def _marks(scores: dict[Cell, dict[int, float]]) -> dict[Cell, str]:
    """Of the methods that use confidence, against the plain one on the same outputs."""
    chances: dict[Cell, float] = {}
    differences: dict[Cell, float] = {}
    for (method, noise, how), own in scores.items():
        compared = paired_t_test(*paired(own, scores.get((_PLAIN, noise, how), {})))
        if method != _PLAIN and compared is not None and compared.p is not None:
            chances[method, noise, how] = compared.p
            differences[method, noise, how] = compared.difference
    return {
        cell: " ▲" if differences[cell] > 0 else " ▼"
        for cell, p in holm(chances).items()
        if p < _LEVEL
    }


def _said(runs: dict[int, dict[str, Any]] | None, marks: dict[Cell, str], cell: Cell) -> str:
    if not runs:
        return "–"
    average, deviation = summary(list(_dev(runs).values()))
    score = f"{average:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")
    counted = [run["counted"] for run in runs.values() if run["counted"] is not None]
    return score + marks.get(cell, "") + (f" ({mean(counted):.0%})" if counted else "")


def _heading(share: float, how: str) -> str:
    return f"{share:.0%} wrong, {how}" if share else "as they are"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    marks = (":---", *["---:"] * (len(headings) - 1))
    return ["| " + " | ".join(row) + " |" for row in (headings, marks, *rows)]


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    table = noisy_lines(json.loads(NOISY.read_text(encoding="utf-8")))
    if parser.parse_args().write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    else:
        print("\n".join([*table, ""]))


if __name__ == "__main__":
    main()
