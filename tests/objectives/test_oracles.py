"""Every method's terms against its paper's equation, written out in loops on Hugging Face's states."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tiny_pairs import batch, bert, build, terms

from limbeck.moment import Moment
from limbeck.objectives import Objectives

B = 4
THIRD = 1 / 3
Layers = dict[int, tuple[int, ...]]


@dataclass
class Side:
    """One model as Hugging Face sees it: hidden[layer] (B, N, d) and logits (B, C), in float64."""

    hidden: list[np.ndarray]
    logits: np.ndarray
    mask: np.ndarray

    @classmethod
    def of(cls, model, examples) -> Side:
        inputs = {key: examples[key] for key in ("input_ids", "attention_mask")}
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        return cls(
            [state.double().numpy() for state in out.hidden_states],
            out.logits.double().numpy(),
            examples["attention_mask"].bool().numpy(),
        )

    def cls_of(self, layer: int, example: int) -> np.ndarray:
        return self.hidden[layer][example, 0]

    def mean_of(self, layer: int, example: int) -> np.ndarray:
        """RAIL-KD Eq. 1, over the words that are there."""
        words = [h for h, real in zip(self.hidden[layer][example], self.mask[example]) if real]
        return sum(words) / len(words)


@dataclass
class Case:
    """What an equation is written in: h_S, h_T, y, the drawn layers and the linear maps."""

    student: Side
    teacher: Side
    labels: list[float]
    drawn: list[int]
    maps: dict[str, list[np.ndarray]]

    def mapped(self, side: str, vector: np.ndarray, slot: int) -> np.ndarray:
        """W_slot h; h itself where the recipe has no map on that side."""
        found = self.maps[side]
        return found[slot if len(found) > 1 else 0] @ vector if found else vector


Equation = Callable[[Case], float]


def softmax(scores) -> list[float]:
    powers = [math.exp(s - max(scores)) for s in scores]
    return [p / sum(powers) for p in powers]


def hard(case: Case) -> float:
    losses = [
        -math.log(softmax(list(z))[y])
        for z, y in zip(case.student.logits, case.labels, strict=True)
    ]
    return sum(losses) / B


def soft(case: Case, temperature: float = 1.0) -> float:
    total = 0.0
    for z_s, z_t in zip(case.student.logits, case.teacher.logits, strict=True):
        p_t, p_s = softmax(list(z_t / temperature)), softmax(list(z_s / temperature))
        total -= sum(t * math.log(s) for t, s in zip(p_t, p_s, strict=True))
    return total / B


def normalised_distance(s: np.ndarray, t: np.ndarray) -> float:
    return sum((s / math.sqrt(s @ s) - t / math.sqrt(t @ t)) ** 2)


def patience(pairs: dict[int, int]) -> Equation:
    """PKD: Σ_j ‖h_S^j/‖h_S^j‖ − h_T^k(j)/‖h_T^k(j)‖‖² on CLS."""

    def equation(case: Case) -> float:
        total = 0.0
        for slot, (j, k) in enumerate(pairs.items()):
            for b in range(B):
                s = case.mapped("student", case.student.cls_of(j, b), slot)
                t = case.mapped("teacher", case.teacher.cls_of(k, b), slot)
                total += normalised_distance(s, t) / B
        return total

    return equation


def combination(buckets: Layers) -> Equation:
    """CKD: Σ_j MSE(h_S^j, W_j [h_T^k]_{k in bucket j}) on CLS."""

    def equation(case: Case) -> float:
        total = 0.0
        for slot, (j, bucket) in enumerate(buckets.items()):
            for b in range(B):
                joined = np.array([x for k in bucket for x in case.teacher.cls_of(k, b)])
                difference = case.student.cls_of(j, b) - case.maps["teacher"][slot] @ joined
                total += (difference @ difference) / len(difference) / B
        return total

    return equation


def attention(reach: Layers) -> Equation:
    """ALP-KD Eqs. 5–7: Σ_j MSE(h_S^j, Σ_k α_jk h_T^k), α_j = softmax_k(h_S^j · h_T^k), on CLS."""

    def equation(case: Case) -> float:
        total = 0.0
        for j, layers in reach.items():
            for b in range(B):
                s = case.mapped("student", case.student.cls_of(j, b), 0)
                t = [case.mapped("teacher", case.teacher.cls_of(k, b), 0) for k in layers]
                alpha = softmax([s @ h for h in t])
                difference = s - sum(a * h for a, h in zip(alpha, t, strict=True))
                total += (difference @ difference) / len(difference) / B
        return total

    return equation


def rail_layers(case: Case) -> float:
    """RAIL-KD Eq. 2: a sum over the student's layers."""
    total = 0.0
    for slot, k in enumerate(case.drawn):
        for b in range(B):
            s = case.maps["student"][slot] @ case.student.mean_of(slot + 1, b)
            t = case.maps["teacher"][slot] @ case.teacher.mean_of(k, b)
            total += normalised_distance(s, t) / B
    return total


