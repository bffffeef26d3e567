"""The records of `embeddings.py`: what each student keeps of the teacher, with paired tests over the scored pairs.

    python benchmarks/embeddings_table.py [--test] [--markdown]

`--test` reads what `embedding_test.py` kept of STS-B's test pairs; without it those of its dev file are compared. A
difference is a student's Spearman correlation minus that of the student of embedding MSE at the same depth, on the
same sentences and passes, mean over the seeds that both have. Interval (95 %) and p are those of
`limbeck.evaluation.compare.seeds_and_rows`: seeds and pairs both vary. p is corrected by Holm over all tests of the
table. A method that computes what another one does (both forms of RAIL-KD at two layers) is tested once.
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
from scipy.stats import rankdata, spearmanr

from embedding_test import PEOPLE, STUDY, TEACHER
from embeddings import BASELINE, COSINES, METHODS, SIMILARITIES
from limbeck.evaluation.compare import Comparison, holm, seeds_and_rows, summary
from limbeck.records.record import read_raw
from study import records_of

_NAME = re.compile(r"(?P<layers>\d+)l-(?P<sentences>\d+)x(?P<passes>\d+)-.+-s(?P<seed>\d+)")
HEADINGS: tuple[str, ...] = (
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


def mean_text(scores: Sequence[float]) -> str:
    """Mean ± deviation, as a table has them."""
    average, deviation = summary(scores)
    return f"{average:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def p_text(p: float | None) -> str:
    """As a table has it; a dash where nothing was tested."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


class Pairs:
    """The scored pairs, and Spearman's correlation of any cosines with each of the pairs left out once."""

    def __init__(self, similarities: Sequence[float]) -> None:
        self._people = similarities
        self._known: dict[str, np.ndarray] = {}

    def without(self, name: str, cosines: Sequence[float]) -> np.ndarray:
        """Times 100, by the pair that is left out (n,); `name` is whose cosines these are, kept for the next time."""
        if name not in self._known:
            self._known[name] = 100 * spearman_without(
                np.asarray(cosines), np.asarray(self._people)
            )
        return self._known[name]


def spearman_without(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's correlation of two lists (n,) with each of their pairs left out, (n,).

    Without pair k the rank of every larger number is 1 less, and of an equal one ½.
    """

    def ranks(values: np.ndarray) -> np.ndarray:
        smaller = (values[None] < values[:, None]) + 0.5 * (values[None] == values[:, None])
        found = rankdata(values)[:, None] - smaller  # pair, pair left out
        found -= (found.sum(0) - found.diagonal()) / (len(values) - 1)
        np.fill_diagonal(found, 0)
        result: np.ndarray = found
        return result

    one, other = ranks(first), ranks(second)
    result: np.ndarray = (one * other).sum(0) / np.sqrt((one**2).sum(0) * (other**2).sum(0))
    return result


def compared(runs: Runs, baseline: Runs, pairs: Pairs) -> Comparison | None:
    """A method's runs beside the baseline's of the same seeds: seeds and pairs both vary.

    None without any seed of both; of a single seed there is a difference alone.
    """
    seeds = sorted(runs.keys() & baseline.keys())
    if not seeds:
        return None
    gaps = [runs[seed].spearman - baseline[seed].spearman for seed in seeds]
    if len(seeds) == 1:
        return Comparison(gaps[0], None, 1)
    without = np.mean(
        [
            pairs.without(runs[seed].name, runs[seed].cosines)
            - pairs.without(baseline[seed].name, baseline[seed].cosines)
            for seed in seeds
        ],
        axis=0,
    )
    return seeds_and_rows(gaps, without)


def text_of(found: Comparison | None) -> str:
    """A difference and its interval, as a table has them."""
    if found is None:
        return "–"
    if found.low is None:
        return f"{found.difference:+.2f}"
    return f"{found.difference:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


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
    pairs = Pairs(similarities)
    tested = {
        key: result
        for key in runs
        if key[1] != BASELINE
        and (result := compared(runs[key], runs.get((key[0], BASELINE), {}), pairs)) is not None
    }
    twins = {key: same for key in tested for same in tested if _same(runs[same], runs[key])}
    corrected = holm(
        {key: one.p for key, one in tested.items() if one.p is not None and twins[key] == key}
    )
    corrected |= {key: corrected[twins[key]] for key in tested if twins[key] in corrected}
    return [_row(key, own, tested.get(key), corrected.get(key)) for key, own in runs.items()]


def _same(one: Runs, other: Runs) -> bool:
    """Whether two methods' students are the same, score by score."""
    return {seed: (run.spearman, tuple(run.cosines)) for seed, run in one.items()} == {
        seed: (run.spearman, tuple(run.cosines)) for seed, run in other.items()
    }


def _row(
    key: tuple[Place, str], runs: Runs, result: Comparison | None, p: float | None
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
        text_of(result),
        p_text(p),
    )


def markdown(headings: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """As the docs have it."""
    marks = tuple(":---" if heading == "learns by" else "---:" for heading in headings)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, marks, *lines))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--test", action="store_true", help="the test pairs instead of dev")
    args = parser.parse_args()
    headings, lines = HEADINGS, rows(args.test)
    if len({line[1] for line in lines}) == 1:  # all students read the same sentences
        headings, *lines = [(row[0], *row[2:]) for row in (headings, *lines)]
    if args.markdown:
        print(markdown(headings, lines))
        return
    table = Table(*headings, title=f"Sentence embedders: STS-B {'test' if args.test else 'dev'}")
    for line in lines:
        table.add_row(*line)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
