"""What a recipe says about several teachers and cannot mean. Part of `limbeck.recipe`."""

from __future__ import annotations

from limbeck.errors import Problem
from limbeck.recipe.fields import RecipeFields
from limbeck.teachers import ChainSpec, EnsembleSpec


def team_problems(recipe: RecipeFields) -> list[Problem]:
    """Keys about several teachers that contradict each other or the terms."""
    if recipe.team is None:
        return _without_team(recipe)
    problems = _wrong_list(recipe)
    if isinstance(recipe.team, EnsembleSpec):
        problems += [
            Problem(
                f"objectives.{name}: {term.compare} looks at a teacher's layers, and teachers that "
                "are averaged have none in common",
                "take it out, or sample one teacher for each step: team.use=sample",
            )
            for name, term in recipe.objectives.items()
            if term.needs_layers and term.needs_teacher
        ]
    return problems


def _without_team(recipe: RecipeFields) -> list[Problem]:
    if recipe.teachers is None:
        return []
    return [
        Problem(
            f"teachers: {len(recipe.teachers)} are given, and {recipe.method} learns from one",
            "say how they teach (team.use=sample, ensemble or chain), take a method of several "
            "(skd-uniform, wkd-uniform, mt-bert, takd), or give one with --teacher",
        )
    ]


def _wrong_list(recipe: RecipeFields) -> list[Problem]:
    teachers, team = recipe.teachers or [], recipe.team
    twice = sorted({path for path in teachers if teachers.count(path) > 1})
    problems = [
        Problem(f"teachers: {path} is named twice", "name it once; team.by gives it more weight")
        for path in twice
    ]
    by = None if isinstance(team, ChainSpec) or team is None else team.by
    if isinstance(by, list) and teachers and len(by) != len(teachers):
        problems.append(
            Problem(
                f"team.by: {len(by)} numbers for {len(teachers)} teachers",
                "give one number a teacher, in the order of teachers",
            )
        )
    return problems
