"""Files of rows without labels: CSV, TSV, JSON lines, Parquet or a text a line, as columns of text and nothing else.

Part of `limbeck.data`. The columns are found by the names that the task's own data have, and all others, a label's
too, are left alone. Text lies in files, not in memory, if there is much of it (`off_memory`).
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.column import taken
from limbeck.data.endings import ending_of, form_of, opened_text
from limbeck.data.layouts import LAYOUTS
from limbeck.data.own import IMDB_COLUMNS
from limbeck.data.own_pairs import with_pairs
from limbeck.data.tables import MAX_ROWS, read_table, readable
from limbeck.data.tsv import read_tsv
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, no_such_file
from limbeck.support.given import is_reference, place_of
from limbeck.tasks.task import Task

_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class TextFile:
    """The texts of one file.

    Attributes:
        path: where they lie.
        columns: the task's text columns, each with a text per row.
        blank: rows of the file that hold no text, or null, and are left out.
    """

    path: Path
    columns: tuple[pa.ChunkedArray, ...]
    blank: int

    def __len__(self) -> int:
        return len(self.columns[0])


def read_unlabelled(
    sources: Sequence[str],
    task: Task,
    *,
    text_columns: Sequence[str] | None = None,
    max_rows: int = MAX_ROWS,
) -> list[TextFile]:
    """The texts of files and patterns of files (`more/*.csv`), in the order in which they are named.

    Args:
        sources: paths, patterns, or references of rows that were given as objects.
        task: whose text columns they are; a known task's files may also have those of its release.
        text_columns: names of the columns in the files, where the task's own data have others.
        max_rows: of one file; more are refused.

    Raises:
        LimbeckError: a file that is not there, or is of no known type, or lacks the columns, or holds what is no text.
    """
    return [_read(path, task, text_columns, max_rows) for path in text_files(sources)]


def text_files(sources: Sequence[str]) -> list[Path]:
    """The files that are meant, each once. Raises LimbeckError for one that is not there."""
    found: dict[Path, None] = {}
    for source in sources:
        path = at_home(place_of(source))
        if is_reference(source):
            found |= dict.fromkeys(sorted(path.glob("*.parquet")))
        elif path.is_dir():
            raise LimbeckError(
                f"unlabelled: {source} is a folder",
                f"name files, or a pattern of them: {source.rstrip('/')}/*.csv",
            )
        elif path.exists():
            found[path] = None
        elif matches := matching(source):
            found |= dict.fromkeys(matches)
        else:
            raise LimbeckError(
                Problem(f"unlabelled: no file has a name {source}", "check the path")
                if _PATTERN & set(source)
                else no_such_file("unlabelled", source)
            )
    return list(found)


def matching(source: str) -> list[Path]:
    """The files whose names fit a pattern, sorted; none of what is no pattern."""
    if not _PATTERN & set(source):
        return []
    # As glob has it, a pattern may be absolute, which pathlib's may not.
    paths = map(Path, glob.glob(str(at_home(source)), recursive=True))  # noqa: PTH207
    return sorted(path for path in paths if path.is_file())


def is_meant(source: str, file: Path) -> bool:
    """Whether a file's name fits a pattern as in `matching`; the file need not be there."""
    if not _PATTERN & set(source):
        return False
    return _fits(at_home(source).resolve().parts, file.resolve().parts)


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Part by part, of which `**` stands for any number."""
    if not pattern or not parts:
        return not parts and all(one == "**" for one in pattern)
    if pattern[0] == "**":
        return _fits(pattern[1:], parts) or _fits(pattern, parts[1:])
    return fnmatch(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])


def _read(path: Path, task: Task, text_columns: Sequence[str] | None, max_rows: int) -> TextFile:
    columns: tuple[pa.ChunkedArray, ...]
    if form_of(path) == "text":
        columns = (_lines(path, task, max_rows),)
    elif ending_of(path) == ".tsv" and not text_columns and _is_release(path, task):
        # An unlabelled row too many is better than a label that is no one's business here.
        layout = replace(LAYOUTS[task.name], label="", no_label=None)
        rows = read_tsv(path, layout)
        columns = tuple(
            pa.chunked_array([pa.array(rows.columns[name], pa.large_string())])
            for name in layout.text
        )
    else:
        columns = _columns(path, task, text_columns, max_rows)
    return _with_text(path, columns)


def _is_release(path: Path, task: Task) -> bool:
    """Whether only the strict reader of GLUE's own files reads this one: it may lack a header, or have broken lines."""
    layout = LAYOUTS.get(task.name)
    if layout is None:
        return False
    with readable(path), opened_text(path) as file:
        header = [name.strip() for name in file.readline().split("\t")]
    if all(name in header for name in layout.text):
        return layout.broken_lines
    return bool(layout.headerless) and not set(task.text_columns) <= set(header)


