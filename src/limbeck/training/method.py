"""From what a user of `DistillationTrainer` gives to one checked recipe. Part of `limbeck.training`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from torch import nn
from transformers import PreTrainedModel, TrainingArguments

from limbeck.objectives import OBJECTIVES, Objective
from limbeck.recipe import FirstStage, Recipe, load, validation
from limbeck.recipe.recipe import TRAINING, TRANSFORMS, stage_seed
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.words import short_names
from limbeck.tasks import TaskType, task_type_of
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import (
    ChainSpec,
    EnsembleTeam,
    LearnedProbabilities,
    SampledSpec,
    SampledTeam,
    Team,
    form,
)

OBJECTS = ("teacher", "train_dataset", "data_collator")
"""Of a first stage: what a recipe says by names, and Python by the things themselves."""

_ARGUMENTS = {
    "epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "lr_schedule": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "weight_decay": "weight_decay",
}
"""The Trainer's name of each training setting of a recipe."""

_NAMED = dict.fromkeys(("task", "data", "corpus", "train_rows"), "train_dataset")
_NAMED["teacher"] = "teacher"
"""What a recipe's first stage names, and what a Trainer is given for it."""


def own_terms(objectives: Mapping[str, Any], beside: Mapping[str, Any]) -> Recipe:
    """A recipe of the terms given: settings as in a recipe, or their classes; `beside`: what goes with them.

    Raises:
        LimbeckError: every mistake in the terms, together.
    """
    problems = [
        _no_settings(name, term)
        for name, term in objectives.items()
        if not isinstance(term, Mapping | BaseModel | Objective)
    ]
    if problems:
        raise LimbeckError(problems)
    raw = {"method": "own", "objectives": dict(objectives), **beside}
    found: Recipe = validation.check(raw, Recipe, known_tasks=())
    return found


def kind_of(model: PreTrainedModel | None) -> TaskType | None:
    """A student's task type; None where it is not there yet, or is of none, which is said with everything else."""
    try:
        return None if model is None else task_type_of(model)
    except LimbeckError:
        return None


def of_kind(recipe: Recipe, kind: TaskType) -> Recipe:
    """The recipe with a task type's own terms in the places of those that mean something else there.

    Raises:
        LimbeckError: no term is left.
    """
    terms = [*recipe.objectives.values()]
    if recipe.first_stage is not None:
        terms += recipe.first_stage.objectives.values()
    if not any(term.compare in kind.becomes for term in terms):
        return recipe
    raw = {**recipe.model_dump(), "kind": kind.name}
    load.put_terms_of_kind(raw, {})
    found: Recipe = validation.check(raw, Recipe, known_tasks=(str(recipe.task),))
    return found


def _no_settings(name: str, term: Any) -> Problem:
    what = "a module, and no limbeck.Objective" if isinstance(term, nn.Module) else "no term"
    return Problem(
        f"objectives.{name}: {type(term).__name__} is {what}",
        "give a limbeck.Objective, or settings as in a recipe, {'compare': 'soft_kl', 'temperature': 2}; "
        "compare: " + ", ".join(OBJECTIVES),
    )


def with_first_stage(recipe: Recipe, given: Mapping[str, Any] | None) -> Recipe:
    """The recipe with changed settings of its first stage; `OBJECTS` are no settings.

    Raises:
        LimbeckError: unknown keys; settings of a stage that the method does not have; a first stage
            whose rows or teacher the recipe names, and nobody gives.
    """
    given = given or {}
    choices = ["objectives", "curriculum", *TRANSFORMS, *TRAINING, *OBJECTS]
    wrong = [unknown("key in first_stage", key, choices) for key in given if key not in choices]
    if wrong:
        raise LimbeckError(wrong)
    if recipe.first_stage is None and given and "objectives" not in given:
        raise LimbeckError(
            f"first_stage: method {recipe.method} has none",
            "leave it out, give its objectives, or take a method of two stages (tinybert, cr-ild)",
        )
    problems = _named_only(recipe.first_stage, given)
    if problems:
        raise LimbeckError(problems)
    settings = {key: value for key, value in given.items() if key not in OBJECTS}
    if not settings:
        return recipe
    raw = recipe.model_dump()
    raw["first_stage"] = load.merge(raw["first_stage"] or {}, settings)
    terms = raw["first_stage"].get("objectives") or {}
    raw["first_stage"]["objectives"] = {n: t for n, t in terms.items() if t is not None}
    found: Recipe = validation.check(raw, Recipe, known_tasks=(str(recipe.task),))
    return found


def _named_only(first: FirstStage | None, given: Mapping[str, Any]) -> list[Problem]:
    """What the recipe's first stage names, and a Trainer would have to be given."""
    if first is None:
        return []
    return [
        Problem(
            f"first_stage.{key}: {getattr(first, key)}; a Trainer reads no rows or models by name",
            f'pass them: first_stage={{"{thing}": …}}; or use limbeck.distill',
        )
        for key, thing in _NAMED.items()
        if getattr(first, key) is not None and thing not in given
    ]


