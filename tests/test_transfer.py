"""What is read on the host and sent to the device, and that nothing else is: see `numberless`."""

from __future__ import annotations

import pytest
import torch

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.data import Collator
from limbeck.teachers.outputs import RememberingTeacher
from limbeck.teachers.teacher import Teacher
from limbeck.transfer import SentBatch, on_host, send
from numberless import META, numbers_are_told_apart


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
