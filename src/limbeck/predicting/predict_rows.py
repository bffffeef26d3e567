"""`predict(model, data)`: a model's predictions about rows of any length. The top of `limbeck.predicting`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset

from limbeck.data import NOTHING_NAMED, RowsAsked
from limbeck.data.files import form_of
from limbeck.data.stream import RowStream, named_files
from limbeck.functional.labels import NO_LABEL
from limbeck.labelling.language_models.endpoint_settings import EndpointAccess
from limbeck.predicting.job import Predictions, prepare
from limbeck.predicting.settings import PredictSettings
from limbeck.scoring.scored_model import ScoredModel
from limbeck.support import files, terminal
from limbeck.support.errors import LimbeckError
from limbeck.tasks import Task
from limbeck.tasks.metrics import TEACHER_LABEL


def predict(
    model: str | Path,
    data: str | Path | Sequence[str | Path] | Iterable[Any],
    *,
    to: str | Path | None = None,
    endpoint: EndpointAccess | None = None,
    show: bool = False,
    **settings: Any,
) -> Predictions:
    """Predict rows: labels, scores, probabilities, logits or embeddings, in the rows' order.

    Args:
        model: a run folder, a checkpoint's folder or Hub name, an exported folder.
        data: a file, a pattern of names or a folder of CSV, TSV, JSON lines, Parquet, plain text or images, several of
            them, or `-` for standard input; or rows themselves: a list of texts or of dictionaries, a
            `datasets.Dataset`, a pandas DataFrame.
        to: the file to write (.jsonl, .csv, .parquet); without it the rows are returned.
        endpoint: the server of a cascade's slow model, for rows that are sent on and not stored.
        show: print progress and a summary on standard error.
        settings: of `limbeck.predicting.settings.PredictSettings`: output, text_columns, keep, batch_size, ….

    Example:
        ```python
        for row in limbeck.predict("runs/student", ["who wrote it?", "where is it?"]):
            print(row["prediction"])
        limbeck.predict("runs/student", "more.csv", to="predictions.csv")
        ```

    Raises:
        LimbeckError: whatever is wrong with model, rows or settings.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    asked, target = PredictSettings.checked(given), None if to is None else files.at_home(to)
    job = prepare(
        model, lambda: _stream(data, asked.format), asked, endpoint=endpoint, target=target
    )
    console = terminal.messages(shown=show)
    return job.collect(console) if target is None else job.write_file(target, console)


def _stream(data: Any, kind: str | None) -> RowStream:
    """Files that are named, or rows that are given."""
    if isinstance(data, str | Path):
        return RowStream(named_files([data]), kind)
    if isinstance(data, list | tuple) and data and all(isinstance(one, Path) for one in data):
        return RowStream(named_files(data), kind)
    _check_texts(data)
    if isinstance(data, Mapping):
        if len({len(values) for values in data.values()}) > 1:
            raise LimbeckError(
                "data: the columns are of different lengths", "give rows, or equal ones"
            )
        data = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    elif type(data).__name__ == "DataFrame":
        # Through Arrow, which distinguishes a missing value from NaN.
        data = pa.Table.from_pandas(data, preserve_index=False).to_pylist()
    elif not isinstance(data, Iterable):
        raise LimbeckError(
            f"data: found {type(data).__name__}, expected files or rows",
            "give a file's name, a list of texts or of dictionaries, a Dataset or a DataFrame",
        )
    return RowStream.of_objects("data", data)


def _check_texts(data: Any) -> None:
    """Raise LimbeckError for a list of files' names, which would be predicted as texts."""
    first = data[0] if isinstance(data, list | tuple) and data else None
    if not isinstance(first, str) or "\n" in first or form_of(Path(first)) is None:
        return
    # os.path, as a long text is an error to pathlib.
    if all(isinstance(one, str) and os.path.isfile(one) for one in data):  # noqa: PTH113
        raise LimbeckError(
            f"data: {first!r} is a file's name, and a list of texts holds the texts themselves",
            'give the files as Path("…"), or rows {"text": …} where the names are meant',
        )


# A model's predictions for an entire split, in a file: also for rows without labels.


def write_predictions(
    model: str | Path,
    to: str | Path,
    asked: RowsAsked = NOTHING_NAMED,
    *,
    overwrite: bool = False,
    show: bool = False,
    **how: Any,
) -> tuple[Predictions, bool]:
    """Write the texts of a split, its labels where it has them, the predicted label and all probabilities.

    Args:
        model: a finished run's folder, a checkpoint's folder or Hub name, or an exported folder.
        to: the file: .jsonl, .csv or .parquet.
        asked: the requested rows, of any existing split.
        overwrite: replace the file.
        show: print progress.
        how: `backend` and `device_map`, as `predict` takes them.

    Returns:
        The predictions, and whether the split has labels.

    Raises:
        LimbeckError: no such split, or whatever is wrong with model and rows.
    """
    loaded = ScoredModel.open(model, how.get("backend")).rows(asked, labeled=False)
    task = loaded.task
    by_class = bool(task.kind.row_classes(task)) and not task.kind.generates
    rows = _named(task, loaded.rows) if task.labels else loaded.rows.remove_columns("index")
    # A file of the user's own is written with the names that it has.
    own = dict(zip(task.text_columns, loaded.text_columns or (), strict=False))
    if loaded.labeled and loaded.label_column not in (None, TEACHER_LABEL):
        own[task.label_column] = loaded.label_column
    rows = rows.rename_columns({ours: theirs for ours, theirs in own.items() if ours != theirs})
    columns = [own.get(one, one) for one in task.text_columns]
    columns = columns[: 1 if task.kind.continues_texts else None]
    if not task.kind.reads.in_columns:
        rows, how["keep"] = _by_path(rows, columns[0])
    found = predict(
        model,
        rows,
        to=to,
        **how,
        text_columns=columns,
        output=["labels", "probabilities"] if by_class else ["labels"],
        overwrite=overwrite,
        show=show,
    )
    return found, loaded.labeled


def _by_path(rows: Dataset, column: str) -> tuple[Dataset, list[str]]:
    """Rows of images with the paths of their files, and the columns to write: no image's bytes."""
    others = [name for name in rows.column_names if name != column]
    paths = [picture["path"] for picture in rows[column][:]]
    if None in paths:
        return rows, others
    return rows.remove_columns(column).add_column(column, paths), [column, *others]


def _named(task: Task, rows: Dataset) -> Dataset:
    """The rows with the names of their classes, or of each word's, instead of ids, and without the row number."""
    of_words = not task.kind.row_classes(task)
    kept = rows.remove_columns("index")
    if task.label_column not in rows.column_names:
        return kept
    names: list[Any] = []
    for label in rows[task.label_column][:]:
        if of_words:
            names.append([task.labels[one] for one in label])
            continue
        name = task.kind.written_label(task, label)
        names.append(None if name == NO_LABEL else name)
    return kept.remove_columns(task.label_column).add_column(task.label_column, names)
