"""Numbers of analyses against cases worked out by hand, loops and Hugging Face's own forward pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tiny_runs as tiny
from limbeck.evaluation.class_predictions import ClassPredictions
from limbeck.reporting.analysis import (
    agreement_of,
    layer_attention,
    noise_tolerance,
    noisy_embeddings,
    probe_layers,
    reliability_curve,
)


def test_a_probe_reads_what_a_layer_holds_and_nothing_else() -> None:
    labels = np.array([0, 1] * 10 + [0] * 5)
    nothing, everything = np.zeros((25, 3)), np.stack([labels * 4.0 - 2, np.ones(25)], axis=1)
    backwards = -everything
    found = probe_layers([nothing, everything], labels, [nothing, backwards], labels, layers=[0, 3])
    # Constant states leave the most frequent class: 15 of 25; a turned axis has everything wrong.
    assert found.layers == (0, 3)
    assert found.scores == (60.0, 0.0)
    assert found.baseline == 60.0
    assert (found.train_rows, found.scored_rows, found.unconverged) == (25, 25, ())
    with pytest.raises(ValueError, match="two classes"):
        probe_layers([nothing[:1]], labels[:1], [nothing], labels)


def test_the_most_frequent_class_is_that_of_the_fitted_rows() -> None:
    states = np.zeros((3, 2))
    found = probe_layers([states], np.array([0, 0, 1]), [states[:2]], np.array([1, 1]))
    assert found.baseline == 0.0


def test_noise_is_what_inputs_embeds_with_noise_would_be() -> None:
    model = tiny.bert(2).eval()
    ids = torch.tensor([[2, 4, 6, 3], [2, 5, 7, 3]])
    words = model.get_input_embeddings()(ids)
    noise = torch.randn(words.shape, generator=torch.Generator().manual_seed(7))
    with torch.no_grad(), noisy_embeddings(model, 0.5, 7):
        found = model(ids).logits
    with torch.no_grad():
        expected = model(inputs_embeds=words + 0.5 * noise).logits
        untouched = model(ids).logits
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, untouched)


def test_noise_is_scored_for_each_deviation_and_draw() -> None:
    model, seen = tiny.bert(1).eval(), []
    ids = torch.tensor([[2, 4, 3]])

    def scored() -> tuple[float, float]:
        with torch.no_grad():
            seen.append(model.get_input_embeddings()(ids))
        return 10.0 * len(seen), float(len(seen))

    told = []
    found = noise_tolerance(
        model, scored, [0.2, 0.0, 0.1], rows=1, metric="accuracy", repeats=2, seed=3,
        progressed=lambda *done: told.append(done),
    )  # fmt: skip
    assert [(p.deviation, p.scores, p.losses) for p in found.points] == [
        (0.0, (10.0,), (1.0,)),
        (0.1, (20.0, 30.0), (2.0, 3.0)),
        (0.2, (40.0, 50.0), (4.0, 5.0)),
    ]
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    clean, first, second, twice, _ = seen
    # A draw's noise is the same for every deviation, and another in the next draw.
    torch.testing.assert_close(twice - clean, 2 * (first - clean))
    assert not torch.allclose(first, second)


def test_agreement_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2])
    teacher = np.array([[.8, .1, .1], [.6, .3, .1], [.5, .4, .1], [.2, .7, .1], [.9, .1, 0], [.1, .8, .1]])  # fmt: skip
    student = np.array([[.7, .2, .1], [.2, .7, .1], [.1, .8, .1], [.1, .6, .3], [.6, .4, 0], [.6, .3, .1]])  # fmt: skip
    sides = [ClassPredictions(one.argmax(1), one) for one in (teacher, student)]
    found = agreement_of(
        ("a", "b", "c"), labels, *sides, texts={"text": list("uvwxyz")}, examples=1
    )
    # Rows 0 and 3 both right; 1 the teacher alone; 2 the student alone; 4 and 5 neither, 4 alike.
    assert [cell.count for cell in found.cells] == [2, 1, 1, 2]
    assert [(cell.teacher_right, cell.student_right) for cell in found.cells] == [
        (True, True), (True, False), (False, True), (False, False),
    ]  # fmt: skip
    assert (found.rows, found.alike) == (6, 1)
    # Distances: row 0 .1, row 3 .2 — row 4 .3, row 5 .5.
    assert [[one.row for one in cell.examples] for cell in found.cells] == [[3], [1], [2], [5]]
    last = found.cells[3].examples[0]
    assert (last.label, last.teacher, last.student, last.text) == ("c", "b", "a", {"text": "z"})
    assert last.student_probabilities == (0.6, 0.3, 0.1)


def test_agreement_of_words_that_are_no_class_and_of_no_rows() -> None:
    found = agreement_of(
        ("a", "b"), np.array([1]), ClassPredictions(np.array([2])), ClassPredictions(np.array([1]))
    )
    example = found.cells[2].examples[0]
    assert (example.teacher, example.teacher_probabilities, example.text) == (
        "none of them", None, None,
    )  # fmt: skip
    nobody = ClassPredictions(np.array([], dtype=int))
    with pytest.raises(ValueError, match="0 labels"):
        agreement_of(("a",), np.array([]), nobody, nobody)


def test_calibration_by_hand() -> None:
    # Bins of a half: two at .6 of which one is right, one at 1.0 that is right, one at .4 that is wrong.
    found = reliability_curve(
        np.array([0.6, 0.6, 1.0, 0.4]), np.array([True, False, True, False]), bins=2
    )
    # (0, .5]: 1 row, sure .4, right 0. (.5, 1]: 3 rows, sure 2.2/3, right 2/3.
    assert found.error == pytest.approx(100 * (1 * 0.4 + 3 * abs(2 / 3 - 2.2 / 3)) / 4)
    assert [(p.rows, p.accuracy) for p in found.points] == [(1, 0.0), (3, pytest.approx(2 / 3))]
    assert (found.confidence, found.accuracy) == (pytest.approx(0.65), 0.5)
    empty = reliability_curve(np.array([0.9]), np.array([True]), bins=2).points[0]
    assert (empty.rows, empty.confidence, empty.accuracy) == (0, None, None)
    with pytest.raises(ValueError, match="probabilities"):
        reliability_curve(np.array([]), np.array([]))


def test_layer_attention_by_hand() -> None:
    weights = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]], [[0.0, 1.0]]])
    found = layer_attention("match", [2], [1, 4], [weights[:2], weights[2:]], shown=2)
    assert found.mean == ((0.5, 0.5),)
    assert found.deviation[0] == pytest.approx((math.sqrt(1 / 6), math.sqrt(1 / 6)))
    assert (found.rows, found.examples) == ((0, 1), (((1.0, 0.0),), ((0.5, 0.5),)))
    assert (found.student_layers, found.teacher_layers, found.count) == ((2,), (1, 4), 3)
    with pytest.raises(ValueError, match="for 2 student"):
        layer_attention("match", [1, 2], [1, 4], [weights])
