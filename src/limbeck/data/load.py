"""One door to all data: `load_task("mrpc", "hub")`, whatever the source.

The top of the data stage; the engine and the command line come in here.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from datasets import DatasetDict

from limbeck.data.label_column import Labelling
from limbeck.data.reader import DATA_READERS, DataReader, DataRequest, reader_of
from limbeck.data.splits import AS_USUAL, Division, with_label_column
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, no_such_file
from limbeck.tasks.abstract_type import get_task_type
from limbeck.tasks.metrics import TEACHER_LABEL
from limbeck.tasks.task import Task, as_kind, judged_by_teacher

_ANY = Labelling()
# OWNER/NAME, as datasets of the Hub are called.
_DATASET = re.compile(r"[\w-]+/[\w-]+(\.\d[\w.-]*)?")
# The sources of the core; each registers itself. They are imported when data are first read.
# Files come first, and sources that are named by a word later: the later a source comes here, the earlier it is tried.
_SHIPPED = (
    "limbeck.data.own",
    "limbeck.data.own_kinds",
    "limbeck.data.several_labels",
    "limbeck.data.images",
    "limbeck.data.sentences",
    "limbeck.data.pairs",
    "limbeck.data.hub",
)


def load_task(
    name: str | None,
    source: str | Path,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    kind: str | None = None,
    labelling: Labelling = _ANY,
    seed: int = 0,
    for_training: bool = True,
    division: Division = AS_USUAL,
) -> tuple[Task, DatasetDict]:
    """A task and its splits: train, dev (dev_mismatched for MNLI), and test where there is one.

    Each split holds the task's text columns, "label" (class id or number; a test split may have
    none) and "index", the row number. `source` is one of

    - "hub": the Hugging Face Hub, or "hub:DIR" for a copy of the task's repository;
    - "pocket": the generated tasks that come with limbeck;
    - "digits": scikit-learn's handwritten digits;
    - a folder of images, for a known task of images or with `kind="image"`;
    - a folder in GLUE's layout, either of all tasks or the task's own;
    - a file, or a folder with a train file, of the user's own, or the reference of rows that were given
      as objects (`limbeck.support.given`). Then `text_columns` and
      `label_column` name its columns, and `name` may be any name or None;
    - any source of a registered reader (`limbeck.data_reader`), which is tried first.

    `kind` is the task type of a task of the user's own (`limbeck.tasks`), by default a class
    or number; a known task of classes can be had as kind "text". `labelling` contains the known facts about
    the user's own classes: their order, or the teacher's.

    `seed` draws the dev and test splits where a source lacks them, and pocket data; it is the data's seed, so
    runs that are compared share it. With `for_training=False` one labelled split is enough and a
    single file is a dev split as it is. `division`: where dev and test rows come from. Raises
    LimbeckError for an unknown task, a missing or damaged source, and columns that do not fit.
    """
    if kind is not None:
        labelling = replace(labelling, ordered=get_task_type(kind).ordered)
    if labelling.problems():
        raise LimbeckError(labelling.problems())
    columns = tuple(text_columns or ()), label_column
    request = DataRequest(name, source, *columns, kind, labelling, seed, for_training, division)
    try:
        reader = _reader(request)
        files = ("dev", "test") if not reader.takes_dev else ()
        shares = ("dev_share", "test_share", "group_column") if not reader.divides else ()
        if useless := [key for key in division.given if key in (*files, *shares)]:
            raise LimbeckError(
                f"{', '.join(useless)}: data source {request.text!r} has its own splits",
                f"leave {' and '.join(useless)} out; {'it is' if len(useless) == 1 else 'they are'} for files of "
                "your own",
            )
        task, splits = reader.read(request)
    except OSError as error:
        raise LimbeckError(
            f"data source {request.text!r}: {error.strerror or error}",
            "check the permissions of its files",
        ) from error
    task = as_kind(task, kind)
    if label_column == TEACHER_LABEL:
        task = judged_by_teacher(task)
    if for_training and "train" in splits:
        splits["train"] = with_label_column(task, splits["train"])
    return task, splits


def has_own_tasks(source: str | Path) -> bool:
    """Whether a source may hold tasks that limbeck does not know, without columns being named."""
    reader = source_of(source)
    return reader is not None and reader.own_tasks


def is_absent(source: str | Path) -> bool:
    """Whether no reader finds a source, whatever the request."""
    return source_of(source) is None


def source_of(source: str | Path) -> DataReader | None:
    """The reader of a source, whatever the request; None if no reader reads it."""
    register_shipped()
    return reader_of(DataRequest(None, source))


def _reader(request: DataRequest) -> DataReader:
    register_shipped()
    reader = reader_of(request)
    if reader is None:
        raise LimbeckError(no_source(request.text))
    return reader


def no_source(data: str) -> Problem:
    """Say that nothing is there under the name of a source."""
    if _DATASET.fullmatch(data) and not at_home(data).parent.is_dir():
        return Problem(
            f"data: there is no such file or folder: {data}; of the Hub, known tasks alone are read by name",
            "for a known task --data hub --task NAME; of another dataset save a split as a file "
            '(load_dataset(…)["train"].to_csv("train.csv")), or give it to limbeck.distill in Python',
        )
    also = "; data may also be hub, hub:DIR, pocket, digits or a folder in GLUE's layout"
    return no_such_file("data", data, what="such file or folder:", also=also)


@cache
def register_shipped() -> None:
    """Make the sources known that come with limbeck."""
    for module in _SHIPPED:
        import_module(module)
    DATA_READERS.load()
