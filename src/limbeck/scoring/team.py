"""`look_at_team(…)`: the predictions of a team's members on one split, and how they differ.

Part of `limbeck.scoring`.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from limbeck import preflight
from limbeck.data import RowsAsked
from limbeck.evaluation import measuring, model_outputs
from limbeck.evaluation.team import TeamScores, team_of
from limbeck.records.facts import ModelFacts
from limbeck.records.runs_meant import members_at
from limbeck.scoring.scored_model import LoadedSplit, ScoredModel
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.words import short_names
from limbeck.tasks import Task

log = logging.getLogger(__name__)

# The settings in which the runs of a team must agree, unless they are given.
_SHARED = ("task", "data", "text_columns", "label_column", "kind", "classes", "labels", "division")
# The settings that belong to a file of rows, so that other rows have others.
_OF_FILE = _SHARED[2:4] + _SHARED[5:]


@dataclass(frozen=True)
class TeamLook:
    """A team, measured on one split.

    Attributes:
        task: the task of its rows.
        data: where the rows are from.
        split: which rows.
        team: scores and disagreement.
        models: size and FLOPs of each member, by name.
    """

    task: Task
    data: str
    split: str
    team: TeamScores
    models: dict[str, ModelFacts]


def look_at_team(
    members: Sequence[str | Path],
    *,
    task: str | None = None,
    data: str | None = None,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> TeamLook:
    """Run each member over a split once, and measure how they differ.

    Args:
        members: run folders, folders of run folders, checkpoints' folders or Hub names.
        task: the task to predict; the runs' own by default.
        data: its rows; the runs' own by default.
        text_columns: the columns of your own file that hold text.
        label_column: the one that holds the labels.
        split: which rows; by default the ones the task is scored on.

    Example:
        ```python
        limbeck.look_at_team(["runs/one", "runs/other"], split="dev")
        ```

    Raises:
        LimbeckError: no members, runs that are not finished or disagree, labels in another order,
            or a task type whose predictions are not one class or number a text.
    """
    paths = [path for member in members for path in members_at(str(member))]
    if not paths:
        raise LimbeckError("team: there are no members", "name run folders or checkpoints")
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise LimbeckError(f"team: {', '.join(twice)} is named twice", "name each member once")
    names = short_names(paths)
    team = {name: ScoredModel.open(path) for name, path in zip(names, paths, strict=True)}
    asked = RowsAsked(task, data, split, text_columns, label_column)
    raise_problems(_different(list(team.values()), asked))
    # Runs know their own rows.
    first = max(team.values(), key=lambda one: one.recipe is not None)
    loaded = replace(first.rows(asked), own_classes=False, translated_from=None)
    kind = loaded.task.kind
    if not (loaded.task.one_class or loaded.task.one_number):
        raise LimbeckError(
            f"team: task {loaded.task.name!r} is of kind {kind.name}; members are compared by "
            "one class or number a text",
            "name a task of kind sentence",
        )
    return _measure(team, loaded)


def _measure(team: dict[str, ScoredModel], loaded: LoadedSplit) -> TeamLook:
    task = loaded.task
    problems: list[Problem] = []
    for name, member in team.items():
        problems += preflight.model_checks.check_labels(name, member.config, task)
    raise_problems(preflight.errors_of(problems))
    for problem in problems:
        log.warning("%s (%s)", problem.message, problem.fix)
    outputs: dict[str, np.ndarray] = {}
    models: dict[str, ModelFacts] = {}
    for name, member in team.items():
        own = member.recipe.max_length if member.recipe else loaded.usual_length
        model = member.load(task.kind)
        encoded = member.read(replace(loaded, usual_length=own), model)
        outputs[name] = model_outputs.compact_outputs_of(model, encoded.encoded, encoded.collator)
        models[name] = measuring.model_facts(
            model, measuring.example_size(encoded.encoded, encoded.processor, task.kind)
        )
    found = team_of(
        outputs,
        np.asarray(loaded.rows[task.label_column][:]),
        lambda given, right: task.scores(given, right)["primary"],
        regression=task.regression,
    )
    return TeamLook(task, loaded.data, loaded.name, found, models)


@problem_list
def _different(team: Sequence[ScoredModel], asked: RowsAsked) -> Iterator[Problem]:
    """Find whether no rows are identified, or the runs identify different ones."""
    recipes = {one.name: one.recipe for one in team if one.recipe is not None}
    for key in _SHARED if recipes else ():
        # Another task has another kind.
        elsewhere = asked.data if key in _OF_FILE else asked.task if key == "kind" else None
        if getattr(asked, key, None) is not None or elsewhere is not None:
            continue
        values = {repr(getattr(recipe, key)): path for path, recipe in recipes.items()}
        if len(values) > 1:
            said = "; ".join(f"{path} {value}" for value, path in values.items())
            yield Problem(
                f"team: the runs have different settings of {key}: {said}",
                f"leave some out, or set it: --{key.replace('_', '-').replace('division', 'data')}",
            )
    if not recipes:
        yield from (
            Problem(f"team: no {key} is known, since no member is a run", f"add --{key}")
            for key in ("task", "data")
            if getattr(asked, key) is None
        )
