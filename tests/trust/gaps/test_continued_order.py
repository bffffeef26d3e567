"""A continued run sees its rows in the order of an unbroken one, also where the Trainer cannot reach the sampler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from transformers import TrainingArguments

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.training import DistillationTrainer
from limbeck.training.checkpoints import last_whole

EPOCHS, ROWS, BATCH = 3, 24, 4  # 6 steps an epoch in one process, 3 in two
TESTS = Path(__file__).parents[2]


class Behind:
    """Batches of a sampler, whose own methods nobody outside finds."""

    def __init__(self, sampler, size: int) -> None:
        self._batches = torch.utils.data.BatchSampler(sampler, size, drop_last=False)

    def __iter__(self):
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class Wrapped(DistillationTrainer):
    """Reads its rows through a wrapper, as several processes' continued runs do."""

    def get_train_dataloader(self) -> DataLoader:
        batches = Behind(self._get_train_sampler(), BATCH)
        rows = self._remove_unused_columns(self.train_dataset, "training")
        return DataLoader(rows, batch_sampler=batches, collate_fn=self.data_collator)


def start(folder: Path, form=DistillationTrainer, *, kill: int | None = None, rows=ROWS):
    settings = {
        "output_dir": str(folder),
        "use_cpu": True,
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "save_strategy": "steps",
        "save_steps": 2,
        "learning_rate": 1e-2,
        "report_to": [],
        "disable_tqdm": True,
        "ddp_backend": "gloo" if "RANK" in os.environ else None,
    }
    trainer = form(
        tiny.bert(2),
        tiny.knowing_teacher(3),
        TrainingArguments(**settings),
        train_dataset=tiny.rows(rows),
        data_collator=Collator(tiny.tokenizer()),
        callbacks=[] if kill is None else [tiny.Kill("step_begin", kill)],
    )
    seen: dict[int, list[int]] = {}
    step = trainer.compute_loss

    def watching(model, inputs, *args, **kwargs):
        seen.setdefault(trainer.state.global_step, []).extend(inputs["index"].tolist())
        return step(model, inputs, *args, **kwargs)

    trainer.compute_loss = watching
    with suppress(tiny.KilledError):
        trainer.start_or_continue(last_whole(folder))
    return trainer, seen


# Inside an epoch, at its end, and inside the last one.
@pytest.mark.parametrize(
    "kill", [5, *(pytest.param(step, marks=pytest.mark.slow) for step in (7, 12, 15))]
)
def test_rows_come_in_the_order_of_an_unbroken_run(tmp_path, kill):
    _, whole = start(tmp_path / "whole", Wrapped)
    _, before = start(tmp_path / "cut", Wrapped, kill=kill)
    resumed_at = int(last_whole(tmp_path / "cut").name.split("-")[1])
    _, after = start(tmp_path / "cut", Wrapped)
    assert sorted(after) == list(range(resumed_at, 18)) and resumed_at > 0
    assert before | after == whole
    epochs = [[row for step in range(n, n + 6) for row in whole[step]] for n in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == EPOCHS


WORKER = """
import sys
from pathlib import Path
from test_continued_order import work
work(Path(sys.argv[1]), int(sys.argv[2]))
import torch
torch.distributed.destroy_process_group()
"""


def work(folder: Path, kill: int) -> None:
    """One process of two: train, and tell weights and rows."""
    trainer, seen = start(folder, kill=None if kill < 0 else kill)
    weights = {name: value.contiguous() for name, value in trainer.distiller.state_dict().items()}
    order = [seen[step] for step in sorted(seen)]
    save_file(
        weights | {"rows": torch.tensor(order)},
        folder / f"result-{os.environ['RANK']}-{kill}.safetensors",
    )


def two_processes(folder: Path, kill: int = -1) -> list[dict[str, torch.Tensor]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder.mkdir(exist_ok=True)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    paths = [str(TESTS), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    shared["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(kill)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [worker.wait(timeout=600) for worker in workers] == [0, 0]
    return [load_file(folder / f"result-{rank}-{kill}.safetensors") for rank in range(2)]


@pytest.mark.slow
def test_two_processes_continue_with_the_rows_they_would_have_had(tmp_path):
    whole = two_processes(tmp_path / "whole")
    two_processes(tmp_path / "cut", kill=5)  # the second of three steps of the second epoch
    continued = two_processes(tmp_path / "cut")
    for ours, theirs in zip(continued, whole, strict=True):
        rows = ours.pop("rows")
        assert torch.equal(rows, theirs["rows"][-len(rows) :])
        assert len(rows) == 5
        for name, value in ours.items():
            assert torch.equal(value, theirs[name]), name
