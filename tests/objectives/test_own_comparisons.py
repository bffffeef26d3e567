"""A user's function becomes a value of `compare`, and is given what its page says."""

from __future__ import annotations

import pytest
import torch
from tiny_pairs import LENGTHS, batch, bert
from transformers import BertForSequenceClassification

import limbeck
from limbeck.activations import capture
from limbeck.objectives import OBJECTIVES, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState

LAST = {"kind": "last-to-last"}
NOW = StepState()


@pytest.fixture(autouse=True)
def only_what_ships(monkeypatch):
    monkeypatch.setattr(OBJECTIVES, "_known", dict(OBJECTIVES._known))


def value_of(**term) -> tuple[float, BertForSequenceClassification, BertForSequenceClassification]:
    """The term between two tiny models on a padded batch, and the models."""
    student, teacher = bert(2, 12, 1), bert(3, 12, 0)
    recipe = Recipe.load("kd", objectives={"own": {"mapping": LAST} | term})
    terms = Objectives(recipe.loss, Shape(ModelShape.of(student), ModelShape.of(teacher)))
    inputs = {name: batch(extra=2)[name] for name in ("input_ids", "attention_mask")}
    traces = [
        capture(model, inputs, terms.request(side, NOW))
        for model, side in ((student, "student"), (teacher, "teacher"))
    ]
    return terms(*traces, batch(extra=2), NOW)["own"].item(), student, teacher


def hugging_face(model, **asked):
    inputs = {name: batch(extra=2)[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        return model(**inputs, **asked)


def test_of_tokens():
    @limbeck.comparison("absolute", sees="tokens")
    def absolute(student, teacher, masks):
        there = masks.tokens.bool()
        return (student - teacher)[there].abs().mean()

    found, *models = value_of(compare="absolute")
    sides = [hugging_face(model, output_hidden_states=True).hidden_states[-1] for model in models]
    rows = [
        abs(float(sides[0][row, place, d] - sides[1][row, place, d]))
        for row, length in enumerate(LENGTHS)
        for place in range(length)
        for d in range(12)
    ]
    assert found == pytest.approx(sum(rows) / len(rows), rel=1e-5)


def test_of_sentence_vectors_a_mask_says_which_examples_have_any_token():
    seen = []

    @limbeck.comparison("largest", sees="vectors", variants={"all": lambda s, t, m: s.sum() * 0})
    def largest(student, teacher, masks):
        seen.append((tuple(student.shape), masks.tokens.tolist()))
        return (student - teacher).abs().amax(1).mean()

    found, *models = value_of(compare="largest", pool="cls")
    sides = [hugging_face(model, output_hidden_states=True).hidden_states[-1] for model in models]
    by_hand = [max(abs(float(x)) for x in sides[0][r, 0] - sides[1][r, 0]) for r in range(4)]
    assert found == pytest.approx(sum(by_hand) / 4, rel=1e-5)
    assert seen == [((4, 12), [True] * 4)]
    assert value_of(compare="largest", pool="cls", mean_over="all")[0] == 0


def test_of_attention():
    @limbeck.comparison("most-watched", sees="probabilities", takes=["rows"])
    def most_watched(student, teacher, masks):
        assert masks.causal is False
        assert masks.keys.sum(1).tolist() == list(LENGTHS)
        apart = (student.amax(-1) - teacher.amax(-1)).abs().mean(1)
        return (apart * masks.tokens).sum() / masks.tokens.sum()

    found, *models = value_of(compare="most-watched")
    maps = [hugging_face(m, output_attentions=True).attentions[-1] for m in map(eager, models)]
    by_hand = [
        abs(float(maps[0][row, head, place].max() - maps[1][row, head, place].max()))
        for row, length in enumerate(LENGTHS)
        for place in range(length)
        for head in range(2)
    ]
    assert found == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-4)
    assert value_of(compare="most-watched", rows="all")[0] != found


def eager(model):
    other = BertForSequenceClassification(model.config).eval()
    other.load_state_dict(model.state_dict())
    other.set_attn_implementation("eager")
    return other


def test_a_name_that_nobody_registered_is_answered_with_those_there_are():
    with pytest.raises(LimbeckError, match="did you mean 'hidden_mse'") as caught:
        Recipe.load("kd", **{"objectives.own": {"compare": "hiden_mse", "mapping": LAST}})
    assert "cosine_distance" in str(caught.value.problems[0].fix)


def test_what_a_comparison_cannot_is_refused():
    limbeck.comparison("of-tokens", sees="tokens")(lambda student, teacher, masks: student.sum())
    limbeck.comparison("of-scores", sees="scores")(lambda student, teacher, masks: student.sum())
    for term, said in (
        ({"compare": "of-tokens", "pool": "cls"}, "of-tokens compares every token"),
        ({"compare": "of-tokens", "mean_over": "all"}, "mean_over: all goes with hidden_mse"),
        ({"compare": "mse"}, "use cosine_distance or hidden_mse or of-tokens"),
        ({"compare": "of-scores", "keys": "own"}, "keys: own goes with attention_cross_entropy"),
        ({"compare": "of-scores", "pool": "cls"}, "pool"),
    ):
        with pytest.raises(LimbeckError, match=said):
            Recipe.load("kd", **{"objectives.own": {"mapping": LAST} | term})
    with pytest.raises(LimbeckError, match="sees"):
        limbeck.comparison("of-logits", sees="logits")
    with pytest.raises(ValueError, match="choices"):
        limbeck.LayerSpec(compare="attention_kl", mapping=LAST)


def test_a_taken_name_says_who_has_it():
    with pytest.raises(LimbeckError, match=r"'soft_kl'.*predictions"):
        limbeck.comparison("soft_kl")(lambda student, teacher, masks: student.sum())
    assert OBJECTIVES.get("soft_kl").__name__ == "SoftLabel"
