"""The records of `embeddings.py`: what each student keeps of the teacher, with paired tests over the scored pairs.

    python benchmarks/embeddings_table.py [--markdown]

A difference is a student's Spearman correlation minus that of the student of embedding MSE at the same depth, on the
same sentences and passes, mean over the seeds that both have. Its interval (95 %) is a paired bootstrap over the pairs
of the dev file: every student is scored on the same drawn pairs. p is twice the smaller share of draws on one
side of 0, corrected by Holm over the students of one depth.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from embeddings import BASELINE, COSINES, METHODS, SIMILARITIES
from limbeck.evaluation.compare import holm, summary
from limbeck.reporting.records.collection import read_raw
from study import records_of

_NAME = re.compile(r"(?P<layers>\d+)l-(?P<sentences>\d+)x(?P<passes>\d+)-.+-s(?P<seed>\d+)")
_RESAMPLES = 10_000
_AT_ONCE = 500
HEADINGS = (
    "layers", "sentences × passes", "learns by", "Spearman", "seeds", "% of the teacher's",
    "against embedding MSE (95 %)", "p (Holm)",
)  # fmt: skip

Place = tuple[int, int, int]
"""Layers, sentences, passes over them."""
Runs = Mapping[int, Mapping[str, Any]]
"""Seed → record."""


@dataclass(frozen=True)
class Compared:
    """A difference to the baseline in points of Spearman's correlation, its interval, and its p."""

    difference: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, difference: float, draws: np.ndarray) -> Compared:
        """What bootstrap draws of the difference come to."""
        low, high = np.percentile(draws, [2.5, 97.5])
        p = 2 * min((draws <= 0).mean(), (draws >= 0).mean())
        return cls(difference, float(low), float(high), float(min(1.0, max(p, 1 / len(draws)))))

    @property
    def text(self) -> str:
        """The difference and its interval, as a table has them."""
        return f"{self.difference:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def mean_text(scores: Sequence[float]) -> str:
    """Mean ± deviation, as a table has them."""
    average, deviation = summary(scores)
    return f"{average:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def p_text(p: float | None) -> str:
    """As a table has it; a dash where nothing was tested."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


class Draws:
    """Draws of scored pairs with replacement, and Spearman's correlation of any cosines in each of them."""

    def __init__(self, similarities: Sequence[float]) -> None:
        size = len(similarities)
        random = np.random.default_rng(0)
        drawn = random.integers(size, size=(_RESAMPLES, size))
        self._parts = []
        for part in np.split(drawn, _RESAMPLES // _AT_ONCE):
            counts = np.stack([np.bincount(one, minlength=size) for one in part])
            self._parts.append((counts, centred_ranks(np.asarray(similarities), counts)))
        self._known: dict[str, np.ndarray] = {}

    def spearman(self, name: str, cosines: Sequence[float]) -> np.ndarray:
        """Times 100, by draw (draws); `name` is whose cosines these are, so that they are ranked once."""
        if name not in self._known:
            found = []
            for counts, others in self._parts:
                own = centred_ranks(np.asarray(cosines), counts)
                lengths = np.sqrt((counts * own**2).sum(-1) * (counts * others**2).sum(-1))
                found.append(100 * (counts * own * others).sum(-1) / lengths)
            self._known[name] = np.concatenate(found)
        return self._known[name]


def centred_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean rank of each value (draws, n) among all that were drawn, less the mean of all ranks.

    Args:
        values: (n).
        counts: (draws, n) how often each was drawn.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    equal = np.add.reduceat(counts[:, order], starts, axis=1)
    middle = equal.cumsum(1) - (equal - 1) / 2
    ranks = np.empty(counts.shape)
    ranks[:, order] = np.repeat(middle, np.diff([*starts, len(values)]), axis=1)
    return ranks - (counts[0].sum() + 1) / 2


def compared(runs: Runs, baseline: Runs, draws: Draws) -> Compared | None:
    """A method's runs beside the baseline's of the same seeds; None without any."""
    seeds = sorted(runs.keys() & baseline.keys())
    if not seeds:
        return None
    drawn, found = (
        np.mean([np.asarray(of(runs[seed]) - of(baseline[seed])) for seed in seeds], axis=0)
        for of in (lambda one: draws.spearman(one["name"], one[COSINES]), _whole)
    )
    return Compared.of(float(found), drawn)


def _whole(record: Mapping[str, Any]) -> float:
    return 100 * float(spearmanr(record[COSINES], record[SIMILARITIES]).statistic)


def place_of(name: str) -> tuple[Place, int] | None:
    """What a cell's name says: its place, and its seed; None where it is another study's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return (int(match["layers"]), int(match["sentences"]), int(match["passes"])), int(match["seed"])


def read_runs() -> dict[tuple[Place, str], dict[int, dict[str, Any]]]:
    """Records by place and method, in the table's order."""
    found: dict[tuple[Place, str], dict[int, dict[str, Any]]] = {}
    for name, record in read_raw(records_of("embeddings")).items():
        named = place_of(name)
        if named is not None:
            place, seed = named
            found.setdefault((place, record["method"]), {})[seed] = record | {"name": name}
    names = list(METHODS)
    order = sorted(found, key=lambda key: (-key[0][0], key[0][1:], names.index(key[1])))
    return {key: found[key] for key in order}


def rows() -> list[tuple[str, ...]]:
    """The table's cells, line by line."""
    runs = read_runs()
    draws = Draws(next(iter(next(iter(runs.values())).values()))[SIMILARITIES])
    tested = {
        key: result
        for key in runs
        if key[1] != BASELINE
        and (result := compared(runs[key], runs.get((key[0], BASELINE), {}), draws)) is not None
    }
    corrected: dict[tuple[Place, str], float] = {}
    for place in {place for place, _ in tested}:
        corrected |= holm({key: one.p for key, one in tested.items() if key[0] == place})
    return [_row(key, own, tested.get(key), corrected.get(key)) for key, own in runs.items()]


def _row(
    key: tuple[Place, str], runs: Runs, result: Compared | None, p: float | None
) -> tuple[str, ...]:
    (layers, sentences, passes), method = key
    scores = [record["scores"]["dev"]["spearman"] for record in runs.values()]
    shares = [
        100 * record["scores"]["dev"]["spearman"] / record["teacher"]["scores"]["dev"]["spearman"]
        for record in runs.values()
    ]
    return (
        str(layers),
        f"{sentences:,} × {passes}",
        method,
        mean_text(scores),
        str(len(scores)),
        f"{mean(shares):.1f}",
        "–" if result is None else result.text,
        p_text(p),
    )


def markdown(lines: list[tuple[str, ...]]) -> str:
    """As the docs have it."""
    marks = ("---:", "---:", ":---", "---:", "---:", "---:", "---:", "---:")
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADINGS, marks, *lines))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    lines = rows()
    if args.markdown:
        print(markdown(lines))
        return
    table = Table(*HEADINGS, title="Sentence embedders: STS-B dev")
    for line in lines:
        table.add_row(*line)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
