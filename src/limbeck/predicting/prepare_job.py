"""Everything that can be checked before the weights are read. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from limbeck.data.stream import RowStream
from limbeck.predicting.about_model import AboutModel, facts_of
from limbeck.predicting.partial_output import PartialOutput, check_target
from limbeck.predicting.predict_job import PredictJob
from limbeck.predicting.predict_settings import PredictSettings, reader_of
from limbeck.predicting.prediction_summary import Predictions
from limbeck.predicting.row_columns import kept_columns, text_columns
from limbeck.predicting.row_formats import SEPARATED, CsvForm, clash
from limbeck.predicting.row_reader import EMBEDDINGS, RowReader
from limbeck.support.errors import LimbeckError, Problem

Made = TypeVar("Made")


def prepare(
    model: str | Path,
    open_rows: Callable[[], RowStream],
    settings: PredictSettings,
    *,
    target: Path | None = None,
    form: str = "jsonl",
    backend: str | None = None,
    task: str | None = None,
) -> PredictJob:
    """Check everything that can be checked before the weights are read.

    Args:
        open_rows: opens the rows.
        target: the file to write.
        form: what is written where there is no file.

    Raises:
        LimbeckError: all that is wrong.
    """
    problems = settings.problems()
    facts = _tried(problems, lambda: facts_of(model, backend, task))
    stream = _tried(problems, open_rows)
    done = None if target is None else _done(problems, target, stream, settings)
    keep, columns = _columns(problems, facts, stream, settings)
    to_csv = (form if target is None else target.suffix.lower()[1:]) in SEPARATED
    reader = None if facts is None else _reader(problems, facts, settings, target, columns, to_csv)
    if problems or facts is None or stream is None or reader is None:
        raise LimbeckError(problems)
    out = (
        None
        if target is None
        else PartialOutput(target, keep, settings.prefix, csv_safe=settings.csv_safe)
    )
    job = PredictJob(facts, settings, open_rows, stream, columns, keep, reader, out, done)
    both = _written_names(job) & {*job.kept_names}
    if both:
        raise clash(both)
    return job


def _tried(problems: list[Problem], make: Callable[[], Made]) -> Made | None:
    try:
        return make()
    except LimbeckError as error:
        problems += error.problems
        return None


def _done(
    problems: list[Problem], target: Path, stream: RowStream | None, settings: PredictSettings
) -> Predictions | None:
    """What an earlier start finished, if it was killed behind the last row; else the target is checked."""
    wrong = check_target(target, () if stream is None else stream.files, overwrite=True)
    if wrong:
        problems += wrong
        return None
    said = PartialOutput(target, None, settings.prefix).is_done()
    if said is None:
        problems += check_target(target, (), overwrite=settings.overwrite)
        return None
    return Predictions(said["rows"], said["blank"], said["cut"], path=target)


def _columns(
    problems: list[Problem],
    facts: AboutModel | None,
    stream: RowStream | None,
    settings: PredictSettings,
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The columns that are kept, None for all, and those that the model reads."""
    if stream is None:
        return None, ()
    heads = stream.heads
    keep = _tried(problems, lambda: kept_columns(settings.keep, heads))
    if facts is None:
        return keep, ()
    only = settings.asked == {EMBEDDINGS}
    read = _tried(
        problems, lambda: text_columns(facts, heads, settings.text_columns, embeds_only=only)
    )
    return keep, read or ()


def _reader(
    problems: list[Problem],
    facts: AboutModel,
    settings: PredictSettings,
    target: Path | None,
    columns: tuple[str, ...],
    to_csv: bool,
) -> RowReader | None:
    """Who reads the rows, after what model and file cannot give is known."""
    problems += settings.problems_with(facts, target, to_csv)
    return _tried(problems, lambda: reader_of(facts, settings, len(columns) or 1))


def _written_names(job: PredictJob) -> set[str]:
    """The names of the predicted columns, also of those that CSV makes of one."""
    return {*CsvForm((), job.types, job.settings.prefix).header, *job.types}
