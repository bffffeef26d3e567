"""From the arguments of a `DistillationTrainer` to one checked recipe. Part of `limbeck.training`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from torch import nn
from transformers import PreTrainedModel, TrainingArguments

from limbeck.objectives import OBJECTIVES, Objective
from limbeck.recipe import FirstStage, Recipe, load, validation
from limbeck.recipe.recipe import TRAINING, TRANSFORMS, stage_seed
from limbeck.support.errors import LimbeckError, Problem, raise_problems, unknown
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
"""For a first stage: the objects that replace the names in a recipe."""

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
"""The names in a recipe's first stage, with the arguments of a Trainer that replace them."""


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
    raise_problems(problems)
    raw = {"method": "own", "objectives": dict(objectives), **beside}
    return validation.check(raw, Recipe, known_tasks=())


def kind_of(model: PreTrainedModel | None) -> TaskType | None:
    """A student's task type; None if the student or its type is missing, which is reported with the other problems."""
    try:
        return None if model is None else task_type_of(model)
    except LimbeckError:
        return None


def of_kind(recipe: Recipe, kind: TaskType) -> Recipe:
    """The recipe, with terms replaced by the task type's own where they have another meaning there.

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
    return validation.check(raw, Recipe, known_tasks=(str(recipe.task),))


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
            whose rows or teacher the recipe names, but the user does not give.
    """
    given = given or {}
    choices = ["objectives", "curriculum", *TRANSFORMS, *TRAINING, *OBJECTS]
    wrong = [unknown("key in first_stage", key, choices) for key in given if key not in choices]
    raise_problems(wrong)
    if recipe.first_stage is None and given and "objectives" not in given:
        raise LimbeckError(
            f"first_stage: method {recipe.method} has no first stage",
            "leave it out, give its objectives, or take a method of two stages (tinybert, cr-ild)",
        )
    problems = _named_only(recipe.first_stage, given)
    raise_problems(problems)
    settings = {key: value for key, value in given.items() if key not in OBJECTS}
    if not settings:
        return recipe
    raw = recipe.model_dump()
    raw["first_stage"] = load.merge(raw["first_stage"] or {}, settings)
    terms = raw["first_stage"].get("objectives") or {}
    raw["first_stage"]["objectives"] = {n: t for n, t in terms.items() if t is not None}
    return validation.check(raw, Recipe, known_tasks=(str(recipe.task),))


def _named_only(first: FirstStage | None, given: Mapping[str, Any]) -> list[Problem]:
    """The objects of the recipe's first stage that a Trainer has to be given."""
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
    """The recipe's training settings by the Trainer's names, used as defaults."""
    own = {"adam_epsilon": recipe.epsilon, "max_grad_norm": recipe.max_grad_norm}
    own |= {name: _value(key, getattr(recipe, key)) for key, name in _ARGUMENTS.items()}
    return own | {"seed": recipe.seed}


def first_stage_arguments(recipe: Recipe, args: TrainingArguments) -> TrainingArguments:
    """The user's settings, overridden by the settings of the recipe's first stage.

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


# Build the teachers from the user's argument: one model, several models, or a team.


RANKED = ("teacher-rank", "student-rank", "best-of")
"""Values of `team.by` that scores decide."""


Members = tuple[Teacher, ...]


def teaching(recipe: Recipe, given: Any) -> tuple[Teacher | Team | None, Members, tuple[str, ...]]:
    """The teachers of a recipe and their names: one, or a team (for a chain, the smallest).

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
                "give one number per teacher, in the order of teachers",
            )
        return form(recipe.team, members, names), members, names
    if len(members) != 1:
        raise LimbeckError(
            f"teacher: {len(members)} are given, and {recipe.method} learns from one",
            "take a method of several (skd-uniform, wkd-uniform, mt-bert, takd), or set how they "
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
    """The checkpoints they were loaded from, if these differ; otherwise their numbers."""
    configs = [model.config for model in models]
    paths = [str(getattr(config, "name_or_path", "") or "") for config in configs]
    if all(paths) and len(set(paths)) == len(paths):
        return short_names(paths)
    return [f"teacher-{number}" for number in range(1, len(models) + 1)]


def _check_formed(recipe: Recipe, team: Team) -> None:
    """Raise LimbeckError if a formed team does not combine teachers as the recipe requires."""
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
        said = "learns its sampling probabilities, and this team's are fixed"
    else:
        return
    raise LimbeckError(
        f"teacher: {recipe.method} {said}", "pass the teachers as a list: teacher=[…]"
    )


def learns_whom_to_sample(recipe: Recipe) -> bool:
    """Whether rows have to be held out."""
    return isinstance(recipe.team, SampledSpec) and recipe.team.by == "adaptive"
