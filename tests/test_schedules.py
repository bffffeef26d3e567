"""Weights over the course of a run, against literal lists."""

import pytest
from pydantic import TypeAdapter, ValidationError

from limbeck.support.settings import Ramp, Rate, Weight
from limbeck.support.step_state import StepState


def test_a_ramp_rises_and_stays():
    ramp = Ramp(start=0, end=0.1, over=0.5)
    course = [ramp.at(StepState(progress=p)) for p in (0, 0.125, 0.25, 0.5, 0.75, 1)]
    assert course == pytest.approx([0, 0.025, 0.05, 0.1, 0.1, 0.1])


@pytest.mark.parametrize(
    ("text", "value"), [("1/3", 1 / 3), ("0.5", 0.5), (2, 2.0), ("1e-4", 1e-4)]
)
def test_numbers_may_be_fractions(text, value):
    assert TypeAdapter(Weight).validate_python(text) == value


@pytest.mark.parametrize("text", ["a third", "1/0", {"end": 1}, {"end": 1, "over": 2}])
def test_other_weights_are_refused(text):
    with pytest.raises(ValidationError):
        TypeAdapter(Weight).validate_python(text)


@pytest.mark.parametrize("rate", [1e-12, 10])
def test_rates_reach_to_their_bounds_and_no_further(rate):
    adapter = TypeAdapter(Rate)
    assert adapter.validate_python(rate) == rate
    with pytest.raises(ValidationError):
        adapter.validate_python(rate * 1.001 if rate > 1 else rate / 1.001)