def _lines(path: Path, task: Task, max_rows: int) -> pa.ChunkedArray:
    """A text a line, whatever the task calls its column."""
    if len(task.text_columns) > 1:
        raise LimbeckError(
            f"unlabelled: {path} is plain text, and task {task.name!r} reads pairs",
            f"give a table with the columns {' and '.join(task.text_columns)}",
        )
    (column,) = read_table(path, max_rows).columns.values()
    assert column.text is not None  # lines are text
    return column.text


def _columns(
    path: Path, task: Task, text_columns: Sequence[str] | None, max_rows: int
) -> tuple[pa.ChunkedArray, ...]:
    candidates = task.kind.candidates is not None
    # Texts whose task nobody knows are pairs wherever they look like it; a task's candidates may be columns too.
    table = read_table(path, max_rows, as_pairs=not candidates)
    if candidates:
        table, text_columns = with_pairs(table, text_columns or ())
    known = [list(text_columns)] if text_columns else _names_of(task)
    names = next((names for names in known if set(names) <= set(table.columns)), None)
    if names is None:
        wanted = " or ".join(", ".join(map(repr, names)) for names in known)
        raise LimbeckError(
            f"{path} has no text column{'s' if len(known[0]) > 1 else ''} {wanted}",
            f"columns that are there: {', '.join(table.columns)}; name those that hold the text "
            "(--text-columns), as in all files of a task",
        )
    found = []
    for name in names:
        text = table.columns[name].text_or_gaps
        if text is None:
            rows = enumerate(table.columns[name], start=1)
            row, value = next(pair for pair in rows if not isinstance(pair[1], str | None))
            raise LimbeckError(
                f"unlabelled: {path}, row {row}: {name} is {value!r:.80}, expected text",
                "write it as text, or remove the row",
            )
        found.append(pc.fill_null(text, "") if text.null_count else text)
    return tuple(found)


def _names_of(task: Task) -> list[list[str]]:
    """The names that a task's text columns go by."""
    names = [list(task.text_columns)]
    if task.name in LAYOUTS:
        names.append(list(LAYOUTS[task.name].text))
    if task.name == "imdb":
        names.append([IMDB_COLUMNS["text"]])
    return [one for place, one in enumerate(names) if one not in names[:place]]


def _with_text(path: Path, columns: tuple[pa.ChunkedArray, ...]) -> TextFile:
    """Without the rows in which no column says anything."""
    blank = None
    for column in columns:
        here = pc.equal(pc.utf8_trim_whitespace(column), pa.scalar("", pa.large_string()))
        blank = here if blank is None else pc.and_(blank, here)
    count = int(pc.sum(blank).as_py() or 0)
    if not count:
        return TextFile(path, columns, 0)
    if count == len(columns[0]):
        raise LimbeckError(
            f"unlabelled: {path} holds no text", "check that the right file is named"
        )
    kept = pc.indices_nonzero(pc.invert(blank)).to_numpy()
    return TextFile(path, tuple(taken(column, kept) for column in columns), count)
