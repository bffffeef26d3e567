"""Every method's terms against its paper's equation, in loops on Hugging Face's own states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from equations import B, Side, case_of, equations, soft, softmax
from tiny_pairs import batch, bert, build, terms

from limbeck.support.step_state import StepState

METHODS = (
    *("finetune", "kd", "kd-soft", "distilbert", "rail-kd-l", "rail-kd-c"),
    *("pkd", "pkd-skip", "pkd-last", "pkd-first", "pkd-1", "pkd-6", "pkd-12"),
    *("ckd-no", "ckd-po", "alp-kd", "alp-no", "alp-po"),
)
# (teacher, student) depth and width; one pair of equal widths is enough.
SHAPES = [((12, 4), (8, 8)), ((12, 4), (12, 8)), ((6, 4), (12, 8)), ((12, 2), (12, 8))]
CASES = [
    (method, depths, widths)
    for method in METHODS
    for depths, widths in SHAPES
    if method != "pkd-12" or depths[0] == 12
]


@pytest.mark.parametrize(("method", "depths", "widths"), CASES)
def test_every_term_is_its_paper_s_equation(method, depths, widths):
    teacher, student = bert(depths[0], widths[0], seed=0), bert(depths[1], widths[1], seed=1)
    examples, step_state = batch(), StepState(seed=2, epoch=3)
    objectives = build(method, student, teacher)
    found = terms(objectives, student, teacher, examples, step_state)
    expected = equations(method, depths)
    assert list(found) == list(expected)
    total = 0.0
    for name, (weight, equation) in expected.items():
        value = equation(case_of(objectives, name, student, teacher, examples, step_state))
        assert found[name].item() == pytest.approx(value, rel=2e-5), name
        total += weight * value
    assert objectives.total(found, step_state).item() == pytest.approx(total, rel=2e-5)


@pytest.mark.parametrize("method", ["rail-kd-l", "rail-kd-c"])
def test_rail_draws_below_the_teacher_s_top_anew_each_epoch(method):
    objectives = build(method, bert(4, 8, seed=1), bert(12, 12, seed=0))
    draws = set()
    for epoch in range(30):
        (pairs,) = objectives.active_layers(StepState(seed=1, epoch=epoch)).values()
        assert [j for j, _ in pairs] == [1, 2, 3]
        layers = tuple(k for _, k in pairs)
        assert all(1 <= k <= 11 for k in layers) and layers[0] < layers[1] < layers[2]
        draws.add(layers)
    assert len(draws) > 10


@pytest.mark.parametrize(
    ("method", "sides"),
    [
        ("pkd-skip", {"student": 3, "teacher": 3}),
        ("alp-kd", {"student": 1, "teacher": 1}),
        ("rail-kd-l", {"student": 3, "teacher": 3}),
        ("rail-kd-c", {"student": 1, "teacher": 1}),
        ("ckd-no", {"student": 0, "teacher": 3}),
        ("distilbert", {"student": 1, "teacher": 0}),
    ],
)
def test_the_maps_are_bias_free_to_128_where_widths_differ(method, sides):
    """RAIL-KD §4.2: u = 128; ckd maps to the student's width, distilbert to the teacher's."""
    student = bert(4, 8, seed=1)
    width = {"ckd-no": 8, "distilbert": 12}.get(method, 128)
    maps = dict(build(method, student, bert(12, 12, seed=0)).named_parameters())
    for side, count in sides.items():
        found = [weight for name, weight in maps.items() if f".projections.{side}." in name]
        assert [weight.shape[0] for weight in found] == [width] * count
    assert not any("bias" in name for name in maps)
    equal = sum(1 for _ in build(method, student, bert(12, 8, seed=0)).parameters())
    always = method in ("rail-kd-l", "rail-kd-c", "ckd-no")
    assert equal == (sum(sides.values()) if always else 0)


def test_regression_compares_outputs_by_their_squares():
    teacher, student = bert(6, 12, seed=0, classes=1), bert(2, 8, seed=1, classes=1)
    examples = batch(classes=1)
    objectives = build("kd", student, teacher)
    found = terms(objectives, student, teacher, examples)
    z_s = Side.of(student, examples).logits[:, 0]
    z_t = Side.of(teacher, examples).logits[:, 0]
    labels = examples["labels"].tolist()
    hard_value = sum((z_s[b] - labels[b]) ** 2 for b in range(B)) / B
    soft_value = sum((z_s[b] - z_t[b]) ** 2 for b in range(B)) / B
    assert found["hard"].item() == pytest.approx(hard_value, rel=1e-5)
    assert found["soft"].item() == pytest.approx(soft_value, rel=1e-5)


def test_temperature_divides_both_sides_and_its_square_scales():
    teacher, student = bert(6, 12, seed=0), bert(2, 8, seed=1)
    examples = batch()
    settings = {"objectives.soft.temperature": 3, "objectives.soft.scale_by_t2": True}
    warm = build("kd-soft", student, teacher, **settings)
    case = case_of(warm, "soft", student, teacher, examples, StepState())
    value = terms(warm, student, teacher, examples)["soft"].item()
    assert value == pytest.approx(9 * soft(case, 3.0), rel=1e-5)
    divergence = build("kd-soft", student, teacher, **{"objectives.soft.compare": "soft_kl"})
    entropy = sum(-p * math.log(p) for z in case.teacher.logits for p in softmax(list(z))) / B
    value = terms(divergence, student, teacher, examples)["soft"].item()
    assert value == pytest.approx(soft(case) - entropy, rel=1e-4)


def test_a_ramp_weighs_by_progress():
    settings = {"objectives.soft.weight": {"start": 0.2, "end": 1.0, "over": "1/2"}}
    objectives = build("kd", bert(2, 8, seed=1), bert(6, 12, seed=0), **settings)
    values = {"hard": torch.tensor(10.0), "soft": torch.tensor(100.0)}
    # ½·10 + {.2, .6, 1, 1}·100
    for progress, expected in [(0, 25.0), (0.25, 65.0), (0.5, 105.0), (1.0, 105.0)]:
        total = objectives.total(values, StepState(progress=progress)).item()
        assert total == pytest.approx(expected)


def squared(s: np.ndarray, t: np.ndarray) -> float:
    return float((s - t) @ (s - t)) / len(s)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Σ_k w_k·d(s, t_k), and d(s, Σ_k w_k·t_k): not the same.
        ({"combine": "costs"}, lambda s, t: sum(squared(s, h) for h in t) / len(t)),
        ({"combine": "sum"}, lambda s, t: squared(s, sum(t) / len(t))),
    ],
    ids=["costs", "sum"],
)
@pytest.mark.parametrize("pairs", ["sum", "mean"])
def test_several_teacher_layers_for_one_student_layer(settings, expected, pairs):
    teacher, student = bert(6, 8, seed=0), bert(4, 8, seed=1)
    spec = {
        "compare": "mse",
        "pool": "cls",
        "pairs": pairs,
        "mapping": {"kind": "explicit", "layers": {1: [1, 2], 3: [2, 4, 6]}} | settings,
    }
    examples = batch()
    objectives = build("kd", student, teacher, **{"objectives.layers": spec})
    case = case_of(objectives, "layers", student, teacher, examples, StepState())
    value = 0.0
    for j, layers in spec["mapping"]["layers"].items():
        for b in range(B):
            states = [case.teacher.cls_of(k, b) for k in layers]
            value += expected(case.student.cls_of(j, b), states) / B
    value /= 2 if pairs == "mean" else 1
    found = terms(objectives, student, teacher, examples)["layers"].item()
    assert found == pytest.approx(value, rel=1e-5)
