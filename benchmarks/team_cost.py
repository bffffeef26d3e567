"""What a step with several teachers costs: from stored teacher outputs over plain fine-tuning, and live over `kd-soft`.

    python benchmarks/team_cost.py [--teachers 8] [--rounds 3] [--steps 8] [--tokens 64] [--batch 32] [--fp32]

`wkd-uniform` and `mt-bert` read every teacher's stored outputs in each step; their step over the same student's
plain fine-tuning step by `transformers.Trainer`: bar 1.10. A live `skd-uniform` step over the `kd-soft` step of the
teacher that it drew: bar 1.03. All in turns, on the same batches, medians. Teachers are of two widths and of four
depths; the student has 3 layers, 384 wide. Writes `benchmarks/records/team_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from transformers import Trainer, set_seed

from limbeck.activations import Request
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.records import hardware, versions
from limbeck.students.execution import resolve_precision
from limbeck.support.files import write_whole
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import EnsembleTeam, SampledTeam, SamplingProbabilities
from limbeck.training import DistillationConfig, DistillationTrainer
from overhead import StepTimes, arguments, rows, train
from step_cost import model

RECORD = Path(__file__).parent / "records" / "team_cost.json"
BARS = {"wkd-uniform stored": 1.10, "mt-bert stored": 1.10, "skd-uniform live": 1.03}
SHAPES = [(layers, width) for width in (384, 768) for layers in (3, 4, 6, 8)]


def stored(teacher: Teacher, data: Any, store: Store, key: str, *, bf16: bool) -> CachedTeacher:
    """The teacher's logits of all rows, from disk."""
    batches = (
        {name: value.to(teacher.device) for name, value in data[start : start + 64].items()}
        for start in range(0, len(data), 64)
    )
    precision = "bf16" if bf16 else "fp32"
    with store.writing(key) as folder:
        build(folder, teacher, batches, Ask(Request.of_logits()), precision=precision)
    entry = store.find(key)
    assert entry is not None
    return CachedTeacher(teacher, entry)


def skd_steps(trainer: DistillationTrainer, steps: int) -> dict[int, list[float]]:
    """Seconds of each step by the teacher it drew, but for the first one, which warms up."""
    times = StepTimes()
    trainer.add_callback(times)
    trainer.train()
    found: dict[int, list[float]] = defaultdict(list)
    for step in range(1, steps):
        found[trainer.step_state_at(step).teacher].append(times.seconds[step])
    return found


def measure(args: argparse.Namespace) -> dict[str, float]:
    """The three ratios."""
    set_seed(0)
    bf16 = not args.fp32 and resolve_precision("auto") == "bf16"
    attention = "eager" if bf16 and not torch.cuda.is_available() else "sdpa"
    count = args.batch * args.steps
    data = rows(count, args.tokens).add_column("index", list(range(count)))
    student = model(3, 384, attention)
    shapes = [SHAPES[number % len(SHAPES)] for number in range(args.teachers)]
    members = [Teacher(model(*shape, attention)) for shape in shapes]
    names = [f"teacher {number}" for number in range(len(members))]
    uniform = [1 / len(members)] * len(members)
    times: dict[str, list[float]] = defaultdict(list)
    drawn: dict[int, list[float]] = defaultdict(list)
    alone: dict[int, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, args.steps, args.batch, bf16=bf16)
        store = Store(Path(folder) / "store")
        moved = [member.to(settings.device) for member in members]
        read = [stored(m, data, store, f"t{n}", bf16=bf16) for n, m in enumerate(moved)]

        def trainer(teacher: Any, method: str) -> DistillationTrainer:
            return DistillationTrainer(
                student,
                teacher,
                DistillationConfig.like(settings, method=method),
                train_dataset=data,
            )

        for round_ in range(args.rounds):
            times["plain"] += train(Trainer(student, settings, train_dataset=data))
            for method in ("wkd-uniform", "mt-bert"):
                times[method] += train(trainer(EnsembleTeam(read, names, uniform), method))
            settings.seed = round_  # other draws
            skd = trainer(
                SampledTeam(members, names, SamplingProbabilities(uniform)), "skd-uniform"
            )
            for teacher, seconds in skd_steps(skd, args.steps).items():
                drawn[teacher] += seconds
                alone[teacher] += train(trainer(members[teacher], "kd-soft"))
            print(".", end="", flush=True)
    plain = median(times["plain"])
    overs = [s / median(alone[teacher]) for teacher, steps in drawn.items() for s in steps]
    return {
        "wkd-uniform stored": median(times["wkd-uniform"]) / plain,
        "mt-bert stored": median(times["mt-bert"]) / plain,
        "skd-uniform live": median(overs),
    }


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teachers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--fp32", action="store_true", help="fp32 in place of bf16")
    args = parser.parse_args()
    found = measure(args)
    console = Console(width=110)
    console.print()
    for name, ratio in found.items():
        console.print(f"{name}: {ratio:.3f} (bar {BARS[name]:.2f})", highlight=False)
    record = {
        "setting": vars(args),
        "bars": BARS,
        "ratios": found,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
