"""Problems of a study beyond the types of its keys. Part of `limbeck.lab.study`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.data.corpus import CorpusSpec
from limbeck.lab.study import figure_checks, figure_spec, study_fields
from limbeck.lab.study.measured_step import UntrainedRun
from limbeck.recipe import Recipe, Stage
from limbeck.run import models, prepare, rows
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.tables import against, facts, model, profiles
from limbeck.tasks import TASKS
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import ChainSpec, Team, chain_links
from limbeck.training.objectives import objectives_for


def study_problems(study: study_fields.Study) -> list[Problem]:
    """Everything that is wrong, each with its fix; empty where nothing is."""
    labels, found = list(study.methods), []
    if study.data is None:
        found.append(
            Problem(
                "data: the study names none", "give it: --data FOLDER (GLUE's files), hub or pocket"
            )
        )
    at = None if study.teachers is None else study.teachers.at
    if study.model is None and _takes_model(study):
        found.append(
            Problem(
                "model: teachers or students are made from it, and none is named",
                "give it: --model FOLDER, a Hub name or pocket",
            )
        )
    if at is not None and "{task}" not in at and len(study.tasks) > 1:
        found.append(
            Problem(
                f"teachers.at: {at!r} is one place for {len(study.tasks)} tasks",
                "write {task} at the position of its name",
            )
        )
    found += _team_problems(study, labels)
    listed: dict[str, list[str]] = {"tasks": study.tasks, "seeds": [*map(str, study.seeds)]}
    for key, values in listed.items():
        twice = sorted({one for one in values if values.count(one) > 1})
        if twice:
            found.append(
                Problem(f"{key}: {', '.join(twice)} occurs there twice", "leave one of them out")
            )
    found += [
        unknown(f"task in {key}:", task, study.tasks)
        for key, task in (("per_task", one) for one in study.per_task)
        if task not in study.tasks
    ]
    if figure_spec.TEACHER in study.methods:
        found.append(
            Problem(
                "methods: a row is called teacher, as the teacher's own is", "call it otherwise"
            )
        )
    if study.select.seeds > len(study.seeds):
        found.append(
            Problem(
                f"select.seeds: {study.select.seeds}, and the study has {len(study.seeds)}",
                "choose on fewer",
            )
        )
    found += _tried_problems(study, labels) + figure_checks.figure_problems(study)
    return found + _table_problems(study, labels)


def _takes_model(study: study_fields.Study) -> bool:
    """Whether a run starts from the study's `model`."""
    if study.students.get("student.init") == study_fields.MODEL:
        return True
    spec = study.teachers
    if spec is None or spec.at is not None:
        return False
    members = [one or {} for one in spec.team.values()] or [{}]
    return not all("student.init" in {**spec.settings, **one} for one in members)


def _settings_of(study: study_fields.Study, member: str) -> Mapping[str, Any]:
    """The settings that make a member of the team."""
    assert study.teachers is not None  # it has members
    return {**study.teachers.settings, **(study.teachers.team[member] or {})}


