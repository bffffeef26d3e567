"""The papers' equations, written out in loops over Hugging Face's hidden states, in float64.

An oracle: nothing here calls limbeck's mathematics or its layer maps; only the sampled layers and the
projections' weights are read off the objective, because they are random.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

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
        words = [
            h
            for h, real in zip(self.hidden[layer][example], self.mask[example], strict=True)
            if real
        ]
        return sum(words) / len(words)


@dataclass
class Case:
    """What an equation is written in: h_S, h_T, y, the sampled layers and the linear maps."""

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


def case_of(objectives: Objectives, name: str, student, teacher, examples, step_state) -> Case:
    term = objectives[name]
    maps = {
        side: [
            weight.detach().double().numpy()
            for path, weight in term.named_parameters()
            if path.startswith(f"projections.{side}.")
        ]
        for side in ("student", "teacher")
    }
    drawn = [k for _, k in objectives.active_layers(step_state).get(name, [])]
    labels = examples["labels"].tolist()
    return Case(Side.of(student, examples), Side.of(teacher, examples), labels, drawn, maps)
