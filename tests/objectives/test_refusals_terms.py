"""Combinations of terms, mappings, order and mixing that make no sense, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from limbeck.activations import ActivationKey, Trace
from limbeck.objectives import Loss, ModelShape, Objectives, Shape, TermSpec
from limbeck.objectives.curriculum import CurriculumSpec
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState

UNIFORM = {"kind": "uniform", "student_layers": "1..M"}
TRANSPORT = {"kind": "transport", "student_layers": "1..M"}
ATTENTION = {"kind": "attention"}
BUCKETS = {"kind": "buckets"}
CONTRAST = {"compare": "info_nce", "mapping": UNIFORM, "project": {"to": 8}}
KL = {"compare": "attention_kl", "mapping": UNIFORM}
RELATION = {"compare": "relation_kl", "of": "value", "mapping": UNIFORM}
COSINE = {"compare": "cosine_distance", "pool": "cls", "mapping": UNIFORM}
WORDS = {"compare": "word_relation_kl", "mapping": UNIFORM}
LAYERS = {"compare": "layer_relation_kl", "mapping": UNIFORM}
SOFT = {"compare": "soft_cross_entropy"}


def shape(teacher: tuple[int, int] = (8, 2), student: tuple[int, int] = (4, 2), **more) -> Shape:
    """(layers, heads) of both; 8 wide."""
    (l_t, h_t), (l_s, h_s) = teacher, student
    return Shape(ModelShape(l_s, 8, heads=h_s), ModelShape(l_t, 8, heads=h_t), **more)


def load(term: dict[str, Any], **more: Any) -> Recipe:
    return Recipe.load("kd", **{"objectives.layers": term}, **more)


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        # Attention over layers needs sentence vectors.
        (KL | {"mapping": ATTENTION}, "set one: mapping.read: cls, mean or last"),
        (RELATION | {"mapping": ATTENTION}, "set one: mapping.read"),
        (WORDS | {"mapping": ATTENTION}, "set one: mapping.read"),
        (
            COSINE | {"mapping": ATTENTION | {"read": "mean"}},
            "reads the sentence vectors that `pool` makes; leave mapping.read out",
        ),
        # Keys of one kind of mapping.
        (
            COSINE | {"mapping": UNIFORM | {"read": "cls"}},
            "unknown key in objectives.layers.mapping: 'read'",
        ),
        (
            COSINE | {"mapping": BUCKETS | {"weigh": "entmax"}},
            "unknown key in objectives.layers.mapping: 'weigh'",
        ),
        (
            COSINE | {"mapping": UNIFORM | {"layer_weights": "learned"}},
            "unknown key in objectives.layers.mapping: 'layer_weights'",
        ),
        (
            COSINE | {"mapping": TRANSPORT | {"combine": "sum"}},
            "mapping.combine: Input should be 'costs'",
        ),
        (
            COSINE | {"mapping": ATTENTION | {"combine": "costs"}},
            "mapping.combine: Input should be 'sum'",
        ),
        (
            COSINE | {"mapping": TRANSPORT | {"within": "buckets"}},
            "unknown key in objectives.layers.mapping: 'within'",
        ),
        # Maps have no features to put side by side.
        (KL | {"mapping": BUCKETS | {"combine": "concat"}}, "have no features to do so"),
        (RELATION | {"mapping": BUCKETS | {"combine": "concat"}}, "have no features to do so"),
        (WORDS | {"mapping": BUCKETS | {"combine": "concat"}}, "have no features to do so"),
        # Projections and pairs.
        (COSINE | {"mapping": TRANSPORT, "project": {"to": 4}}, "set project.share to all"),
        (COSINE | {"mapping": TRANSPORT, "compare_layers": "joined"}, "keeps them apart"),
        # Keys of one comparison.
        (KL | {"masked": "zero"}, "masked: zero goes with attention_mse"),
        (KL | {"compare": "attention_mse", "rows": "all"}, "rows: all goes with attention_kl"),
        (COSINE | {"mean_over": "all"}, "mean_over: all goes with hidden_mse"),
        (COSINE | {"mean_over": "batch_and_features"}, "goes with normalized_mse"),
        (WORDS | {"window": 5}, "`window` goes with word_relation_mse"),
        (WORDS | {"compare": "word_relation_mse", "window": 2}, "greater than 2"),
        (RELATION | {"heads": 0}, "greater than 0"),
        (COSINE | {"stack": "cross"}, "cross-attention has no hidden states"),
        # Layers that are compared with each other.
        (LAYERS | {"mapping": TRANSPORT}, "needs one teacher layer for each student layer"),
        (LAYERS | {"mapping": BUCKETS | {"combine": "costs"}}, "needs one teacher layer"),
        (LAYERS | {"pairs": "mean"}, "is a single comparison"),
        # Contrast.
        (CONTRAST | {"mapping": ATTENTION}, "puts layers side by side"),
        (CONTRAST | {"mapping": TRANSPORT}, "puts layers side by side"),
        (CONTRAST | {"mapping": BUCKETS | {"combine": "costs"}}, "puts layers side by side"),
        (CONTRAST | {"pairs": "mean"}, "is a single comparison"),
        (CONTRAST | {"project": {"to": 8, "sides": "student"}}, "has one map a side"),
        (CONTRAST | {"project": {"to": 8, "share": "all"}}, "has one map a side"),
        (CONTRAST | {"momentum": 1}, "less than 1"),
        # Consistency: what is clean is a constant already; nothing is mixed.
        (
            {"compare": "hidden_consistency", "target": "clean", "detach_target": True},
            "`detach_target` has no effect",
        ),
        ({"compare": "attention_consistency"}, "and nothing is mixed"),
    ],
)
def test_a_term_that_makes_no_sense_is_refused_with_the_reason(term, reason):
    with pytest.raises(LimbeckError) as caught:
        load(term)
    (problem,) = caught.value.problems
    assert reason in problem.message
    assert "objectives.layers" in problem.message
    assert problem.fix


def test_mixed_input_has_no_single_label():
    terms = {"objectives.soft": SOFT, "objectives.contrast": CONTRAST}
    with pytest.raises(LimbeckError, match="mixed input has that of two") as caught:
        Recipe.load("kd", **terms, **{"mixup.alpha": 1})  # with the labels' loss, which takes both
    (problem,) = caught.value.problems
    assert problem.message.startswith("objectives.contrast")


def build(term: dict[str, Any], models: Shape) -> Objectives:
    return Objectives(load(term).loss, models)


@pytest.mark.parametrize(
    ("term", "models", "reason", "fix"),
    [
        (KL, shape((8, 4)), "the student has 2 attention heads, the teacher 4", "minilmv2"),
        (
            KL | {"compare": "attention_mse"},
            shape((8, 2), (4, 4)),
            "the student has 4 attention heads, the teacher 2",
            "compare: relation_kl",
        ),
        (
            KL | {"mapping": UNIFORM | {"student_layers": "0..M"}},
            shape(),
            "layer 0 is the embedding output, and has no attention",
            "from 1 on",
        ),
        (
            RELATION | {"mapping": {"kind": "explicit", "layers": {0: 0}}},
            shape(),
            "layer 0 is the embedding output",
            "from 1 on",
        ),
        (
            KL | {"mapping": {"kind": "explicit", "layers": {1: 0}}},
            shape(),
            "layer 0 is the embedding output",
            "from 1 on",
        ),
        (LAYERS, shape(student=(1, 2)), "relates at least 2 layers, and 1 are mapped", "map more"),
        (
            LAYERS | {"compare": "layer_relation_mse"},
            shape(student=(2, 2)),
            "relates at least 3 layers, and 2 are mapped",
            "map more",
        ),
        (CONTRAST, shape(), "remembers training examples by their `index`", "column named index"),
        (KL | {"stack": "decoder"}, shape(), "stack", "main"),
    ],
)
def test_what_these_models_cannot_do_is_refused_with_the_reason(term, models, reason, fix):
    with pytest.raises(LimbeckError) as caught:
        build(term, models)
    (problem,) = caught.value.problems
    assert "objectives.layers" in problem.message
    assert reason in problem.message
    assert fix in problem.fix or fix in problem.message


def test_relation_heads_must_divide_the_features():
    term = build(RELATION | {"heads": 3}, shape())["layers"]
    mask = {"main": torch.ones(1, 2, dtype=torch.bool)}
    value = {ActivationKey("value", layer): torch.ones(1, 2, 2, 4) for layer in range(1, 9)}
    with pytest.raises(LimbeckError, match=r"3 relation heads do not divide 8 features"):
        term(Trace(value, masks=mask), Trace(value, masks=mask), {}, StepState())


def test_a_contrast_says_what_a_batch_lacks():
    term = build(CONTRAST, shape(rows=4))["layers"]
    labels = {"labels": torch.tensor([0, 1])}
    for batch, message in (
        (labels, "no index to remember examples by"),
        ({"index": torch.tensor([0, 1])}, "needs one label per example"),
        ({"index": torch.tensor([0, 1]), "labels": torch.zeros(2, 3)}, "one label per example"),
    ):
        with pytest.raises(LimbeckError, match=message):
            term(None, None, batch, StepState())


# ---- order ----

ORDER = {"terms": ["cosine"], "order": "progressive"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"terms": []}, "terms: List should have at least 1 item"),
        ({"watch": "cosine"}, "`watch` and `below` go together"),
        ({"below": 1.0}, "`watch` and `below` go together"),
        ({"watch": "soft", "below": 1.0}, "`watch` names 'soft', which is not among `terms`"),
        ({"share": 0.5, "epochs_per_layer": 2}, "`epochs_per_layer` replaces `share`"),
        ({"epochs_per_layer": 0}, "greater than 0"),
        ({"epochs_per_layer": [1, -1]}, "greater than 0"),
        ({"wait": ["cosine"]}, "'cosine' is under `terms` and under `wait`"),
        ({"terms": ["soft", "cosine"], "wait": ["soft", "cosine"]}, "'cosine' is under `terms`"),
        ({"share": 1.5}, "less than or equal to 1"),
        ({"order": "random"}, "'progressive' or 'stacked'"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_with_the_reason(given, reason):
    terms = {"objectives.cosine": COSINE, "curriculum": ORDER | given}
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("kd", **terms)
    assert reason in str(caught.value)
    assert all(problem.message.startswith("curriculum") for problem in caught.value.problems)


def in_order(objectives: dict[str, Any], /, **order: Any) -> Objectives:
    specs = TypeAdapter(dict[str, TermSpec]).validate_python(objectives)
    spec = CurriculumSpec(**({"order": "progressive"} | order))
    return Objectives(Loss(specs, spec), shape(rows=4))


@pytest.mark.parametrize(
    ("terms", "order", "reason"),
    [
        ({"a": COSINE, "soft": SOFT}, {"terms": ["a", "cosin"]}, "unknown term in curriculum"),
        ({"a": COSINE, "soft": SOFT}, {"terms": ["a"], "wait": ["b"]}, "unknown term"),
        ({"a": COSINE, "soft": SOFT}, {"terms": ["soft"]}, "soft has no mapped layers"),
        (
            {"a": COSINE, "soft": SOFT},
            {"terms": ["a"], "epochs_per_layer": [1, 2]},
            "2 limits for 4 layers",
        ),
        (
            {"a": COSINE | {"mapping": TRANSPORT}, "soft": SOFT},
            {"terms": ["a"]},
            "shares the teach",
        ),
        ({"a": LAYERS, "soft": SOFT}, {"terms": ["a"]}, "a compares all its layers at once"),
        ({"a": CONTRAST, "soft": SOFT}, {"terms": ["a"]}, "a compares all its layers at once"),
        (
            {"a": COSINE | {"compare_layers": "joined"}, "soft": SOFT},
            {"terms": ["a"]},
            "a compares all its layers at once",
        ),
        # The layers have 0.8 of the run; then there would be no loss.
        ({"a": COSINE, "b": KL}, {"terms": ["a", "b"]}, "no term is left to learn from"),
        (
            {"a": COSINE},
            {"terms": ["a"], "share": 1, "watch": "a", "below": 1.0},
            "no term is left to learn from",
        ),
    ],
)
def test_an_order_that_these_terms_cannot_have_is_refused(terms, order, reason):
    with pytest.raises(LimbeckError) as caught:
        in_order(terms, **order)
    assert reason in str(caught.value)
    assert all(problem.fix for problem in caught.value.problems)


def test_an_order_for_the_whole_run_needs_no_other_term():
    objectives = in_order({"a": COSINE}, terms=["a"], share=1)
    assert list(objectives.active(StepState(progress=0.999))) == ["a"]


def test_a_term_rests_while_only_layers_learn_that_it_does_not_map():
    below = COSINE | {"mapping": UNIFORM | {"student_layers": "1..M-1"}}
    objectives = in_order({"all": COSINE, "below": below, "soft": SOFT}, terms=["all", "below"])
    active = {p: list(objectives.active(StepState(progress=p))) for p in (0.0, 0.5, 0.7, 0.9)}
    assert active == {
        0.0: ["all", "below", "soft"],
        0.5: ["all", "below", "soft"],
        0.7: ["all", "soft"],
        0.9: ["soft"],
    }
    assert objectives.active_layers(StepState(progress=0.7)) == {"all": [[4, 8]]}
