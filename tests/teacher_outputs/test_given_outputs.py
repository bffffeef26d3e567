"""Stored values as logits, and classes in the data's order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.outputs.stored_teacher import GivenOutputs, as_logits
from limbeck.support.errors import LimbeckError


def test_logits_of_probabilities_are_those_they_were_made_from_at_any_temperature():
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 5
    back = torch.from_numpy(as_logits("probabilities", logits.double().softmax(-1).numpy()))
    for temperature in (0.5, 1.0, 4.0):
        expected = (logits / temperature).softmax(-1)
        torch.testing.assert_close((back / temperature).softmax(-1), expected)


def test_a_probability_of_0_stays_finite_and_votes_are_smoothed_by_one():
    assert as_logits("probabilities", np.array([[1.0, 0.0]]))[0, 1] == pytest.approx(np.log(1e-12))
    # (3+½)/(4+1): three of four votes of two classes.
    found = np.exp(as_logits("votes", np.array([[3, 1], [5, 0]])))
    assert found.tolist() == [
        pytest.approx([0.7, 0.3]),
        pytest.approx([5.5 / 6, 0.5 / 6]),
    ]


def test_logits_and_numbers_stay_what_they_are():
    values = np.array([[1.5], [-2.0]], dtype=np.float32)
    for what in ("logits", "score"):
        assert (as_logits(what, values) == values).all()


def test_rows_that_are_not_there_are_counted_each_once():
    ids = np.array([1, 5, 9])
    outputs = GivenOutputs("o", "logits", ("a", "b"), ids, lambda ids: ids[:, None] * [1, 2], {})
    assert outputs.logits(np.array([9, 1])).tolist() == [[9, 18], [1, 2]]
    with pytest.raises(LimbeckError, match="knows nothing of 2 of 3 rows"):
        outputs.logits(np.array([1, 2, 2, 3]))
