"""Requests for rows, and sources of data: a source reports whether it has the rows, and reads them.

Part of `limbeck.data`. Built-in sources and a user's own are registered by name
(`limbeck.data_reader`); `loading` asks them, the last registered first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from datasets import DatasetDict

from limbeck.data import beir
from limbeck.data.files import stem_of
from limbeck.data.label_column import Labelling
from limbeck.data.splits import Division
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, no_such_file
from limbeck.support.given import is_reference, place_of
from limbeck.support.registry import Registry
from limbeck.tasks import SENTENCE, TaskType, get_task_type
from limbeck.tasks.task import TASKS, Task, as_kind, get_task

Loaded = tuple[Task, DatasetDict]
Document = tuple[str, ...]
"""Sentences in their order."""


@dataclass(frozen=True)
class RowsAsked:
    """The rows that are named; fields that are None are left to the run, the export or the model.

    Attributes:
        task: their task.
        data: their source.
        split: which of its splits.
        text_columns: of a file of the user's own, its text columns.
        label_column: of such a file, its label column.
        max_length: tokens that a text is cut to.
    """

    task: str | None = None
    data: str | None = None
    split: str | None = None
    text_columns: Sequence[str] | None = None
    label_column: str | None = None
    max_length: int | None = None

    def are_those_of(self, task: str | None) -> bool:
        """Whether nothing but the split and the length is named, or the task that they have anyway."""
        others = self.data is not None or self.text_columns or self.label_column
        return self.task in (None, task) and not others


NOTHING_NAMED = RowsAsked()
"""The default: the rows of the run, the export or the model itself."""


@dataclass(frozen=True)
class DataRequest:
    """A request for rows; the fields are the arguments of `load_task`."""

    name: str | None
    source: str | Path
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    kind: str | None = None
    labelling: Labelling = field(default_factory=Labelling)
    seed: int = 0
    for_training: bool = True
    division: Division = field(default_factory=Division)

    @property
    def text(self) -> str:
        """The source as it was written."""
        return str(self.source)

    @property
    def path(self) -> Path:
        """The source as a place on disk, which need not exist."""
        try:
            path = at_home(place_of(self.source))
        except RuntimeError:  # ~ and the name of no user
            return Path(self.source)
        # Rows that were given as one split are a single file, as a user would name it.
        given = [*path.iterdir()] if is_reference(self.source) else []
        return given[0] if len(given) == 1 else path

    @property
    def new_name(self) -> str:
        """The name of a task of these rows: as given, otherwise their file's or folder's."""
        return self.name or stem_of(self.path.resolve())

    @property
    def files(self) -> dict[str, Path]:
        """The files that are named for dev and test, by split.

        Raises:
            LimbeckError: nothing is there, or the source is a folder, which holds its splits itself.
        """
        found = {}
        for split, named in (("dev", self.division.dev), ("test", self.division.test)):
            if named is None:
                continue
            found[split] = path = at_home(place_of(named))
            if path.is_dir():
                fix = f"name the file that holds the {split} rows"
                raise LimbeckError(f"{split}: {named} is a folder", fix)
            if not path.is_file():
                raise LimbeckError(no_such_file(split, named))
            self._need_one_file(split, named)
        return found

    @property
    def dev_set(self) -> Path | None:
        """The folder in BEIR's layout that is named as dev, if one is.

        Raises:
            LimbeckError: the source holds a dev split of its own.
        """
        named = self.division.dev
        path = None if named is None else at_home(place_of(named))
        if path is None or not beir.is_beir(path):
            return None
        self._need_one_file("dev", str(named))
        return path

    def _need_one_file(self, split: str, named: str | Path) -> None:
        if not self.path.is_file():
            raise LimbeckError(
                f"{split}: {named}, and {self.text!r} is no single file",
                f"put the {split} file into that folder ({split}.tsv, {split}.csv, …), or name one file as data",
            )

    @property
    def names_columns(self) -> bool:
        """Whether columns are named, as for a user's own data."""
        return bool(self.text_columns) or self.label_column is not None

    @property
    def known(self) -> Task | None:
        """The known task of that name; a table with named columns is no set of images."""
        task = TASKS.get(self.name) if self.name is not None else None
        return (
            None
            if task is not None and not task.kind.reads.in_columns and self.names_columns
            else task
        )

    @property
    def task_type(self) -> TaskType:
        """The task type: as requested, otherwise the known task's own, otherwise a class or number."""
        if self.kind is not None:
            return get_task_type(self.kind)
        return SENTENCE if self.known is None else self.known.kind

    def known_task(self) -> Task:
        """The task of that name, for a source that has known tasks alone.

        Raises:
            LimbeckError: no task is named, none that is known, or columns or classes are given.
        """
        if self.name is None:
            raise LimbeckError("no task is named", f"choices: {', '.join(TASKS)}")
        task = get_task(self.name)
        if self.names_columns:
            raise LimbeckError(
                f"data source {self.text!r} has its own columns; text and label columns cannot be named",
                "leave text_columns and label_column out, or name a file of your own as data",
            )
        self.need_no_labelling(task)
        return task

    def need_no_labelling(self, task: Task) -> None:
        """Raise LimbeckError for classes given to a task that has its own."""
        if self.labelling.classes or self.labelling.holds:
            key = "classes" if self.labelling.classes else "labels"
            own = f"the classes {', '.join(task.labels)}" if task.labels else "no classes"
            raise LimbeckError(
                f"{key}: task {task.name!r} is known and has {own}",
                "leave it out, or give your own data another task's name",
            )


