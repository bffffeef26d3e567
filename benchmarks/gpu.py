"""Steps on an accelerator: what they cost over plain fine-tuning, and the share of its rate they reach.

    python benchmarks/gpu.py [--rounds 3] [--steps 20] [--tokens 128] [--batch 64] [--compile]

BERT-base's shape teaches 6 and 3 layers of it, bf16, SDPA. For plain fine-tuning and for each method, live and from
stored outputs: milliseconds, the ratio to the plain step, and FLOPs of student and teacher a second as a share of
the rate that a product of large matrices reaches here. Runs without an accelerator too, for what that is worth. Writes
`benchmarks/records/gpu.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from transformers import Trainer, set_seed

from limbeck.evaluation.measuring import flops_per_example
from limbeck.outputs.cache import Store
from limbeck.records import hardware, versions
from limbeck.support.files import write_whole
from limbeck.teachers.teacher import Teacher
from overhead import arguments, rows, train
from step_cost import MAIN, Sizes, cases, model, store_outputs, trainer_of

RECORD = Path(__file__).parent / "records" / "gpu.json"
SHAPES = (Sizes(12, 6, 768, 768), Sizes(12, 3, 768, 768))
METHODS = [*MAIN, "tinybert", "minilmv2", "cr-ild"]
# A backward pass computes two products for each one of the forward pass.
TRAINING = 3


def device() -> torch.device:
    """The accelerator, or the processor."""
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def wait() -> None:
    """Until the accelerator has done what it was given."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def matmul_rate(size: int, repeats: int = 20) -> float:
    """FLOPs a second of a bf16 product of square matrices."""
    left, right = (torch.randn(size, size, device=device(), dtype=torch.bfloat16) for _ in "ab")
    seconds = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        left @ right
        wait()
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / median(seconds)


def measure(sizes: Sizes, args: argparse.Namespace, rate: float) -> dict[str, dict[str, float]]:
    """Milliseconds, ratio to the plain step and share of the rate, by kind of step."""
    set_seed(0)
    count = args.batch * args.steps
    data = rows(count, args.tokens).add_column("index", list(range(count)))
    student = model(sizes.student_layers, sizes.student_width, "sdpa")
    whole = model(sizes.teacher_layers, sizes.teacher_width, "sdpa").to(device())
    forward = {
        "student": flops_per_example(student, args.tokens) * args.batch,
        "teacher": flops_per_example(whole, args.tokens) * args.batch,
    }
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, args.steps, args.batch, bf16=True)
        store, teacher = Store(Path(folder) / "store"), Teacher(whole)
        found = cases(METHODS, teacher)
        for case in found:
            objectives = trainer_of(case, student, settings, data, stored=False).objectives
            store_outputs(case, objectives, store, data, bf16=True)
        for _ in range(args.rounds):
            times["plain"] += train(Trainer(student, settings, train_dataset=data))
            for case in found:
                for stored in (False, True)[: 1 + (case.stored is not None)]:
                    ours = trainer_of(
                        case, student, settings, data, stored=stored, compile=args.compile
                    )
                    times[f"{case.name}{', stored' * stored}"] += train(ours)
    plain = median(times["plain"])
    table = {}
    for name, seconds in times.items():
        live = name != "plain" and not name.endswith("stored")
        flops = TRAINING * forward["student"] + live * forward["teacher"]
        took = median(seconds)
        table[name] = {
            "ms": 1000 * took, "over_plain": took / plain, "share_of_rate": flops / took / rate
        }  # fmt: skip
    return table


def main() -> None:
    """Both shapes; prints and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--matmul", type=int, default=8192, help="side of the matrices")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    rate = matmul_rate(args.matmul)
    console = Console(width=110)
    console.print(f"bf16 matrix product: {rate / 1e12:.1f} TFLOP/s")
    found = {}
    for sizes in SHAPES:
        found[str(sizes)] = measure(sizes, args, rate)
        table = Table("step", "ms", "over plain", "share of the rate", title=str(sizes))
        for name, row in found[str(sizes)].items():
            table.add_row(
                name, f"{row['ms']:.1f}", f"{row['over_plain']:.3f}", f"{row['share_of_rate']:.1%}"
            )
        console.print(table)
    record = {
        "setting": vars(args), "matmul_flops": rate, "shapes": found,
        "versions": versions(), "hardware": hardware(),
    }  # fmt: skip
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
