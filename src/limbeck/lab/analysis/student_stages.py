"""After which stage of its run a student is looked at. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from limbeck.recipe import Recipe
from limbeck.support.errors import Problem, unknown

FIRST, LAST = "first", "last"
STAGES = (FIRST, LAST)


def stage_problems(stage: str | None, recipe: Recipe, whose: str = "") -> list[Problem]:
    """Why no run of a recipe has a student after this stage; `whose` begins each message.

    Args:
        stage: one of `STAGES`; None is the last.
        recipe: the run's.
        whose: such as `run runs/kd: `.
    """
    if stage is not None and stage not in STAGES:
        return [unknown("stage:", stage, STAGES)]
    if stage != FIRST or recipe.keep_first_stage:
        return []
    if recipe.first_stage is None or recipe.joint:
        return [
            Problem(
                f"{whose}{recipe.method} trains in one stage, and stage: first looks at a student after the first "
                "of two",
                "leave stage out, or name a run of two stages",
            )
        ]
    return [
        Problem(
            f"{whose}the student as it was after its first stage has not been kept",
            "train it with keep_first_stage=true",
        )
    ]