def rail_concatenated(case: Case) -> float:
    """RAIL-KD Eq. 3: one distance of all layers side by side."""
    total = 0.0
    for b in range(B):
        s = [x for j in range(1, len(case.drawn) + 1) for x in case.student.mean_of(j, b)]
        t = [x for k in case.drawn for x in case.teacher.mean_of(k, b)]
        (w_s,), (w_t,) = case.maps["student"], case.maps["teacher"]
        total += normalised_distance(w_s @ np.array(s), w_t @ np.array(t)) / B
    return total


def cosine(student_layer: int, teacher_layer: int) -> Equation:
    """DistilBERT: 1 − cos of the last hidden states, each example's words first."""

    def equation(case: Case) -> float:
        total = 0.0
        for b in range(B):
            distances = []
            for n in np.flatnonzero(case.student.mask[b]):
                s = case.mapped("student", case.student.hidden[student_layer][b, n], 0)
                t = case.teacher.hidden[teacher_layer][b, n]
                distances.append(1 - (s @ t) / math.sqrt((s @ s) * (t @ t)))
            total += sum(distances) / len(distances) / B
        return total

    return equation


def one_each(*teacher_layers: int) -> dict[int, int]:
    return dict(enumerate(teacher_layers, start=1))


def spans(*bounds: tuple[int, int]) -> Layers:
    return {j: tuple(range(low, high + 1)) for j, (low, high) in enumerate(bounds, start=1)}


# The layer maps of methods.md and of Figure 3 of ALP-KD, by (teacher, student) depth, by hand.
SKIP = {(12, 4): one_each(3, 6, 9), (6, 4): one_each(2, 3, 5), (12, 2): one_each(6)}
LAST = {(12, 4): one_each(9, 10, 11), (6, 4): one_each(3, 4, 5), (12, 2): one_each(11)}
FIRST = {(12, 4): one_each(1, 5, 9), (6, 4): one_each(1, 3, 5), (12, 2): one_each(1)}
APART = {
    (12, 4): spans((1, 4), (5, 8), (9, 12)),
    (6, 4): spans((1, 2), (3, 4), (5, 6)),
    (12, 2): spans((1, 12)),
}
OVERLAPPING = {
    (12, 4): spans((1, 5), (5, 9), (9, 12)),
    (6, 4): spans((1, 3), (3, 5), (5, 6)),
    (12, 2): spans((1, 12)),
}
ALL = {
    (12, 4): spans((1, 12), (1, 12), (1, 12)),
    (6, 4): spans((1, 6), (1, 6), (1, 6)),
    (12, 2): spans((1, 12)),
}


