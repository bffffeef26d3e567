"""Two processes of one run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tiny_trainers import make, still

import tiny_runs as tiny
from limbeck.training import DistillationTrainer

WORKER = """
import os, sys
import torch
from test_trainer_processes import distributed_run
labelled_every, accumulation = map(int, sys.argv[2:])
batch = 4 // accumulation
trainer = distributed_run(sys.argv[1], batch, labelled_every, accumulation)
model = trainer.model_wrapped
assert type(model).__name__ == "DistributedDataParallel", type(model)
teacher = {id(weight) for weight in trainer.teacher.model.parameters()}
assert not teacher & {id(weight) for weight in model.parameters()}
assert not any("teacher" in name for name, _ in model.named_modules() if ".student." in name)
torch.save(
    {"weights": trainer.distiller.state_dict(), "epochs": trainer.progress.epochs},
    f"{sys.argv[1]}/result-{os.environ['RANK']}.pt",
)
torch.distributed.destroy_process_group()
"""


def distributed_run(
    folder, batch: int, labelled_every: int, accumulation: int = 1
) -> DistillationTrainer:
    rows = tiny.rows(24)
    labels = [one if row % labelled_every == 0 else -100 for row, one in enumerate(rows["labels"])]
    trainer = make(
        Path(folder),
        method="rail-kd-l",
        train_dataset=Dataset.from_dict({**rows.to_dict(), "labels": labels}),
        student=still(3),
        eval_dataset=tiny.rows(8),
        args={
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": accumulation,
            "num_train_epochs": 3,
            "learning_rate": 1e-3,
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "ddp_backend": "gloo" if "RANK" in os.environ else None,
        },
    )
    trainer.train()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labelled_every", "accumulation"), [(1, 1), (5, 2)], ids=["all labelled", "few, in parts"]
)
def test_two_processes_do_what_one_does(tmp_path, labelled_every, accumulation):
    """Two batches of four are one of eight: weights and records agree but for rounding."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    tests = str(Path(__file__).parent.parent)
    paths = os.pathsep.join([tests, str(Path(__file__).parent)])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(labelled_every), str(accumulation)],
            env=os.environ
            | {
                "PYTHONPATH": paths,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(2)
    ]
    assert [worker.wait(timeout=600) for worker in workers] == [0, 0]
    single = distributed_run(tmp_path / "single", 8, labelled_every)
    results = [torch.load(tmp_path / f"result-{rank}.pt") for rank in range(2)]
    for name, value in single.distiller.state_dict().items():
        assert torch.equal(results[0]["weights"][name], results[1]["weights"][name]), name
        torch.testing.assert_close(
            results[0]["weights"][name], value, atol=1e-5, rtol=1e-4, msg=name
        )
    for result in results:
        for entry, expected in zip(result["epochs"], single.progress.epochs, strict=True):
            assert entry["active_layers"] == expected["active_layers"]
            assert entry["train"] == pytest.approx(expected["train"], rel=1e-4)
            assert entry["dev"] == pytest.approx(expected["dev"], rel=1e-4)
