"""One door to all data: `load_task("mrpc", "hub")`, whatever the source.

The top of the data stage; the engine and the command line come in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datasets import DatasetDict

from limbeck.data.digits import read_digits
from limbeck.data.glue_folder import contents, expected_files, read_folder, task_folders
from limbeck.data.hub import read_hub
from limbeck.data.image_folder import read_images
from limbeck.data.own import has_own_files, read_own
from limbeck.data.own_kinds import read_own_kind
from limbeck.data.own_labels import Labelling
from limbeck.data.splits import check_splits
from limbeck.data.tables import MAX_ROWS
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.files import at_home
from limbeck.given import place_of
from limbeck.tasks import IMAGE, SENTENCE, TaskType, get_task_type
from limbeck.tasks.task import TASKS, Task, as_kind, get_task

_ANY = Labelling()
DIGITS = "digits"
"""The data source, and the name of the one task it holds."""


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
    progress: bool = False,
    max_rows: int = MAX_ROWS,
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
      as objects (`limbeck.given`). Then `text_columns` and
      `label_column` name its columns, and `name` may be any name or None.

    `kind` says what the answer of a task of the user's own is (`limbeck.tasks`), by default a class
    or number; a known task of classes can be had as kind "text". `labelling` says what is known of
    the user's own classes: their order, or that of a teacher.

    `seed` draws the dev split where a source has none, and pocket data; it is the data's seed, so
    runs that are compared share it. With `for_training=False` one labelled split is enough and a
    single file is a dev split as a whole. `progress` shows the bars of downloads. `max_rows`: of a file of the
    user's own; more are refused. Raises
    LimbeckError for an unknown task, a missing or damaged source, and columns that do not fit.
    """
    if labelling.problems():
        raise LimbeckError(labelling.problems())
    text = str(source)
    if text == DIGITS:
        name = name or DIGITS
    if text in (DIGITS, "pocket", "hub") or text.startswith("hub:"):
        task, splits = _named(name, text, text_columns, label_column, seed, for_training, progress)
        _need_no_labelling(task, labelling)
        return as_kind(task, kind), splits
    try:
        path = at_home(place_of(source))
    except RuntimeError:  # ~ and the name of no user
        path = Path(source)
    if not path.exists():
        raise LimbeckError(
            f"data source {text!r}: there is no such file or folder",
            "choices: hub, hub:DIR, pocket, digits, a folder in GLUE's layout, or a file of your own",
        )
    known = _known(name, text_columns, label_column)
    wanted = (
        get_task_type(kind) if kind is not None else known.kind if known is not None else SENTENCE
    )
    try:
        columns = (text_columns, label_column)
        task, splits = _from_path(
            name, path, columns, wanted, labelling, seed, for_training, max_rows
        )
        return as_kind(task, kind), splits
    except OSError as error:
        raise LimbeckError(
            f"data source {text!r}: {error.strerror or error}", "check the permissions of its files"
        ) from error


def _known(
    name: str | None, text_columns: Sequence[str] | None, label_column: str | None
) -> Task | None:
    """The known task of that name; a table with named columns is no set of images."""
    task = TASKS.get(name) if name is not None else None
    columns = bool(text_columns) or label_column is not None
    return None if task is not None and task.kind is IMAGE and columns else task


def _from_path(
    name: str | None,
    path: Path,
    columns: tuple[Sequence[str] | None, str | None],
    kind: TaskType,
    labelling: Labelling,
    seed: int,
    for_training: bool,
    max_rows: int,
) -> tuple[Task, DatasetDict]:
    """Released files of a known task, or the user's own."""
    text_columns, label_column = columns
    known = _known(name, text_columns, label_column)
    if known is not None:
        as_kind(known, kind.name)  # refuses a known task of another kind
        _need_no_labelling(known, labelling)
    if kind is IMAGE:
        if text_columns or label_column is not None:
            raise LimbeckError(
                "text_columns, label_column: a folder of images has no columns", "leave them out"
            )
        return read_images(
            name, path, known=known, labelling=labelling, seed=seed, for_training=for_training
        )
    if not kind.has_classes:
        return read_own_kind(
            name,
            path,
            kind,
            known=known,
            text_columns=text_columns,
            label_column=label_column,
            labelling=labelling,
            seed=seed,
            for_training=for_training,
            max_rows=max_rows,
        )
    own = bool(text_columns) or label_column is not None
    if path.is_dir() and not own:
        if known is None:
            raise LimbeckError(_unknown_in_folder(name))
        splits = read_folder(known, path, seed=seed, for_training=for_training)
        if splits is not None:
            return known, splits
        path = _own_folder(known, path)
    return read_own(
        name,
        path,
        known=known,
        text_columns=text_columns,
        label_column=label_column,
        labelling=labelling,
        seed=seed,
        for_training=for_training,
        max_rows=max_rows,
    )


def _need_no_labelling(task: Task, labelling: Labelling) -> None:
    """Raise LimbeckError for classes given to a task that has its own."""
    if labelling.classes or labelling.holds:
        key = "classes" if labelling.classes else "labels"
        own = f"the classes {', '.join(task.labels)}" if task.labels else "no classes"
        raise LimbeckError(
            f"{key}: task {task.name!r} is known and has {own}",
            "leave it out, or give your own data another task's name",
        )


def _named(
    name: str | None,
    source: str,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    seed: int,
    for_training: bool,
    progress: bool,
) -> tuple[Task, DatasetDict]:
    """A known task from the Hub or from the generated ones."""
    if name is None:
        raise LimbeckError("no task is named", f"choices: {', '.join(TASKS)}")
    task = get_task(name)
    if text_columns or label_column is not None:
        raise LimbeckError(
            f"data source {source!r} has its own columns; text and label columns cannot be named",
            "leave text_columns and label_column out, or name a file of your own as data",
        )
    if source == DIGITS:
        if task.name != DIGITS:
            raise LimbeckError(
                f"data source {DIGITS} holds the task {DIGITS}, not {name!r}", "leave task out"
            )
        return task, read_digits(task)
    if source != "pocket":
        root = at_home(source.removeprefix("hub:")) if source != "hub" else None
        if root is not None and not root.is_dir():
            raise LimbeckError(
                f"data source {source!r}: there is no folder {str(root)!r}",
                f"name a copy of the Hub's {task.hub.repository if task.hub else 'repository'}",
            )
        return task, read_hub(task, root, seed=seed, for_training=for_training, progress=progress)
    # Lazy, because the grammar is not needed for real data.
    from limbeck.data import pocket

    splits = pocket.load(name, seed=seed)
    check_splits(task, splits, "pocket", for_training=for_training)
    return task, splits


def _unknown_in_folder(name: str | None) -> Problem:
    own = "for data of your own name --text-columns and --label-column"
    if name is None:
        return Problem("no task is named", f"choices: {', '.join(TASKS)}; {own}")
    problem = unknown("task", name, list(TASKS))
    return Problem(problem.message, f"{problem.fix}; {own}")


def _own_folder(task: Task, root: Path) -> Path:
    """Where a known task lies as CSV, JSON lines or Parquet under `root`."""
    for folder in task_folders(root, (task.name, task.title)):
        if has_own_files(folder):
            return folder
    raise LimbeckError(
        f"task {task.name!r}: none of its files is in {root}, which holds "
        f"{', '.join(contents(root))}",
        f"expected {expected_files(task)}, or the same files in {root} itself",
    )
