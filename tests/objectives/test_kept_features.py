"""A student that was cut from a wider teacher is compared with the features that it still has."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_pairs import LENGTHS, batch, bert

from limbeck.activations import Trace, capture
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import EMBEDDING

NOW = StepState()
KEPT = [0, 1, 3, 4, 6, 7, 9, 11]
LAST = {"mapping": {"kind": "last-to-last"}}
INPUTS = {name: batch()[name] for name in ("input_ids", "attention_mask")}


def terms_of(method="kd", kept=KEPT, **objectives):
    recipe = Recipe.load(method, **({"objectives": objectives} if objectives else {}))
    shapes = ModelShape.of(bert(2, 8, 1)), ModelShape.of(bert(3, 12, 0))
    return Objectives(recipe.loss, Shape(*shapes, kept={12: kept} if kept else {}))


def values_of(terms):
    traces = [
        capture(model, INPUTS, terms.request(side, NOW))
        for model, side in ((bert(2, 8, 1), "student"), (bert(3, 12, 0), "teacher"))
    ]
    return terms(*traces, batch(), NOW)


def states_of(model):
    with torch.no_grad():
        return model(**INPUTS, output_hidden_states=True).hidden_states


def test_hidden_states_are_compared_with_the_kept_features_of_the_teacher():
    found = values_of(terms_of(own={"compare": "hidden_mse", **LAST}))["own"].item()
    ours, theirs = states_of(bert(2, 8, 1))[-1], states_of(bert(3, 12, 0))[-1]
    means = []
    for row, length in enumerate(LENGTHS):
        squares = [
            float(ours[row, token, place] - theirs[row, token, feature]) ** 2
            for token in range(length)
            for place, feature in enumerate(KEPT)
        ]
        means.append(sum(squares) / len(squares))
    assert found == pytest.approx(sum(means) / len(means), rel=1e-5)


def test_several_layers_side_by_side():
    mapping = {"kind": "explicit", "layers": {1: 1, 2: 3}}
    term = {"compare": "mse", "pool": "cls", "compare_layers": "joined", "mapping": mapping}
    found = values_of(terms_of(own=term))["own"].item()
    ours, theirs = states_of(bert(2, 8, 1)), states_of(bert(3, 12, 0))
    squares = [
        float(ours[j][row, 0, place] - theirs[k][row, 0, feature]) ** 2
        for row in range(len(LENGTHS))
        for j, k in ((1, 1), (2, 3))
        for place, feature in enumerate(KEPT)
    ]
    assert found == pytest.approx(sum(squares) / len(squares), rel=1e-5)


@pytest.mark.parametrize("method", ["distilbert", "alp-kd", "pkd-first", "internal-kd"])
def test_maps_that_only_bring_both_to_one_width_are_left_out(method):
    terms = terms_of(method)
    assert not list(terms.parameters())
    assert all(torch.isfinite(value) for value in values_of(terms).values())
    assert list(terms_of(method, kept=()).parameters())


def test_a_map_that_the_recipe_asks_for_stays():
    term = {"compare": "hidden_mse", "project": {"to": 4}, **LAST}
    assert len(list(terms_of(own=term).parameters())) == 2


def test_another_teacher_needs_a_map():
    with pytest.raises(LimbeckError, match="8 wide and the teacher's 12"):
        terms_of(own={"compare": "hidden_mse", **LAST}, kept=())


@pytest.mark.parametrize(("compare", "own"), [("embedding_mse", None), ("embedding_cosine", [4])])
def test_embeddings_are_compared_with_the_kept_numbers_of_the_teacher(compare, own):
    loss = {"objectives": {"own": {"compare": compare, "dimensions": own}}}
    recipe = Recipe.load("embedding-mse", **loss)
    shapes = ModelShape(2, 8, 1, embedding=8), ModelShape(3, 12, 1, embedding=12)
    terms = Objectives(recipe.loss, Shape(*shapes, kind=EMBEDDING, kept={12: KEPT}))
    assert not list(terms.parameters())
    torch.manual_seed(0)
    ours, theirs = torch.randn(3, 8), torch.randn(3, 12)
    found = terms(Trace(logits=ours), Trace(logits=theirs), {"index": torch.arange(3)}, NOW)[
        "own"
    ].item()
    losses = []
    for width in (4, 8) if own else (8,):
        for row in range(3):
            a = [float(ours[row, place]) for place in range(width)]
            b = [float(theirs[row, feature]) for feature in KEPT[:width]]
            if compare == "embedding_mse":
                losses.append(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
            else:
                product = sum(x * y for x, y in zip(a, b, strict=True))
                losses.append(1 - product / math.hypot(*a) / math.hypot(*b))
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-5)
