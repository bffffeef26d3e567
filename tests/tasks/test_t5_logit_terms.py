"""Comparisons of logits beside a text-to-text teacher: those over a vocabulary by token work, those of classes are
refused before any work."""

from __future__ import annotations

import pytest
import torch

import kind_models as tiny
from limbeck.functional.labels import NO_LABEL
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.check import objectives_of
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState


@pytest.fixture
def recipe(settings, teachers):
    def make(method, **changes) -> Recipe:
        given = settings("text", teacher=str(teachers["text"].path), epochs=1) | changes
        return Recipe.load(method, **given)

    return make


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("dist", {}, "dist compares mutually exclusive classes of examples, and task type text has no such classes"),
        ("dkd", {}, "dkd compares mutually exclusive classes of examples"),
        ("pseudo-label", {}, "pseudo_label compares mutually exclusive classes of examples"),
        ("kd", {"min_confidence": 0.8}, "confidence is the probability of an example's class, and a task of kind text"),
        ("kd", {"example_weights": "llkd"}, "confidence is the probability of an example's class"),
    ],
)  # fmt: skip
def test_what_compares_classes_is_refused_before_any_work(recipe, tmp_path, method, changes, words):
    with pytest.raises(LimbeckError, match=words):
        distill(recipe(method, **changes), out=tmp_path / "run", report=False)
    assert not (tmp_path / "run" / "checkpoints").exists()


def z_scores(values: list[float]) -> torch.Tensor:
    row = torch.tensor(values, dtype=torch.float64)
    return (row - row.sum() / len(row)) / ((row - row.mean()) ** 2).mean().sqrt()


def test_z_scores_over_a_vocabulary_by_hand(recipe):
    """Token by token of the targets, then the mean of examples."""
    prepared = prepare(recipe("kd-standardized"))
    (inputs,) = prepared.stages
    term = objectives_of(inputs, prepared.student)["soft"]
    model = tiny.model("text", layers=1, seed=4)
    ids = torch.tensor([[2, 5, 9, 3], [2, 8, 3, 0]])
    batch = {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.tensor([[9, 12, 3], [4, 3, NO_LABEL]]),
    }
    with torch.no_grad():
        ours, theirs = (one.eval()(**batch).logits for one in (prepared.student, model))
    from limbeck.activations import Trace

    found = term(Trace(logits=ours), Trace(logits=theirs), batch, StepState(seed=0))
    examples = []
    for row, tokens in enumerate((3, 2)):
        each = []
        for place in range(tokens):
            shares = [
                (z_scores(side[row, place].tolist()) / 2).softmax(0) for side in (theirs, ours)
            ]
            each.append(float((shares[0] * (shares[0] / shares[1]).log()).sum()))
        examples.append(sum(each) / tokens)
    assert float(found) == pytest.approx(4 * sum(examples) / 2, rel=1e-3)