def _team_problems(study: study_fields.Study, labels: list[str]) -> list[Problem]:
    """Problems of a team of teachers, and of methods that name members of it."""
    team = [] if study.teachers is None else list(study.teachers.team)
    found = [
        Problem(f"teachers.team: a member is called {one} as a method is", "call it otherwise")
        for one in team
        if one in (figure_spec.TEACHER, *labels)
    ]
    spec = study.teachers
    if spec is not None and spec.at is not None:
        found += [
            Problem(f"teachers: at and {key} are both given", "leave one of them out")
            for key in ("team", "grid", "grids")
            if getattr(spec, key)
        ]
    members = team or [figure_spec.TEACHER]
    for member, tasks in ({} if spec is None else spec.grids).items():
        if member not in members:
            found.append(unknown("teacher in teachers.grids:", member, members))
        # Tasks of the file may be left out when it is run.
        found += [
            unknown(f"task in teachers.grids.{member}:", task, study.tasks)
            for task in tasks
            if task not in study.tasks and task not in TASKS
        ]
    cut = [one for one in team if "student.layers" in _settings_of(study, one)]
    if cut and study.students.get("student.init") == "pretrained":
        found.append(
            Problem(
                "students: student.init: pretrained is the full model that a teacher was fine-tuned from, and "
                f"{', '.join(cut)} of teachers.team {'has' if len(cut) == 1 else 'have'} only some layers of one",
                f'write student.init: "{study_fields.MODEL}"',
            )
        )
    if "" in labels:
        found.append(Problem("methods: a row is called nothing", "call it something"))
    for label in labels:
        for one in study.method_of(label).teachers or ():
            if one not in team:
                found.append(unknown(f"teacher in methods.{label}.teachers:", one, team))
        lead, named = study.method_of(label).lead, study.method_of(label).teachers or team
        if lead is not None and lead not in named:
            found.append(unknown(f"teacher in methods.{label}.lead:", lead, named))
    return found


def _tried_problems(study: study_fields.Study, labels: list[str]) -> list[Problem]:
    """Problems of grids, axes and the search."""
    found, search = [], study.select.search
    for place, grid in (
        ("select.grid", study.select.grid),
        ("select.search", {} if search is None else search.space),
        *_teacher_grids(study),
        *((f"methods.{one}.grid", study.method_of(one).grid or {}) for one in labels),
        ("axes", study.axes),
    ):
        found += [
            Problem(
                f"{place}: {key} has its own place in a study",
                "take it out; see tasks, seeds, methods, data and teachers",
            )
            for key in grid
            if key in ("seed", "task", "data", "teacher")
            or (key == study_fields.METHOD and not place.startswith("methods."))
        ]
    found += [
        Problem(f"methods.{one}: method and grid.method are both given", "leave one of them out")
        for one in labels
        if study.method_of(one).method is not None
        and study_fields.METHOD in (study.method_of(one).grid or {})
    ]
    for place, grid in (
        ("select.grid", study.select.grid),
        *((f"methods.{one}.grid", study.method_of(one).grid or {}) for one in labels),
    ):
        found += _rest_problems(place, grid)
    if search is None:
        return found
    if study.select.grid:
        found.append(Problem("select: a grid and a search are both given", "leave one of them out"))
    if not search.space:
        found.append(
            Problem(
                f"select.search: {search.trials} trials of nothing",
                "give ranges: lr: [1e-5, 5e-5]",
            )
        )
    for key, values in search.space.items():
        if study_fields.is_range(values) and not values[0] < values[1]:
            found.append(
                Problem(f"select.search.{key}: {values} is no range", "give the smaller end first")
            )
        if any(isinstance(one, list | dict) for one in values):
            found.append(
                Problem(
                    f"select.search.{key}: a value of {values} is a list or a mapping",
                    "search numbers, words and truth values; grids take the others",
                )
            )
    return found


def _teacher_grids(study: study_fields.Study) -> list[tuple[str, study_fields.Grid]]:
    """The candidates for teachers, by their key."""
    spec = study.teachers
    if spec is None:
        return []
    own = [
        (f"teachers.grids.{member}.{task}", grid)
        for member, tasks in spec.grids.items()
        for task, grid in tasks.items()
    ]
    return [("teachers.grid", spec.grid), *own]


