"""From records to a table: rows, cells, averages.

Part of `limbeck.tables`; `tests_against` adds the paired comparisons, renderers print the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from limbeck.evaluation.compare import summary
from limbeck.records import RECORD_NAME, Record, is_collection, read_collection
from limbeck.records.words import agreement_said, grouped
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems, unknown
from limbeck.support.words import count_of
from limbeck.tables import against, model, notes, profiles
from limbeck.tables.facts import DEFAULT_FACTS, check_facts, facts_of, with_bench
from limbeck.tables.teachers import TeacherRow, share_kept, split_teachers

FLOOR = "words alone"
# Plain training, then plain distillation, then the rest by name.
_FIRST_METHODS = ("finetune", "kd", "kd-soft")


@dataclass
class _RowGroup:
    """The runs of one row."""

    label: str
    method: str
    layers: int | None
    variant: tuple[str, ...]
    runs: list[Record]
    scores: against.Scores

    @property
    def finished(self) -> list[Record]:
        """Those of its runs that have ended."""
        return [run for run in self.runs if run.status == "finished"]


def build_table(
    records: Sequence[Record],
    *,
    profile: str = "glue",
    baseline: against.Baseline | str | None = None,
    facts: Sequence[str] = DEFAULT_FACTS,
    by: Sequence[str] = (),
    out_of_domain: model.OutOfDomain = "beside",
    split: str | None = None,
    teachers_own: bool = False,
) -> model.ResultsTable:
    """Methods by tasks: mean and sample standard deviation over seeds, averages, facts, notes.

    A row is a method at one student depth and, with `by` (dotted recipe keys such as "lr"), at one
    value of each. With `baseline` (a method's name, or a `Baseline` with the type of test) every other row is
    tested against the baseline's row of the same depth (and the same `by` values where it has them). `split`
    shows another split's scores instead of dev's, for example test. With `teachers_own`, teachers are rows by runs
    of their own, and the one in a student's record serves only for the speedup. Raises
    LimbeckError for an unknown profile, baseline or fact column, or where there is nothing to show.
    """
    about = f"Profile {profile}: {profiles.get_profile(profile).summary}."
    check_facts(facts)
    tests = baseline if isinstance(baseline, against.Baseline) else against.Baseline(baseline)
    method = tests.method
    if not records:
        raise LimbeckError("there are no records to make a table of", "name one or more runs")
    said = model.split_note(records, split)
    records, bench = with_bench(records if split is None else model.on_split(records, split))
    timed = {}
    if teachers_own:
        whole = records
        records = [run.model_copy(update={"teacher": None}) for run in whole]
        timed = {id(run): own for run, own in zip(records, whole, strict=True)}
    teachers, students = split_teachers(records, profile)
    groups = _groups(students, by, profile)
    methods = sorted({group.method for group in groups})
    if method is not None and method not in methods:
        raise LimbeckError(unknown("baseline", method, methods))
    columns, left_out = _shown_columns(students, groups, teachers, profile, out_of_domain)
    named = {index: (g.method, g.layers, g.variant) for index, g in enumerate(groups)}
    comparisons, test_notes = against.compare_rows(
        named, {index: group.scores for index, group in enumerate(groups)}, tests, columns
    )
    rows = _teacher_rows(teachers, columns) + _floor_rows(students, columns, profile)
    averaged = [column.key for column in columns if column.in_average]
    for index, group in enumerate(groups):
        compared = {key: c for (row, key), c in comparisons.items() if row == index}
        other = None if method is None else against.baseline_of(named[index], named, method)
        found = facts_of(
            [run.student for run in group.runs],
            [timed.get(id(run), run) for run in group.finished],
            share_kept(group.finished, averaged, teachers, profile),
            [] if other is None else groups[other].finished,
        )
        cells = _cells(group.scores, columns)
        for column in columns:
            here = [run.status for run in group.runs if model.place_of(run) == column.place]
            cells[column.key] = replace(
                cells[column.key],
                failed=here.count("failed"),
                unfinished=here.count("running"),
                comparison=compared.get(column.key),
            )
        average = _average(group.scores, columns, compared.get(model.AVERAGE))
        is_baseline = group.method == method
        row = model.Row(group.label, "student", group.layers, cells, average, found, is_baseline)
        rows.append(row)
    follows = any(profiles.knows(run.task) for run in records)
    told = [about if follows else "", said, _seed_note(rows), *test_notes]
    told += left_out + _agreement_notes(students)
    told += notes.seen_notes(students) + notes.comparability_notes(students)
    told += notes.teacher_notes(students)
    rows_of = {id(run): index for index, group in enumerate(groups) for run in group.runs}
    told += notes.repeat_notes(students, lambda run: rows_of[id(run)])
    told += _floor_notes(students) if any(row.role == "floor" for row in rows) else []
    told += notes.latency_notes(students, bench) if "latency" in facts else []
    told += notes.failure_notes(students)
    return model.ResultsTable(
        title="",
        profile=profile,
        columns=tuple(columns),
        rows=tuple(rows),
        facts=tuple(facts),
        notes=tuple(note for note in told if note),
        baseline=method,
        follows_profile=follows,
    )


def _agreement_notes(students: Sequence[Record]) -> list[str]:
    """Which columns are no scores of labels."""
    found = {
        run.task: said for run in students if (said := agreement_said(run.examples)) is not None
    }
    return [
        f"{model.task_title(task)}: {said}; no labels were read." for task, said in found.items()
    ]


def _groups(students: Sequence[Record], by: Sequence[str], profile: str) -> list[_RowGroup]:
    groups = []
    rows = grouped(students, lambda run: (run.method, _layers(run), _variant(run, by)))
    for (method, layers, _), runs in rows.items():
        # Runs of one seed with other settings are no repetitions: a mean over them would be of no method.
        further = (*by, *notes.other_settings(runs))
        for variant, own in grouped(runs, lambda run: _variant(run, further)).items():  # noqa: B023
            label, scores = " ".join([method, *variant]), _scores_by_seed(own, profile)
            groups.append(_RowGroup(label, method, layers, variant, own, scores))
    return sorted(groups, key=_row_order)


def _row_order(group: _RowGroup) -> tuple[Any, ...]:
    known = _FIRST_METHODS
    place = known.index(group.method) if group.method in known else len(known)
    return (-(group.layers or 0), place, group.method, group.variant)


def _scores_by_seed(runs: Sequence[Record], profile: str) -> against.Scores:
    found: against.Scores = {}
    for seed, repeated in grouped(runs, lambda run: run.seed).items():
        values = [model.values_of(run, profile) for run in repeated if run.status == "finished"]
        for key in dict.fromkeys(key for one in values for key in one):
            mean = fmean(one[key] for one in values if key in one)
            found.setdefault(key, {})[seed] = mean
    return found


def _layers(run: Record) -> int | None:
    if run.student.layers is not None:
        return run.student.layers
    # A run that failed early has measured nothing; its recipe still names the row it belongs to.
    asked = (run.recipe.get("student") or {}).get("layers")
    if isinstance(asked, list):
        return len(asked)
    return asked if isinstance(asked, int) else None  # of an encoder-decoder one for each stack


def check_by(records: Sequence[Record], by: Sequence[str]) -> None:
    """Raises LimbeckError, all of them together, for settings that no record's recipe has."""
    known = sorted({key for record in records for key, _ in notes.dotted(record.recipe)})
    wrong = [unknown("setting to split rows by", path, known) for path in by if path not in known]
    raise_problems(wrong)


def _variant(run: Record, by: Iterable[str]) -> tuple[str, ...]:
    """The values of the settings; a group that the recipe lacks, such as a first stage, is left out."""
    said = []
    for path in by:
        *groups, last = path.split(".")
        value: Any = run.recipe
        for part in groups:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            said.append(f"{path}={value.get(last)}")
    return tuple(said)


def _shown_columns(
    students: Sequence[Record],
    groups: Sequence[_RowGroup],
    teachers: Sequence[TeacherRow],
    profile: str,
    out_of_domain: model.OutOfDomain,
) -> tuple[list[model.TableColumn], list[str]]:
    """Columns with values, and notes on finished runs that the profile leaves out."""
    all_columns = model.columns_of(students, profile, out_of_domain)
    scored = {key for group in groups for key in group.scores}
    scored |= {key for teacher in teachers for key in teacher.scores}
    # Without any score a column stays only for the failed and unfinished runs it has to show.
    finished = {model.place_of(run) for run in students if run.status == "finished"}
    shown = [c for c in all_columns if c.key in scored or c.place not in finished]
    places = {column.place for column in shown}
    left_out = {run.task: None for run in students if model.place_of(run) not in places}
    notes = [f"{model.task_title(task)} has no score under this profile." for task in left_out]
    if not shown:
        raise LimbeckError(
            "no run has a score under this profile", "choose another profile, or other runs"
        )
    return shown, notes


def _teacher_rows(
    teachers: Sequence[TeacherRow], columns: Sequence[model.TableColumn]
) -> list[model.Row]:
    """A row for each depth, width and size of embeddings: teachers of one shape are taken for the seeds of one."""
    rows = []
    shape = attrgetter("layers", "hidden_size", "embedding_parameters")
    shapes = grouped(teachers, lambda one: tuple(size or 0 for size in shape(one.facts)))
    for (depth, *_), own in sorted(shapes.items(), reverse=True):
        scores: against.Scores = {
            column.key: {
                n: t.scores[column.key] for n, t in enumerate(own) if column.key in t.scores
            }
            for column in columns
        }
        known = any(scores[column.key] for column in columns if column.in_average)
        facts = facts_of([teacher.facts for teacher in own], [], 100.0 if known else None)
        average = model.TableCell(_average(scores, columns, None).mean)
        cells = _cells(scores, columns)
        rows.append(model.Row("teacher", "teacher", depth or None, cells, average, facts))
    return rows


def _cells(
    scores: against.Scores, columns: Sequence[model.TableColumn]
) -> dict[str, model.TableCell]:
    """Mean and deviation over the seeds of each column."""
    found = {column.key: [*scores.get(column.key, {}).values()] for column in columns}
    return {key: model.TableCell(*summary(values), n=len(values)) for key, values in found.items()}


def _floor_rows(
    students: Sequence[Record], columns: Sequence[model.TableColumn], profile: str
) -> list[model.Row]:
    """What words alone reach on the runs' own rows: a row for each number of them and each teacher."""
    found: dict[tuple[int, str], against.Scores] = {}
    for run in students:
        if run.floor is None:
            continue
        by = "" if run.examples.labels is None else f", labels of {notes.teacher_of(run)}"
        own = found.setdefault((run.floor.given, by), {})
        for key, value in model.values_of(run, profile, run.floor.scores).items():
            own.setdefault(key, {})[run.seed] = value
    # If several tasks are columns, each has its own number of rows.
    apart = any(sum(column.key in scores for scores in found.values()) > 1 for column in columns)
    merged = {key: seeds for scores in found.values() for key, seeds in scores.items()}
    named = {
        f"{FLOOR}, {count_of(count, 'row')}{by}": found[count, by] for count, by in sorted(found)
    }
    shown = named if apart else {FLOOR: merged} if merged else {}
    return [
        model.Row(label, "floor", None, _cells(scores, columns), _average(scores, columns, None))
        for label, scores in shown.items()
    ]


def _floor_notes(students: Sequence[Record]) -> list[str]:
    """What words alone are, and whose labels they learned."""
    floors = [run.floor for run in students if run.floor is not None]
    labels = "labels" if any(one.taught < one.rows for one in floors) else "the teacher's labels"
    labels += ", the teacher's for unlabeled rows" * any(
        0 < one.taught < one.rows for one in floors
    )
    return [
        f"{FLOOR}: TF-IDF of words and pairs of words with a linear model, fitted on the runs' own training rows "
        f"and {labels}."
    ]


def _average(
    scores: against.Scores, columns: Sequence[model.TableColumn], comparison: Any
) -> model.TableCell:
    """Mean over tasks, where the row has them all; spread over the seeds that ran them all."""
    parts = [(one.weight, scores.get(one.key, {})) for one in columns if one.in_average]
    if not parts or not all(part for _, part in parts):
        return model.TableCell()
    mean = profiles.weighted_mean([(weight, fmean(part.values())) for weight, part in parts])
    shared = set.intersection(*(set(part) for _, part in parts))
    whole = sorted(shared) if all(set(part) == shared for _, part in parts) else []
    per_seed = [
        profiles.weighted_mean([(weight, part[seed]) for weight, part in parts]) for seed in whole
    ]
    deviation = summary([value for value in per_seed if value is not None])[1]
    return model.TableCell(mean, deviation, len(shared), comparison=comparison)


def _seed_note(rows: Sequence[model.Row]) -> str:
    counts = {c.n for row in rows if row.role == "student" for c in row.cells.values() if c.n}
    if not counts:
        return ""
    if len(counts) > 1:
        return (
            "Mean ± standard deviation (n − 1) over seeds; n is shown if it differs from the usual."
        )
    n = counts.pop()
    return f"Mean ± standard deviation (n − 1) over {n} seeds." if n > 1 else "One seed each."


# Finding the records of many runs. First step of `limbeck.tables`: folders in, records
# out; failed and unfinished runs stay in.


def collect(paths: Iterable[str | Path]) -> list[Record]:
    """All records in the given run folders, folders of runs (at any depth), record files and
    files of many records (`.jsonl.gz`).

    Each file once, in the order of the paths and then of the names. Raises LimbeckError that lists
    every path without a record and every file that is not one, so that no run is left out silently.
    """
    files: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if _holds_records(file))
            if not found:
                problems.append(
                    Problem(f"no {RECORD_NAME} anywhere in {path}", "name a folder that holds runs")
                )
            files.update((file.resolve(), None) for file in found)
        elif path.exists():
            files[path.resolve()] = None
        else:
            problems.append(Problem(f"no such file or folder: {path}", "check the path"))
    records: list[Record] = []
    for file in files:
        with collecting(problems):
            records += (
                read_collection(file).values() if is_collection(file) else [Record.load(file)]
            )
    raise_problems(problems)
    if not records:
        raise LimbeckError("no runs were named", "name one or more run folders")
    return records


def _holds_records(file: Path) -> bool:
    return file.name == RECORD_NAME or is_collection(file)
