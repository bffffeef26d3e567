"""`--data DIR` of pictures: a folder a class, in `train`, and `dev` (validation) or `test` if there are any.

A source of the data stage. The files are found by the datasets library's own reader of such folders
and opened when they are encoded.
"""

from __future__ import annotations

from pathlib import Path

from datasets import ClassLabel, Dataset, DatasetDict, load_dataset

from limbeck.data.bars import progress_bars
from limbeck.data.cifar import read_cifar
from limbeck.data.folder import contents
from limbeck.data.splits import check_splits, make_split, with_held_out_dev, with_test_as_dev
from limbeck.data.tasks import Task, image_metrics
from limbeck.errors import LimbeckError
from limbeck.kinds import IMAGE

_SPLITS = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}


def read_images(
    name: str | None,
    path: Path,
    *,
    known: Task | None = None,
    seed: int = 0,
    for_training: bool = True,
) -> tuple[Task, DatasetDict]:
    """The task and splits of a folder of pictures, or of CIFAR's binary files.

    Classes are the folders' names in alphabetical order, of a `known` task its own. Without a dev
    folder a seeded tenth of train is held out. Raises LimbeckError for a folder without pictures,
    for a class that train has not, and for CIFAR's pickled files.
    """
    if not path.is_dir():
        raise LimbeckError(
            f"data source {str(path)!r} is a file",
            "images come as a folder: DIR/train/CLASS/*.png, or CIFAR's binary files",
        )
    splits = None if known is None else read_cifar(known, path)
    task = known
    if splits is None:
        found = {split: _read(folder) for split, folder in _folders(path).items()}
        task = known or _new_task(name or path.resolve().name, found["train"])
        splits = DatasetDict({split: _split(task, rows, path) for split, rows in found.items()})
        splits = with_test_as_dev(task, splits)
        if "dev" not in splits:
            splits = _with_dev(task, splits, seed)
    assert task is not None
    check_splits(task, splits, str(path), for_training=for_training)
    return task, splits


def _folders(path: Path) -> dict[str, Path]:
    """The folder of each split; a folder of classes alone is train."""
    found = {}
    for split, names in _SPLITS.items():
        there = [path / name for name in names if (path / name).is_dir()]
        if len(there) > 1:
            raise LimbeckError(
                f"{path} has several {split} folders: {', '.join(f.name for f in there)}",
                "keep one of them",
            )
        if there:
            found[split] = there[0]
    if not found:
        return {"train": path}
    if "train" not in found:
        raise LimbeckError(
            f"{path} has no train folder; it holds {', '.join(contents(path))}",
            "expected train/CLASS/*.png, and dev (or validation) and test if there are any",
        )
    return found


def _read(folder: Path) -> Dataset:
    """Pictures and their class names as the datasets library finds them."""
    try:
        with progress_bars(False):
            # A split of its own name, so that folders named like splits inside are classes.
            rows = load_dataset(
                "imagefolder", data_files={"train": str(folder / "*" / "*")}, split="train"
            )
    # The builder raises many kinds, which change between its releases; all mean "not had".
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"no pictures can be read from {folder}, which holds {', '.join(contents(folder))}: "
            f"{reason}",
            f"expected {folder}/CLASS/*.png (or .jpg, …), a folder a class",
        ) from error
    if not isinstance(rows.features.get("label"), ClassLabel):
        raise LimbeckError(
            f"{folder} holds pictures of a single class, or of none",
            f"expected {folder}/CLASS/*.png with a folder for each of two classes or more",
        )
    return rows


def _new_task(name: str, train: Dataset) -> Task:
    labels = tuple(train.features["label"].names)
    return Task(name, name, ("image",), labels, image_metrics(len(labels)), "accuracy", kind=IMAGE)


def _split(task: Task, rows: Dataset, path: Path) -> Dataset:
    names = rows.features["label"].names
    strange = sorted(set(names) - set(task.labels))
    if strange:
        raise LimbeckError(
            f"{path}: the class {strange[0]!r} is none of the task's",
            f"classes: {', '.join(task.labels[:20])}",
        )
    table = rows.with_format("arrow")[:]
    ids = [task.labels.index(name) for name in names]
    labels = [ids[label] for label in table.column("label").to_pylist()]
    return make_split(task, {task.text_columns[0]: table.column("image").to_pylist()}, labels)


def _with_dev(task: Task, splits: DatasetDict, seed: int) -> DatasetDict:
    train = splits["train"]
    column = task.text_columns[0]
    held = with_held_out_dev(task, {column: train[column][:]}, train[task.label_column][:], seed)
    return DatasetDict({**splits, **held})