def _rest_problems(place: str, grid: study_fields.Grid) -> list[Problem]:
    """Problems of a weight that is the remainder of others."""
    rests = [key for key, values in grid.items() if study_fields.REST in values]
    wrong = [
        key
        for key in rests
        if grid[key] != [study_fields.REST] or not key.endswith(study_fields.WEIGHT)
    ]
    others = [
        key
        for key, values in grid.items()
        if rests and key not in rests and key.endswith(study_fields.WEIGHT)
        if not all(type(one) in (int, float) for one in values)
    ]
    found = [
        Problem(
            f"{place}.{key}: {grid[key]} holds `rest`, the remainder of 1 after a grid's other weights",
            "give it to one weight, as its only value: objectives.hard.weight: [rest]",
        )
        for key in wrong
    ]
    if len(rests) > 1:
        found.append(Problem(f"{place}: {' and '.join(rests)} are both the rest", "name one"))
    found += [
        Problem(f"{place}.{key}: {grid[key]} are not all numbers", "give weights as numbers")
        for key in others
    ]
    if rests and not found and not study_fields.cells_of(grid):
        found.append(Problem(f"{place}: every sum of the weights is above 1", "give smaller ones"))
    return found


def _table_problems(study: study_fields.Study, labels: list[str]) -> list[Problem]:
    found = []
    if study.table.profile not in profiles.PROFILES:
        found.append(unknown("table.profile", study.table.profile, list(profiles.PROFILES)))
    elif not any(_has_column(study, task) for task in study.tasks):
        found.append(
            Problem(
                f"table: profile {study.table.profile} with out_of_domain {study.table.out_of_domain} has no column "
                f"for {', '.join(study.tasks)}: no run would have a score",
                _with_columns(study),
            )
        )
    if study.table.baseline is not None and study.table.baseline not in labels:
        found.append(unknown("table.baseline", study.table.baseline, labels))
    if study.table.correction not in against.CORRECTIONS:
        found.append(unknown("table.correction", study.table.correction, list(against.CORRECTIONS)))
    found += [
        unknown("column in table.columns:", one, list(facts.FACTS))
        for one in study.table.columns
        if one not in facts.FACTS
    ]
    return found + _printed_problems(study, labels)


def _has_column(study: study_fields.Study, task: str) -> bool:
    """Whether the table may show a task; the profile is one that there is."""
    shown = study.table.out_of_domain
    beyond = task in TASKS and TASKS[task].out_of_domain is not None
    # For a task outside GLUE a table shows the primary score, with any profile.
    own = not profiles.knows(task) or task in profiles.PROFILES[study.table.profile].columns
    return (shown != "alone" and own) or (shown != "left out" and beyond)


def _with_columns(study: study_fields.Study) -> str:
    """What gives the study's tasks columns."""
    if study.table.out_of_domain == "alone":
        those = [name for name, one in TASKS.items() if one.out_of_domain is not None]
        return (
            f"write out_of_domain: beside; tasks with a set out of their domain: {', '.join(those)}"
        )
    has = [name for name, one in profiles.PROFILES.items() if {*study.tasks} <= {*one.columns}]
    return f"profiles with columns for them: {', '.join(has)}"


def _printed_problems(study: study_fields.Study, labels: list[str]) -> list[Problem]:
    """Rows and columns of the paper's table that the study's own will not have."""
    if study.printed is None:
        return []
    found = []
    count = len(study.printed.columns)
    team = [] if study.teachers is None else list(study.teachers.team)
    rows = [figure_spec.TEACHER, *team, *labels]
    said = [("rows", study.printed.rows), ("test", study.printed.test)]
    for place, row, values in ((part, *one) for part, own in said for one in own.items()):
        if row not in rows:
            found.append(unknown(f"row in printed.{place}:", row, rows))
        if len(values) != count:
            found.append(
                Problem(
                    f"printed.{place}.{row}: {len(values)} numbers for {count} columns",
                    f"give one for each of {', '.join(study.printed.columns)}",
                )
            )
    if study.table.profile in profiles.PROFILES:
        known = [*_titles(study), *study.table.columns]
        found += [
            unknown("column in printed.columns:", one, known)
            for one in (*study.printed.columns, *study.printed.average_of)
            if one not in known
        ]
    return found


