"""Labels as a file has them: gaps, odd ones out and two spellings of one, before they become classes.

Below `own`, which reads what the labels mean. Whoever writes a column by a program leaves "nan" where a
number is missing, and one such word would turn two hundred scores into classes.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.support.errors import LimbeckError
from limbeck.support.plain import LARGEST_WHOLE

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
# More different numbers than anyone's classes that are numbers beside words ("1", "2", "3+").
_FEW_NUMBERS = 20
_SHOWN = 5
# How tables of other programs write a gap; each may be a class as well ("none" of the others).
_GAP_WORDS = frozenset(
    {"na", "n/a", "#n/a", "<na>", "none", "null", "nil", "missing", "?", "-", "--", "."}
)


def without_gaps(values: Sequence[Any]) -> list[Any]:
    """The labels of training rows, None for every way in which a file says that there is none."""
    return [None if _says_none(value) else value for value in values]


def _says_none(value: Any) -> bool:
    return _is_gap(value) and not (isinstance(value, float) and math.isinf(value))


def check_written_labels(
    values: Sequence[Any], column: str, path: Path, *, gaps: bool = False
) -> None:
    """Raise LimbeckError, with counts and the first row, for labels that no one can have meant.

    A label that is the column's name is a header that stands twice. Blank ones and "nan" are gaps; words
    among many different numbers, and labels that differ in spaces at their ends or in how Unicode composes
    a letter, are mistakes. Labels that differ in capitals alone, a few numbers beside words, and words that
    often stand for a gap ("NA", "None"), are classes with a warning. With `gaps` a row may have no label, which
    is None then (`without_gaps`).
    """
    counts = Counter(value for value in values if isinstance(value, str))
    if column in counts:
        _refuse_header(counts[column], values, column, path)
    # A million rows of two classes need a look at two texts.
    if counts.total() < len(values) or any(map(_is_gap, counts)):
        _check_values(values, column, path, gaps=gaps)
    _check_size(counts, column, path)
    _check_words_among_numbers(counts, values, column, path)
    check_spellings(counts, column, path)
    _warn_of_gap_words(counts, column, path)


def _check_values(values: Sequence[Any], column: str, path: Path, *, gaps: bool) -> None:
    """Raise LimbeckError for gaps, and for numbers that no column of numbers can hold."""
    found = [
        row
        for row, value in enumerate(values, start=1)
        if _is_gap(value) and not (gaps and value is None)
    ]
    if found:
        raise LimbeckError(
            f"{path}: {len(found)} of {len(values)} rows have no label in {column}, the first is "
            f"row {found[0]}: {column} is {values[found[0] - 1]!r}",
            "fill the gap or remove the row",
        )
    large = [row for row, value in enumerate(values, start=1) if _beyond_64_bits(value)]
    if large:
        raise LimbeckError(
            f"{path}, row {large[0]}: {column} is a number beyond 64 bits", "write a smaller number"
        )


def _check_size(counts: Counter[str], column: str, path: Path) -> None:
    """Raise LimbeckError for a number in text that no float holds; Python refuses to read 5,000 digits."""
    for text in counts:
        if _NUMBER.fullmatch(text) and math.isinf(float(text)):
            raise LimbeckError(
                f"{path}: {column} holds a number of {len(text)} characters, beyond any float: {text[:20]}…",
                "write a smaller number, or a name of a class",
            )


def _is_gap(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _beyond_64_bits(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > LARGEST_WHOLE


def _check_words_among_numbers(
    counts: Counter[str], values: Sequence[Any], column: str, path: Path
) -> None:
    words = {text: count for text, count in counts.items() if not _NUMBER.fullmatch(text)}
    numbers = len(counts) - len(words)
    if not words or not numbers:
        return
    shown = _counted(words)
    if numbers > _FEW_NUMBERS:
        first = next(row for row, value in enumerate(values, start=1) if value in words)
        raise LimbeckError(
            f"{path}: label column {column} holds {numbers} different numbers, and in "
            f"{sum(words.values())} of {len(values)} rows no number: {shown}, the first in row {first}",
            "fix or remove those rows; a regression needs a number in every row",
        )
    logger.warning(
        "%s: label column %s holds numbers and words (%s); all are classes", path, column, shown
    )


def check_spellings(counts: Counter[str], column: str, path: Path) -> None:
    """Raise LimbeckError for one class in several spellings; capitals alone are a warning."""
    for plain, refuse in ((_trimmed, True), (_without_capitals, False)):
        spellings: dict[str, list[str]] = {}
        for text in counts:
            spellings.setdefault(plain(text), []).append(text)
        for alike in spellings.values():
            if len(alike) == 1:
                continue
            said = _counted({text: counts[text] for text in alike})
            if refuse:
                raise LimbeckError(
                    f"{path}: label column {column} writes one class in several ways: {said}",
                    "write it in one way; spaces at the ends count",
                )
            logger.warning(
                "%s: label column %s holds labels that differ in capitals alone, as two classes: %s",
                path, column, said,
            )  # fmt: skip


def _refuse_header(count: int, values: Sequence[Any], column: str, path: Path) -> None:
    raise LimbeckError(
        f"{path}: {count} of {len(values)} rows have the label {column!r}, which is the column's name; the first "
        f"is row {values.index(column) + 1}",
        "remove the header that stands among the rows, as it does where files were put together; of a class "
        "with that name rename the column",
    )


def _warn_of_gap_words(counts: Counter[str], column: str, path: Path) -> None:
    words = {text: count for text, count in counts.items() if text.strip().lower() in _GAP_WORDS}
    if words and len(counts) > len(words):
        logger.warning(
            "%s: label column %s holds %s, which is taken for a class; remove those rows if it says that "
            "a label is missing", path, column, _counted(words),
        )  # fmt: skip


def _trimmed(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _without_capitals(text: str) -> str:
    return _trimmed(text).casefold()


def _counted(counts: dict[str, int]) -> str:
    shown = [f"{text[:40]!r} ({count} rows)" for text, count in list(counts.items())[:_SHOWN]]
    return ", ".join(shown) + (" and others" if len(counts) > _SHOWN else "")
