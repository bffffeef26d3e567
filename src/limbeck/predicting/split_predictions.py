"""A model's predictions of a whole split, in a file: also of rows without labels. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from limbeck.data import Division, Labelling, load_task
from limbeck.predicting.predict_rows import predict
from limbeck.predicting.prediction_summary import Predictions
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run.run_folder import RunFolder
from limbeck.scoring.scored_model import student_labelling
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tasks import Task


def write_predictions(
    model: str | Path,
    to: str | Path,
    task: str | None = None,
    data: str | None = None,
    *,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    backend: str | None = None,
    overwrite: bool = False,
    show: bool = False,
) -> tuple[Predictions, bool]:
    """Write the texts of a split, its labels where it has them, the predicted label and all probabilities.

    Args:
        model: a finished run's folder, a checkpoint's folder or Hub name.
        to: the file: .jsonl, .csv, .tsv or .parquet.
        task: as `limbeck.evaluate`'s, like the following ones.
        data: likewise.
        split: likewise, of any that is there.
        text_columns: likewise.
        label_column: likewise.
        backend: likewise.
        overwrite: replace the file.
        show: print progress.

    Returns:
        What was predicted, and whether the split has labels.

    Raises:
        LimbeckError: no such split, or whatever is wrong with model and rows.
    """
    recipe = _recipe_of(model)
    if recipe is None and data is None:
        raise LimbeckError(
            f"{model} is no run of limbeck's, and a checkpoint does not say which rows are meant",
            "add --task and --data",
        )
    own = recipe is not None and task in (None, recipe.task)
    known = recipe if own else None
    target, splits = load_task(
        task or (known.task if known else None),
        data or (known.data if known else "hub"),
        text_columns=text_columns or (known.text_columns if known else None),
        label_column=label_column or (known.label_column if known else None),
        kind=known.kind if known else None,
        labelling=student_labelling(known, RunFolder(Path(model))) if known else Labelling(),
        for_training=known is not None and data is None,
        division=known.division if known and data is None else Division(),
    )
    chosen = split or (target.evaluation_splits(splits) or tuple(splits))[0]
    if chosen not in splits:
        raise LimbeckError(unknown("split", chosen, list(splits)))
    rows = splits[chosen]
    by_class = bool(target.labels) and target.kind.labels_examples
    found = predict(
        model,
        _named(target, rows) if by_class else rows.remove_columns("index"),
        to=to,
        backend=backend,
        text_columns=target.text_columns,
        output=["labels", "probabilities"] if by_class else ["labels"],
        overwrite=overwrite,
        show=show,
    )
    return found, target.label_column in rows.column_names


def _named(task: Task, rows: Dataset) -> Dataset:
    """The rows with their classes' names in place of ids, and without the row number."""
    kept = rows.remove_columns("index")
    if task.label_column not in rows.column_names:
        return kept
    names: list[Any] = []
    for label in rows[task.label_column][:]:
        if task.kind.several_classes:
            own = [name for name, one in zip(task.labels, label, strict=True) if one == 1]
            names.append(None if any(one != one for one in label) else own)
        else:
            names.append(task.labels[label] if label >= 0 else None)
    return kept.remove_columns(task.label_column).add_column(task.label_column, names)


def _recipe_of(model: str | Path) -> Recipe | None:
    """The recipe of a finished run; None of what is no run."""
    folder = Path(model)
    if not (folder / RECORD_NAME).is_file():
        return None
    return Recipe.recorded(Record.load(folder).recipe, str(folder))
