"""Every layer that a term may come to ask for, beside those of single steps."""

from __future__ import annotations

import pytest
from tiny_pairs import bert, build

from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState


@pytest.mark.parametrize(("side", "expected"), [("student", {1, 2}), ("teacher", {1, 2, 3, 4, 5})])
def test_random_layers_come_to_all_that_are_on_offer(side, expected):
    """RAIL-KD with 3 of 6 layers: M − 1 student layers, drawn teacher layers of 1 to L − 1."""
    terms = build("rail-kd-l", bert(3, 8, seed=1), bert(6, 8, seed=2))
    steps = [StepState(epoch=epoch) for epoch in range(30)]
    asked = {seen.layer for step in steps for seen in terms.request(side, step).items}
    assert {seen.layer for seen in terms.ever(side).items} == asked == expected


@pytest.mark.parametrize(
    ("term", "lowest"), [("attention_consistency", 1), ("hidden_consistency", 0)]
)
def test_the_embedding_output_has_hidden_states_but_no_attention(term, lowest):
    given = {f"first_stage.objectives.{term}.layers": [0, 2]}
    sides = bert(3, 8, seed=1), bert(6, 8, seed=2)
    if lowest == 0:
        build("cr-ild", *sides, stage=1, **given)
        return
    with pytest.raises(LimbeckError, match=r"the student has no layer 0[^$]*layers are 1\.\.3"):
        build("cr-ild", *sides, stage=1, **given)
