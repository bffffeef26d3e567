"""The records of `embeddings.py`: what each student keeps of the teacher, with paired tests over the scored pairs.

    python benchmarks/embeddings_table.py [--test] [--markdown]

`--test` reads what `embedding_test.py` kept of STS-B's test pairs; without it those of its dev file are compared. A
difference is a student's Spearman correlation minus that of the student of embedding MSE at the same depth, on the
same sentences and passes, mean over the seeds that both have. Its interval (95 %) is a paired bootstrap over the
pairs: every student is scored on the same drawn pairs. p is twice the smaller share of draws on one
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

from embedding_test import PEOPLE, STUDY, TEACHER
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


@dataclass(frozen=True)
class Scored:
    """A student's cosines of the pairs, and Spearman's correlation × 100 of its own and of its teacher's."""

    name: str
    cosines: Sequence[float]
    spearman: float
    teacher: float


Runs = Mapping[int, Scored]
"""By seed."""


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
        for of in (lambda one: draws.spearman(one.name, one.cosines), lambda one: one.spearman)
    )
    return Compared.of(float(found), drawn)


def place_of(name: str) -> tuple[Place, int] | None:
    """What a cell's name says: its place, and its seed; None where it is another study's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return (int(match["layers"]), int(match["sentences"]), int(match["passes"])), int(match["seed"])


Studied = tuple[dict[tuple[Place, str], dict[int, Scored]], Sequence[float]]
"""Runs by place and method, in the table's order, and the similarities that people gave to the pairs."""


def read_runs(test: bool) -> Studied:
    """What the records say of the dev pairs, or of the test pairs."""
    records = read_raw(records_of("embeddings"))
    scored, similarities = _of_test() if test else _of_dev(records)
    found: dict[tuple[Place, str], dict[int, Scored]] = {}
    for name, record in records.items():
        named = place_of(name)
        if named is not None and name in scored:
            place, seed = named
            found.setdefault((place, record["method"]), {})[seed] = scored[name]
    names = list(METHODS)
    order = sorted(found, key=lambda key: (-key[0][0], key[0][1:], names.index(key[1])))
    return {key: found[key] for key in order}, similarities


def _of_dev(records: Mapping[str, Any]) -> tuple[dict[str, Scored], Sequence[float]]:
    similarities = next(iter(records.values()))[SIMILARITIES]
    scored = {}
    for name, record in records.items():
        own, teacher = (one["scores"]["dev"]["spearman"] for one in (record, record["teacher"]))
        scored[name] = Scored(name, record[COSINES], own, teacher)
    return scored, similarities


def _of_test() -> tuple[dict[str, Scored], Sequence[float]]:
    records = dict(read_raw(records_of(STUDY)))
    similarities = records.pop(PEOPLE)[SIMILARITIES]
    spearman = {
        name: 100 * float(spearmanr(record[COSINES], similarities).statistic)
        for name, record in records.items()
    }
    scored = {
        name: Scored(name, record[COSINES], spearman[name], spearman[TEACHER])
        for name, record in records.items()
    }
    return scored, similarities


def rows(test: bool) -> list[tuple[str, ...]]:
    """The table's cells, line by line, of the dev pairs or of the test pairs."""
    runs, similarities = read_runs(test)
    draws = Draws(similarities)
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
    scores = [one.spearman for one in runs.values()]
    shares = [100 * one.spearman / one.teacher for one in runs.values()]
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
    parser.add_argument("--test", action="store_true", help="the test pairs instead of dev")
    args = parser.parse_args()
    lines = rows(args.test)
    if args.markdown:
        print(markdown(lines))
        return
    table = Table(*HEADINGS, title=f"Sentence embedders: STS-B {'test' if args.test else 'dev'}")
    for line in lines:
        table.add_row(*line)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
