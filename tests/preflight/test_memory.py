"""The memory that pre-flight expects of a language model, against counts by hand; and that it is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from limbeck.preflight import memory
from limbeck.preflight.memory import Step

VOCABULARY, WIDTH, LAYERS, TOKENS = 1000, 8, 3, 5
STEP = Step(examples=4, tokens=10, bf16=False, optimizer="adamw", again=False)


class Student(nn.Module):
    """Layers that keep their outputs, and a head whose logits are kept."""

    device = torch.device("cpu")
    config = SimpleNamespace(vocab_size=VOCABULARY, num_hidden_layers=LAYERS, hidden_size=WIDTH)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for _ in range(LAYERS):
            states = states.exp()
        return self.head(states).exp()


@pytest.fixture
def said(monkeypatch):
    """`said(step)`: the note about a training with nothing else loaded."""
    monkeypatch.setattr(memory, "_loaded", lambda models, device: 0.0)
    student = Student()
    start = nn.Parameter(torch.zeros(2, TOKENS, WIDTH))
    batch = {"input_ids": torch.zeros(3, TOKENS).long()}

    def note(step: Step) -> str:
        def terms(few):
            return {"soft": student(start * len(few["input_ids"])).sum()}

        return memory.note_of(student, [], terms, batch, step).message

    return note


def test_a_pass_is_what_it_keeps_for_the_tokens_of_a_step(said, monkeypatch):
    """Two examples of five tokens keep what 40 tokens keep four times; nothing is kept twice."""
    monkeypatch.setattr(memory, "_gb", lambda size: f"{size:.0f} B")
    state = 3 * 4 * WIDTH * VOCABULARY
    layers, logits = 4 * LAYERS * 40 * WIDTH, 4 * 5 * 40 * VOCABULARY
    found = said(STEP)
    assert f"{state} B for gradients and optimizer" in found
    assert f"{layers + logits} B for 4 texts of 10 tokens" in found
    # One layer at a time, and the inputs of all.
    fewer = layers // LAYERS + 4 * 40 * WIDTH * LAYERS + logits
    assert f"({fewer} B with activation_checkpointing=true)" in found
    again = said(Step(**(vars(STEP) | {"again": True})))
    assert f"{fewer} B for 4 texts" in again and "=false)" in again


def test_large_numbers_are_gigabytes():
    assert (memory._gb(2.34e9), memory._gb(56.7e6)) == ("2.3 GB", "57 MB")
