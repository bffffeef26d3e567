"""The order of stored classes that is warned of is the one in which they are read."""

from __future__ import annotations

import logging

import pytest

from limbeck.recipe import Recipe
from limbeck.run.in_place import columns_of
from limbeck.tasks import SENTENCE, Task

CLASSES = ("negative", "positive")
TASK = Task("reviews", "reviews", ("sentence",), CLASSES, ("accuracy",), "accuracy", kind=SENTENCE)


@pytest.mark.parametrize("classes", [("LABEL_1", "LABEL_0"), ("LABEL_0", "LABEL_1")])
def test_classes_are_named_in_the_order_in_which_they_are_taken(caplog, classes):
    recipe = Recipe.load("kd", task="mrpc", outputs=["store"])
    with caplog.at_level(logging.WARNING, "limbeck"):
        found = columns_of("store", "logits", classes, 2, TASK, recipe)
    assert [classes[place] for place in found] == ["LABEL_0", "LABEL_1"]
    assert "(LABEL_0, LABEL_1) and are taken in the data's order, negative, positive" in caplog.text
