"""`look_at_team(…)`: what the members of a team predict on one split, and how they differ.

Part of `limbeck.scoring`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.data import MAX_ROWS, Collator, Division, Labelling, encode, load_task
from limbeck.evaluation.measuring import Size, model_facts
from limbeck.evaluation.team import TeamOverview, team_of
from limbeck.recipe import Recipe
from limbeck.records import ModelFacts
from limbeck.records.runs_meant import members_at
from limbeck.run.known_classes import names_at
from limbeck.run.model_predictions import compact_outputs_of, example_size
from limbeck.scoring.scored_model import split_to_score
from limbeck.students import load_model, read_processor
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.tasks import Task

log = logging.getLogger(__name__)

# What the runs of a team must agree in, unless it is given.
_SHARED = ("task", "data", "text_columns", "label_column", "kind", "classes", "labels", "division")
_MAX_LENGTH = Recipe.model_fields["max_length"].default


@dataclass(frozen=True)
class TeamLook:
    """A team, measured on one split.

    Attributes:
        task: what it answers.
        data: where the rows are from.
        split: which rows.
        team: diversity and calibration.
        models: size and FLOPs of each member, by name.
    """

    task: Task
    data: str
    split: str
    team: TeamOverview
    models: dict[str, ModelFacts]


@dataclass(frozen=True)
class _Candidate:
    """A member before it is loaded: a run folder, or a checkpoint without a record."""

    path: str
    recipe: Recipe | None

    @property
    def max_length(self) -> int:
        return _MAX_LENGTH if self.recipe is None else self.recipe.max_length


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

    Raises:
        LimbeckError: no members, runs that are not finished or disagree, labels in another order,
            or a task type whose predictions are not one class or number a text.
    """
    candidates = [found for member in members for found in _candidates(str(member))]
    if not candidates:
        raise LimbeckError("team: there are no members", "name run folders or checkpoints")
    given = {
        "task": task,
        "data": data,
        "text_columns": list(text_columns) if text_columns else None,
        "label_column": label_column,
        "kind": None,
        "classes": None,
        "labels": None,
        "division": None,
    }
    settings = _settings(candidates, given)
    target, rows = load_task(
        settings["task"],
        settings["data"],
        text_columns=settings["text_columns"],
        label_column=settings["label_column"],
        kind=settings["kind"],
        labelling=Labelling(
            tuple(map(str, settings["classes"] or ())),
            settings["labels"],
            names_at(candidates[0].path),
        ),
        # The split that runs drew from a file of their own is sampled again the same way.
        for_training=data is None,
        division=settings["division"] or Division(),
        max_rows=max([MAX_ROWS, *(one.recipe.max_rows for one in candidates if one.recipe)]),
    )
    if not target.kind.constant or target.kind.several_classes or target.kind.embeds:
        raise LimbeckError(
            f"team: task {target.name!r} is of kind {target.kind.name}; members are compared by "
            "one class or number a text",
            "name a task of kind sentence",
        )
    chosen = split_to_score(target, rows, split)
    return _measure(candidates, target, str(settings["data"]), chosen, rows[chosen])


def _measure(
    candidates: Sequence[_Candidate], task: Task, data: str, split: str, rows: Dataset
) -> TeamLook:
    names = _names([candidate.path for candidate in candidates])
    answers: dict[str, np.ndarray] = {}
    models: dict[str, ModelFacts] = {}
    problems: list[Problem] = []
    for name, candidate in zip(names, candidates, strict=True):
        model = load_model(candidate.path, head="required", auto=task.kind.auto)
        problems += preflight.check_labels(name, model.config, task)
        if preflight.errors_of(problems):
            continue  # The others' mistakes are still to be found.
        answers[name], size = _answers(model, candidate, task, rows)
        models[name] = model_facts(model, size)
    if preflight.errors_of(problems):
        raise LimbeckError(problems)
    for problem in problems:
        log.warning("%s (%s)", problem.message, problem.fix)
    labels = np.asarray(rows[task.label_column][:])
    team = team_of(
        answers,
        labels,
        regression=task.regression,
        score=lambda given, right: task.scores(given, right)["primary"],
    )
    return TeamLook(task, data, split, team, models)


def _answers(
    model: PreTrainedModel, candidate: _Candidate, task: Task, rows: Dataset
) -> tuple[np.ndarray, Size]:
    """The logits (n, C) in the order of the rows, and how large an example is."""
    tokenizer = read_processor(candidate.path, task.kind.reads)
    encoded, _ = encode(rows, task, tokenizer, candidate.max_length)
    given = compact_outputs_of(model, encoded, Collator(tokenizer, kind=task.kind))
    return given, example_size(encoded, tokenizer, task.kind)


def _candidates(member: str) -> Iterator[_Candidate]:
    for path, record in members_at(member).items():
        yield _Candidate(path, None if record is None else Recipe.recorded(record.recipe, path))


def _settings(candidates: Sequence[_Candidate], given: dict[str, Any]) -> dict[str, Any]:
    """Task and data: what is given, else what all runs have."""
    problems = []
    settings = dict(given)
    recipes = {c.path: c.recipe for c in candidates if c.recipe is not None}
    for key in _SHARED:
        # Columns and classes belong to their file, and another task has another kind.
        of_file = key.endswith(("column", "columns", "classes", "labels", "division"))
        elsewhere = given["task"] if key == "kind" else given["data"] if of_file else None
        if given[key] is not None or elsewhere is not None:
            continue
        values = {repr(getattr(recipe, key)): path for path, recipe in recipes.items()}
        if len(values) > 1:
            said = "; ".join(f"{path} {value}" for value, path in values.items())
            problems.append(
                Problem(
                    f"team: the runs have different settings of {key}: {said}",
                    f"leave some out, or say which: --{key.replace('_', '-').replace('division', 'data')}",
                )
            )
        settings[key] = next((getattr(recipe, key) for recipe in recipes.values()), None)
    if not problems:
        problems = [
            Problem(f"team: no {key} is known, since no member is a run", f"add --{key}")
            for key in ("task", "data")
            if settings[key] is None
        ]
    if problems:
        raise LimbeckError(problems)
    return settings


def _names(paths: Sequence[str]) -> list[str]:
    """The last part of each path, or as much of it as tells the members apart."""
    parts = [at_home(path).parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    twice = [path for path, count in Counter(paths).items() if count > 1]
    raise LimbeckError(f"team: {', '.join(twice)} is named twice", "name each member once")
