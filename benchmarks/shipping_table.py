"""The record of `shipping.py` as the tables of the results page and the README.

    python benchmarks/shipping_table.py           # print them
    python benchmarks/shipping_table.py --write   # put them in place of those in docs/results.md and README.md

Speed is a ratio of CPU time, batch 1 and one thread: what else runs on a machine changes it little.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.latency.report import BenchReport, Measurement
from shipping import TASKS, read_record

ROOT = Path(__file__).parents[1]
FORMS = {"torch": "torch", "onnx": "ONNX Runtime", "int8": "ONNX Runtime, int8"}
"""What a model runs on, in the order of the tables."""
NAMES = {"mrpc": "MRPC", "stsb": "STS-B", "sst2": "SST-2"}
SHOWN = "kd"
"""The README's student."""
_PARTS = (
    "task",
    "model",
    "tokens",
    "× teacher in torch",
    "by layers",
    "by ONNX Runtime",
    "by int8",
)

Found = dict[tuple[str, str], Measurement]
"""(model, `torch`, `onnx` or `int8`) → what was measured under one condition."""


def lines(record: dict[str, Any]) -> list[str]:
    """The results page's table: every model on everything it runs on, at every length."""
    rows, lengths = [], lengths_of(record)
    for task in tasks_of(record):
        by_length = [of_length(record[task], length) for length in lengths]
        for key, one in by_length[0].items():
            row = [NAMES[task], model_name(one.model, task), _runtime(one)]
            for found in by_length:
                teacher = found[f"{task}-teacher", "torch"]
                row += [_three(found[key].cpu_p50), _times(teacher, found[key])]
            score = "–" if one.score is None else f"{one.score:.1f}"
            rows.append([*row, f"{one.disk_mib:.1f}", score])
    timed = [
        heading
        for length in lengths
        for heading in (f"CPU ms, {length} tokens", f"× teacher in torch, {length} tokens")
    ]
    return _table(["task", "model", "runs on", *timed, "MiB", "score"], 3, rows)


def parts(record: dict[str, Any]) -> list[str]:
    """What makes an int8 student faster: three factors, whose product is the whole."""
    rows = []
    for task in tasks_of(record):
        for length in lengths_of(record):
            found = of_length(record[task], length)
            teacher = found[f"{task}-teacher", "torch"]
            for model in [name for name, form in found if form == "int8" and name != teacher.model]:
                torch, onnx, int8 = (found[model, form] for form in FORMS)
                pairs = (teacher, int8), (teacher, torch), (torch, onnx), (onnx, int8)
                ratios = [_times(*pair) for pair in pairs]
                rows.append([NAMES[task], model_name(model, task), str(length), *ratios])
    return _table(_PARTS, 2, rows)


def front(record: dict[str, Any]) -> list[str]:
    """The README's table: the 3-layer student in int8 beside the teacher in torch, a row a task."""
    rows, lengths = [], lengths_of(record)
    for task in tasks_of(record):
        by_length = [of_length(record[task], length) for length in lengths]
        names = f"{task}-teacher", f"{task}-{SHOWN}-3l"
        teacher, own = (by_length[0][name, "torch"] for name in names)
        small = by_length[0][own.model, "int8"]
        rows.append(
            [
                NAMES[task],
                *(
                    _times(found[teacher.model, "torch"], found[own.model, "int8"])
                    for found in by_length
                ),
                f"{100 * small.disk_mib / teacher.disk_mib:.0f}",
                f"{small.score:.1f}",
                f"{own.score:.1f}",
                f"{teacher.score:.1f}",
            ]
        )
    speeds = [f"× teacher's speed, {length} tokens" for length in lengths]
    scores = ["score in int8", "score in torch", "teacher's score"]
    return _table(["task", *speeds, "% of its size", *scores], 1, rows)


def replaced(text: str, table: Sequence[str]) -> str:
    """A page with a table in place of the one that has the same headings.

    Raises ValueError where the page has none.
    """
    page = text.splitlines()
    start = page.index(table[0])
    end = start
    while end < len(page) and page[end].startswith("|"):
        end += 1
    return "\n".join([*page[:start], *table, *page[end:]]) + "\n"


def tasks_of(record: dict[str, Any]) -> list[str]:
    """Those that are recorded, in the benchmark's order."""
    return [task for task in TASKS if task in record]


def lengths_of(record: dict[str, Any]) -> list[int]:
    """Tokens of a row that every task was timed at, the shortest first."""
    reports = [BenchReport.model_validate(record[task]["bench"]) for task in tasks_of(record)]
    timed = [{condition.length for condition in report.conditions} for report in reports]
    return sorted(set.intersection(*timed))


def of_length(found: dict[str, Any], length: int) -> Found:
    """What was measured of a task at a length."""
    report = BenchReport.model_validate(found["bench"])
    return {
        (one.model, _form(one)): one
        for one in report.measurements
        if one.condition.length == length and one.cpu_p50
    }


def _times(slower: Measurement, faster: Measurement) -> str:
    return f"{(slower.cpu_p50 or 0) / (faster.cpu_p50 or 1):.1f}"


def _form(one: Measurement) -> str:
    if one.backend == "torch":
        return "torch"
    return "int8" if one.form.startswith("int8") else "onnx"


def _runtime(one: Measurement) -> str:
    return FORMS[_form(one)]


def model_name(name: str, task: str) -> str:
    """A run's name as the tables say it."""
    plain = name.removeprefix(f"{task}-")
    return plain if plain == "teacher" else f"`{plain.removesuffix('-3l')}`, 3 layers"


def _three(value: float | None) -> str:
    """Three digits: 13.0, 2.86."""
    number = value or 0.0
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _table(headings: Sequence[str], words: int, rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] * words + ["---:"] * (len(headings) - words)
    return ["| " + " | ".join(row) + " |" for row in (headings, rule, *rows)]


def main() -> None:
    """Print the tables, or write them into the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into docs/results.md and README.md")
    args = parser.parse_args()
    record = read_record()
    for page, table in (
        ("docs/results.md", lines(record)),
        ("docs/results.md", parts(record)),
        ("README.md", front(record)),
    ):
        print("\n".join(table), end="\n\n")
        if args.write:
            place = ROOT / page
            place.write_text(replaced(place.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
