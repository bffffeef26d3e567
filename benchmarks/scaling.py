"""How the cost of a step grows with the teacher's depth, the student's depth and the length of the texts.

    python benchmarks/scaling.py [--rounds 2] [--steps 5] [--fp32] [--over teacher tokens]

`kd` (logits), `rail-kd-l` (pooled states) and `tinybert`'s first stage (attention and all token states), live and from
stored outputs, over the student's plain step by `transformers.Trainer`; MiniLM's width. With stored outputs a step
should cost the same whatever the teacher's depth. Writes `benchmarks/records/scaling.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from limbeck.records import hardware, versions
from limbeck.students.execution import resolve_precision
from limbeck.support.files import write_whole
from step_cost import Sizes, measure

RECORD = Path(__file__).parent / "records" / "scaling.json"
METHODS = ["kd", "rail-kd-l", "tinybert"]
TOKENS_A_BATCH = 2048
# By what grows: its values, and what they mean for both models and the texts.
GROWTH: dict[str, dict[int, tuple[Sizes, int]]] = {
    "teacher": {layers: (Sizes(layers, 3), 64) for layers in (6, 12, 24)},
    "student": {layers: (Sizes(12, layers), 64) for layers in (2, 3, 6, 12)},
    "tokens": {tokens: (Sizes(6, 3), tokens) for tokens in (32, 64, 128, 256, 512)},
}


def show(over: str, found: dict[int, dict[str, Any]], console: Console) -> None:
    """One table for each thing that grows."""
    kinds = [name for name, ratio in next(iter(found.values())).items() if isinstance(ratio, dict)]
    table = Table(title=f"Step over the student's plain step, by {over}")
    table.add_column(over, justify="right")
    table.add_column("plain ms", justify="right")
    for name in kinds:
        table.add_column(f"{name}: live", justify="right")
        table.add_column("stored", justify="right")
    for value, ratios in found.items():
        cells = [f"{1000 * ratios['plain_seconds']:.0f}"]
        for name in kinds:
            cells += [f"{ratios[name]['live']:.2f}", f"{ratios[name]['stored'] or 0:.2f}"]
        table.add_row(str(value), *cells)
    console.print(table)


def main() -> None:
    """One growth after the other; the record is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--attention", default=None)
    parser.add_argument("--fp32", action="store_true")
    parser.add_argument("--over", nargs="+", default=list(GROWTH), choices=list(GROWTH))
    args = parser.parse_args()
    record: dict[str, Any] = {
        "setting": vars(args),
        "versions": versions(),
        "hardware": hardware(),
        "over": {},
    }
    for over in args.over:
        found = {}
        for value, (sizes, tokens) in GROWTH[over].items():
            batch = max(TOKENS_A_BATCH // tokens, 4)
            own = argparse.Namespace(**vars(args), tokens=tokens, batch=batch)
            found[value] = measure(
                sizes, METHODS, own, bf16=not args.fp32 and resolve_precision("auto") == "bf16"
            )
        print()
        show(over, found, Console(width=130))
        record["over"][over] = found
        write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
