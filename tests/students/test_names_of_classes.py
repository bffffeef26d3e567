"""Which names of classes mean the same: by what they say, whatever their spelling and order."""

from __future__ import annotations

import pytest

from limbeck.students import class_places, places_by_name

DATA = ("not entailed", "entailed", "neutral")


@pytest.mark.parametrize(
    ("own", "places"),
    [
        (DATA, [0, 1, 2]),
        (("neutral", "not entailed", "entailed"), [1, 2, 0]),
        (("NEUTRAL", " Entailed", "not_entailed"), [2, 1, 0]),
        (("neutral", "entailed", "contradiction"), None),
        (("neutral", "entailed"), None),
        (("neutral", "entailed", "Entailed"), None),
        ((), None),
        (("LABEL_0", "LABEL_1", "LABEL_2"), None),
    ],
)
def test_classes_are_found_by_name(own, places):
    assert places_by_name(own, DATA) == places


def test_names_that_spelling_alone_tells_apart_are_taken_as_they_are_written():
    assert places_by_name(("us", "US"), ("US", "us")) == [1, 0]
    assert places_by_name(("us", "US"), ("Us", "us")) is None


def test_names_that_say_nothing_are_in_the_order_of_their_numbers():
    assert class_places(("LABEL_0", "LABEL_1", "LABEL_2"), DATA) == [0, 1, 2]
    eleven = [f"LABEL_{number}" for number in (10, *range(10))]
    assert class_places(eleven, [*"abcdefghijk"]) == [*range(1, 11), 0]
    assert class_places(("LABEL_0", "LABEL_1"), DATA) is None
    # The data's own may be such names.
    assert class_places(("label_1", "label_0"), ("label_0", "label_1")) == [1, 0]
