"""Which names of classes mean the same: by what they say, whatever their spelling and order."""

from __future__ import annotations

import pytest

from limbeck.data.label_column import Labelling, class_order
from limbeck.students import class_places, places_by_name
from limbeck.students.configuration import spelling
from limbeck.teachers.teacher import Teacher
from limbeck.training.objectives import pair_problems
from tiny_runs import bert

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


def test_names_are_compared_as_written_where_their_plain_form_is_one():
    assert spelling(("yes", "no"), ("No", "YES"))("Yes") == "yes"
    assert spelling(("yes", "no"), ("US", "us"))("Yes") == "Yes"


@pytest.mark.parametrize("teacher", [("US", "us"), ("us", "US")])
def test_a_teacher_of_two_cases_is_held_against_a_student_of_them(teacher):
    """As for any other names: the same order is right, another is refused."""
    student, other = (bert(1, id2label=dict(enumerate(names))) for names in (("US", "us"), teacher))
    found = pair_problems(student, [Teacher(other)], ["t"], compared=True)
    assert len(found) == (teacher != ("US", "us"))


def test_data_of_two_cases_take_their_teachers_order():
    given = Labelling(teacher=("us", "US"))
    assert class_order(("US", "us"), given, "label") == ("us", "US")
