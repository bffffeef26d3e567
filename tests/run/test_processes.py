"""Whole runs in two processes: one of them writes, both decide and draw alike, and the student is the same."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import tiny_runs as tiny
from closeness import assert_trained_alike, travelled
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill

TESTS = Path(__file__).parent.parent
WORKER = """
import sys
from pathlib import Path
from test_processes import run
run(Path(sys.argv[1]), sys.argv[2], "both")
import torch
torch.distributed.destroy_process_group()
"""
METHODS = {
    # The last step of an epoch holds three examples: one process has them all.
    "kd": {"cache": "always", "train_rows": 51},
    # Passes are dealt out whole; the last step holds nine examples.
    "kd-soft": {"train_rows": 49, "accumulation": 4, "batch_size": 5},
    "skd-adaptive": {"team.holdout": 6, "team.block": 2},
}


def run(place: Path, method: str, name: str) -> None:
    teachers = [str(place / name) for name in ("four", "six")]
    who = {"teachers": teachers} if method.startswith("skd") else {"teacher": teachers[0]}
    settings = {
        "task": "reviews",
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "student.init": str(place / "start"),
        "epochs": 2,
        "batch_size": 8,
        "max_length": 24,
        "lr": 1e-3,
        "max_grad_norm": 1e9,
        # Short sentences beside long ones: whose batch is whose must not matter.
        "group_by_length": False,
        "seed": 3,
    }
    recipe = Recipe.load(method, **(settings | who | METHODS[method]))
    distill(recipe, place / f"{method}-{name}", report=False)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_make_what_one_makes(tmp_path, method, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    for name, layers in (("four", 4), ("six", 6)):
        tiny.save(tiny.knowing_teacher(layers), tmp_path / name)
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    tiny.save(tiny.bert(3, **still), tmp_path / "start")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    known = [path] if (path := os.environ.get("PYTHONPATH")) else []
    shared["PYTHONPATH"] = os.pathsep.join([*known, str(TESTS), str(TESTS / "run")])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), method],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [worker.wait(timeout=600) for worker in workers] == [0, 0]
    run(tmp_path, method, "alone")
    both, alone = (tmp_path / f"{method}-{name}" for name in ("both", "alone"))
    records = [json.loads((folder / "record.json").read_text()) for folder in (both, alone)]
    assert [record["status"] for record in records] == ["finished"] * 2
    # The second finds what the first one stored.
    ran = [record["execution"] | {"stored": [], "processes": []} for record in records]
    assert ran[0] == ran[1]
    assert [record["execution"]["processes"] for record in records] == [[2], [1]]
    assert records[0]["recipe"] == records[1]["recipe"]
    for ours, theirs in zip(records[0]["stages"], records[1]["stages"], strict=True):
        assert ours["steps"] == theirs["steps"]
    for ours, theirs in zip(records[0]["epochs"], records[1]["epochs"], strict=True):
        assert ours["sampled"] == theirs["sampled"]
        assert ours["train"] == pytest.approx(theirs["train"], rel=1e-4)
        assert ours["dev"] == pytest.approx(theirs["dev"], rel=1e-4)
    weights = [load_file(folder / "student" / "model.safetensors") for folder in (both, alone)]
    assert_trained_alike(*weights, travelled=travelled(Record.load(alone)))
