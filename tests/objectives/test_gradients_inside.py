"""Which weights inside a layer a term moves, and what it treats as a constant."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
from inside import cheapest_flow
from tiny_pairs import batch, bert, build, stage_recipe, terms
from torch import nn

from limbeck.activations import ActivationKey, Trace
from limbeck.activations.request import Mixed
from limbeck.input_transforms import Mixture
from limbeck.support.step_state import StepState

DEPTH = 4
BELOW = {"embeddings", "1", "2", "3"}
# Parts of the top layer, in the order in which it uses them.
WHOLE_TOP = {"query", "key", "value", "output", "intermediate"}
ALL_LAYERS = BELOW | WHOLE_TOP


def part(name: str) -> str:
    """`embeddings`, `pooler`, `classifier`, a layer's number, or of the top layer which map."""
    layer = re.search(r"encoder\.layer\.(\d+)\.(.*)", name)
    if layer is None:
        return next(p for p in ("embeddings", "pooler", "classifier") if p in name)
    if int(layer[1]) + 1 < DEPTH:
        return str(int(layer[1]) + 1)
    return next(p for p in ("query", "key", "value", "output", "intermediate") if p in layer[2])


def moved(module: nn.Module) -> set[str]:
    """The parts with a gradient; a key's bias is left out, which no softmax sees."""
    return {
        part(name)
        for name, weight in module.named_parameters()
        if not name.endswith("key.bias") and weight.grad is not None and weight.grad.abs().max() > 0
    }


def backward(method: str, term: str, stage: int, progress: float = 0.5, **given):
    student = copy.deepcopy(bert(DEPTH, 8, seed=1))
    teacher = copy.deepcopy(bert(8, 12, seed=0))
    objectives = build(method, student, teacher, stage=stage, **given)
    mixup = stage_recipe(method, stage).mixup
    mixture = None if mixup is None else Mixture(torch.tensor([1, 2, 3, 0]), 0.4, mixup.at)
    step_state = StepState(progress=progress)
    found = terms(objectives, student, teacher, batch(), step_state, mixture)
    found[term].backward()
    assert all(weight.grad is None for weight in teacher.parameters())
    return student, objectives, term


@pytest.mark.parametrize(
    ("method", "stage", "term", "parts"),
    [
        ("l-ild", 1, "attention", BELOW | {"query", "key"}),
        ("l-ild", 1, "hidden", ALL_LAYERS),
        ("u-ild", 1, "attention", BELOW | {"query", "key"}),
        ("emd-ild", 1, "attention", BELOW | {"query", "key"}),
        ("emd-ild", 1, "hidden", ALL_LAYERS),
        ("internal-kd", 1, "attention", BELOW | {"query", "key"}),
        ("internal-kd", 1, "cosine", ALL_LAYERS),
        ("tinybert", 1, "attention", BELOW | {"query", "key"}),
        ("tinybert", 1, "hidden", ALL_LAYERS),
        ("tinybert", 1, "embedding", {"embeddings"}),
        ("tinybert-released", 1, "attention", BELOW | {"query", "key"}),
        ("tinybert-released", 1, "hidden", ALL_LAYERS),
        ("rail-tinybert", 1, "hidden", BELOW),
        ("rail-tinybert", 1, "embedding", {"embeddings"}),
        ("bert-emd", 1, "attention", BELOW | {"query", "key"}),
        ("bert-emd", 1, "hidden", ALL_LAYERS),
        ("bert-emd", 1, "embedding", {"embeddings"}),
        ("minilm", 1, "attention", BELOW | {"query", "key"}),
        ("minilm", 1, "value", BELOW | {"value"}),
        ("minilmv2", 1, "query", BELOW | {"query"}),
        ("minilmv2", 1, "key", BELOW | {"key"}),
        ("minilmv2", 1, "value", BELOW | {"value"}),
        # Its weights come from the sentence vector above the relations.
        ("alp-minilmv2", 1, "query", ALL_LAYERS),
        ("alp-sparse", 1, "attention", BELOW),
        ("pkd-released", 1, "patience", BELOW),
        ("contextual-kd", 1, "word_pairs", ALL_LAYERS),
        ("contextual-kd", 1, "word_angles", ALL_LAYERS),
        ("contextual-kd", 1, "layer_pairs", ALL_LAYERS),
        ("contextual-kd", 1, "layer_angles", ALL_LAYERS),
        ("cr-ild", 1, "attention", BELOW | {"query", "key"}),
        ("cr-ild", 1, "hidden", ALL_LAYERS),
        ("cr-ild", 1, "attention_consistency", BELOW | {"query", "key"}),
        ("cr-ild", 1, "hidden_consistency", ALL_LAYERS),
        ("cr-ild-released", 1, "attention", BELOW | {"query", "key"}),
        ("cr-ild-released", 1, "attention_consistency", BELOW | {"query", "key"}),
        ("cr-ild-released", 1, "hidden_consistency", ALL_LAYERS),
        ("cr-ild", 2, "soft", ALL_LAYERS | {"pooler", "classifier"}),
    ],
)
def test_a_term_moves_what_it_looks_at_and_what_lies_below(method, stage, term, parts):
    student, objectives, term = backward(method, term, stage)
    assert moved(student) == parts
    own, others = [*objectives[term].parameters()], set(objectives.parameters())
    through = getattr(objectives[term].settings, "through", None)
    if through is not None:  # it moves the map that it borrows
        own += objectives[through].parameters()
    for weight in own:
        assert weight.grad.abs().max() > 0
        others.discard(weight)
    assert all(weight.grad is None for weight in others)


