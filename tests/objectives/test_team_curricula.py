"""Several teachers that take turns have one curriculum, so each has to have the same student layers learn."""

from __future__ import annotations

import pytest
from tiny_pairs import bert

from limbeck.objectives import ModelShape, Shape, TeamObjectives
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError

# Of a teacher of six layers the student's first layer learns alone; of others all but its last.
ONE_OF_SIX = {"teacher": 6, "student": 4, "layers": {1: 3}}


def of_teachers(*depths: int) -> TeamObjectives:
    mapping = {"kind": "uniform", "exceptions": [ONE_OF_SIX]}
    term = {"compare": "hidden_mse", "mapping": mapping}
    recipe = Recipe.load(
        "kd", **{"objectives.layers": term}, curriculum={"terms": ["layers"], "order": "stacked"}
    )
    student = ModelShape.of(bert(4, 8, 1))
    shapes = [Shape(student, ModelShape.of(bert(depth, 8, 0))) for depth in depths]
    names = [f"of {depth} layers" for depth in depths]
    return TeamObjectives(recipe.loss, shapes, names)


@pytest.mark.parametrize("depths", [(6, 4), (4, 6), (4, 5, 6)])
def test_teachers_for_whom_other_student_layers_learn_are_refused(depths):
    with pytest.raises(LimbeckError, match="map the same student layers for all teachers"):
        of_teachers(*depths)


def test_teachers_for_whom_the_same_layers_learn_share_a_curriculum():
    team = of_teachers(4, 5)
    assert team.of(0).curriculum is team.of(1).curriculum
    assert list(team.of(0).curriculum.layers) == [1, 2, 3]
