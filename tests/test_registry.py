"""What is registered, and what is said of a name that nobody registered or two want."""

import pytest

from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry


def test_things_are_found_in_their_order_by_name() -> None:
    losses: Registry[type] = Registry("loss")
    one = losses.register("one")(int)
    two = losses.register("two")(str)
    assert (one, two) == (int, str)
    assert list(losses) == ["one", "two"] and len(losses) == 2
    assert losses.get("two") is str and "one" in losses and "three" not in losses


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    losses: Registry[type] = Registry("loss")
    losses.register("cosine")(int)
    with pytest.raises(LimbeckError, match="cosine") as caught:
        losses.get("cosin", "objectives.layers.compare")
    assert "objectives.layers.compare" in str(caught.value)


def test_a_taken_name_is_refused_and_the_same_definition_is_not() -> None:
    losses: Registry[type] = Registry("loss")
    losses.register("one")(int)
    losses.register("one")(int)
    with pytest.raises(LimbeckError, match=r"builtins\.str .*builtins\.int"):
        losses.register("one")(str)
    assert losses.get("one") is int
