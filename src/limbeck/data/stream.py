"""The rows of several sources, one after another. Part of `limbeck.data`."""

import glob
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from limbeck.data.files import (
    FORMATS,
    IMAGE_COLUMN,
    STANDARD_INPUT,
    GivenSource,
    RowSource,
    TakenRows,
    form_of,
    known_endings,
    open_rows,
)
from limbeck.support import given
from limbeck.support.errors import LimbeckError, Problem, check_choice, collecting, raise_problems
from limbeck.support.files import at_home, no_such_file

_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
_PATTERN = frozenset("*?[")


# ---- which files are named ----


def named_files(sources: Sequence[str | Path], setting: str = "data") -> list[Path | str]:
    """Files and patterns in the given order; the files of a folder or a pattern are sorted.

    Standard input is `-`; the reference of rows that were given as objects leads to their files.

    Args:
        sources: as they are named.
        setting: that names them.

    Raises:
        LimbeckError: all that is not there.
    """
    found: list[Path | str] = []
    problems = []
    for source in map(str, sources):
        path = at_home(given.place_of(source))
        if source == STANDARD_INPUT:
            found.append(source)
        elif path.is_dir():
            inside = sorted(
                one for one in path.iterdir() if one.is_file() and (form_of(one) or _is_image(one))
            )
            found += inside
            if not inside:
                problems.append(
                    Problem(
                        f"{setting}: {source} is a folder without files of rows or images",
                        f"files that are read end in {known_endings()}; or in {', '.join(sorted(_IMAGES))}",
                    )
                )
        elif path.exists():
            found.append(path)
        elif matches := matching(source):
            found += matches
        else:
            text = "; a text itself comes by standard input (-), and in Python in a list"
            also = text if len(source.split()) > 1 else ""
            if _PATTERN & {*source}:
                problems.append(
                    Problem(f"{setting}: no file has a name like {source}", f"check the path{also}")
                )
            else:
                problems.append(no_such_file(setting, source, also=also))
    if found.count(STANDARD_INPUT) and len(found) > 1:
        problems.append(
            Problem("standard input is combined with files", "give only -, or only files")
        )
    raise_problems(problems)
    return found


def matching(source: str) -> list[Path]:
    """The files whose names fit a pattern (`more/*.csv`), sorted; none for a source that is not a pattern."""
    if not _PATTERN & {*source}:
        return []
    # As glob has it, a pattern may be absolute, which pathlib's may not.
    paths = map(Path, glob.glob(str(at_home(source)), recursive=True))  # noqa: PTH207
    return sorted(path for path in paths if path.is_file())


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _IMAGES


# ---- their rows ----


class RowStream:
    """The rows of some files, one after another; no more than one file is open at a time.

    Every file is opened once before, so that errors in its header are known before any work.

    Args:
        files: as `named_files` found them; neighbouring images are the rows of one source.
        kind: one of `FORMATS`; by default the format of the files' endings.

    Attributes:
        files: as they were named.
        heads: the columns of each source by its name, in their order.
        size: the largest `position`; None if it is unknown.
        once: whether it cannot be opened a second time, as a pipe.

    Raises:
        LimbeckError: all files that cannot be opened, unknown formats, no format for standard input.
    """

    def __init__(self, files: Sequence[Path | str], kind: str | None = None) -> None:
        check_choice("format", kind, FORMATS)
        self.files = tuple(files)
        self.heads: dict[str, tuple[str, ...]] = {}
        self.size: int | None = 0
        self.once = False
        self._todo: list[Callable[[], RowSource]] = []
        self._source: RowSource | None = None
        self._before = 0
        self._rows = self._rows_before = 0
        problems: list[Problem] = []
        for make in _makers(files, kind):
            with collecting(problems):
                self._add(make)
        raise_problems(problems)

    def _add(self, make: Callable[[], RowSource]) -> None:
        source = make()
        self.heads[source.name] = source.columns
        self.size = None if None in (self.size, source.size) else self.size + source.size  # type: ignore[operator]
        self.once |= source.once
        if source.once:
            self._todo.append(lambda: source)
        else:
            source.close()
            self._todo.append(make)

    @classmethod
    def of_objects(cls, name: str, rows: Iterable[Any]) -> "RowStream":
        """Rows in memory: texts, or dictionaries.

        Raises:
            LimbeckError: the first is neither.
        """
        made = cls([])
        made._add(partial(GivenSource, name, rows))
        return made

    @property
    def position(self) -> int:
        """How much of `size` was read."""
        return self._before + (self._source.position if self._source is not None else 0)

    def close(self) -> None:
        """Close the open source."""
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
            LimbeckError: the rows cannot be read, with the line.
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


def _makers(files: Sequence[Path | str], kind: str | None) -> list[Callable[[], RowSource]]:
    images = [path for path in files if isinstance(path, Path) and _is_image(path)]
    if not images or kind is not None:
        return [partial(open_rows, file, kind) for file in files]
    if len(images) < len(files):
        raise LimbeckError(
            f"{images[0]} is an image, and others of the files hold rows", "name one sort alone"
        )
    rows = [{IMAGE_COLUMN: str(path)} for path in images]
    return [partial(GivenSource, str(images[0].parent), rows)]
