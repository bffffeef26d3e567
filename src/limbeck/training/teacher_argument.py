"""Who teaches, from what a user gives: a model, several of them, a team. Part of `limbeck.training`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.words import short_names
from limbeck.teachers import (
    Bandit,
    ChainSpec,
    EnsembleSpec,
    EnsembleTeam,
    SampledSpec,
    SampledTeam,
    Team,
    form,
)
from limbeck.teachers.teacher import Teacher

RANKED = ("teacher-rank", "student-rank", "best-of")
"""Values of `team.by` that scores decide."""


@dataclass(frozen=True)
class Teaching:
    """Who teaches.

    Attributes:
        teacher: one, or a team; of a chain the smallest; None if nobody does.
        members: the teachers, and `names`: what each is called.
        formed: the user has formed the team, with the shares that it is to have.
    """

    teacher: Teacher | Team | None
    members: tuple[Teacher, ...] = ()
    names: tuple[str, ...] = ()
    formed: bool = False


def teaching(recipe: Recipe, given: Any) -> Teaching:
    """Who teaches a recipe.

    Args:
        recipe: of a method, or of the user's own terms (which take any team).
        given: a model, a `Teacher`, a `Team`; a list of models or `Teacher`s; a dict of them by name.

    Raises:
        LimbeckError: terms that need a teacher without one, several teachers of a method of one, a
            team of another sort than the method's.
    """
    if given is None:
        _need_none(recipe)
        return Teaching(None)
    if isinstance(given, Team):
        _check_formed(recipe, given)
        return Teaching(given, tuple(given.members), given.names, formed=True)
    if isinstance(given, str):
        raise LimbeckError(
            f"teacher: {given!r} is a name, and a Trainer reads no models by name",
            "pass the model: AutoModelForSequenceClassification.from_pretrained(…)",
        )
    members, names = _members(given, dropout=recipe.teacher_dropout)
    if recipe.team is not None:
        _check_numbers(recipe, len(members))
        return Teaching(form(recipe.team, members, names), members, names)
    if len(members) != 1:
        raise LimbeckError(
            f"teacher: {len(members)} are given, and {recipe.method} learns from one",
            "take a method of several (skd-uniform, wkd-uniform, mt-bert, takd), or say how they "
            "teach: Recipe.load(NAME, **{'team.use': 'sample'}) with sample, ensemble or chain",
        )
    return Teaching(members[0], members, names)


def _need_none(recipe: Recipe) -> None:
    parts = [("", recipe.objectives)]
    if recipe.first_stage is not None:
        parts.append(("first_stage.", recipe.first_stage.objectives))
    needing = [
        f"{place}objectives.{name} ({term.compare})"
        for place, terms in parts
        for name, term in terms.items()
        if term.needs_teacher
    ]
    if needing:
        learn = "learns" if len(needing) == 1 else "learn"
        raise LimbeckError(
            f"{', '.join(needing)} {learn} from a teacher, and none is given",
            "pass teacher=, or use method finetune",
        )


def _members(given: Any, *, dropout: bool) -> tuple[tuple[Teacher, ...], tuple[str, ...]]:
    if isinstance(given, Teacher | PreTrainedModel):
        given = [given]
    if not isinstance(given, Mapping | Sequence) or not given:
        raise LimbeckError(
            f"teacher: a {type(given).__name__} is no model",
            "pass a transformers model, or a list of them",
        )
    if isinstance(given, Mapping):
        names = [str(name) for name in given]
        models = list(given.values())
    else:
        models = list(given)
        names = _names(models)
    members = [m if isinstance(m, Teacher) else Teacher(m, dropout=dropout) for m in models]
    return tuple(members), tuple(names)


def _names(models: Sequence[Any]) -> list[str]:
    """What they were loaded from, where that tells them apart; else their numbers."""
    configs = [model.config for model in models]
    paths = [str(getattr(config, "name_or_path", "") or "") for config in configs]
    if all(paths) and len(set(paths)) == len(paths):
        return short_names(paths)
    return [f"teacher-{number}" for number in range(1, len(models) + 1)]


def _check_numbers(recipe: Recipe, count: int) -> None:
    by = getattr(recipe.team, "by", None)
    if isinstance(by, list) and len(by) != count:
        raise LimbeckError(
            f"team.by: {len(by)} numbers for {count} teachers",
            "give one number a teacher, in the order of teachers",
        )


def _check_formed(recipe: Recipe, team: Team) -> None:
    """Raise LimbeckError if a formed team does not do what the recipe's is to do."""
    spec = recipe.team
    if spec is None:
        return
    listed = "pass the teachers as a list: teacher=[…]"
    if isinstance(spec, ChainSpec):
        raise LimbeckError(f"teacher: {recipe.method} chains its teachers itself", listed)
    wanted = SampledTeam if isinstance(spec, SampledSpec) else EnsembleTeam
    problems = []
    if not isinstance(team, wanted):
        problems.append(
            Problem(
                f"teacher: {recipe.method} asks a {wanted.__name__} team, not a "
                f"{type(team).__name__} one",
                listed,
            )
        )
    elif spec.by in RANKED:
        problems.append(
            Problem(
                f"teacher: {recipe.method} ranks its teachers, and this team has its shares", listed
            )
        )
    learns = isinstance(spec, SampledSpec) and spec.by == "adaptive"
    if isinstance(team, SampledTeam) and learns and not isinstance(team.sampling, Bandit):
        problems.append(
            Problem(
                f"teacher: {recipe.method} learns whom to sample, and this team's probabilities are fixed",
                listed,
            )
        )
    if problems:
        raise LimbeckError(problems)


def learns_whom_to_sample(recipe: Recipe) -> bool:
    """Whether rows have to be held out."""
    return isinstance(recipe.team, SampledSpec) and recipe.team.by == "adaptive"


def ranking(recipe: Recipe, who: Teaching) -> str | None:
    """How scores decide the shares, if they do and the user has not said them."""
    if who.formed or not isinstance(recipe.team, SampledSpec | EnsembleSpec):
        return None
    by = recipe.team.by
    return by if isinstance(by, str) and by in RANKED else None