def equations(method: str, depths: tuple[int, int]) -> dict[str, tuple[float, Equation]]:
    """Weight and equation of every term."""
    third = {"hard": (THIRD, hard), "soft": (THIRD, soft)}
    alp = {"hard": (0.3, hard), "soft": (0.5, soft)}
    match method:
        case "finetune":
            return {"hard": (1.0, hard)}
        case "kd":
            return {"hard": (0.5, hard), "soft": (0.5, soft)}
        case "kd-soft":
            return {"soft": (1.0, soft)}
        case "pkd-skip" | "pkd-last" | "pkd-first":
            pairs = {"skip": SKIP, "last": LAST, "first": FIRST}[method.removeprefix("pkd-")]
            return third | {"patience": (THIRD, patience(pairs[depths]))}
        case "pkd-1" | "pkd-6" | "pkd-12":
            only = int(method.removeprefix("pkd-"))
            return third | {"patience": (THIRD, patience({1: only}))}
        case "pkd":  # the map that tiny_pairs gives
            return third | {"patience": (THIRD, patience({1: 4}))}
        case "ckd-no" | "ckd-po":
            buckets = (APART if method == "ckd-no" else OVERLAPPING)[depths]
            return alp | {"combination": (0.2, combination(buckets))}
        case "alp-kd" | "alp-no" | "alp-po":
            reach = {"alp-kd": ALL, "alp-no": APART, "alp-po": OVERLAPPING}[method][depths]
            return alp | {"attention": (0.2, attention(reach))}
        case "rail-kd-l":
            return third | {"rail": (THIRD, rail_layers)}
        case "rail-kd-c":
            return third | {"rail": (THIRD, rail_concatenated)}
        case "distilbert":
            return third | {"cosine": (THIRD, cosine(depths[1], depths[0]))}
    raise AssertionError(f"no oracle for {method}")


METHODS = (
    "finetune kd kd-soft pkd pkd-skip pkd-last pkd-first pkd-1 pkd-6 pkd-12 ckd-no ckd-po "
    "alp-kd alp-no alp-po rail-kd-l rail-kd-c distilbert"
).split()
DEPTHS = [(12, 4), (6, 4), (12, 2)]


def case_of(objectives: Objectives, name: str, student, teacher, examples, moment) -> Case:
    term = objectives[name]
    maps = {
        side: [
            weight.detach().double().numpy()
            for path, weight in term.named_parameters()
            if path.startswith(f"projections.{side}.")
        ]
        for side in ("student", "teacher")
    }
    drawn = [k for _, k in objectives.active_layers(moment).get(name, [])]
    labels = examples["labels"].tolist()
    return Case(Side.of(student, examples), Side.of(teacher, examples), labels, drawn, maps)


@pytest.mark.parametrize("widths", [(8, 8), (12, 8)], ids=["equal widths", "other width"])
@pytest.mark.parametrize("depths", DEPTHS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_term_is_its_paper_s_equation(method, depths, widths):
    if method == "pkd-12" and depths[0] < 12:
        pytest.skip("names layer 12")
    if widths[0] == widths[1] and depths != (12, 4):
        pytest.skip("one pair of equal widths is enough")
    teacher, student = bert(depths[0], widths[0], seed=0), bert(depths[1], widths[1], seed=1)
    examples, moment = batch(), Moment(seed=2, epoch=3)
    objectives = build(method, student, teacher)
    found = terms(objectives, student, teacher, examples, moment)
    expected = equations(method, depths)
    assert list(found) == list(expected)
    total = 0.0
    for name, (weight, equation) in expected.items():
        value = equation(case_of(objectives, name, student, teacher, examples, moment))
        assert found[name].item() == pytest.approx(value, rel=2e-5), name
        total += weight * value
    assert objectives.total(found, moment).item() == pytest.approx(total, rel=2e-5)


@pytest.mark.parametrize("method", ["rail-kd-l", "rail-kd-c"])
def test_rail_draws_below_the_teacher_s_top_anew_each_epoch(method):
    objectives = build(method, bert(4, 8, seed=1), bert(12, 12, seed=0))
    draws = set()
    for epoch in range(30):
        (pairs,) = objectives.active_layers(Moment(seed=1, epoch=epoch)).values()
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
    objectives = build("kd", student, teacher, regression=True)
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
    case = case_of(warm, "soft", student, teacher, examples, Moment())
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
        total = objectives.total(values, Moment(progress=progress)).item()
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
    case = case_of(objectives, "layers", student, teacher, examples, Moment())
    value = 0.0
    for j, layers in spec["mapping"]["layers"].items():
        for b in range(B):
            states = [case.teacher.cls_of(k, b) for k in layers]
            value += expected(case.student.cls_of(j, b), states) / B
    value /= 2 if pairs == "mean" else 1
    found = terms(objectives, student, teacher, examples)["layers"].item()
    assert found == pytest.approx(value, rel=1e-5)
