"""Whether batches of like length cost accuracy: plain fine-tuning in two orders of the examples.

`shuffled`: any examples in a batch; `grouped`: batches of like length in random order, limbeck's default. 3-layer
students from the pretrained encoder's first layers on real SST-2, three passes, where training rows are phrases of all
lengths and dev rows are whole sentences.

    python benchmarks/batch_order.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--rows 6000] [--seeds 3]

Resumable: `limbeck table benchmarks/records/batch_order.jsonl.gz --baseline shuffled`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from study import Cell, Study


def main() -> None:
    """One seed of both orders after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/batch_order"))
    parser.add_argument("--rows", type=int, default=6000, help="training rows")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    study = Study("batch_order", args.work)
    for seed in range(1, args.seeds + 1):
        base = {
            "task": "sst2",
            "data": args.data,
            "train_rows": args.rows,
            "epochs": 3,
            "batch_size": 32,
            "lr": 1e-4,
            "precision": "auto",
            "attention": "eager",
            "student.init": args.model,
            "student.layers": 3,
            "student.pick": "first",
            "seed": seed,
        }
        orders = {"shuffled": False, "grouped": True}
        study.run(
            Cell(f"{label}-s{seed}", "finetune", {**base, "group_by_length": grouped}, label=label)
            for label, grouped in orders.items()
        )


if __name__ == "__main__":
    main()
