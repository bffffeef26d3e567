"""The rows of several sources, one after another. Part of `limbeck.data`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from limbeck.data.endings import form_of
from limbeck.data.files import readable, unknown_ending
from limbeck.data.stream_sources import (
    FORMATS,
    IMAGE_COLUMN,
    STANDARD_INPUT,
    CountedFile,
    GivenSource,
    ParquetSource,
    RowSource,
    TakenRows,
    WrittenSource,
    is_image,
)
from limbeck.support.errors import LimbeckError, Problem, unknown


class RowStream:
    """The rows of some files, one after another; no more than one file is open at a time.

    Every file is opened once before, so that what is wrong with its header is known before any work.

    Args:
        files: as `named_files` found them; neighbouring images are the rows of one source.
        kind: one of `FORMATS`; by default what the files' endings say.

    Attributes:
        files: as they were named.
        heads: the columns of each source by its name, in their order.
        size: how far `position` goes; None where nobody knows.
        once: whether it cannot be opened a second time, as a pipe.

    Raises:
        LimbeckError: all files that cannot be opened, formats nobody knows, none said of standard input.
    """

    def __init__(self, files: Sequence[Path | str], kind: str | None = None) -> None:
        if kind is not None and kind not in FORMATS:
            raise LimbeckError(unknown("format", kind, FORMATS))
        self.files = tuple(files)
        self.once = False
        self._todo: list[Callable[[], RowSource]] = []
        self.heads: dict[str, tuple[str, ...]] = {}
        sizes: list[int | None] = []
        problems: list[Problem] = []
        for make in _makers(files, kind):
            try:
                source = make()
            except LimbeckError as error:
                problems += error.problems
                continue
            self.heads[source.name] = source.columns
            sizes.append(source.size)
            self.once |= source.once
            if source.once:
                self._todo.append(partial(_as_is, source))
            else:
                source.close()
                self._todo.append(make)
        if problems:
            raise LimbeckError(problems)
        self.size = None if None in sizes else sum(filter(None, sizes))
        self._source: RowSource | None = None
        self._before = 0
        self._rows = self._rows_before = 0

    @classmethod
    def of_objects(cls, name: str, rows: Iterable[Any]) -> RowStream:
        """Rows in memory: texts, or dictionaries.

        Raises:
            LimbeckError: the first is neither.
        """
        made = cls([])
        source = GivenSource(name, rows)
        made.heads[name] = source.columns
        made._todo = [lambda: source]
        made.size, made.once = source.size, source.once
        return made

    @property
    def position(self) -> int:
        """How much of `size` was read."""
        return self._before + (self._source.position if self._source is not None else 0)

    def close(self) -> None:
        """Close what is open."""
        if self._source is not None:
            self._source.close()
        self._todo = []

    def place(self, row: int) -> str:
        """What messages call one of the rows that were taken last."""
        assert self._source is not None
        return f"{self._source.name}, row {self._rows_before + row + 1}"

    def take(self, count: int) -> TakenRows | None:
        """The next rows of one source, at most so many; None at the end.

        Raises:
            LimbeckError: what stands there cannot be read, with the line.
        """
        while True:
            if self._source is None:
                if not self._todo:
                    return None
                self._source = self._todo.pop(0)()
            rows = self._source.take(count)
            if len(rows):
                self._rows_before, self._rows = self._rows, self._rows + len(rows)
                return rows
            self._rows = 0
            self._before += self._source.size or 0
            self._source.close()
            self._source = None


def _as_is(source: RowSource) -> RowSource:
    return source


def _makers(files: Sequence[Path | str], kind: str | None) -> list[Callable[[], RowSource]]:
    images = [path for path in files if isinstance(path, Path) and is_image(path)]
    if not images or kind is not None:
        return [partial(_opened, file, kind) for file in files]
    if len(images) < len(files):
        raise LimbeckError(
            f"{images[0]} is an image, and others of the files hold rows", "name one sort alone"
        )
    rows = [{IMAGE_COLUMN: str(path)} for path in images]
    return [partial(GivenSource, str(images[0].parent), rows)]


def _opened(file: Path | str, kind: str | None) -> RowSource:
    if file == STANDARD_INPUT:
        return _standard_input(kind)
    path = Path(file)
    kind = kind or form_of(path)
    if kind is None:
        problem = unknown_ending(path).problems[0]
        raise LimbeckError(problem.message, f"{problem.fix}; or say --format {'|'.join(FORMATS)}")
    if kind == "parquet":
        return ParquetSource(path)
    with readable(str(path)):
        # A pipe that a shell makes, <(command), has no length.
        size = path.stat().st_size if path.is_file() else None
        stream = CountedFile(path)
    return WrittenSource(str(path), kind, stream, size)


def _standard_input(kind: str | None) -> RowSource:
    if kind is None or kind == "parquet":
        said = "Parquet cannot be streamed" if kind else "nothing says what it holds"
        choices = "|".join(name for name in FORMATS if name != "parquet")
        raise LimbeckError(f"standard input: {said}", f"add --format {choices}")
    if sys.stdin is None or sys.stdin.closed:
        raise LimbeckError("standard input is closed", "pipe rows in, or name a file")
    return WrittenSource("standard input", kind, sys.stdin.buffer, None)
