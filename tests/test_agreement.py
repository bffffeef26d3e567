"""Processes of one run decide alike."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch

from limbeck.support.machine import agreed, summed

WORKER = """
import os, time
import torch
from limbeck.support.machine import agreed, summed
rank = int(os.environ["RANK"])
assert agreed({"eager": rank, "sdpa": 1.5}) == {"eager": 0, "sdpa": 1.5}
assert agreed(f"of {rank}") == "of 0"
assert summed(torch.tensor([rank + 1.0, 5.0])).tolist() == [3.0, 10.0]
torch.distributed.destroy_process_group()
"""


def test_alone_it_is_ones_own_value():
    value = object()
    assert agreed(value) is value
    assert summed(torch.tensor([2.0, 3.0])).tolist() == [2.0, 3.0]


@pytest.mark.slow
def test_every_process_gets_the_first_ones_value():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
