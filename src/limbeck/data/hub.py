"""`--data hub`: tasks from the Hugging Face Hub, or from a folder laid out like a Hub repository.

A source of the data stage. The Hub's splits and label names are turned into limbeck's; everything
else about a task is the same as from any other source, because those follow the Hub.
"""

import re
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, load_dataset

from limbeck.data import encoding
from limbeck.data.reader import DataReader, DataRequest, Loaded, data_reader
from limbeck.data.splits import check_splits, make_split, with_held_out_dev, with_test_as_dev
from limbeck.support.errors import LimbeckError, first_line
from limbeck.support.files import at_home
from limbeck.tasks.task import HubSource, Task

# The Hub's split names; others (IMDb's "unsupervised") are left alone.
_SPLITS = {
    "train": "train",
    "validation": "dev",
    "validation_matched": "dev",
    "validation_mismatched": "dev_mismatched",
    "test": "test",
    "test_matched": "test",
    "test_mismatched": "test_mismatched",
}
# SciTail's SNLI format has been published with both spellings of its first class.
_ALIASES = {"scitail": {"entailment": "entails"}}


@data_reader("hub")
class Hub(DataReader):
    """The Hugging Face Hub, or a copy of a task's repository: `hub:DIR`."""

    own_tasks = False

    def reads(self, request: DataRequest) -> bool:
        """The word `hub`, alone or before a folder."""
        return request.text == "hub" or request.text.startswith("hub:")

    def read(self, request: DataRequest) -> Loaded:
        """A known task's splits."""
        task = request.known_task()
        root = None if request.text == "hub" else at_home(request.text.removeprefix("hub:"))
        if root is not None and not root.is_dir():
            raise LimbeckError(
                f"data source {request.text!r}: there is no folder {str(root)!r}",
                f"name a copy of the Hub's {task.hub.repository if task.hub else 'repository'}",
            )
        return task, _read(request, task, root)


def _read(request: DataRequest, task: Task, root: Path | None) -> DatasetDict:
    """The splits of a task from the Hub, or from a copy of its repository at or under `root`.

    A split whose labels are all −1, the Hub's sign for secret, comes out without labels.
    """
    source = task.hub
    if source is None:
        raise LimbeckError(
            f"task {task.name!r} is not on the Hub", "name its files with --data FILE"
        )
    with encoding.progress_bars(False):
        loaded = fetch(task, source, root)
    origin = f"{root or source.repository} ({source.config})"
    splits = DatasetDict()
    for name, split in loaded.items():
        if str(name) in _SPLITS:
            splits[_SPLITS[str(name)]] = _convert(task, source, split, f"{origin}, split {name}")
    if task.name == "imdb" and "dev" not in splits and "train" in splits:
        train = splits["train"]
        texts = {column: train[column][:] for column in task.text_columns}
        splits |= with_held_out_dev(task, texts, train[task.label_column][:], request.seed)
    splits = with_test_as_dev(task, splits)
    check_splits(task, splits, origin, for_training=request.for_training)
    return splits


def fetch(task: Task, source: HubSource, root: Path | None) -> DatasetDict:
    """A configuration's splits as they are there, from the Hub or a copy of its repository.

    Raises:
        LimbeckError: they cannot be had.
    """
    place = source.repository
    branch = {} if source.revision is None else {"revision": source.revision}
    files: dict[str, list[str]] = {}
    if root is not None:
        folder = _repository(source, root)
        place = str(folder)
        if not _lists_configs(folder):
            files = _parquet_files(folder / source.config)
            branch = {}
            if not files:
                raise LimbeckError(
                    f"task {task.name!r}: no parquet files in {folder / source.config}",
                    f"expected a copy of the Hub's {source.repository}, with files such as "
                    f"{source.config}/train-00000-of-00001.parquet",
                )
    try:
        if files:
            return load_dataset("parquet", data_files=files)
        return load_dataset(place, source.config, **branch)
    # The Hub's client and the readers behind it raise kinds of four libraries, which share no base class and change
    # between releases; all mean that the rows were not had, and the kind is part of the message.
    except Exception as error:
        reason = first_line(error)
        raise LimbeckError(
            f"task {task.name!r}: cannot load {place} ({source.config}): {type(error).__name__}: {reason}",
            "check the network and that HF_HUB_OFFLINE is not set; or use --data DIR with a GLUE "
            "folder, --data hub:DIR with a copy of the repository, or --data pocket, which needs no download",
        ) from error


def _repository(source: HubSource, root: Path) -> Path:
    """`root` itself, or the folder in it named like the repository."""
    for folder in (root / source.repository, root / source.repository.split("/")[-1]):
        if folder.is_dir():
            return folder
    return root


def _lists_configs(folder: Path) -> bool:
    card = folder / "README.md"
    return card.is_file() and "\nconfigs:" in card.read_text("utf-8", errors="replace")


def _parquet_files(folder: Path) -> dict[str, list[str]]:
    """Files of a configuration by split.

    From names such as `train-00000-of-00001.parquet`, or `train/0000.parquet` as on the branch of
    the Hub's own conversion.
    """
    files: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.parquet")):
        split = re.sub(r"-\d{5}-of-\d{5}.*$", "", file.stem)
        files.setdefault(split, []).append(str(file))
    for file in sorted(folder.glob("*/*.parquet")):
        files.setdefault(file.parent.name, []).append(str(file))
    return files


def _convert(task: Task, source: HubSource, split: Dataset, origin: str) -> Dataset:
    missing = [name for name in source.text_columns if name not in split.column_names]
    if missing:
        raise LimbeckError(
            f"task {task.name!r}: {origin} lacks the columns {', '.join(missing)}",
            f"columns that are there: {', '.join(split.column_names)}",
        )
    table = split.with_format("arrow")[:]
    renamed = zip(source.text_columns, task.text_columns, strict=True)
    texts = {ours: table.column(theirs) for theirs, ours in renamed}
    return make_split(task, texts, _labels(task, source, split, origin))


def _labels(task: Task, source: HubSource, split: Dataset, origin: str) -> list[Any] | None:
    """Class or tag ids in the task's order, numbers, or answers; None for a split without labels."""
    column = source.label_column
    if column not in split.column_names or column in source.text_columns:
        return None
    written = split[column][:]
    if all(label == -1 for label in written):
        return None
    if not task.labels:
        found: list[Any] | None = written
        return found
    feature = split.features[column]
    feature = getattr(feature, "feature", feature)
    named = isinstance(feature, ClassLabel) and set(feature.names) & set(task.labels)
    ids: dict[Any, int] = {name: place for place, name in enumerate(task.labels)}
    ids |= {alias: ids[name] for alias, name in _ALIASES.get(task.name, {}).items()}
    names = enumerate(feature.names if named else task.labels)
    ids |= {place: ids[name] for place, name in names if name in ids}
    rows = [row if isinstance(row, list) else [row] for row in written]
    strange = sorted({label for row in rows for label in row if label not in ids}, key=str)
    if strange:
        raise LimbeckError(
            f"task {task.name!r}: {origin} has the labels {', '.join(map(repr, strange[:5]))}",
            f"expected {', '.join(task.labels)}, as names or as ids",
        )
    return [[ids[label] for label in row] if isinstance(row, list) else ids[row] for row in written]