class DataReader(ABC):
    """One source of data. Stateless; there is one object of each.

    Attributes:
        own_tasks: whether its rows may be of a task that limbeck does not know.
        takes_dev: whether dev and test rows may be in files of their own, which are named.
        divides: whether dev and test rows are split from its training rows by shares, if it has no such rows.
    """

    own_tasks: ClassVar[bool] = True
    takes_dev: ClassVar[bool] = False
    divides: ClassVar[bool] = False

    @abstractmethod
    def reads(self, request: DataRequest) -> bool:
        """Whether this source has the requested rows; quick, and without an error."""

    def documents(self, seed: int, rows: int) -> Iterator[Document] | None:
        """Documents as lists of sentences, enough for the given number of pairs; None for a source without text."""
        return None

    @abstractmethod
    def read(self, request: DataRequest) -> Loaded:
        """The task and its splits, made by `make_split` and held against the task by `check_splits`.

        Raises:
            LimbeckError: the rows are not available, or do not fit the task.
        """


class OnDisk(DataReader):
    """A file or a folder, of a known task or of the user's own."""

    own_tasks = False

    def reads(self, request: DataRequest) -> bool:
        """Whatever is there."""
        return request.path.exists()

    def read(self, request: DataRequest) -> Loaded:
        """The rows, of a known task if these are its own and of the requested kind."""
        if request.known is not None:
            as_kind(request.known, request.task_type.name)
            request.need_no_labelling(request.known)
        return self.read_rows(request)

    @abstractmethod
    def read_rows(self, request: DataRequest) -> Loaded:
        """The task and its splits, as `read`."""


DATA_READERS: Registry[DataReader] = Registry("data reader")
"""Every source by name."""

Reader = TypeVar("Reader", bound=type[DataReader])


def data_reader(name: str) -> Callable[[Reader], Reader]:
    """A class decorator that registers a source of data.

    Args:
        name: messages call the source by it.

    Example:
        ```python
        @limbeck.data_reader("films")
        class Films(limbeck.data.DataReader): ...  # with `reads` and `read`: docs/extending.md
        ```

    Raises:
        LimbeckError: the class lacks `reads` or `read`, or the name is another source's.
    """

    def known(reader: Reader) -> Reader:
        lacking = sorted(getattr(reader, "__abstractmethods__", ()))
        if not issubclass(reader, DataReader) or lacking:
            raise LimbeckError(
                f"data reader {name!r}: {reader.__name__} is no limbeck.data.DataReader with reads and read",
                "inherit from it, and write both",
            )
        DATA_READERS.register(name)(reader())
        return reader

    return known


def reader_of(request: DataRequest) -> DataReader | None:
    """The source for a request; of several the last that was registered, a user's own first."""
    readers = [DATA_READERS.get(name) for name in DATA_READERS][::-1]
    readers.sort(key=_ships)
    return next((one for one in readers if one.reads(request)), None)


def _ships(reader: DataReader) -> bool:
    return type(reader).__module__.partition(".")[0] == "limbeck"
