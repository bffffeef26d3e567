"""CIFAR's binary version: `train.bin` and `test.bin`, or `data_batch_1.bin` … of CIFAR-10.

A source of the data stage. A record is one label byte (CIFAR-100: the coarse, then the fine one) and
3,072 bytes of red, green and blue, row by row. The "python version" is pickled, and a pickle
can run code when it is read: it raises an error.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import Dataset, DatasetDict

from limbeck.data.images import ImageFolder, as_png
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.splits import check_splits, make_split, with_test_as_dev
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


class _Layout(NamedTuple):
    """A release's files, its bytes before the pixels, and names of the pickled release's files."""

    folder: str
    files: dict[str, tuple[str, ...]]
    label_bytes: int
    pickled: tuple[str, ...]


_LAYOUTS = {
    "cifar100": _Layout(
        "cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, 2, ("train", "test")
    ),
    "cifar10": _Layout(
        "cifar-10-batches-bin",
        {
            "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            "test": ("test_batch.bin",),
        },
        1,
        ("data_batch_1", "test_batch"),
    ),
}


@data_reader("cifar")
class CifarFiles(OnDisk):
    """The binary release of a known task."""

    def reads(self, request: DataRequest) -> bool:
        """A folder with files of a release, be it the pickled one."""
        known, path = request.known, request.path
        if known is None or known.name not in _LAYOUTS or request.names_columns:
            return False
        layout = _LAYOUTS[known.name]
        names = [*(name for files in layout.files.values() for name in files), *layout.pickled]
        return any(
            (home / name).is_file() for home in (path / layout.folder, path) for name in names
        )

    def read_rows(self, request: DataRequest) -> Loaded:
        """Its splits; for a folder without a complete release the task of its images."""
        known = request.known
        assert known is not None
        splits = read_cifar(known, request.path)
        if splits is None:
            return ImageFolder().read(request)
        check_splits(known, splits, request.text, for_training=request.for_training)
        return known, splits


def read_cifar(task: Task, root: Path) -> DatasetDict | None:
    """The splits of the binary release in `root` or its own folder there; None without any file.

    Raises LimbeckError for the pickled release, and for files that are damaged or missing.
    """
    layout = _LAYOUTS.get(task.name)
    if layout is None:
        return None
    for folder in (root / layout.folder, root):
        present = [name for names in layout.files.values() for name in names]
        if any((folder / name).is_file() for name in present):
            splits = DatasetDict(
                {
                    split: _read(task, [folder / name for name in names], layout.label_bytes)
                    for split, names in layout.files.items()
                }
            )
            return with_test_as_dev(task, splits)
        if all((folder / name).is_file() for name in layout.pickled):
            raise LimbeckError(
                f"{folder} holds the python version of {task.title}, which is pickled: reading it "
                "could run code",
                f"fetch the binary version ({layout.folder}), use --data hub, or write the images "
                "into folders named like their classes",
            )
    return None


def _read(task: Task, files: list[Path], label_bytes: int) -> Dataset:
    images, labels = [], []
    for file in files:
        records = _records(file, label_bytes + _PIXELS)
        found = records[:, label_bytes - 1]
        if found.max() >= len(task.labels):
            raise LimbeckError(
                f"{file}: a label is {found.max()}, and {task.title} has {len(task.labels)} classes",
                "the file is of another release, or damaged: fetch it again",
            )
        labels += found.tolist()
        pixels = records[:, label_bytes:].reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
        images += [as_png(np.ascontiguousarray(image)) for image in pixels]
    return make_split(task, {task.text_columns[0]: images}, labels)


def _records(file: Path, size: int) -> np.ndarray:
    """The records of a file, uint8 [n, size]."""
    try:
        content = np.fromfile(file, dtype=np.uint8)
    except OSError as error:
        raise LimbeckError(
            f"cannot read {file}: {error.strerror or error}", "fetch the release again"
        ) from error
    if not len(content) or len(content) % size:
        raise LimbeckError(
            f"{file} has {len(content)} bytes, which is not a multiple of the record size {size}",
            "the file is damaged: download it again",
        )
    return content.reshape(-1, size)
