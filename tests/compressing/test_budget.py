"""A budget is read with its units, and everything that is wrong with it is said at once."""

from __future__ import annotations

import pytest

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.compress import ASKED_NAME, _take
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize(
    ("text", "limits", "score"),
    [
        ("size=6MB", {"size": 6_000_000}, None),
        ("size=500KB, latency=2ms", {"size": 500_000, "latency": 2}, None),
        ("latency=800us,memory=1GB", {"latency": 0.8, "memory": 10**9}, None),
        ("parameters=5M,score=97%", {"parameters": 5_000_000}, 0.97),
        ("parameters=12000", {"parameters": 12_000}, None),
        ("score=100%,latency=.5s", {"latency": 500}, 1.0),
    ],
)
def test_limits_in_their_units(text, limits, score):
    found = Budget.parse(text)
    assert dict(found.limits) == pytest.approx(limits)
    assert found.score == pytest.approx(score) if score else found.score is None


def test_all_that_is_wrong_is_said_together():
    with pytest.raises(LimbeckError) as caught:
        Budget.parse("sice=6MB,latency=fast,size=0MB,score=120%,memory=5,memory=5MB,memory=6MB")
    said = [f"{one.message} {one.fix}" for one in caught.value.problems]
    assert len(said) == 6
    assert "'sice'" in said[0] and "did you mean 'size'?" in said[0] and "memory" in said[0]
    for line, part in zip(
        said[1:5], ("latency=fast", "size=0MB", "score=120%", "memory=5"), strict=True
    ):
        assert part in line and "write it as" in line
    assert "100% at most" in said[3]
    assert "memory is given twice" in said[5]
    with pytest.raises(LimbeckError, match="empty"):
        Budget.parse(" , ")


def test_limits_are_shown_in_a_unit_that_shows_them():
    assert str(Budget.parse("size=1KB,memory=90KB")) == "size 1.0 KB, memory 90.0 KB"
    assert str(Budget.parse("size=600KB,memory=6MB")) == "size 0.60 MB, memory 6.00 MB"


def test_what_exceeds_a_limit():
    budget = Budget.parse("size=2MB,latency=4ms")
    assert budget.exceeded(Costs(2e6, 4.0, 10**9, 10**9)) == {}
    assert budget.exceeded(Costs(3e6, 5.0, 1, 1)) == {"size": 1.5, "latency": 1.25}


def test_a_command_that_ended_before_any_outputs_may_be_corrected(tmp_path):
    """Its budget or its rows were an error; stored outputs and trials are another compression's."""
    _take(tmp_path, {"budget": "size=1KB"}, False)
    (tmp_path / "rows").mkdir()
    _take(tmp_path, {"budget": "size=1MB"}, False)
    assert [one.name for one in tmp_path.iterdir()] == [ASKED_NAME]
    (tmp_path / "outputs").mkdir()
    with pytest.raises(LimbeckError, match="holds another compression"):
        _take(tmp_path, {"budget": "size=2MB"}, False)


def test_a_small_latency_is_said_as_it_was_given():
    assert str(Budget.parse("latency=0.00001ms")) == "latency 1e-05 ms"
    assert str(Budget.parse("latency=2ms")) == "latency 2.00 ms"
