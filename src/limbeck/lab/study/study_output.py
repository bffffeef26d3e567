"""The results of a study: the paper's table in four forms, one page, and all its records in one file."""

import glob
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.lab.analysis.analysed_run import Watch
from limbeck.lab.measures.layer_probing import nobody
from limbeck.lab.study import figure_spec, study_estimate, study_file
from limbeck.lab.study.plan_builder import TEACHER_LABEL, StudyPlan
from limbeck.lab.study.score_figures import RunPoint
from limbeck.lab.study.shared_runs import Held, SharedRuns, StudyRun, nested, portable
from limbeck.lab.study.study_fields import Choice, Group, Study
from limbeck.lab.study.study_figures import MadeRun, StudyFigure, study_figures
from limbeck.lab.views.analysis_views import write_figure
from limbeck.records import Record, write_collection
from limbeck.report import write_report
from limbeck.support import cells, files, words
from limbeck.tables import Baseline, ResultsTable, build_table, render
from limbeck.tables.model import task_title

Values = tuple[float, ...]
"""The values of one setting on one task: by any of its methods, each once."""

_COUNTED = {
    "train_rows": "{} training row",
    "epochs": "{} epoch",
    "first_stage.epochs": "a first stage of {} epoch",
}
"""Recipe key → the words for its number in the singular."""


def paper_differences(study: Study) -> list[str]:
    """Sentences on the differences from the paper: first from its keys, then its own `differs`."""
    said = []
    if study.published is not None:
        said += _tasks(study.tasks, study.published.tasks)
        said += _seeds(len(study.seeds), len(study.published.seeds))
        for key, form in _COUNTED.items():
            if key not in study.axes:
                said += _numbers(_values(study, key), _values(study.published, key, study), form)
    return [*said, *study.differs]


def given_otherwise(study: Study) -> list[str]:
    """The overrides of the study's file, `key=value`; tasks and seeds are listed above."""
    shown = {"tasks", "seeds", "data", "model", "jobs", "keep_students"}
    return [f"{key}={value}" for key, value in study.given.items() if key not in shown]


def _tasks(ours: list[str], theirs: list[str]) -> list[str]:
    if set(theirs) <= set(ours):
        return []
    if set(ours) <= set(theirs):
        return [f"{len(ours)} of {words.count_of(len(theirs), 'task')}"]
    here, there = (", ".join(map(task_title, names)) for names in (ours, theirs))
    return [f"{here} instead of {there}"]


def _seeds(ours: int, theirs: int) -> list[str]:
    return [f"{ours} of {theirs} seeds"] if ours < theirs else []


def _values(study: Study, key: str, of: Study | None = None) -> dict[str, Values]:
    """Task → the methods' values of a key, on the tasks and for the methods of `of`."""
    of = of or study
    found = {}
    for task in of.tasks:
        settings = (
            study_file.student_settings(study, row, task, {})
            for row in of.methods
            if row in study.methods
        )
        found[task] = tuple(sorted({one[key] for one in settings if _is_number(one.get(key))}))
    return found


def _numbers(ours: Mapping[str, Values], theirs: Mapping[str, Values], form: str) -> list[str]:
    """A number, with the tasks on which it differs: `2 epochs (SST-2: 1)`."""
    other = {task: values for task, values in ours.items() if values and values != theirs[task]}
    if not other:
        return []
    common = Counter(other.values()).most_common(1)[0][0]
    text = form.format(_words(common)) + ("" if common == (1,) else "s")
    if len(other) < len(ours):
        text += f" of {', '.join(task_title(task) for task in other if other[task] == common)}"
    rest = [f"{task_title(t)}: {_words(v)}" for t, v in other.items() if v != common]
    return [text + (f" ({', '.join(rest)})" if rest else "")]


