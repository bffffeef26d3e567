"""The problems of a study's figures. Part of `limbeck.lab.study`."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from limbeck.lab.analysis import ANALYSES, analysed_run
from limbeck.lab.analysis.analyze import idle_stage, setting_problems
from limbeck.lab.study import figure_spec
from limbeck.lab.study.study_fields import Group, Study
from limbeck.support.errors import LimbeckError, Problem, unknown


def figure_problems(study: Study) -> list[Problem]:
    """Everything that is wrong with them, each with its fix."""
    return [
        problem
        for name, spec in study.figures.items()
        for problem in _problems(study, f"figures.{name}", spec)
    ]


def _problems(study: Study, place: str, spec: figure_spec.FigureSpec) -> list[Problem]:
    if spec.draw not in figure_spec.KINDS:
        return [unknown(f"figure in {place}.draw:", spec.draw, list(figure_spec.KINDS))]
    found = [
        Problem(f"{place}: {key} is missing", f"draw: {spec.draw} needs it")
        for key in figure_spec.missing(spec)
    ]
    found += [
        Problem(f"{place}: draw: {spec.draw} does not read {key}", "leave it out")
        for key in figure_spec.unread(spec)
    ]
    axes = list(study.axes)
    for key, choices in (
        ("x", [*axes, figure_spec.PARAMETERS]),
        ("rows", [*axes, figure_spec.TASK, figure_spec.METHOD]),
        ("columns", [*axes, figure_spec.TASK, figure_spec.METHOD]),
    ):
        given = getattr(spec, key)
        if given is not None and given not in choices:
            found.append(unknown(f"{place}.{key}:", given, choices))
    if spec.rows is not None and spec.rows == spec.columns:
        found.append(
            Problem(f"{place}: rows and columns are both {spec.rows}", "give each a key of its own")
        )
    found += [
        Problem(f"{place}.{key}: none are named", "leave it out for all of them")
        for key in ("methods", "tasks")
        if getattr(spec, key) == []
    ]
    found += [
        unknown(f"method in {place}:", one, list(study.methods))
        for one in spec.methods or ()
        if one not in study.methods
    ]
    found += [
        unknown(f"task in {place}:", one, study.tasks)
        for one in spec.tasks or ()
        if one not in study.tasks
    ]
    return found + (_analysis_problems(study, place, spec) if spec.of is not None else [])


def _analysis_problems(study: Study, place: str, spec: figure_spec.FigureSpec) -> list[Problem]:
    if spec.of not in ANALYSES:
        return [unknown(f"analysis in {place}.of:", spec.of, list(ANALYSES))]
    analysis = ANALYSES.get(str(spec.of))
    found = [
        replace(one, message=f"{place}.settings: {one.message}")
        for one in setting_problems(str(spec.of), spec.settings)
        + idle_stage(str(spec.of), spec.stage)
    ]
    found += [
        unknown(f"method in {place}.settings.{analysis.further_runs}:", one, list(study.methods))
        for one in further_rows(spec)
        if one not in study.methods
    ]
    if analysis.reads_models and not study.keep_students:
        found.append(
            Problem(
                f"{place}: {spec.of} looks at students, whose weights are removed",
                "write keep_students: true",
            )
        )
    return found


def further_rows(spec: figure_spec.FigureSpec) -> list[str]:
    """The rows whose runs an analysis reads in addition to each run."""
    named = spec.settings.get(ANALYSES.get(str(spec.of)).further_runs or "")
    return [str(one) for one in named] if isinstance(named, list) else []


def split_problems(study: Study, task: str, splits: Collection[str]) -> list[Problem]:
    """Figures that look at rows which a task has not, or has without labels; `splits` are those with labels."""
    return [
        unknown(f"split of {task} in figures.{name}.split:", spec.split, list(splits))
        for name, spec in study.figures.items()
        if spec.split is not None and (spec.tasks is None or task in spec.tasks)
        if spec.split not in splits
    ]


def recipe_problems(study: Study, groups: Sequence[Group]) -> list[Problem]:
    """Figures of an analysis that cannot be made of a method's recipe, reported before it is trained."""
    return [
        replace(problem, message=f"figures.{name}: {label}: {problem.message}")
        for name, spec in study.figures.items()
        if spec.of is not None
        for label in spec.methods or study.methods
        for problem in _unfit(spec, next(group for group in groups if group.label == label))
    ]


def _unfit(spec: figure_spec.FigureSpec, group: Group) -> list[Problem]:
    """Why an analysis cannot be made of a method's runs."""
    suits = ANALYSES.get(str(spec.of)).suits
    if suits is None and spec.stage is None:
        return []
    recipe = group.sample.recipe_with(group.sample.needs)
    try:
        if suits is not None:
            suits(recipe)
    except LimbeckError as error:
        return [*error.problems, *analysed_run.stage_problems(spec.stage, recipe)]
    return analysed_run.stage_problems(spec.stage, recipe)
