"""Passes are counted by example, whatever was asked of them, and none where nothing was."""

from __future__ import annotations

import pytest
from families import BY_NAME, EXAMPLES

from limbeck.activations import Passes, Request


@pytest.mark.parametrize(
    ("asked", "counted"),
    [
        (Request(), 0),
        (Request.of_logits(), EXAMPLES),
        (Request.hidden([1]), EXAMPLES),
        (Request.hidden([1]) | Request.of_logits(), EXAMPLES),
    ],
    ids=["nothing", "logits", "a layer", "both"],
)
def test_a_pass_counts_if_anything_is_asked(asked: Request, counted: int) -> None:
    family, passes = BY_NAME["bert"], Passes()
    for _ in range(2):
        passes.add(family.build(), family.batch(), asked, gradient=True)
    assert sum(passes.examples.values()) == 2 * counted
