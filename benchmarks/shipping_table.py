"""The record of `shipping.py` as the tables of the results page and the README.

    python benchmarks/shipping_table.py           # print both
    python benchmarks/shipping_table.py --write   # put them in place of those in docs/results.md and README.md

Speed is a ratio of CPU time, batch 1 and one thread: what else runs on a machine changes it little.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.latency import BenchReport, Measurement
from shipping import TASKS, read_record

ROOT = Path(__file__).parents[1]
FORMS = {"torch": "torch", "onnx": "ONNX Runtime", "int8": "ONNX Runtime, int8"}
"""What a model runs on, in the order of the tables."""
NAMES = {"mrpc": "MRPC", "stsb": "STS-B", "sst2": "SST-2"}
SHOWN = "kd"
"""The README's student."""
_HEADINGS = ("task", "model", "runs on", "CPU ms", "× teacher in torch", "MiB", "score")
_FRONT = (
    "task",
    "× teacher's speed",
    "% of its size",
    "score in int8",
    "score in torch",
    "teacher's score",
)


def lines(record: dict[str, Any]) -> list[str]:
    """The results page's table: every model on everything it runs on."""
    rows = []
    for task in tasks_of(record):
        found = first_condition(record[task])
        teacher = found[f"{task}-teacher", "torch"]
        rows += [
            (
                NAMES[task],
                model_name(one.model, task),
                _runtime(one),
                _three(one.cpu_p50),
                f"{(teacher.cpu_p50 or 0) / (one.cpu_p50 or 1):.1f}",
                f"{one.disk_mib:.1f}",
                "–" if one.score is None else f"{one.score:.1f}",
            )
            for one in found.values()
        ]
    return _table(_HEADINGS, 3, rows)


def front(record: dict[str, Any]) -> list[str]:
    """The README's table: the 3-layer student in int8 beside the teacher in torch, a row a task."""
    rows = []
    for task in tasks_of(record):
        found = first_condition(record[task])
        teacher, own = (found[f"{task}-{name}", "torch"] for name in ("teacher", f"{SHOWN}-3l"))
        small = found[own.model, "int8"]
        rows.append(
            (
                NAMES[task],
                f"{(teacher.cpu_p50 or 0) / (small.cpu_p50 or 1):.1f}",
                f"{100 * small.disk_mib / teacher.disk_mib:.0f}",
                f"{small.score:.1f}",
                f"{own.score:.1f}",
                f"{teacher.score:.1f}",
            )
        )
    return _table(_FRONT, 1, rows)


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


def first_condition(found: dict[str, Any]) -> dict[tuple[str, str], Measurement]:
    """(model, `torch`, `onnx` or `int8`) → what was measured under the first condition."""
    report = BenchReport.model_validate(found["bench"])
    return {
        (one.model, _form(one)): one for one in report.under(report.conditions[0]) if one.cpu_p50
    }


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
    for page, table in (("docs/results.md", lines(record)), ("README.md", front(record))):
        print("\n".join(table), end="\n\n")
        if args.write:
            place = ROOT / page
            place.write_text(replaced(place.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
