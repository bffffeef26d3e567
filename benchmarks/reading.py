"""Seconds and memory of reading a large file of one's own: `python benchmarks/reading.py`.

Each measurement is a process of its own, which reads a generated file as a run does, and then draws `--train-rows`
of them. Memory is what is the process's alone (Linux's unique set size), after the rows are read and at its highest,
looked at every few milliseconds; imports (printed last) are included.
`PYTHONPATH=OTHER/src` measures another checkout.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

_CHILD = """
import json, re, sys, threading, time
from pathlib import Path
from limbeck.data import Conditions, load_task
path, train_rows, watched = sys.argv[1:]
def own():
    counts = re.findall(r"Private_(?:Clean|Dirty): +([0-9]+)", Path("/proc/self/smaps_rollup").read_text())
    return sum(map(int, counts)) / 1024
most, over = own(), threading.Event()
def watch():
    global most
    while not over.wait(0.02):
        most = max(most, own())
if watched:
    threading.Thread(target=watch).start()
began, worked = time.perf_counter(), time.process_time()
if path:
    task, splits = load_task(None, path, text_columns=["text"], label_column="label")
    if train_rows != "0":
        splits["train"] = Conditions(train_rows=int(train_rows)).apply(splits["train"], task)
seconds, worked = time.perf_counter() - began, time.process_time() - worked
over.set()
print(json.dumps([seconds, worked, own(), most]))
"""


def main() -> None:
    """Write the file, read it, print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--train-rows", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many is printed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for quoted in (False, True):
            path = Path(folder) / f"{'quoted' if quoted else 'plain'}.csv"
            _write(path, args.rows, quoted=quoted)
            for train_rows in (0, args.train_rows):
                what = f"train_rows={train_rows}" if train_rows else "all rows"
                label = f"{path.stem}, {path.stat().st_size / 2**20:.0f} MiB, {what}"
                _report(label, path, train_rows, args.repeat)
    _report("imports alone", "", 0, 1)


def _write(path: Path, rows: int, *, quoted: bool) -> None:
    """A text of about ten words, with commas where it is quoted, and one of two classes."""
    generator = random.Random(0)
    words = [f"word{number}" for number in range(1000)]
    mark = ", " if quoted else " "
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for row in range(rows):
            writer.writerow(
                [row, mark.join(generator.choices(words, k=10)), "pos" if row % 2 else "neg"]
            )


def _report(label: str, path: Path | str, train_rows: int, repeat: int) -> None:
    measured = [_measure(path, train_rows) for _ in range(repeat)]
    seconds, worked, *_ = (min(values) for values in zip(*measured, strict=True))
    # Watching costs time of its own.
    *_, after, most = _measure(path, train_rows, watched=True)
    print(
        f"{label}: {seconds:.2f} s, of the processor {worked:.2f} s; private memory {after:.0f} MiB "
        f"when read, {most:.0f} MiB at most"
    )


def _measure(path: Path | str, train_rows: int, *, watched: bool = False) -> list[float]:
    command = [sys.executable, "-c", _CHILD, str(path), str(train_rows), "yes" if watched else ""]
    found: list[float] = json.loads(subprocess.check_output(command, text=True))
    return found


if __name__ == "__main__":
    main()