def _words(values: Values) -> str:
    return " or ".join(f"{value:,}" for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


RECORDS = "records.jsonl.gz"
PAGE = "study.html"
FORMS = {"table.md": "markdown", "table.tex": "latex", "table.csv": "csv"}


@dataclass(frozen=True)
class StudyResults:
    """The results in a study's records.

    Attributes:
        records: of the runs in the table, by name; including failed runs, each named as its row.
        raw: the finished ones in a form that can be shared.
        choices: the settings chosen on dev for each method, task and condition.
        open: number of runs that are neither finished nor failed.
        tried: number of finished runs, including runs that were not chosen.
        seconds: the total time of all of them.
        made: the table's finished runs of methods, each with its row, task and condition.
    """

    records: dict[str, Record]
    raw: dict[str, dict[str, Any]]
    choices: tuple[Choice, ...]
    open: int
    tried: int
    seconds: float
    made: tuple[MadeRun, ...] = ()


def gather_results(plan: StudyPlan, runs: SharedRuns) -> StudyResults:
    """Read what there is of a study, finished or not."""
    known: dict[str, Record | None] = {}

    def held(name: str) -> Record | None:
        if name not in known:
            known[name] = study_estimate.held_or_none(runs, name)
        return known[name]

    def ended(name: str) -> bool:
        return held(name) is not None or runs.failed(name) is not None

    records: dict[str, Record] = {}
    raw: dict[str, dict[str, Any]] = {}
    made: list[MadeRun] = []
    choices, missing = [], 0
    called = {run.name: run.label for run in plan.teachers.values()}
    missing += sum(not ended(run.name) for run in plan.trained_teachers)
    for run in plan.teachers.values():
        if run.tries and (choice := _chosen_teacher(plan.tried[run.name], run, held)):
            choices.append(choice)
        _add(run, run.label, runs, records, raw, held)
    lost = {run.name for run in plan.waiting(held, ended)}
    for group in plan.groups:
        choice = plan.choice(group, held, ended)
        if choice is None:
            run = group.sample
            if run.lost(held, ended):
                records[run.name] = _without_teacher(run, group.label, held)
                continue
            choosing = [r for _, made in group.tried for r in made[: plan.choosing]]
            missing += sum(not ended(r.name) for r in choosing)
            missing += plan.choosing * (group.tries - len(group.tried))
            missing += len(plan.study.seeds) - plan.choosing
            continue
        choices.append(choice)
        missing += sum(not ended(run.name) and run.name not in lost for run in choice.runs)
        for run in _kept(choice, plan.study, held):
            if run.name in lost:
                records[run.name] = _without_teacher(run, group.label, held)
            else:
                _add(run, group.label, runs, records, raw, held)
                if (known_run := held(run.name)) is not None:
                    point = RunPoint(group.label, group.task, group.condition, known_run, called)
                    made.append(MadeRun(point, runs.path / run.name))
    _give_sizes(records)
    copies = {run.name for run in plan.teachers.values() if run.tries}
    tried = [one for name, one in known.items() if one is not None and name not in copies]
    seconds = sum(record.cost.total_seconds or 0.0 for record in tried)
    return StudyResults(records, raw, tuple(choices), missing, len(tried), seconds, tuple(made))


def _chosen_teacher(group: Group, chosen: StudyRun, held: Held) -> Choice | None:
    """The run that was chosen as a teacher among the candidates; None as long as it is not chosen."""
    made = held(chosen.name)
    if made is None:
        return None
    cells = [(cell, held(runs[0].name)) for cell, runs in group.grid]
    scores = tuple((cell, None if one is None else one.primary_score("dev")) for cell, one in cells)
    best = next(cell for cell, one in cells if one is not None and one.recipe == made.recipe)
    return Choice(group, best, (chosen,), scores)


def _kept(choice: Choice, study: Study, held: Callable[[str], Record | None]) -> list[StudyRun]:
    """All seeds' runs, or the one best on dev (of equals the first)."""
    if study.select.keep == "all":
        return list(choice.runs)
    scored = [
        (score, run)
        for run in choice.runs
        if (record := held(run.name)) is not None
        and (score := record.primary_score("dev")) is not None
    ]
    return [max(scored, key=lambda pair: pair[0])[1]] if scored else list(choice.runs)


def _add(
    run: StudyRun,
    label: str,
    runs: SharedRuns,
    records: dict[str, Record],
    raw: dict[str, dict[str, Any]],
    held: Callable[[str], Record | None],
) -> None:
    called = run.method if run.label == TEACHER_LABEL else label
    if run.name in records and records[run.name].method == called:
        return  # a row that is the same under several conditions
    # Two rows may share a run, and each has its own record then.
    name = run.name if run.name not in records else f"{run.name}-{label}"
    record = held(run.name)
    if record is None:
        failed = runs.failed(run.name)
        if failed is not None and run.role != "teacher":
            records[name] = failed.model_copy(update={"method": label})
        return
    source = record.path
    records[name] = record.model_copy(update={"method": called})
    records[name]._path = source
    said = portable(runs.path / run.name)
    if said is not None:
        raw[name] = said | {"method": called}


def _give_sizes(records: dict[str, Record]) -> None:
    """Give a failed run the student size of its method's finished runs, if they agree, so that they share a row."""
    ended = [record for record in records.values() if record.status == "finished"]
    for name, record in records.items():
        if record.status != "failed" or (record.recipe.get("student") or {}).get("layers"):
            continue
        alike = [one.student for one in ended if one.method == record.method]
        if len({student.layers for student in alike}) == 1:
            records[name] = record.model_copy(update={"student": alike[0]})


def _without_teacher(run: StudyRun, label: str, held: Held) -> Record:
    settings = run.settings
    record = Record(
        kind="distill",
        method=label,
        task=str(settings["task"]),
        data=str(settings["data"]),
        seed=int(settings["seed"]),
        recipe=nested(settings),
    )
    lost = [name for name in run.needs if held(name) is None]
    record.fail(f"its teacher failed ({', '.join(lost)})")
    return record


def study_table(plan: StudyPlan, results: StudyResults) -> ResultsTable:
    """The paper's table: its rows in its order, its scores, its numbers next to ours.

    What `limbeck table` makes of the study's records, with the same profile and baseline, and more.
    Raises LimbeckError where nothing has been run yet.
    """
    study = plan.study
    table = paper_table(study, list(results.records.values()))
    notes = [f"Differs from the paper: {line}." for line in paper_differences(study)]
    if otherwise := given_otherwise(study):
        notes.append(f"Other than in the study's file: {', '.join(otherwise)}.")
    if study.select.keep == "best":
        notes.append(f"Of {len(study.seeds)} runs the one best on dev.")
    if results.open:
        notes.append(f"Not finished: {results.open} runs of the study are still to be made.")
    return replace(table, notes=(*table.notes, *notes))


def paper_table(study: Study, records: Sequence[Record]) -> ResultsTable:
    """The table of a study's records, each named as its row, with the paper's numbers."""
    members = [] if study.teachers is None else list(study.teachers.team)
    baseline = study.table.baseline
    if baseline is not None and all(record.method != baseline for record in records):
        baseline = None  # none of its runs is there yet
    table = build_table(
        records,
        profile=study.table.profile,
        baseline=Baseline(baseline, study.table.correction),
        facts=study.table.columns,
        out_of_domain=study.table.out_of_domain,
        by=[key for key in study.axes if key != "student.layers"],
        # Members have rows of their own; which of them a student's record describes is no matter of the table.
        teachers_own=bool(members),
    )
    table = figure_spec.in_order(replace(table, title=study.title), [*members, *study.methods])
    if study.printed is not None:
        said = study.printed
        table = figure_spec.beside_printed(
            table,
            said.numbers(),
            decimals=said.decimals,
            source=said.source,
            deviations=said.what == "deviation",
            average_of=said.average_of,
            test=said.test_numbers(),
        )
    return table


def write_study(
    plan: StudyPlan, runs: SharedRuns, folder: Path, *, watch: Watch | None = None
) -> tuple[ResultsTable, Path]:
    """Write the table's files, the figures, the page and the records; the table, and the page's path.

    `watch` begins to show the progress of an analysis that a figure is of.

    Raises:
        LimbeckError: no run has a score yet, or the folder cannot be written.
    """
    results = gather_results(plan, runs)
    table = study_table(plan, results)
    for name, form in FORMS.items():
        files.write_whole(folder / name, render(table, form))
    write_collection(folder / RECORDS, results.raw)
    scores = _teacher_scores(plan, runs)
    figures = study_figures(plan.study, results.made, scores, watch or (lambda name: nobody))
    _write_pictures(figures, folder)
    page = write_report(
        list(results.records.values()),
        folder / PAGE,
        title=plan.study.title,
        table=table,
        about=_about(plan, results),
        more=[figure.section() for figure in figures],
    )
    return table, page


def _write_pictures(figures: Sequence[StudyFigure], folder: Path) -> None:
    """Each panel as a file; an earlier, narrower study's files of the same figures are removed."""
    written: set[Path] = set()
    for figure in figures:
        for panel, name in zip(figure.panels, figure.files, strict=True):
            written.update(write_figure(panel, folder, name))
    for figure in figures:
        name = glob.escape(files.file_name(figure.name))
        for ending in ("svg", "png"):
            of_figure = {*folder.glob(f"{name}.{ending}"), *folder.glob(f"{name}-*.{ending}")}
            for stale in of_figure - written:
                stale.unlink()


def _teacher_scores(plan: StudyPlan, runs: SharedRuns) -> dict[str, float]:
    """Task → its teacher's primary dev score; of a team none."""
    found = {}
    for task in plan.study.tasks:
        made = [study_estimate.held_or_none(runs, run.name) for run in plan.teachers_of(task)]
        scores = [one.primary_score() for one in made if one is not None]
        if len(made) == 1 and scores and scores[0] is not None:
            found[task] = scores[0]
    return found


def _about(plan: StudyPlan, results: StudyResults) -> list[tuple[str, list[str]]]:
    study = plan.study
    conditions = [f"From {study.paper}."] if study.paper else []
    conditions += [
        f"Tasks: {', '.join(study.tasks)}. Seeds: {', '.join(map(str, study.seeds))}.",
        f"Rows: {study.data}.",
    ]
    chosen = [line for choice in results.choices if (line := _chosen(choice))]
    took = f"{cells.duration(results.seconds)}, one after the other"
    cost = [f"{results.tried} finished runs, those not chosen included: {took}."]
    failed = [one for one in results.records.values() if one.status == "failed"]
    if failed:
        cost.append(f"{len(failed)} failed runs; the table names them.")
    if results.open:
        cost.append(f"{results.open} runs are still to be made.")
    found = [("Conditions", conditions), ("Chosen on dev", chosen), ("Runs", cost)]
    return [(heading, lines) for heading, lines in found if lines]


def _chosen(choice: Choice) -> str:
    if not choice.scores:
        return ""
    group = choice.group
    where = ", ".join([group.task, *(f"{k}={v}" for k, v in group.condition.items())])
    tried = "; ".join(
        f"{_settings(cell)}: {'failed' if score is None else f'{score:.1f}'}"
        for cell, score in choice.scores
    )
    return f"{group.label} on {where}: {_settings(choice.settings)} (primary dev score of {tried})"


def _settings(cell: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items())
