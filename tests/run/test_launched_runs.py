"""`accelerate launch --config_file` starts two processes; a run that loses one of them goes on bit for bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

import tiny_runs as tiny
from limbeck.records import Record
from limbeck.support import machine

# As `accelerate config` writes it. Without GPUs the processes train on the CPU.
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 1
num_processes: 2
main_process_port: {port}
use_cpu: false
"""
# The second process ends as if its machine had lost power, before the fourth step.
DYING = """
import os
from transformers import TrainerCallback
import limbeck
from limbeck.training import DistillationTrainer

@limbeck.objective("nothing")
class Nothing(limbeck.Objective):
    def forward(self, student, teacher, batch, step_state):
        return 0 * student.logits.sum()

class Ends(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 3 and os.environ["RANK"] == os.environ.get("DIES"):
            os._exit(9)

original = DistillationTrainer.__init__
def dying(self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.add_callback(Ends())
DistillationTrainer.__init__ = dying
"""


@pytest.mark.slow
@pytest.mark.integration
def test_a_run_that_loses_a_process_goes_on_bit_for_bit(tmp_path):
    tiny.save(tiny.knowing_teacher(), tmp_path / "teacher")
    tiny.save(
        tiny.bert(2), tmp_path / "start"
    )  # with dropout: the generators of both have to go on
    tiny.write_csv(tmp_path / "rows.csv", 60)
    (tmp_path / "dying.py").write_text(DYING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "two.yaml").write_text(CONFIG.format(port=free.getsockname()[1]))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "two.yaml"]
    settings = (
        "--method kd-soft --teacher teacher --student start --task reviews --data rows.csv --text-columns review "
        "--label-column verdict --plugin dying.py epochs=2 batch_size=8 max_length=24 lr=1e-3 checkpoint_steps=2"
    )

    def ended(out: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*launch, "-m", "limbeck", "distill", *settings.split(), "--out", out],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    unbroken = ended("unbroken")
    assert unbroken.returncode == 0, unbroken.stderr
    assert ended("broken", DIES="1").returncode != 0
    assert not (tmp_path / "broken/student").exists()
    resumed = ended("broken")
    assert resumed.returncode == 0, resumed.stderr
    one, other = (Record.load(tmp_path / name) for name in ("unbroken", "broken"))
    assert one.execution.processes == other.execution.processes == (2,)
    assert one.scores == other.scores
    for name in ("student/model.safetensors", "predictions.json"):
        assert (tmp_path / "unbroken" / name).read_bytes() == (
            tmp_path / "broken" / name
        ).read_bytes()
    assert [epoch.train for epoch in one.epochs] == [epoch.train for epoch in other.epochs]
    # One process writes, and one prints.
    assert unbroken.stdout.count("unbroken/report.html") <= 1
    assert [path.name for path in (tmp_path / "unbroken").glob("record*.json")] == ["record.json"]


@pytest.mark.parametrize("name", ["WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_processes_of_every_launcher_count(monkeypatch, name):
    for one in ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(one, raising=False)
    assert machine.processes() == 1
    monkeypatch.setenv(name, "3")
    assert machine.processes() == 3
