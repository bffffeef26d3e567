"""The README's first commands on real questions: what they print at their end, and whether distillation was worth it.

    python benchmarks/first_student.py run --model MINILM_DIR --texts TEXTS_DIR [--work DIR]
    python benchmarks/first_student.py show
    python benchmarks/first_student.py seeds --model MINILM_DIR --texts TEXTS_DIR [--work DIR] [--seeds 5]
    python benchmarks/first_student.py table

`run`: 2,000 questions have labels and 3,382 have none. Each command runs in a folder. Its seconds and the lines that it
prints at its end are kept in `benchmarks/records/first_student.json`, which the README and docs/get-started.md quote;
finished runs are not trained again. `show` prints the record.

`seeds` runs the same commands with another sample of the rows for each seed: 2,000 with labels, the others without, but
for 1,000 that nothing is trained or chosen on. `table` compares the models on these (paired t tests
over seeds). Resumable.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

from limbeck.evaluation.compare import paired, paired_t_test
from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "first_student.json"
SEEDS = RECORD.with_stem("first_student_seeds")
LABELED, LINES, TEST = 2000, 34, 1000
COMMANDS = (
    "limbeck finetune --model {model} --data questions.csv --out runs/teacher",
    "limbeck distill --teacher runs/teacher --layers 3 --data questions.csv --unlabelled more.csv --out runs/student",
    "limbeck export runs/student --format onnx-int8",
    "limbeck bench runs/teacher runs/student",
    "limbeck predict runs/student more.csv --to predictions.csv",
    "limbeck finetune --model {model} --layers 3 --data questions.csv --out runs/alone",
    "limbeck compare runs/student runs/alone --split test",
)
MODELS = {
    "runs/teacher": "teacher, 6 layers",
    "runs/student": "student, 3 layers",
    "runs/student/exported/onnx-int8": "student, 3 layers, int8",
    "runs/alone": "3 layers, labels alone",
}


def write_rows(args: argparse.Namespace, folder: Path, seed: int, test: int) -> None:
    """The files of rows with labels and without, and of `test` rows that are in neither."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(args.texts / "questions.csv").sample(frac=1.0, random_state=seed)
    rows[["text", "label"]][:LABELED].to_csv(folder / "questions.csv", index=False)
    rows[["text"]][LABELED : len(rows) - test].to_csv(folder / "more.csv", index=False)
    rows[["text", "label"]][len(rows) - test :].to_csv(folder / "held-out.csv", index=False)


def ran(command: str, folder: Path) -> dict[str, Any]:
    """Seconds of a command and the last lines that it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "110"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    seconds = round(time.perf_counter() - began)
    return {"seconds": seconds, "lines": done.stdout.splitlines()[-LINES:]}


def run(args: argparse.Namespace) -> None:
    """Run every command and keep the end of its output."""
    write_rows(args, args.work, 0, 0)
    (args.work / "predictions.csv").unlink(missing_ok=True)  # of an earlier call
    found = {}
    for command in COMMANDS:
        one = ran(command.format(model=args.model.resolve()), args.work)
        found[command.format(model="path/to/encoder")] = one
        write_whole(RECORD, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(f"$ {command}", *one["lines"], sep="\n", flush=True)


def show() -> None:
    """Print the record."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    for command, one in found.items():
        print(f"$ {command}   # {one['seconds']} s", *one["lines"], "", sep="\n")
    minutes, seconds = divmod(sum(one["seconds"] for one in found.values()), 60)
    print(f"{len(found)} commands: {minutes} minutes and {seconds} seconds")


def seeds(args: argparse.Namespace) -> None:
    """Train with other rows, and keep of each held-out row whether it is predicted right."""
    for seed in map(str, range(1, args.seeds + 1)):
        record = json.loads(SEEDS.read_text()) if SEEDS.exists() else {}
        if seed in record:
            continue
        folder = args.work.resolve() / f"s{seed}"
        write_rows(args, folder, int(seed), TEST)
        for command in (*COMMANDS[:3], COMMANDS[5]):
            own = "" if "export" in command else f" seed={seed}"
            ran(command.format(model=args.model.resolve()) + own, folder)
        labels = pd.read_csv(folder / "held-out.csv")["label"]
        record[seed] = {}
        for place, name in MODELS.items():
            (folder / "predicted.csv").unlink(missing_ok=True)
            ran(f"limbeck predict {place} held-out.csv --to predicted.csv", folder)
            right = pd.read_csv(folder / "predicted.csv")["prediction"] == labels
            record[seed][name] = [int(one) for one in right]
            print(seed, name, 100 * right.mean(), flush=True)
        write_whole(SEEDS, json.dumps(record) + "\n")


def table() -> None:
    """The mean of each model over seeds, and how far the others are from fine-tuning alone."""
    record = json.loads(SEEDS.read_text())
    scores = {
        name: {seed: 100 * statistics.mean(one[name]) for seed, one in record.items()}
        for name in MODELS.values()
    }
    alone = scores["3 layers, labels alone"]
    print(f"| {len(record)} seeds | accuracy | less labels alone (95 %) | p |")
    print("|:---|---:|---:|---:|")
    for name, own in scores.items():
        # Each seed has other rows: what chance does in rows is in the spread over seeds.
        found = paired_t_test(*paired(own, alone))
        said = "– | –"
        if own is not alone and found is not None:
            gap = f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"
            said = f"{gap} | {found.p:.2g}"
        values = own.values()
        print(
            f"| {name} | {statistics.mean(values):.1f} ± {statistics.stdev(values):.1f} | {said} |"
        )


def main() -> None:
    """Run the commands, or show what they printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, does in (("run", "run the commands once"), ("seeds", "compare over other rows")):
        runs = commands.add_parser(name, help=does)
        runs.add_argument("--model", type=Path, required=True, help="folder of an encoder")
        runs.add_argument("--texts", type=Path, required=True, help="folder with questions.csv")
        runs.add_argument("--work", type=Path, default=Path("runs/first-student"))
        runs.add_argument("--seeds", type=int, default=5)
    commands.add_parser("show", help="print the record of run")
    commands.add_parser("table", help="print the record of seeds")
    args = parser.parse_args()
    if args.command in ("run", "seeds"):
        (run if args.command == "run" else seeds)(args)
    else:
        (show if args.command == "show" else table)()


if __name__ == "__main__":
    main()
