"""Sources that are files: a user's own tables, GLUE's folders, and folders of images.

Part of `limbeck.data`. The later a source stands here, the earlier it is asked.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from limbeck.data.files import known_endings
from limbeck.data.glue import (
    contents,
    expected_files,
    read_folder,
    task_folders,
    task_of_folder,
    tasks_inside,
)
from limbeck.data.images import read_images
from limbeck.data.own import has_own_files, is_own, read_own
from limbeck.data.own_kinds import read_own_kind
from limbeck.data.reader import DataReader, DataRequest, Loaded, data_reader
from limbeck.data.several_labels import read_several_labels
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.tasks.task import TASKS, Task, as_kind


class OnDisk(DataReader):
    """A file or a folder, of a known task or of the user's own."""

    own_tasks = False

    def reads(self, request: DataRequest) -> bool:
        """Whatever is there."""
        return request.path.exists()

    def known(self, request: DataRequest) -> Task | None:
        """The known task whose rows these are; raises LimbeckError for another kind of it."""
        known = request.known
        if known is not None:
            as_kind(known, request.task_type.name)
            request.need_no_labelling(known)
        return known


@data_reader("table")
class OwnTable(OnDisk):
    """A table of texts with classes or numbers, or a folder with a train table."""

    takes_dev = True
    divides = True

    def read(self, request: DataRequest) -> Loaded:
        """The columns that are named, or a known task's."""
        self.known(request)
        return read_own(request)


@data_reader("glue")
class GlueFolder(OnDisk):
    """A folder in GLUE's layout, either of all tasks or the task's own."""

    def reads(self, request: DataRequest) -> bool:
        """Folders of classes or numbers whose columns nobody named, but for a user's own with a train table."""
        own = request.known is None and is_own(request.path)
        return request.path.is_dir() and not request.names_columns and not own

    def read(self, request: DataRequest) -> Loaded:
        """The released files, or the task's own files of another type beside them."""
        known, path = self.known(request), request.path
        if known is None:
            raise LimbeckError(_unknown_in_folder(request.name, path))
        splits = read_folder(known, path, seed=request.seed, for_training=request.for_training)
        if splits is not None:
            return known, splits
        return read_own(replace(request, source=_own_folder(known, path)))


@data_reader("tags, answers or text")
class OwnKind(OnDisk):
    """Files of words to tag, questions to answer, or plain text."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """What is no class or number."""
        return super().reads(request) and not request.task_type.labels_examples

    def read(self, request: DataRequest) -> Loaded:
        """CoNLL columns, SQuAD's JSON, lines of text, or named columns."""
        self.known(request)
        return read_own_kind(request)


@data_reader("several labels")
class OwnSeveralLabels(OnDisk):
    """A table of texts with any number of classes a row, or a folder with a train table."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """Where a row may be of several classes."""
        return super().reads(request) and request.task_type.several_classes

    def read(self, request: DataRequest) -> Loaded:
        """A column of lists or of separated names, or a column of 0 and 1 for each class."""
        self.known(request)
        return read_several_labels(request)


@data_reader("images")
class ImageFolder(OnDisk):
    """A folder of images, a folder a class."""

    divides = True

    def reads(self, request: DataRequest) -> bool:
        """What is asked about images."""
        return super().reads(request) and not request.task_type.reads.in_columns

    def read(self, request: DataRequest) -> Loaded:
        """The files under the name of their class."""
        self.known(request)
        if request.names_columns:
            raise LimbeckError(
                "text_columns, label_column: a folder of images has no columns", "leave them out"
            )
        return read_images(request)


def _unknown_in_folder(name: str | None, path: Path) -> Problem:
    if name is not None and (tasks_inside(path) or task_of_folder(path)):
        return unknown("task", name, list(TASKS))
    return folder_without_task(path)


def folder_without_task(path: Path) -> Problem:
    """Say what a folder lacks whose task nobody named."""
    if found := [task_of_folder(path)] if task_of_folder(path) else tasks_inside(path):
        names = ", ".join(str(task) for task in found)
        return Problem(
            f"task: none is given, and {path} holds {names} as GLUE has it",
            f"add --task {found[0]}" if len(found) == 1 else "add --task with one of them",
        )
    return Problem(
        f"data: the folder {path} has no train file; it holds {', '.join(contents(path))}",
        f"name a file, or a folder with train and one of {known_endings()}, and dev and test if there are any",
    )


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
