"""The front is what no other point is as good as, and the recommendation follows the budget."""

from __future__ import annotations

import random

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.front import FrontPoint, recommended, with_front
from limbeck.compressing.page import front_table


def point(name: str, chosen_on: float, size: float, latency: float, **more) -> FrontPoint:
    costs = Costs(size * 1e6, latency, 1e6, 1e6)
    settings = {"kind": "student", "precision": "int8", "path": name, "score": 0.0, **more}
    return FrontPoint(name=name, costs=costs, chosen_on=chosen_on, **settings)


def test_the_front_is_that_of_an_explicit_loop():
    chance = random.Random(0)
    points = [
        point(str(at), chance.randint(0, 20), chance.randint(1, 9), chance.randint(1, 9))
        for at in range(40)
    ]
    expected = []
    for one in points:
        beaten = False
        for other in points:
            score = other.chosen_on - one.chosen_on
            size = one.costs.size - other.costs.size
            latency = one.costs.latency - other.costs.latency
            if score >= 0 and size >= 0 and latency >= 0 and (score or size or latency):
                beaten = True
        expected.append(not beaten)
    found = with_front(points, Budget.parse("size=3MB"))
    assert [one.on_front for one in found] == expected
    assert 3 < sum(expected) < 30
    assert [one.fits for one in found] == [one.costs.size <= 3e6 for one in points]


def choice(text: str, *points: FrontPoint):
    budget = Budget.parse(text)
    best = recommended(with_front(points, budget), budget, teacher=90.0)
    return None if best is None else (best[0].name, best[1])


def test_the_best_score_that_fits_is_recommended():
    points = [
        point("a", 80, 5, 1),
        point("b", 85, 5, 3),
        point("c", 95, 9, 9),
        point("d", 85, 4, 3),
    ]
    assert choice("size=6MB", *points)[0] == "d"  # as good as b, and smaller
    assert choice("size=6MB,latency=2ms", *points)[0] == "a"
    assert choice("size=3MB", *points) is None
    # The teacher itself has no folder that ships.
    assert choice("size=20MB", *points, point("t", 99, 9, 9, path=""))[0] == "c"


def test_with_a_share_of_the_score_the_cheapest_that_keeps_it():
    points = [
        point("a", 80, 2, 5),
        point("b", 86, 3, 4),
        point("c", 88, 5, 3),
        point("d", 89, 9, 9),
    ]
    assert choice("size=6MB,score=95%", *points)[0] == "b"  # 85.5 is enough
    assert (
        choice("latency=6ms,score=95%", *points)[0] == "c"
    )  # the fastest, where latency alone is limited
    name, why = choice("size=6MB,score=99%", *points)
    assert name == "c" and "none keeps 99 %" in why and "97.8 %" in why
    # A teacher of 0, as one correlation is where all its outputs are equal, ended in a ZeroDivisionError.
    budget = Budget.parse("size=6MB,score=99%")
    _, why = recommended(with_front([point("a", -5, 2, 5)], budget), budget, teacher=0.0)
    assert "the best of 1 that fit keeps none of it" in why


def test_a_share_is_of_a_teacher_above_zero():
    for teacher, share in ((40.0, "-50.0 %"), (-10.0, "–"), (0.0, "–")):
        points = [
            point("a", 1, 1, 1, kind="teacher", score=teacher),
            point("b", 2, 1, 1, score=-20.0),
        ]
        (heading, *rows) = front_table(points, "pearson").cells
        assert {row[0]: row[heading.index("of teacher")] for row in rows}["b"] == share
