"""Reading one tab-separated file of a released dataset, line by line and strictly.

Below `folder`. No csv reader is used: in these files a quote is a quote, a line ends at "\\n"
alone, and a line that does not fit must be named, not fixed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from limbeck.data.endings import opened
from limbeck.data.layouts import ReleasedLayout
from limbeck.support.errors import LimbeckError

logger = logging.getLogger(__name__)


class TsvRows(NamedTuple):
    """The wanted columns of a file, and its class ids or numbers if it has labels."""

    columns: dict[str, list[str]]
    labels: list[int] | list[float] | None


def read_tsv(path: Path, layout: ReleasedLayout, extra: Sequence[str] = ()) -> TsvRows:
    """Read the text columns, `extra` columns and labels of one file.

    A file whose header has no label column is unlabelled. Raises LimbeckError naming file, line and
    what was expected for a line with the wrong number of columns, an unknown label, a score that is
    not a number or bytes that are not UTF-8, and for a file without the columns, without rows, or
    that cannot be read.
    """
    lines = _lines(path)
    _, first = next(lines, (0, ""))
    header, has_header = _header(first, path, layout, (*layout.text, *extra))
    if not has_header:
        lines = _lines(path)
    labelled = layout.label in header
    wanted = (*layout.text, *extra)
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    labels: list = []
    places = [(header.index(name), columns[name]) for name in wanted]
    broken = unlabelled = rows = 0
    for number, line in lines:
        rows += 1
        fields = line.split("\t")
        if len(fields) != len(header):
            if layout.broken_lines and len(fields) < len(header):
                broken += 1
                continue
            raise _width_error(path, number, fields, header)
        if labelled:
            written = fields[header.index(layout.label)].strip()
            if written == layout.no_label:
                unlabelled += 1
                continue
            labels.append(_label(written, layout, path, number))
        for place, column in places:
            column.append(fields[place])
    _report(path, rows, broken, unlabelled)
    return TsvRows(columns, labels if labelled else None)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without byte-order mark, line end and blank last lines."""
    try:
        # Binary, so that only "\n" ends a line and a bad byte is found on its own line.
        with opened(path) as file:
            blank = None
            for number, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not line:
                    blank = blank or number
                    continue
                if blank is not None:
                    yield blank, ""
                    blank = None
                yield number, line
    except UnicodeDecodeError as error:
        raise LimbeckError(
            f"{path}, line {number}: the bytes are not UTF-8 ({error.reason})",
            "save the file as UTF-8",
        ) from error
    except OSError as error:
        raise LimbeckError(
            f"cannot read {path}: {error.strerror}", "check the file's permissions"
        ) from error


def _header(
    first: str, path: Path, layout: ReleasedLayout, wanted: Sequence[str]
) -> tuple[list[str], bool]:
    """The column names, and whether the first line is where they stand."""
    names = [name.strip() for name in first.split("\t")]
    if all(name in names for name in wanted):
        twice = [name for name in (*wanted, layout.label) if names.count(name) > 1]
        if twice:
            raise LimbeckError(
                f"{path}, line 1: two columns have the name {twice[0]!r}", "take one of them out"
            )
        return names, True
    if layout.headerless and all(name in layout.headerless for name in wanted):
        return list(layout.headerless), False
    raise LimbeckError(
        f"{path}, line 1: expected a header with the columns {', '.join(wanted)}; "
        f"found {', '.join(repr(name) for name in names[:12])}",
        "check that the file belongs to this task and that its header line is there",
    )


def _width_error(path: Path, number: int, fields: list[str], header: list[str]) -> LimbeckError:
    start = "\t".join(fields)[:60]
    return LimbeckError(
        f"{path}, line {number}: expected {len(header)} tab-separated columns "
        f"({', '.join(header)}), found {len(fields)}: {start!r}",
        "fix or remove the line, or fetch the file again",
    )


def _label(written: str, layout: ReleasedLayout, path: Path, number: int) -> int | float:
    if layout.written:
        if written in layout.written:
            return layout.written.index(written)
        expected = f"one of {', '.join(layout.written)}"
    else:
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
        expected = "a number"
    raise LimbeckError(
        f"{path}, line {number}: {layout.label} is {written!r}, expected {expected}",
        "fix or remove the line, or fetch the file again",
    )


def _report(path: Path, rows: int, broken: int, unlabelled: int) -> None:
    # Two dozen pieces in QQP's 364,000 lines are the release's; many more are a damaged file.
    if broken > max(1, rows // 1000):
        raise LimbeckError(
            f"{path}: {broken} of {rows} lines have too few columns",
            "the file is damaged: fetch it again",
        )
    if broken:
        logger.warning("%s: skipped %d lines with too few columns", path, broken)
    if unlabelled:
        logger.warning("%s: skipped %d rows without a gold label", path, unlabelled)
