"""The records of `few_labels.py`: how much of the gap to its teacher each student closes, with tests, and a picture.

    python benchmarks/few_labels_table.py [--markdown] [--picture docs/assets/few-labels.svg] [--task sst2] [--seeds 5]

A share of the gap is that of the means over the seeds: (student − labels alone) / (teacher − labels alone); its
95 % interval is Fieller's, that of a ratio of two means, which has no ends where the gap itself may be none. Tests are
paired over seeds against `labels alone`, corrected by Holm over the students of one task and number of labels. Scores
are the best of so many passes on dev; those of the last pass stand beside them, and so do the mean of the classes' F1
after the best pass and the difference to the teacher with its 95 % interval, best pass less best pass.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy import stats

from few_labels import BASELINE, CONDITIONS, LABELS, TASKS
from limbeck.evaluation.compare import holm, paired, paired_t_test, summary
from limbeck.records import Record, read_collection
from study import records_of

TEACHER = "teacher"
_NAME = re.compile(r"(?P<task>\w+)-(?P<labels>\d+)-s(?P<seed>\d+)-")
# `unlabelled`, or `unlabelled (10,000 rows)` where not all were taken.
_LABEL = re.compile(r"(?P<condition>.+?)(?: \((?P<rows>[\d,]+) rows\))?")
# Between points of one number of labels, on the logarithmic axis of the picture.
_BESIDE = 1.08

BySeed = Mapping[int, float]
Place = tuple[str, int]
"""A task, and how many of its rows have labels."""


@dataclass(frozen=True)
class Line:
    """One student at one place of the table, beside the teacher and the student without one.

    `condition` is its records' label, `rows` the mean number of rows beside the labelled ones.
    """

    place: Place
    condition: str
    rows: float
    scores: BySeed
    alone: BySeed
    teacher: BySeed
    last: BySeed = field(default_factory=dict)
    macro_f1: BySeed = field(default_factory=dict)
    passes: str = ""

    @property
    def gap(self) -> tuple[float, float, float] | None:
        """Share of the gap in per cent, and its interval; None for its ends, and where the teacher is not ahead.

        The ends are infinite where the gap itself may be none.
        """
        seeds = sorted(self.scores.keys() & self.alone.keys() & self.teacher.keys())
        if self.condition in (BASELINE, TEACHER) or len(seeds) < 2:
            return None
        mine, alone, teacher = (
            np.array([scores[seed] for seed in seeds])
            for scores in (self.scores, self.alone, self.teacher)
        )
        if teacher.mean() <= alone.mean():
            return None
        return fieller(mine - alone, teacher - alone)

    @property
    def p(self) -> float | None:
        """Of the paired test of a student against the labels alone, not corrected."""
        if self.condition in (BASELINE, TEACHER):
            return None
        found = paired_t_test(*paired(self.scores, self.alone))
        return None if found is None else found.p


def fieller(gained: np.ndarray, gap: np.ndarray) -> tuple[float, float, float]:
    """100 · the ratio of two means over the same seeds (S,), and Fieller's (1954) 95 % interval.

    All ratios r for which `gained − r · gap` is not significantly different from 0 by a paired t-test.
    """
    seeds = len(gap)
    reach = stats.t.ppf(0.975, seeds - 1) ** 2 / seeds
    spread = reach * np.cov(gained, gap)
    square = gap.mean() ** 2 - spread[1, 1]
    linear = gained.mean() * gap.mean() - spread[0, 1]
    constant = gained.mean() ** 2 - spread[0, 0]
    share = float(100 * gained.mean() / gap.mean())
    if square <= 0:
        return share, -np.inf, np.inf
    root = np.sqrt(max(linear**2 - square * constant, 0.0))
    return share, float(100 * (linear - root) / square), float(100 * (linear + root) / square)


def read_lines(seeds: int | None = None) -> list[Line]:
    """All lines that have records, in the table's order, of so many seeds at most."""
    found: dict[tuple[Place, str], dict[int, Record]] = {}
    for name, record in read_collection(records_of("few_labels")).items():
        match = _NAME.match(name)
        if match is None or record.scores["dev"]["primary"] is None:
            continue
        if seeds is not None and int(match["seed"]) > seeds:
            continue
        place = (match["task"], int(match["labels"]))
        found.setdefault((place, record.method), {})[int(match["seed"])] = record
    scores = {
        key: {seed: record.scores["dev"]["primary"] for seed, record in records.items()}
        for key, records in found.items()
    }
    last = {
        key: {
            seed: record.last.primary
            for seed, record in records.items()
            if record.last is not None and record.last.primary is not None
        }
        for key, records in found.items()
    }
    macro = {key: _macro_f1(records) for key, records in found.items()}
    return [
        Line(
            place,
            condition,
            mean(record.examples.unlabelled for record in found[place, condition].values()),
            scores[place, condition],
            scores.get((place, BASELINE), {}),
            scores.get((place, TEACHER), {}),
            last[place, condition],
            macro[place, condition],
            "–".join(
                str(count)
                for count in sorted({len(one.epochs) for one in found[place, condition].values()})
            ),
        )
        for place, condition in sorted(found, key=_order)
    ]


def _macro_f1(records: Mapping[int, Record]) -> dict[int, float]:
    """By seed the mean of the classes' F1 on dev, after the best pass."""
    return {
        seed: record.classification["dev"].student.macro_f1
        for seed, record in records.items()
        if "dev" in record.classification
    }


