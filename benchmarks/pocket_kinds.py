"""Every task type on generated data: what a model from scratch learns, and a T5 of another width from a T5.

    python benchmarks/pocket_kinds.py [--work DIR]

One run each, seed 1, with the recommended settings. Minutes a run on one core, offline. Resumable:
`limbeck table benchmarks/records/pocket_kinds.jsonl.gz`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from study import Cell, Study

SCRATCH: dict[str, dict[str, Any]] = {
    "ner": {"task": "ner"},
    "squad": {"task": "squad"},
    "mlm": {"task": "mlm"},
    "rte-text": {"task": "rte", "kind": "text"},
    "sst2-text": {"task": "sst2", "kind": "text"},
}
NARROW = {"d_model": 32, "num_heads": 4, "num_layers": 3}


def cells(work: Path) -> list[list[Cell]]:
    """The teachers, then what learns from one of them."""
    base = {"data": "pocket", "seed": 1}
    scratch = [
        Cell(f"teacher-{name}", "finetune", {**base, **own, "student.init": "pocket"}, label=name)
        for name, own in SCRATCH.items()
    ]
    narrow = {
        **base,
        **SCRATCH["rte-text"],
        "teacher": str(work / "teacher-rte-text"),
        "student.init": "fresh",
        "student.config": NARROW,
    }
    return [scratch, [Cell("rte-text-kd-narrow", "kd", narrow, label="kd, half as wide")]]


def main() -> None:
    """One after the other; what has a record is not run again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/pocket_kinds"))
    args = parser.parse_args()
    torch.set_num_threads(1)  # models this narrow lose time on handing work over
    study = Study("pocket_kinds", args.work)
    for group in cells(args.work):
        study.run(group)
        study.wait_for(group)


if __name__ == "__main__":
    main()
