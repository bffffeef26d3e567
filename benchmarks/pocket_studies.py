"""What each shipped study takes at `pocket` scale, in seconds of one core.

    python benchmarks/pocket_studies.py --runs DIR [NAME …]   # makes runs in DIR, keeps how long they took
    python benchmarks/pocket_studies.py                       # prints what is kept

Of every study the first task is made with one seed, one run after the other by one thread; studies share what they
have in common. A study's seconds are those of all of its runs, as if it were made alone: a run that was not made counts
as the one of the first seed does, and if there is none of its task, of the first task. What else is at work on the core
lengthens them. Tables and figures are not in it. Resumable: run it again and it goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from limbeck.lab.study import SharedRuns, Study, StudyPlan, StudyRun, carry_out, load_study
from limbeck.lab.study.study_fields import Group
from limbeck.lab.study.study_file import shipped_names
from limbeck.support.files import write_whole

KEPT = Path(__file__).parent / "records" / "pocket_studies.json"
JOBS = 2


def first_part(study: Study) -> Study:
    """The study on its first task, with one seed."""
    return study.model_copy(update={"tasks": study.tasks[:1], "seeds": study.seeds[:1]})


def seconds_of_runs(study: Study, runs: SharedRuns) -> tuple[int, float]:
    """How many runs a study is made of, and their seconds on one core.

    Raises KeyError where none of a kind has been made.
    """
    whole, first = StudyPlan.of(study), StudyPlan.of(first_part(study))
    teachers = {run.label: run for run in first.teachers.values()}
    groups = {_kind(group): group for group in first.groups}
    total = sum(_seconds([run, teachers[run.label]], runs) for run in whole.teachers.values())
    for group in whole.groups:
        like = groups[_kind(group)]
        cells = zip(group.tried, like.tried, strict=True)
        each = [_seconds([*own, *others], runs) for (_, own), (_, others) in cells]
        total += group.wanted(whole.choosing) * fmean(each)
    return whole.count, total


def _kind(group: Group) -> tuple[str, str]:
    return group.label, json.dumps(group.condition, sort_keys=True)


def _seconds(alike: list[StudyRun], runs: SharedRuns) -> float:
    """Of the first of these runs that has been made."""
    for run in alike:
        record = runs.held(run.name)
        if record is not None and record.cost.total_seconds is not None:
            return record.cost.total_seconds
    raise KeyError(alike[0].name)


def measure(name: str, runs: SharedRuns) -> dict[str, Any]:
    """Make what is missing of a study's first part; its numbers."""
    study = load_study(name, scale="pocket")
    plan = StudyPlan.of(first_part(study))
    failed = carry_out(plan, runs)
    if failed:
        raise SystemExit(f"{name}: {failed[0].name} failed: {failed[0].problems[0].message}")
    count, seconds = seconds_of_runs(study, runs)
    return {"runs": count, "seconds": round(seconds, 1)}


def table(kept: dict[str, dict[str, Any]]) -> str:
    """In markdown, with the largest and the median below."""
    lines = ["| study | runs | seconds of one core |", "|---|---:|---:|"]
    took = {name: one["seconds"] for name, one in kept.items()}
    lines += [f"| `{name}` | {one['runs']} | {took[name]:.0f} |" for name, one in kept.items()]
    largest = max(took, key=lambda name: took[name])
    lines += [
        "",
        f"largest: {took[largest]:.0f} s (`{largest}`), median: {median(took.values()):.0f} s; "
        f"by {JOBS} processes side by side {took[largest] / JOBS:.0f} s and {median(took.values()) / JOBS:.0f} s",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure where a folder is given, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="studies; all, if left out")
    parser.add_argument("--runs", type=Path, help="where runs are made, and others are found")
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    if args.runs is not None:
        torch.set_num_threads(1)
        runs = SharedRuns(args.runs, keep_students=True)  # some figures look at them
        for name in args.names or shipped_names():
            kept[name] = measure(name, runs)
            print(name, kept[name], flush=True)
            write_whole(KEPT, json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    print(table(kept))


if __name__ == "__main__":
    main()
