"""Who learns from what: a term moves the layers it looks at and those below, and nothing else."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
from tiny_pairs import batch, bert, build, terms
from torch import nn

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.support.step_state import StepState

DEPTH = 4
EVERYTHING = {"embeddings", "1", "2", "3", "4", "pooler", "classifier"}
BELOW_THE_TOP = {"embeddings", "1", "2", "3"}


def part(name: str) -> str:
    """Which part of a BERT classifier a parameter belongs to; layers by their number from 1."""
    layer = re.search(r"encoder\.layer\.(\d+)\.", name)
    if layer:
        return str(int(layer[1]) + 1)
    return next(p for p in ("embeddings", "pooler", "classifier") if p in name)


def moved(module: nn.Module) -> set[str]:
    """The parts with a gradient that is not zero."""
    return {
        part(name)
        for name, weight in module.named_parameters()
        if weight.grad is not None and weight.grad.abs().max() > 0
    }


@pytest.mark.parametrize("teacher_width", [8, 12])
@pytest.mark.parametrize(
    ("method", "term", "parts"),
    [
        ("finetune", "hard", EVERYTHING),
        ("kd", "soft", EVERYTHING),
        ("pkd", "patience", {"embeddings", "1"}),
        ("pkd-skip", "patience", BELOW_THE_TOP),
        ("pkd-last", "patience", BELOW_THE_TOP),
        ("pkd-first", "patience", BELOW_THE_TOP),
        ("pkd-12", "patience", {"embeddings", "1"}),
        ("ckd-no", "combination", BELOW_THE_TOP),
        ("ckd-po", "combination", BELOW_THE_TOP),
        ("alp-kd", "attention", BELOW_THE_TOP),
        ("alp-no", "attention", BELOW_THE_TOP),
        ("alp-po", "attention", BELOW_THE_TOP),
        ("rail-kd-l", "rail", BELOW_THE_TOP),
        ("rail-kd-c", "rail", BELOW_THE_TOP),
        ("distilbert", "cosine", {"embeddings", "1", "2", "3", "4"}),
    ],
)
def test_a_term_moves_what_it_looks_at_and_what_lies_below(method, term, parts, teacher_width):
    student = copy.deepcopy(bert(DEPTH, 8, seed=1))
    teacher = copy.deepcopy(bert(12, teacher_width, seed=0))
    objectives = build(method, student, teacher)
    terms(objectives, student, teacher, batch())[term].backward()
    assert moved(student) == parts
    assert all(weight.grad is None for weight in teacher.parameters())
    for name, weight in objectives.named_parameters():
        assert weight.grad is not None and weight.grad.abs().max() > 0, name


@pytest.mark.parametrize("method", ["pkd-skip", "alp-kd", "rail-kd-l", "rail-kd-c"])
def test_both_sides_maps_learn_when_widths_differ(method):
    objectives = build(method, bert(DEPTH, 8, seed=1), bert(12, 12, seed=0))
    sides = {
        re.search(r"projections\.(\w+)\.", name)[1] for name, _ in objectives.named_parameters()
    }
    assert sides == {"student", "teacher"}


def test_alone_the_other_terms_leave_the_maps_alone():
    student = copy.deepcopy(bert(DEPTH, 8, seed=1))
    objectives = build("pkd-skip", student, bert(12, 12, seed=0))
    found = terms(objectives, student, bert(12, 12, seed=0), batch())
    (found["hard"] + found["soft"]).backward()
    assert all(weight.grad is None for weight in objectives.parameters())


def test_a_term_asks_for_no_more_than_it_reads():
    objectives = build("pkd-skip", bert(DEPTH, 8, seed=1), bert(12, 12, seed=0))
    step_state = StepState()
    patience = objectives["patience"]
    assert patience.request("student", step_state) == Request.hidden([1, 2, 3], pool="cls")
    assert patience.request("teacher", step_state) == Request.hidden([3, 6, 9], pool="cls")
    assert objectives["hard"].request("teacher", step_state) == Request()
    assert objectives.request("teacher", step_state).logits  # for the soft label


def alp_by_hand(states: np.ndarray, layers: np.ndarray, alpha: np.ndarray | None = None) -> float:
    """ALP-KD Eqs. 5–7 in float64: states (S, B, d), layers (T, B, d); `alpha` fixed or computed."""
    total = 0.0
    for j, slot in enumerate(states):
        for b, s in enumerate(slot):
            weights = attention_of(s, layers[:, b]) if alpha is None else alpha[j, b]
            total += float(((s - weights @ layers[:, b]) ** 2).mean()) / len(slot)
    return total


def attention_of(s: np.ndarray, layers: np.ndarray) -> np.ndarray:
    powers = np.exp(layers @ s)
    return powers / powers.sum()


def slope(function, states: np.ndarray) -> np.ndarray:
    """The gradient by central differences."""
    gradient = np.zeros_like(states)
    for place in np.ndindex(states.shape):
        step = np.zeros_like(states)
        step[place] = 1e-5
        gradient[place] = (function(states + step) - function(states - step)) / 2e-5
    return gradient


def test_alp_s_gradient_flows_through_the_attention_weights():
    objectives = build("alp-kd", bert(DEPTH, 8, seed=1), bert(6, 8, seed=0))
    generator = np.random.default_rng(0)
    states = generator.normal(size=(3, 2, 8)) / 2
    layers = generator.normal(size=(6, 2, 8)) / 2
    leaf = torch.tensor(states, dtype=torch.float32, requires_grad=True)
    mask = {"main": torch.ones(2, 1, dtype=torch.bool)}
    student = Trace({ActivationKey("hidden", j, "cls"): leaf[j - 1] for j in (1, 2, 3)}, masks=mask)
    frozen = torch.tensor(layers, dtype=torch.float32)
    teacher = Trace(
        {ActivationKey("hidden", k, "cls"): frozen[k - 1] for k in range(1, 7)}, masks=mask
    )
    objectives["attention"](student, teacher, {}, StepState()).backward()

    through = slope(lambda s: alp_by_hand(s, layers), states)
    alpha = np.array(
        [[attention_of(s, layers[:, b]) for b, s in enumerate(slot)] for slot in states]
    )
    detached = slope(lambda s: alp_by_hand(s, layers, alpha), states)
    np.testing.assert_allclose(leaf.grad.numpy(), through, rtol=1e-3, atol=1e-5)
    assert np.abs(leaf.grad.numpy() - detached).max() > 1e-2