def _titles(study: study_fields.Study) -> list[str]:
    """The columns that a table of any tasks may have."""
    tasks = profiles.PROFILES[study.table.profile].columns
    own = {column.title for columns in tasks.values() for column in columns}
    other = {
        f"{TASKS[task].title} → {model.task_title(beyond)}"
        for task in tasks
        if (beyond := TASKS[task].out_of_domain) is not None
    }
    # Tasks outside GLUE have their primary score.
    own |= {task.title for name, task in TASKS.items() if not profiles.knows(name)}
    shown = study.table.out_of_domain
    found = other if shown == "alone" else own if shown == "left out" else own | other
    return [*sorted(found), model.AVERAGE]


# Errors that a study's runs would raise once their rows and models are there, found before the first run.


_OF_A_STREAM = 256
"""Rows of a corpus that are streamed before a run: enough to see that there are some of its range."""


def term_problems(recipe: Recipe, run: UntrainedRun) -> list[Problem]:
    """What keeps the terms of a run's stages from being built between its untrained models.

    Terms that count classes are checked by the runs themselves: they need all rows encoded.
    """
    problems: list[Problem] = []
    for stage in recipe.stages():
        own = stage.recipe
        terms = {name: term for name, term in own.objectives.items() if not term.counts_classes}
        loss = replace(own.loss, objectives=terms)
        try:
            for student, teacher in _links(recipe, stage, run):
                with torch.random.fork_rng(devices=[]):
                    objectives_for(student, teacher, loss, run.rows["train"], kind=run.task.kind)
        except LimbeckError as error:
            problems += [replace(one, message=_place(stage, one)) for one in error.problems]
    return list(dict.fromkeys(problems))


def row_problems(
    recipe: Recipe, run: UntrainedRun, seen: dict[str, list[Problem]]
) -> list[Problem]:
    """What keeps the rows that a stage has for itself from being loaded.

    Args:
        recipe: the run's.
        run: its models and tokenizer.
        seen: earlier findings about such rows, which are not computed again.
    """
    found: list[Problem] = []
    for stage in recipe.stages():
        if stage.same_rows:
            continue
        own = stage.recipe
        corpus = stage.corpus
        said: list[Any] = [own.task, own.data, own.train_rows, own.max_length, own.seed]
        key = f"{said} {corpus}"
        if key not in seen:
            seen[key] = []
            if corpus is not None and _is_streamed(corpus):
                few = corpus.model_copy(update={"size": min(corpus.size, _OF_A_STREAM)})
                stage = replace(stage, corpus=few)
            try:
                rows.stage_rows(stage, run.tokenizer, run.task.kind.reads)
            except LimbeckError as error:
                seen[key] = list(error.problems)
        found += seen[key]
    return found


def _is_streamed(corpus: CorpusSpec) -> bool:
    return corpus.source.partition(":")[0] == "hub"


def _links(
    recipe: Recipe, stage: Stage, run: UntrainedRun
) -> Iterator[tuple[PreTrainedModel, Teacher | Team | None]]:
    """The students of a stage with their teachers: the student, and the assistants of a chain."""
    members = [one.teacher for one in run.teachers]
    chained = isinstance(recipe.team, ChainSpec) and (stage.last or recipe.joint)
    for large, small in chain_links(members) if chained else ():
        yield members[small].model, members[large]
    yield run.student, _teacher(recipe, stage, run)


def _teacher(recipe: Recipe, stage: Stage, run: UntrainedRun) -> Teacher | Team | None:
    """Who teaches a stage: the run's teachers, one of them, or one that the stage names."""
    own = stage.recipe
    if not own.needs_teacher or not run.teachers:
        return None
    alone = recipe.team is not None and own.team is None  # before the team, one teacher
    if stage.last or (own.taught_by == recipe.taught_by and not alone):
        return models.form_team(recipe, run.teachers)
    known = next((one for one in run.teachers if one.path == own.teacher), None)
    return (known or prepare.teacher_of_stage(recipe, stage, run.task)).teacher


def _place(stage: Stage, problem: Problem) -> str:
    own = problem.message.startswith(("objectives", "curriculum"))
    return f"{stage.setting if own else ''}{problem.message}"
