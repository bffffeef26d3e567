"""Which device computes, and what is read on the host and sent there, and nothing else: see `numberless`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.cli.app import app
from limbeck.data import Collator
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.records import Record
from limbeck.support.machine import SentBatch, device, on_host, send
from limbeck.teachers.teacher import Teacher
from numberless import META, numbers_are_told_apart


@pytest.fixture
def no_driver(monkeypatch):
    """A build of torch for CUDA on a machine without a driver, as pip's default is on most machines."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(
        torch.accelerator,
        "current_accelerator",
        lambda check_available=False: None if check_available else torch.device("cuda"),
    )


@pytest.mark.usefixtures("no_driver")
def test_a_build_for_cuda_without_a_driver_runs_on_cpu(tmp_path):
    """Training, its cached teacher outputs and checkpoints, predictions, labels and analyses."""
    tiny.save(tiny.knowing_teacher(2), tmp_path / "teacher")
    rows = tiny.write_csv(tmp_path / "reviews.csv", 60)
    text = tmp_path / "text.csv"
    text.write_text("review\n" + "\n".join(tiny.sentences(6)), encoding="utf-8")
    columns = ["--text-columns", "review"]
    for command in (
        [
            *("distill", "--method", "kd", "--teacher", "teacher", "--layers", "1", "--out", "run"),
            *("--data", rows, *columns, "--label-column", "verdict"),
            *("--epochs", "1", "--max-length", "24", "--cache", "always"),
        ],
        ["predict", "run", text, *columns, "--to", "predicted.csv"],
        ["label", "--teacher", "teacher", "--data", text, *columns, "--out", "stored"],
        ["analyze", "agreement", "run", "--out", "analyzed"],
    ):
        with contextlib.chdir(tmp_path):
            ran = CliRunner().invoke(app, [str(word) for word in command])
        assert ran.exit_code == 0, ran.output
    assert device() == torch.device("cpu")
    assert Record.load(tmp_path / "run").hardware["accelerator"] is None


@pytest.mark.parametrize(("rank", "index"), [(None, 0), ("3", 3)])
def test_each_process_computes_on_its_own_accelerator(monkeypatch, rank, index):
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda")
    )
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert device() == torch.device("cuda", index)


def test_one_place_asks_which_device_there_is():
    """Two places that ask differently compute in two places."""
    asking = re.compile(
        r"current_accelerator|(accelerator|cuda|mps|xpu)\.is_available|is_torch_\w+_available"
    )
    source = Path(limbeck.__file__).parent
    asked = [p.name for p in source.rglob("*.py") if asking.search(p.read_text(encoding="utf-8"))]
    assert asked == ["machine.py"]


def sent_batch(host: dict[str, torch.Tensor]) -> SentBatch:
    return SentBatch({name: value.to(META) for name, value in host.items()}, host)


def test_the_device_tells_what_is_asked_and_sent():
    """The oracle itself can fail."""
    numbers = torch.ones(3, device=META)
    with numbers_are_told_apart() as sent:
        for ask in (numbers.sum().item, numbers.tolist, numbers.nonzero, numbers.cpu):
            with pytest.raises((NotImplementedError, RuntimeError), match=r"[Mm]eta"):
                ask()
        with pytest.raises((NotImplementedError, RuntimeError), match=r"[Mm]eta"):
            numbers[numbers > 0]
        assert not sent
        for sending in (
            lambda: torch.tensor([1.0, 2.0], device=META),
            lambda: torch.arange(3).to(META),
            lambda: numbers[[0, 2]],
        ):
            before = len(sent)
            sending()
            assert len(sent) > before


def test_a_sent_batch_knows_its_host_s_whatever_is_changed_on_the_device():
    host = {"index": torch.tensor([3, 4]), "labels": torch.tensor([0, 1])}
    changed = sent_batch(host) | {"labels": torch.tensor([5, 6], device=META)}
    assert {name: value.device for name, value in changed.items()} == dict.fromkeys(host, META)
    assert on_host(changed) is host
    assert on_host(host) is host
    assert send(host["index"], torch.device("cpu")) is host["index"]


def test_what_a_teacher_remembers_is_found_without_waiting():
    """By the host's index: the answers themselves lie where the teacher's model is."""
    host = Collator(tiny.tokenizer())(list(tiny.rows(4)))
    teacher = RememberingTeacher(Teacher(tiny.bert(2)))
    asked = Request.of_logits() | Request.hidden([2], pool="mean")
    expected, given = teacher(host, asked), sent_batch(host)
    with numbers_are_told_apart() as sent:
        found = teacher(given, asked)
    assert sent == []
    assert torch.equal(found.logits, expected.logits)