def _order(key: tuple[Place, str]) -> tuple[int, int, int, int]:
    """Tasks, numbers of labels and conditions as they are listed, a condition's fewest rows first."""
    (task, labels), label = key
    condition, rows = condition_of(label)
    named = (TEACHER, *CONDITIONS).index(condition)
    return list(TASKS).index(task), labels, named, sys.maxsize if rows is None else rows


def condition_of(label: str) -> tuple[str, int | None]:
    """A record's label as its condition, and how many rows without labels were taken (None: all)."""
    match = _LABEL.fullmatch(label)
    assert match is not None
    rows = match["rows"]
    return match["condition"], None if rows is None else int(rows.replace(",", ""))


HEADINGS = (
    "task",
    "labels",
    "student learns from",
    "other rows",
    "dev",
    "seeds",
    "% of the gap",
    "p (Holm)",
    "passes",
    "last pass",
    "macro F1",
    "less its teacher (95 %)",
)


def cells(lines: list[Line]) -> list[tuple[str, ...]]:
    """The table's cells, line by line."""
    corrected: dict[int, float] = {}
    for place in {line.place for line in lines}:
        tested = {
            number: line.p
            for number, line in enumerate(lines)
            if line.place == place and line.p is not None
        }
        corrected |= holm(tested)
    return [_cells(line, corrected.get(number)) for number, line in enumerate(lines)]


def _cells(line: Line, p: float | None) -> tuple[str, ...]:
    average, deviation = summary(list(line.scores.values()))
    score = f"{average:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")
    gap = "–"
    if line.gap is not None:
        share, *ends = line.gap
        gap = f"{share:.0f} " + (
            "({:.0f} to {:.0f})".format(*ends) if np.isfinite(ends).all() else "(no ends)"
        )
    less = None if line.condition == TEACHER else paired_t_test(*paired(line.scores, line.teacher))
    chance = "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
    task, labels = line.place
    return (
        TASKS[task],
        f"{labels:,}",
        condition_of(line.condition)[0],
        f"{round(line.rows):,}" if line.rows else "–",
        score,
        str(len(line.scores)),
        gap,
        chance,
        line.passes,
        f"{mean(line.last.values()):.1f}" if line.last else "–",
        # Older records have none: a mean of fewer seeds would stand beside one of all.
        f"{mean(line.macro_f1.values()):.1f}"
        if line.macro_f1.keys() == line.scores.keys()
        else "–",
        "–"
        if less is None or less.low is None
        else f"{less.difference:+.1f} ({less.low:+.1f} to {less.high:+.1f})",
    )


def markdown(rows: list[tuple[str, ...]]) -> str:
    """As the docs have it."""
    marks = (":---", "---:", ":---", *10 * ["---:"])[: len(HEADINGS)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADINGS, marks, *rows))


def picture(lines: list[Line], task: str, path: Path) -> None:
    """Score against labels, a curve for each condition, bands of one standard deviation over its seeds.

    Conditions of one number of labels alone are points beside each other, with bars in place of bands. What one seed
    shows alone is not drawn: beside means of several it would look better or worse than it is.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    shown = (line for line in lines if line.place[0] == task and len(line.scores) > 1)
    of_task = sorted(shown, key=_in_legend)
    alone = 0
    for condition in dict.fromkeys(line.condition for line in of_task):
        mine = sorted(
            (line for line in of_task if line.condition == condition), key=lambda line: line.place
        )
        labels = np.array([float(line.place[1]) for line in mine])
        if len(labels) == 1:
            alone += 1
            labels *= _BESIDE**alone
        means, deviations = zip(*(summary(list(one.scores.values())) for one in mine), strict=True)
        spread = np.array([0.0 if one is None else one for one in deviations])
        (drawn,) = axes.plot(
            labels, means, marker="o", label=condition, ls="--" if condition == TEACHER else "-"
        )
        if len(labels) > 1:
            low, high = np.array(means) - spread, np.array(means) + spread
            axes.fill_between(labels, low, high, color=drawn.get_color(), alpha=0.15, lw=0)
        else:
            axes.errorbar(labels, means, spread, color=drawn.get_color(), capsize=3)
    axes.set(xscale="log", xlabel="rows with labels", ylabel="dev score", title=TASKS[task])
    axes.set_xticks(LABELS, [f"{number:,}" for number in LABELS], minor=False)
    axes.set_xlim(LABELS[0] / 1.2, LABELS[-1] * 1.2)
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Words stay words, and the same records give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "few labels"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _in_legend(line: Line) -> tuple[int, ...]:
    return _order(((line.place[0], 0), line.condition))


def main() -> None:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--picture", type=Path, help="where to draw it, as .svg or .png")
    parser.add_argument("--task", default="sst2", choices=TASKS, help="of the picture")
    parser.add_argument("--seeds", type=int, metavar="N", help="the first N alone")
    args = parser.parse_args()
    lines = read_lines(args.seeds)
    rows = cells(lines)
    if args.markdown:
        print(markdown(rows))
    else:
        table = Table(*HEADINGS, title="Few labels, much text")
        for row in rows:
            table.add_row(*row)
        Console(width=120).print(table)
    if args.picture:
        picture(lines, args.task, args.picture)


if __name__ == "__main__":
    main()
