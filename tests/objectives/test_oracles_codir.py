"""CoDIR over several steps, its memory kept by a plain dict, and how negatives are sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from inside import Inside, cosine, hard_label, mean, soft_label
from tiny_pairs import batch, bert, build, terms

from limbeck.objectives.contrastive import Memory
from limbeck.support.step_state import StepState

TEMPERATURE, MOMENTUM = 0.07, 0.5
# Rows of each step; their labels, by turns, are as often 0 as 1.
STEPS = [(0, 1, 2, 3), (4, 5, 6, 7), (1, 0, 7, 6), (3, 2, 5, 4), (0, 1, 2, 3)]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / math.sqrt(vector @ vector)


def sentence(side: Inside, layers: range, example: int) -> np.ndarray:
    """Means over an example's tokens, layer beside layer."""
    tokens = side.real(example)
    return np.concatenate([sum(side.hidden[k][example, tokens]) / len(tokens) for k in layers])


def test_codir_over_several_steps():
    student, teacher = bert(3, 8, seed=1), bert(6, 12, seed=0)
    objectives = build("codir", student, teacher)
    w_s, w_t = (w.detach().double().numpy() for w in objectives["contrast"].parameters())
    assert w_s.shape == (128, 3 * 8) and w_t.shape == (128, 6 * 12)
    memory: dict[int, tuple[np.ndarray, int]] = {}
    counts = []
    for step, rows in enumerate(STEPS):
        examples = batch(seed=20 + step)
        labels = [row % 2 for row in rows]
        examples |= {"index": torch.tensor(rows), "labels": torch.tensor(labels)}
        s, t = Inside.of_examples(student, examples), Inside.of_examples(teacher, examples)
        losses, positives = [], []
        for b in range(4):
            anchor = w_s @ sentence(s, range(1, 4), b)
            positives.append(unit(w_t @ sentence(t, range(1, 7), b)))
            others = [vector for vector, label in memory.values() if label != labels[b]]
            own = math.exp(cosine(anchor, positives[b]) / TEMPERATURE)
            rest = sum(math.exp(cosine(anchor, other) / TEMPERATURE) for other in others)
            losses.append(-math.log(own / (own + rest)))
            counts.append(len(others))
        found = terms(objectives, student, teacher, examples, StepState(seed=1, step=step))
        assert {name: value.item() for name, value in found.items()} == pytest.approx(
            {
                "hard": hard_label(s, labels),
                "soft": soft_label(s, t),
                "contrast": mean(losses),
            },
            rel=2e-5,
            abs=1e-6,
        )
        for row, label, vector in zip(rows, labels, positives, strict=True):
            if row in memory:
                vector = unit(MOMENTUM * memory[row][0] + (1 - MOMENTUM) * vector)
            memory[row] = vector, label
    assert counts[:8] == [0, 0, 0, 0, 2, 2, 2, 2] and counts[-1] == 4
    assert {objectives.weight(name, StepState()) for name in found} == {1.0}


def test_evaluation_leaves_the_memory_alone():
    student, teacher = bert(3, 8, seed=1), bert(6, 12, seed=0)
    objectives = build("codir", student, teacher).eval()
    terms(objectives, student, teacher, batch())
    assert objectives["contrast"].memory.labels.isnan().all()


@pytest.fixture(params=[3, 0], ids=["classes known", "labels of any kind"])
def classes(request) -> int:
    return request.param


def filled(classes: int) -> Memory:
    """Ten rows of classes 0, 1, 2; row n points to place n."""
    memory = Memory(12, 12, momentum=0.5, classes=classes)
    rows = torch.arange(10)
    memory.remember(rows, torch.eye(12)[:10], rows % 3)
    return memory


BATCH = [0, 2, 0, 1]


def drawn(classes: int, count: int, **step_state: int) -> list[list[int]]:
    """The rows sampled for each example of the batch."""
    vectors, there = filled(classes).draw(torch.tensor(BATCH), count, StepState(**step_state))
    return [rows[has].argmax(-1).tolist() for rows, has in zip(vectors, there, strict=True)]


def test_negatives_are_others_of_another_label_without_repetition(classes):
    for step in range(20):
        found = drawn(classes, 3, step=step)
        for label, rows in zip(BATCH, found, strict=True):
            assert len(set(rows)) == 3
            assert all(row % 3 != label and row < 10 for row in rows)
        assert found[0] == found[2]


def test_a_draw_follows_seed_and_step_alone(classes):
    assert drawn(classes, 3, seed=1, step=4) == drawn(classes, 3, seed=1, step=4, epoch=2)
    assert drawn(classes, 3, seed=1, step=4) != drawn(classes, 3, seed=1, step=5)
    assert drawn(classes, 3, seed=1, step=4) != drawn(classes, 3, seed=2, step=4)


def test_knowing_the_classes_changes_no_draw():
    known, unknown = (drawn(classes, 3, step=2) for classes in (3, 0))
    assert [set(rows) for rows in known] == [set(rows) for rows in unknown]


@pytest.mark.slow
def test_every_row_is_drawn_as_often_as_any_other(classes):
    """Each of class 0's 6 others in a third of 900 draws of 2: 300, five deviations around."""
    rows = [row for step in range(900) for row in drawn(classes, 2, step=step)[0]]
    counts = {row: rows.count(row) for row in rows}
    assert sorted(counts) == [1, 2, 4, 5, 7, 8]
    assert all(abs(count - 300) < 71 for count in counts.values())


@pytest.mark.parametrize(
    ("asked", "given"), [(3, [3] * 4), (6, [6] * 4), (7, [6, 7, 6, 7]), (100, [6, 7, 6, 7])]
)
def test_as_many_as_there_are(classes, asked, given):
    """Rows of other labels: 6 for class 0 (4 rows of its own), 7 for the others."""
    assert [len(rows) for rows in drawn(classes, asked)] == given


def test_a_memory_carries_labels_of_a_regression():
    memory = Memory(3, 2, momentum=0.5)
    memory.remember(torch.tensor([0, 2]), torch.eye(2), torch.tensor([0.5, 2.5]))
    vectors, there = memory.draw(torch.tensor([2.5, 1.0]), 2, StepState())
    assert there.sum(1).tolist() == [1, 2]
    assert vectors[0][there[0]].tolist() == [[1.0, 0.0]]


def test_a_vector_moves_half_way():
    memory = Memory(1, 2, momentum=0.5)
    for vector in ([3.0, 0.0], [0.0, 5.0]):
        memory.remember(torch.tensor([0]), torch.tensor([vector]), torch.tensor([1]))
    assert memory.vectors[0].tolist() == pytest.approx([math.sqrt(0.5)] * 2)
