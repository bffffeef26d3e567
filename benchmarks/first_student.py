"""The README's first commands on 2,000 real questions with labels and 3,382 without: what they print at their end.

    python benchmarks/first_student.py run --model MINILM_DIR --texts TEXTS_DIR [--work DIR]
    python benchmarks/first_student.py show

`run` makes the two files, runs each command in a folder and keeps the lines that it prints at its end in
`benchmarks/records/first_student.json`; finished runs are not trained again. The README and docs/get-started.md quote
these lines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "first_student.json"
LABELED, LINES = 2000, 34
COMMANDS = (
    "limbeck finetune --model {model} --data questions.csv --out runs/teacher",
    "limbeck distill --teacher runs/teacher --layers 3 --data questions.csv --unlabelled more.csv --out runs/student",
    "limbeck export runs/student --format onnx-int8",
    "limbeck bench runs/teacher runs/student",
    "limbeck predict runs/student more.csv --to predictions.csv",
    "limbeck finetune --model {model} --layers 3 --data questions.csv --out runs/alone",
    "limbeck compare runs/student runs/alone --split test",
)


def run(args: argparse.Namespace) -> None:
    """Run every command and keep the end of its output."""
    args.work.mkdir(parents=True, exist_ok=True)
    (args.work / "predictions.csv").unlink(missing_ok=True)  # of an earlier call
    rows = pd.read_csv(args.texts / "questions.csv").sample(frac=1.0, random_state=0)
    rows[["text", "label"]][:LABELED].to_csv(args.work / "questions.csv", index=False)
    rows[["text"]][LABELED:].to_csv(args.work / "more.csv", index=False)
    found = {}
    for command in COMMANDS:
        words = command.format(model=args.model.resolve()).split()
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=args.work, capture_output=True, text=True, check=False,
            env={**os.environ, "COLUMNS": "110"},
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        lines = done.stdout.splitlines()
        found[command.format(model="path/to/encoder")] = lines[-LINES:]
        write_whole(RECORD, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(f"$ {command}", *lines[-LINES:], sep="\n", flush=True)


def main() -> None:
    """Run the commands, or show what they printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run the commands and keep their output")
    runs.add_argument("--model", type=Path, required=True, help="folder of a pretrained encoder")
    runs.add_argument("--texts", type=Path, required=True, help="folder with questions.csv")
    runs.add_argument("--work", type=Path, default=Path("runs/first-student"))
    commands.add_parser("show", help="print the record")
    args = parser.parse_args()
    if args.command == "run":
        run(args)
        return
    for command, lines in json.loads(RECORD.read_text(encoding="utf-8")).items():
        print(f"$ {command}", *lines, "", sep="\n")


if __name__ == "__main__":
    main()
