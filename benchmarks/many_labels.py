"""Private memory of `limbeck label` on millions of rows, and of the plain table that it writes of them.

    python benchmarks/many_labels.py [--rows 2000000] [--format parquet] [--to jsonl]

Generates the rows of `many_rows.py` in a temporary folder, and labels them by a labeller that counts letters, so small
that rows are what takes room. Memory is what is the process's alone (pages of Linux's Private_*), looked at every few
milliseconds: that of the imported libraries, and the highest while the rows are read, while one batch is measured,
while all are labelled, and while the table of texts, labels and confidences is written. `text_gib` is what the texts
themselves take. Writes `benchmarks/records/many_labels.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import limbeck
from limbeck.support.files import write_whole
from limbeck.teachers.labeller import Row
from many_rows import Memory, about, private_gib, write_rows

RECORD = Path(__file__).parent / "records" / "many_labels.json"
# Where each part of the work begins and ends.
_PARTS = {
    "reading": "limbeck.labelling.label_rows.read_text_rows",
    "measuring": "limbeck.labelling.fill.measure",
    "labelling": "limbeck.labelling.fill._make_shards",
    "table": "limbeck.labelling.label_rows.write_plain_labels",
}


def main() -> None:
    """Write the rows, label them, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--format", choices=["parquet", "csv", "jsonl", "txt"], default="parquet")
    parser.add_argument("--to", choices=["parquet", "csv", "jsonl"], default="jsonl")
    parser.add_argument("--print", action="store_true", help="print alone, record nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / f"more.{args.format}"
        write_rows(file, args.rows)
        measured = measure(file, Path(place) / f"labels.{args.to}")
    measured |= {"rows": args.rows, "format": args.format, "to": args.to}
    print(json.dumps(measured, indent=1))
    if not args.print:
        write_whole(RECORD, json.dumps(measured | about(), indent=1) + "\n")


class Letters:
    """Many letters, or few."""

    name, kind, classes = "letters", "sentence", ("few", "many")
    outputs, batch_size = ("logits", "probabilities"), 256

    def fingerprint(self) -> dict[str, Any]:
        """Nothing else."""
        return {"counts": "letters"}

    def score(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """A class more likely with every letter."""
        letters = np.array([len(row["sentence"]) for row in rows], dtype=np.float32)
        many = 1 / (1 + np.exp(50 - letters))
        pair = np.stack([1 - many, many], axis=1)
        return {"logits": np.log(pair.clip(1e-6)), "probabilities": pair}


def measure(file: Path, table: Path) -> dict[str, Any]:
    """One call; the memory and seconds of its parts."""
    memory, imported = Memory(), private_gib()
    highest: dict[str, float] = {}
    seconds: dict[str, float] = {}
    with memory.watched(), ExitStack() as stack:
        for part, name in _PARTS.items():
            stack.enter_context(_watched(part, name, memory, highest, seconds))
        limbeck.label(Letters(), file, text_columns=["text"], to=table)
    text = sum(len(line) for line in _texts(file))
    return {
        "private_gib": {"imported": round(imported, 2)} | highest,
        "seconds": seconds,
        "text_gib": round(text / 2**30, 2),
    }


def _texts(file: Path) -> Iterator[str]:
    from limbeck.data.text_rows import read_text_rows

    rows = read_text_rows(file, text_columns=["text"])
    for chunk in next(iter(rows.columns.values())).chunks:
        for start in range(0, len(chunk), 65_536):
            yield from chunk.slice(start, 65_536).to_pylist()


@contextmanager
def _watched(
    part: str, name: str, memory: Memory, highest: dict[str, float], seconds: dict[str, float]
) -> Iterator[None]:
    """Inside, calls of a function note the highest memory and the time that they take."""
    module, _, function = name.rpartition(".")
    own: Callable[..., Any] = getattr(__import__(module, fromlist=[function]), function)

    def noting(*args: Any, **kwargs: Any) -> Any:
        memory.highest, began = private_gib(), time.perf_counter()
        try:
            return own(*args, **kwargs)
        finally:
            highest[part] = round(max(memory.highest, private_gib()), 2)
            seconds[part] = round(time.perf_counter() - began, 1)

    with patch(name, noting):
        yield


if __name__ == "__main__":
    main()
