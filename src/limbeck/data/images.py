"""`--data DIR` of images: a folder a class, in `train`, and `dev` (validation) or `test` if there are any.

A source of the data stage. Files are opened when they are encoded. The datasets library's own reader
of such folders takes brackets in their names for patterns, and copies into its cache.
"""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from limbeck.data.glue import contents
from limbeck.data.label_column import Labelling, class_order
from limbeck.data.own import Rows, made_splits, split_places
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.support.errors import LimbeckError
from limbeck.tasks import IMAGE
from limbeck.tasks.task import Task, image_metrics

_Found = dict[str, list[Path]]
"""Class name → its images."""


@data_reader("images")
class ImageFolder(OnDisk):
    """A folder of images, a folder a class."""

    divides = True

    def reads(self, request: DataRequest) -> bool:
        """Requests for images."""
        return super().reads(request) and not request.task_type.reads.in_columns

    def read_rows(self, request: DataRequest) -> Loaded:
        """The files under the name of their class.

        Classes are the folders' names, in the order that `labelling` knows or in alphabetical order; a known task keeps
        its own. Without a dev or a test folder `division` sets the share of train that is held out.
        """
        path = request.path
        if request.names_columns:
            raise LimbeckError(
                "text_columns, label_column: a folder of images has no columns", "leave them out"
            )
        if not path.is_dir():
            raise LimbeckError(
                f"data source {str(path)!r} is a file",
                "images come as a folder: DIR/train/CLASS/*.png, or CIFAR's binary files",
            )
        if request.division.group_column is not None:
            raise LimbeckError("group_column: a folder of images has no columns", "leave it out")
        found = {split: _read(folder) for split, folder in _folders(path).items()}
        task = request.known or _new_task(
            request.name or path.resolve().name, found["train"], request.labelling
        )
        rows = {split: _rows(task, classes, path) for split, classes in found.items()}
        if task.dev_is_test:
            if "test" in rows and "dev" not in rows:
                rows["dev"] = rows.pop("test")
            share = request.division.test_share or 0.0
            request = replace(request, division=request.division._replace(test_share=share))
        return task, made_splits(request, task, rows)


def _folders(path: Path) -> dict[str, Path]:
    """The folder of each split; a folder of classes alone is train."""
    found = split_places(path, "folders", lambda place: place.name if place.is_dir() else None)
    if not found:
        return {"train": path}
    if "train" not in found:
        raise LimbeckError(
            f"{path} has no train folder; it holds {', '.join(contents(path))}",
            "expected train/CLASS/*.png, and dev (or validation) and test if there are any",
        )
    return found


def _read(folder: Path) -> _Found:
    """Every class's images, in alphabetical order; a class of none is no class."""
    suffixes = Image.registered_extensions()
    classes: _Found = {}
    for home in sorted(child for child in folder.iterdir() if child.is_dir()):
        files = sorted(f for f in home.iterdir() if f.suffix.lower() in suffixes)
        if files:
            classes[home.name] = files
    if len(classes) < 2:
        raise LimbeckError(
            f"{folder} holds images of {len(classes)} classes; in it: {', '.join(contents(folder))}",
            f"expected {folder}/CLASS/*.png (or .jpg, …), with two classes or more",
        )
    return classes


def _new_task(name: str, train: _Found, labelling: Labelling) -> Task:
    labels = class_order(tuple(train), labelling, "the train folder")
    return Task(name, name, ("image",), labels, image_metrics(len(labels)), "accuracy", kind=IMAGE)


def _rows(task: Task, found: _Found, path: Path) -> Rows:
    strange = sorted(found.keys() - set(task.labels))
    if strange:
        raise LimbeckError(
            f"{path}: the class {strange[0]!r} is not a class of the task",
            f"classes: {', '.join(task.labels[:20])}",
        )
    files = [(file, task.labels.index(name)) for name, own in found.items() for file in own]
    images = [{"bytes": None, "path": str(file)} for file, _ in files]
    return Rows({task.text_columns[0]: images}, [label for _, label in files])


# Images as rows hold them: an encoded file's bytes, or the path of one. Part of the data stage,
# below the readers of images. They have the form of `datasets.Image`, not yet decoded, so that rows
# can be sampled, relabelled and counted without looking at a pixel.


def as_png(pixels: np.ndarray) -> dict[str, Any]:
    """Grey [H, W] or coloured [H, W, 3] bytes as a row's image."""
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, format="png", compress_level=1)
    return {"bytes": stream.getvalue(), "path": None}