def method_defaults(recipe: Recipe) -> dict[str, Any]:
    """The recipe's training settings by the Trainer's names, for a user who says nothing else."""
    own = {"adam_epsilon": recipe.epsilon, "max_grad_norm": recipe.max_grad_norm}
    own |= {name: _value(key, getattr(recipe, key)) for key, name in _ARGUMENTS.items()}
    return own | {"seed": recipe.seed}


def first_stage_arguments(recipe: Recipe, args: TrainingArguments) -> TrainingArguments:
    """The user's, with what the recipe's first stage has for itself.

    No epoch is scored: the head is not trained yet.
    """
    own = copy.copy(args)
    first = recipe.first_stage
    assert first is not None
    for key, field in _ARGUMENTS.items():
        if (value := getattr(first, key)) is not None:
            setattr(own, field, _value(key, value))
    if first.epochs is not None and first.max_steps is None:
        own.max_steps = -1
    own.seed = stage_seed(args.seed, 1)
    return unscored(own)


def unscored(args: TrainingArguments) -> TrainingArguments:
    """A copy that scores no epoch, so that none is the best."""
    own = copy.copy(args)
    own.eval_strategy = type(own.eval_strategy)("no")
    own.eval_on_start = own.load_best_model_at_end = False
    if own.save_strategy == "best":
        own.save_strategy = type(own.save_strategy)("epoch")
    return own


def _value(key: str, value: Any) -> Any:
    if key == "max_steps":
        return value or -1
    # A rate in steps is `Optimisation`'s.
    return "constant" if key == "lr_schedule" and value == "step" else value


# Who teaches, from what a user gives: a model, several of them, a team.


RANKED = ("teacher-rank", "student-rank", "best-of")
"""Values of `team.by` that scores decide."""


Members = tuple[Teacher, ...]


def teaching(recipe: Recipe, given: Any) -> tuple[Teacher | Team | None, Members, tuple[str, ...]]:
    """Who teaches a recipe: one, or a team (of a chain the smallest); the teachers, and what each is called.

    Args:
        recipe: of a method, or of the user's own terms (which take any team).
        given: a model, a `Teacher`, a `Team`; a list of models or `Teacher`s; a dict of them by name.

    Raises:
        LimbeckError: terms that need a teacher without one, several teachers of a method of one, a
            team of another sort than the method's.
    """
    if given is None:
        _need_none(recipe)
        return None, (), ()
    if isinstance(given, Team):
        _check_formed(recipe, given)
        return given, tuple(given.members), given.names
    if isinstance(given, str):
        raise LimbeckError(
            f"teacher: {given!r} is a name, and a Trainer reads no models by name",
            "pass the model: AutoModelForSequenceClassification.from_pretrained(…)",
        )
    members, names = _members(given, dropout=recipe.teacher_dropout)
    if recipe.team is not None:
        by = getattr(recipe.team, "by", None)
        if isinstance(by, list) and len(by) != len(members):
            raise LimbeckError(
                f"team.by: {len(by)} numbers for {len(members)} teachers",
                "give one number a teacher, in the order of teachers",
            )
        return form(recipe.team, members, names), members, names
    if len(members) != 1:
        raise LimbeckError(
            f"teacher: {len(members)} are given, and {recipe.method} learns from one",
            "take a method of several (skd-uniform, wkd-uniform, mt-bert, takd), or say how they "
            "teach: Recipe.load(NAME, **{'team.use': 'sample'}) with sample, ensemble or chain",
        )
    return members[0], members, names


def _need_none(recipe: Recipe) -> None:
    needing = [
        f"{stage.setting}objectives.{name} ({term.compare})"
        for stage in recipe.stages()
        for name, term in stage.recipe.objectives.items()
        if term.needs_teacher
    ]
    if needing:
        learn = "learns" if len(needing) == 1 else "learn"
        raise LimbeckError(
            f"{', '.join(needing)} {learn} from a teacher, and none is given",
            "pass teacher=, or use method finetune",
        )


def _members(given: Any, *, dropout: bool) -> tuple[Members, tuple[str, ...]]:
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


def _check_formed(recipe: Recipe, team: Team) -> None:
    """Raise LimbeckError if a formed team does not do what the recipe's is to do."""
    spec = recipe.team
    if spec is None:
        return
    wanted = SampledTeam if isinstance(spec, SampledSpec) else EnsembleTeam
    learns = learns_whom_to_sample(recipe)
    if isinstance(spec, ChainSpec):
        said = "chains its teachers itself"
    elif not isinstance(team, wanted):
        said = f"asks a {wanted.__name__} team, not a {type(team).__name__} one"
    elif spec.by in RANKED:
        said = "ranks its teachers, and this team has its shares"
    elif learns and not isinstance(getattr(team, "sampling", None), LearnedProbabilities):
        said = "learns whom to sample, and this team's probabilities are fixed"
    else:
        return
    raise LimbeckError(
        f"teacher: {recipe.method} {said}", "pass the teachers as a list: teacher=[…]"
    )


def learns_whom_to_sample(recipe: Recipe) -> bool:
    """Whether rows have to be held out."""
    return isinstance(recipe.team, SampledSpec) and recipe.team.by == "adaptive"
