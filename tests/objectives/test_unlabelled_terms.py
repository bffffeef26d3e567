"""Terms that read labels, on batches in which some examples have none."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from limbeck import functional as F
from limbeck.activations import Mixed, Trace
from limbeck.objectives import OBJECTIVES, HardSpec
from limbeck.objectives.contrastive import Memory
from limbeck.objectives.predictions import HardLabel
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE, SPANS, TOKENS, SoftRule

NAN = math.nan
LN3 = math.log(3)


def test_cross_entropy_by_hand():
    # −ln ½ of the first, −ln ¼ of the third; the second has no label.
    logits = torch.tensor([[0.0, 0.0], [9.0, -9.0], [LN3, 0.0]])
    loss = SENTENCE.hard_label(logits, {"labels": torch.tensor([0, -100, 1])})
    assert loss.item() == pytest.approx((0.693147 + 1.386294) / 2, abs=1e-6)


def test_squared_error_by_hand():
    outputs, labels = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0.0, NAN, 1.0])
    assert SENTENCE.hard_label(outputs, {"labels": labels}).item() == 5.0  # (1² + 3²) / 2


def test_tags_by_hand():
    # Of the first row two words, of the second none; the third's only word is sure to be right.
    logits = torch.zeros(3, 2, 2)
    logits[2, 0, 1] = 40.0
    labels = torch.tensor([[0, 1], [-100, -100], [1, -100]])
    loss = TOKENS.hard_label(logits, {"labels": labels})
    assert loss.item() == pytest.approx(0.693147 / 2, abs=1e-6)


def losses(labelled: bool):
    """Every loss of a batch that reads labels: a function of logits (3, C, …) and the labels."""
    classes = torch.tensor([0, 1, 1]) if labelled else torch.full((3,), -100)
    numbers = torch.tensor([0.5, 1.0, 2.0]) if labelled else torch.full((3,), NAN)
    teachers = torch.linspace(-1, 1, 12).view(2, 3, 2)
    batch = {"labels": classes}
    mask = {"attention_mask": torch.ones(3, 2), "token_type_ids": torch.ones(3, 2)}
    sides = {"start_positions": classes, "end_positions": classes, "candidates": torch.ones(3, 2)}
    return {
        "classes": lambda z: SENTENCE.hard_label(z, batch),
        "numbers": lambda z: SENTENCE.hard_label(z[:, :1], {"labels": numbers}),
        "tags": lambda z: TOKENS.hard_label(z[:, None], {"labels": classes[:, None]}),
        "spans": lambda z: SPANS.hard_label(torch.stack([z, z], -1), {**mask, **sides}),
        "dkd": lambda z: F.dkd(z, teachers[0], classes),
        "error_weighted": lambda z: F.error_weighted_cross_entropy(z, teachers, classes),
        "error_weighted_mse": lambda z: F.error_weighted_mse(z[:, 0], teachers[..., 0], numbers),
    }


@pytest.mark.parametrize("name", losses(True))
def test_a_batch_without_labels_moves_nothing(name):
    logits = torch.tensor([[0.3, -0.2], [1.0, 2.0], [-1.0, 0.5]], requires_grad=True)
    loss = losses(labelled=False)[name](logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0.0
    assert torch.equal(gradient, torch.zeros(3, 2))
    assert losses(labelled=True)[name](logits).item() > 0.01


@pytest.mark.parametrize("loss", ["dkd", "error_weighted_cross_entropy", "error_weighted_mse"])
def test_what_weighs_by_labels_counts_the_labelled(loss):
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(4, 3, generator=generator)
    teachers = torch.randn(2, 4, 3, generator=generator)
    labels = torch.tensor([2, -100, 0, -100])
    if loss == "dkd":
        teachers = teachers[0]
    elif loss == "error_weighted_mse":
        student, teachers = student[:, 0], teachers[..., 0]
        labels = torch.tensor([2.0, NAN, 0.0, NAN])
    own, some = getattr(F, loss), [0, 2]
    theirs = teachers[some] if loss == "dkd" else teachers[:, some]
    found = own(student, teachers, labels)
    assert found.item() == pytest.approx(own(student[some], theirs, labels[some]).item(), rel=1e-6)


def test_soft_labels_count_every_example():
    logits, theirs = torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(1))
    batch = {"labels": torch.tensor([0, -100, -100, 1])}
    rule = SoftRule("soft_kl", 2.0)
    each = [SENTENCE.soft_label(logits[[n]], theirs[[n]], batch, rule).item() for n in range(4)]
    found = SENTENCE.soft_label(logits, theirs, batch, rule).item()
    assert found == pytest.approx(sum(each) / 4, rel=1e-5)


@pytest.mark.parametrize("classes", [2, 0])
def test_a_memory_keeps_no_example_without_a_label(classes):
    memory = Memory(6, 2, 0.5, classes=classes)
    absent = -100 if classes else NAN
    labels = torch.tensor([0, 1, absent, 0])
    memory.remember(torch.arange(4), torch.eye(2).repeat(2, 1), labels)
    assert memory.labels.isnan().tolist() == [False, False, True, False, True, True]
    _, drawn = memory.draw(labels, 3, StepState(seed=0))
    assert drawn.sum(1).tolist() == [1, 2, 0, 1]


def test_every_term_of_the_package_that_reads_labels_counts_the_labelled():
    terms = [OBJECTIVES.get(name) for name in OBJECTIVES]
    own = [term for term in terms if term.__module__.startswith("limbeck.")]
    assert all(term.counts_labelled for term in own if term.reads_labels)


def test_of_mixed_input_each_partners_label_counts_where_there_is_one():
    """λ·(−ln ½) of the first example, whose own label is 0, and (1 − λ)·(−ln ¾) of the second by its partner's."""
    shape = SimpleNamespace(kind=SENTENCE)
    term = HardLabel(HardSpec.model_validate({}), shape, "objectives.hard")
    batch = {"labels": torch.tensor([0, -100])}
    mixed = Mixed(Trace(), batch, torch.tensor([1, 0]), 0.25)
    student = SimpleNamespace(logits=torch.tensor([[0.0, 0.0], [LN3, 0.0]]), mixed=mixed)
    found = term(student, None, batch, StepState(seed=0)).item()
    assert found == pytest.approx(0.25 * 0.693147 + 0.75 * 0.287682, abs=1e-6)
