"""Contextual knowledge distillation, in loops over pairs and triples of words and of layers."""

from __future__ import annotations

import numpy as np
import pytest
from inside import Inside, cosine, kl, mean, soft_label, softmax
from tiny_pairs import batch, bert, build, terms

# Six teacher layers over three of the student: j ↔ 2j, from the embedding output up.
LAYERS = {0: 0, 1: 2, 2: 4, 3: 6}


class Both:
    """A student of 3 layers and a teacher of 6, and what Hugging Face says of both."""

    def __init__(self, **given) -> None:
        self.student, self.teacher, self.examples = bert(3, 8, seed=1), bert(6, 12, seed=0), batch()
        self.objectives = build("contextual-kd", self.student, self.teacher, **given)
        self.s = Inside.of_examples(self.student, self.examples)
        self.t = Inside.of_examples(self.teacher, self.examples)

    def found(self) -> dict[str, float]:
        values = terms(self.objectives, self.student, self.teacher, self.examples)
        return {name: value.item() for name, value in values.items()}


def test_contextual_kd():
    both = Both()

    def pairs(vectors: dict[int, np.ndarray], centre: int) -> list[float]:
        return softmax(cosine(vectors[centre], v) for n, v in vectors.items() if n != centre)

    def pair_kl(student: dict, teacher: dict) -> float:
        return mean(kl(pairs(teacher, n), pairs(student, n)) for n in student)

    def angles(vectors: dict[int, np.ndarray], reach: int) -> list[float]:
        return [
            cosine(vectors[j] - vectors[i], vectors[k] - vectors[i])
            for i in vectors
            for j in vectors
            for k in vectors
            if i != j != k != i and abs(j - i) <= reach and abs(k - i) <= reach
        ]

    def angle_mse(student: dict, teacher: dict, reach: int) -> float:
        found = zip(angles(student, reach), angles(teacher, reach), strict=True)
        return mean((s - t) ** 2 for s, t in found)

    def words(side: Inside, layer: int, b: int) -> dict[int, np.ndarray]:
        return {n: side.hidden[layer][b, n] for n in side.real(b)}

    def depths(side: Inside, numbers, b: int, n: int) -> dict[int, np.ndarray]:
        return {place: side.hidden[layer][b, n] for place, layer in enumerate(numbers)}

    def over_words(loss, *extra) -> float:
        return sum(
            mean(loss(words(both.s, j, b), words(both.t, k, b), *extra) for b in range(4))
            for j, k in LAYERS.items()
        )

    def over_layers(loss, *extra) -> float:
        return mean(
            mean(
                loss(depths(both.s, LAYERS, b, n), depths(both.t, LAYERS.values(), b, n), *extra)
                for n in both.s.real(b)
            )
            for b in range(4)
        )

    expected = {
        "soft": soft_label(both.s, both.t),
        "word_pairs": over_words(pair_kl),
        "word_angles": over_words(angle_mse, 10),
        "layer_pairs": over_layers(pair_kl),
        "layer_angles": over_layers(angle_mse, 99),
    }
    assert both.found() == pytest.approx(expected, rel=5e-5)
    narrow = Both(**{"objectives.word_angles.window": 3})
    value = over_words(angle_mse, 1)
    assert narrow.found()["word_angles"] == pytest.approx(value, rel=5e-5)