@pytest.mark.parametrize("term", ["attention", "cosine"])
@pytest.mark.parametrize(("progress", "layer"), [(0.0, 1), (0.3, 2), (0.5, 3)])
@pytest.mark.parametrize("method", ["internal-kd-pid", "internal-kd-sid-soft"])
def test_while_layers_learn_in_turn_those_above_rest(method, term, progress, layer):
    student, _, _ = backward(method, term, 1, progress)
    assert moved(student) == {"embeddings", *(str(j) for j in range(1, layer + 1))}


def test_an_attention_mapping_s_own_maps_learn():
    _, objectives, _ = backward("alp-minilmv2", "key", 1)
    maps = dict(objectives["key"].reader.named_parameters())
    assert {name.split(".")[1] for name in maps} == {"student", "teacher"}
    assert all(weight.grad.abs().max() > 0 for weight in maps.values())


# ---- what is a constant ----


def consistency(compare: str, **given) -> dict[str, torch.Tensor]:
    """The gradient of each side: of the mixed input's output, and of the clean ones."""
    settings = {f"first_stage.objectives.{compare}.{key}": value for key, value in given.items()}
    objectives = build("cr-ild", bert(2, 8, seed=1), bert(4, 12, seed=0), stage=1, **settings)
    generator = torch.Generator().manual_seed(3)
    shape, seen = (2, 3, 4), ActivationKey("hidden", 2)
    if compare == "attention_consistency":
        what = "scores" if given.get("target") == "clean" else "probabilities"
        shape, seen = (2, 2, 3, 3), ActivationKey(what, 2)
    sides = [torch.randn(shape, generator=generator).softmax(-1) for _ in range(2)]
    mixed, clean = (side.requires_grad_() for side in sides)
    mask = {"main": torch.ones(2, 3, dtype=torch.bool)}
    student = Trace({seen: mixed}, masks=mask)
    student.mixed = Mixed(Trace({seen: clean}, masks=mask), {}, torch.tensor([1, 0]), 0.3)
    objectives[compare](student, Trace(), {}, StepState()).backward()
    return {"mixed": mixed.grad, "clean": clean.grad}


@pytest.mark.parametrize("compare", ["attention_consistency", "hidden_consistency"])
def test_consistency_moves_both_its_sides_unless_told_otherwise(compare):
    both = consistency(compare)
    assert both["mixed"].abs().max() > 0 and both["clean"].abs().max() > 0
    detached = consistency(compare, detach_target=True)
    assert detached["mixed"] is None
    torch.testing.assert_close(detached["clean"], both["clean"])
    released = consistency(compare, target="clean")
    assert released["mixed"].abs().max() > 0
    assert released["clean"] is None


def test_the_flow_is_a_constant():
    """∂/∂h of Σ f·d(h) with f as it is, though another h would have another flow."""
    objectives = build("emd-ild", bert(2, 8, seed=1), bert(4, 8, seed=0), stage=1)
    term = objectives["hidden"]
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(2, 2, 3, 8, generator=generator, requires_grad=True)
    layers = torch.randn(4, 2, 3, 8, generator=generator)
    mask = {"main": torch.ones(2, 3, dtype=torch.bool)}
    student = Trace({ActivationKey("hidden", j): states[j - 1] for j in (1, 2)}, masks=mask)
    teacher = Trace({ActivationKey("hidden", k): layers[k - 1] for k in (1, 2, 3, 4)}, masks=mask)
    (gradient,) = torch.autograd.grad(term(student, teacher, {}, StepState()), states)
    s, t = states.detach().double().numpy(), layers.double().numpy()
    costs = np.array([[((s[j] - t[k]) ** 2).mean() for k in range(4)] for j in range(2)])
    flow = cheapest_flow(costs, [0.5] * 2, [0.25] * 4)
    # d is a mean over 2 examples of 3 tokens of 8 features, and W_H starts as the identity.
    expected = [sum(2 * flow[j, k] * (s[j] - t[k]) / 48 for k in range(4)) for j in range(2)]
    np.testing.assert_allclose(gradient.numpy(), np.array(expected), rtol=1e-4, atol=1e-6)


def test_what_is_remembered_is_a_constant():
    """Neither the memory nor masses are learned by gradients; both are saved."""
    student, teacher = bert(DEPTH, 8, seed=1), bert(8, 12, seed=0)
    codir = build("codir", student, teacher)
    for step in range(2):
        terms(codir, student, teacher, batch(), StepState(step=step))["contrast"].backward()
    bank = codir["contrast"].memory
    assert not list(bank.parameters())
    assert bank.vectors.grad_fn is None and not bank.vectors.requires_grad
    assert bank.vectors[:4].norm(dim=-1).tolist() == pytest.approx([1.0] * 4)
    emd = build("bert-emd", student, teacher)
    saved = {*codir.state_dict(), *emd.state_dict()}
    assert {"terms.contrast.memory.vectors", "terms.contrast.memory.labels"} <= saved
    for name in ("hidden", "attention"):
        masses = {f"terms.{name}.mapping.{side}_mass" for side in ("student", "teacher")}
        assert masses <= saved
        assert not list(emd[name].mapping.parameters())
