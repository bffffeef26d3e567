"""Find the task in the label column of a user's own data: which classes, in which order, or numbers.

Below `own`. Text and integers are classes; numbers with a decimal point are a regression, unless they are two
integers. A teacher's outputs decide where both fit, and its names give the order. A note reports the choice.
"""

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from limbeck.data.table import FileTable, finite
from limbeck.students import generic_labels, spelling
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.plain import loads
from limbeck.support.words import listed, short_text

Holds = Literal["classes", "numbers"]

# Python's int() and float() also take "1_2" and "infinity", which are class names here.
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SHOWN = 8
# Words that other programs write into an empty cell, and that some data has as a class.
_GAP_WORDS = frozenset({"na", "n/a", "none", "null", "?"})

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labelling:
    """The facts known about a label column before it is read.

    Attributes:
        classes: the class names in id order, as the user gives them; () to find them.
        holds: whether they are classes or numbers, as given by the user; None to find out.
        teacher: names of the teacher's outputs in id order, one for a regression; () without one.
        separator: the separator between several labels of a row, if they are text; None to find it.
        ordered: whether the classes have an order, which has to be given or numerical.
        stored: classes of stored outputs in id order; used only if the rows lack some of them.
    """

    classes: tuple[str, ...] = ()
    holds: Holds | None = None
    teacher: tuple[str, ...] = ()
    separator: str | None = None
    ordered: bool = False
    stored: tuple[str, ...] = ()

    @problem_list
    def problems(self) -> Iterator[Problem]:
        """Why these cannot all hold."""
        if self.classes and self.holds == "numbers":
            yield Problem("classes: labels: numbers have no classes", "leave one of them out")
        if self.ordered and self.holds == "numbers":
            yield Problem("labels: numbers, and the kind is for classes", "leave it out")
        if self.classes and len(set(self.classes)) < len(self.classes):
            yield Problem(f"classes: one is named twice: {', '.join(self.classes)}", "once")
        if len(self.classes) == 1:
            yield Problem(f"classes: only {self.classes[0]!r}", "name two or more")


@dataclass(frozen=True)
class LabelColumn:
    """A label column as read: class names in id order (() for numbers), and ids or numbers by split.

    None is a row without a label, or a split without labels.

    `said` is a note with the choice, its reason, and how to change it; None if a warning was logged.
    """

    names: tuple[str, ...]
    values: dict[str, list[Any] | None]
    said: Problem | None


def class_order(found: Sequence[str], given: Labelling, column: str) -> tuple[str, ...]:
    """The classes in id order: as given, otherwise as in the teacher, otherwise as found.

    Stored outputs with more classes than the rows define the classes.

    Raises:
        LimbeckError: a class is found that is not among the given ones; or they need an order that is not given, and
            are no numbers.
    """
    if given.classes:
        strange = [name for name in found if name not in given.classes]
        if strange:
            raise LimbeckError(
                f"classes: {column} holds {strange[0]!r}, which is not one of {', '.join(given.classes)}",
                f"name every class, in the order of the head: it holds {some_of(found)}",
            )
        return given.classes
    if given.ordered:
        numbers = {name: number for name in found if (number := finite(name)) is not None}
        if len(numbers) < len(found):
            raise LimbeckError(
                f"classes: {column} holds {some_of(found)}, which are not all numbers, and their order counts",
                f"give all classes from low to high: classes='[{', '.join(found)}]' in the right order",
            )
        return tuple(sorted(found, key=numbers.__getitem__))
    spelled = spelling(found, given.teacher)
    own = {spelled(name): name for name in found}
    theirs = {spelled(name): name for name in given.teacher}
    if own.keys() <= theirs.keys() and not generic_labels(given.teacher):
        return tuple(own.get(plain, name) for plain, name in theirs.items())
    return given.stored if set(found) < set(given.stored) else tuple(found)


def read_labels(
    tables: dict[str, FileTable], labels: dict[str, list[Any] | None], column: str, given: Labelling
) -> LabelColumn:
    """Find the task in the label column, and its values as class ids or numbers.

    Raises:
        LimbeckError: labels that are missing, do not fit together, or contradict the settings.
    """
    parsed = _parse_untyped(tables, labels)
    if given.holds == "numbers":  # as text too, as JSON lines and tables may hold them
        parsed = {split: values and [*map(_number_of, values)] for split, values in parsed.items()}
    there = {
        split: [value for value in values or () if value is not None]
        for split, values in parsed.items()
    }
    known = [value for values in there.values() for value in values]
    kinds = {type(value) for value in known}
    if len(kinds) > 1 and not kinds <= {int, float} and given.holds != "numbers":
        raise LimbeckError(
            f"label column {column!r} mixes {' and '.join(sorted(k.__name__ for k in kinds))}",
            "use text or integers for classes, decimal numbers for a regression",
        )
    holds, why = _holds(known, kinds, given, column)
    if holds == "numbers":
        found = {split: values if there[split] else None for split, values in parsed.items()}
        return LabelColumn((), found, _said_numbers(column, why, known, given))
    # If no training row has a label, the dev split gives the classes.
    first = next(split for split, values in there.items() if values)
    names, ids = _classes(tables[first], there[first], column, given)
    for split, values in there.items():
        strange = sorted({value for value in values if value not in ids})
        if strange:
            raise LimbeckError(
                f"{tables[split].path} has the label {strange[0]!r}, which {first} has not",
                f"labels of {first}: {some_of(names)}",
            )
    by_split = {
        split: [None if value is None else ids[value] for value in values or ()]
        if there[split]
        else None
        for split, values in parsed.items()
    }
    return LabelColumn(names, by_split, _said_classes(column, why, names, kinds, given))


def _number_of(value: Any) -> Any:
    """A text that is a number as such; other values as they are."""
    number = finite(value) if isinstance(value, str) else None
    return value if number is None else number


def _holds(values: list[Any], kinds: set[type], given: Labelling, column: str) -> tuple[Holds, str]:
    """Whether a column contains classes or numbers, and why it is read that way."""
    numeric = kinds <= {int, float}
    fractions = [value for value in values if isinstance(value, float) and value % 1]
    holds = "classes" if given.classes or given.ordered else given.holds
    if holds == "numbers" and not numeric:
        other = next(value for value in values if type(value) not in (int, float))
        raise LimbeckError(
            f"labels: numbers, but label column {column!r} holds {other!r}",
            "write a number in every row, or leave labels out",
        )
    if holds == "classes" and fractions:
        raise LimbeckError(
            f"labels: classes, but label column {column!r} holds {fractions[0]!r}",
            "write an integer or a name for each class, or leave labels and classes out",
        )
    if holds is not None:
        said = "classes" if given.classes else "kind" if given.ordered else "labels"
        return holds, f"set by {said}"
    if not numeric:
        if all(finite(value) is not None for value in {*values}):
            return "classes", "they are text (labels=numbers reads their numbers)"
        return "classes", "they are not numbers"
    if len(given.teacher) == 1:
        return "numbers", "the teacher puts out one number"
    if float not in kinds:
        return "classes", "they are integers"
    if fractions:
        return "numbers", "they have fractions"
    several = len(set(values))
    if len(given.teacher) >= several:
        return "classes", f"they are integers, and the teacher has {len(given.teacher)} classes"
    if several == 2:
        return "classes", "they are two integers, as a table with gaps writes classes"
    return "numbers", "they are written with a decimal point"


def _classes(
    train: FileTable, values: list[Any], column: str, given: Labelling
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Names of the classes in id order, and the id of each written value."""
    # 1.0 is the class 1: a table with gaps writes integers that way.
    classes = sorted({int(one) if isinstance(one, float) else one for one in values})
    names = [str(value) for value in classes]
    stored = train.class_names.get(column)
    whole = all(type(value) is int for value in classes)
    if stored is not None and whole:
        # The file knows the names of its ids.
        order = class_order(stored, given, f"label column {column!r}")
        return order, {value: order.index(name) for value, name in enumerate(stored)}
    numbered = whole and given.classes and not set(names) <= set(given.classes)
    if numbered and classes[0] >= 0 and classes[-1] < len(given.classes):
        return given.classes, {value: value for value in range(len(given.classes))}
    if not _are_of(given.teacher, names):
        _check_classes(train, column, classes)
    order = class_order(names, given, f"label column {column!r}")
    written: dict[str, Any] = dict(zip(names, classes, strict=True))
    return order, {written.get(name, name): number for number, name in enumerate(order)}


# ---- notes ----


def _said_classes(
    column: str, why: str, names: Sequence[str], kinds: set[type], given: Labelling
) -> Problem | None:
    otherwise = "classes=[…] gives another order"
    if kinds <= {int, float} and not given.ordered:
        otherwise += ", labels=numbers makes it a regression"
    guessed = float in kinds and given.holds is None and not given.classes
    what = f"label column {column!r}: {len(names)} classes, {some_of(names)}, as {why}"
    known = {*given.classes, *given.teacher}
    if words := [name for name in names if name.lower() in _GAP_WORDS and name not in known]:
        fix = "if it means no label, leave those cells blank; classes=[…] with it leaves this warning out"
        return Problem(f"{what}; {some_of(words)} counts as a class", fix, "warning")
    return _said(what, otherwise, guessed=guessed)


def _said_numbers(column: str, why: str, values: list[Any], given: Labelling) -> Problem | None:
    low, high = min(values), max(values)
    otherwise = "write the class names into the column if they mean classes"
    if all(value % 1 == 0 for value in values):
        otherwise = "labels=classes makes them classes"
    elif low >= 0 and high <= 1:
        otherwise += "; a model's probabilities: give that model as teacher"
    guessed = given.holds is None and len(given.teacher) != 1
    what = f"label column {column!r}: numbers from {low:g} to {high:g}, a regression, as {why}"
    return _said(what, otherwise, guessed=guessed)


def _said(what: str, otherwise: str, *, guessed: bool) -> Problem | None:
    """Log a guess at once: evaluation has no pre-flight, and a run in Python shows none."""
    if guessed:
        logger.warning("%s; %s", what, otherwise)
        return None
    return Problem(what, otherwise, "note")


def some_of(names: Sequence[str]) -> str:
    """The first names, and how many more."""
    return listed([short_text(name) for name in names], _SHOWN)


# ---- values as they are written ----


def _parse_untyped(
    tables: dict[str, FileTable], labels: dict[str, list[Any] | None]
) -> dict[str, list[Any] | None]:
    """Labels of CSV and TSV files as integers or decimals, if all of them are."""
    untyped = {split: labels[split] or [] for split in labels if not tables[split].typed}
    written = [value for values in untyped.values() for value in values if value is not None]
    for kind, pattern in ((int, _WHOLE), (float, _DECIMAL)):
        if all(pattern.fullmatch(value.strip()) and finite(value) is not None for value in written):
            parsed = {
                split: [None if value is None else kind(value) for value in values] or None
                for split, values in untyped.items()
            }
            return labels | parsed
    return labels


def _are_of(teacher: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the classes are known to be some of a model's, which few rows may not show."""
    spelled = spelling(names, teacher)
    return {*map(spelled, names)} <= {*map(spelled, teacher)}


def _check_classes(train: FileTable, column: str, classes: list[Any]) -> None:
    if len(classes) < 2:
        raise LimbeckError(
            f"label column {column!r} of {train.path} holds one class only: {classes[0]!r}",
            "there is nothing to learn; check the column",
        )
    if len(classes) > max(2, len(train) // 2):
        raise LimbeckError(
            f"label column {column!r} of {train.path} holds {len(classes)} different values in {len(train)} rows",
            "name the label column, not a text or an id; write a regression's numbers with a decimal point",
        )


# ---- labels as they are written, before they become classes ----


# More different numbers than this next to words are not classes ("1", "2", "3+"): one word among two
# hundred scores, left where a number was missing, would turn them into classes.
_FEW_NUMBERS = 20
_COUNTED = 5


def without_gaps(values: Sequence[Any]) -> list[Any]:
    """The labels of training rows, None for every way in which a file marks a missing label."""
    return [
        None if _is_gap(value) and value not in (math.inf, -math.inf) else value for value in values
    ]


def check_written_labels(
    values: Sequence[Any], column: str, path: Path, *, gaps: bool = False
) -> None:
    """Raise LimbeckError, with counts and the first row, for labels that no one can have meant.

    A label that is the column's name is a repeated header. Blank ones and "nan" are gaps; words
    among many different numbers, and labels that differ in spaces at their ends or in how Unicode composes
    a letter, are mistakes. With `gaps` a row may have no label, which is None then (`without_gaps`).
    """
    counts = Counter(value for value in values if isinstance(value, str))
    if column in counts:
        raise LimbeckError(
            f"{path}: {counts[column]} of {len(values)} rows have the label {column!r}, which is the column's name; "
            f"the first is row {values.index(column) + 1}",
            "remove the header from among the rows (as left when files are concatenated); for a class "
            "with that name rename the column",
        )
    # A million rows of two classes need a look at two texts.
    if counts.total() < len(values) or any(map(_is_gap, counts)):
        _check_values(values, column, path, gaps=gaps)
    numbers = {
        text for text in counts if _DECIMAL.fullmatch(text.strip()) and finite(text) is not None
    }
    words = {text: n for text, n in counts.items() if text not in numbers}
    if words and len(counts) - len(words) > _FEW_NUMBERS:
        first = next(row for row, value in enumerate(values, start=1) if value in words)
        raise LimbeckError(
            f"{path}: label column {column} holds {len(counts) - len(words)} different numbers, and in "
            f"{sum(words.values())} of {len(values)} rows no number: {_counted(words)}, the first in row {first}",
            "fix or remove those rows; a regression needs a number in every row",
        )
    check_spellings(counts, column, path)


def _check_values(values: Sequence[Any], column: str, path: Path, *, gaps: bool) -> None:
    """Raise LimbeckError for gaps, and for values that are neither text nor numbers."""
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
    for row, value in enumerate(values, start=1):
        if not isinstance(value, str | int | float | None):
            raise LimbeckError(
                f"{path}, row {row}: {column} holds {type(value).__name__}",
                "of several labels a row set kind=multi-label, or in a checkpoint's config.json problem_type "
                "multi_label_classification"
                if isinstance(value, list)
                else "use text or integers for classes, decimal numbers for a regression",
            )


def _is_gap(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def check_spellings(counts: Counter[str], column: str, path: Path) -> None:
    """Raise LimbeckError for one class in several spellings, by spaces at the ends or composed letters."""
    spellings: dict[str, dict[str, int]] = {}
    for text, count in counts.items():
        spellings.setdefault(unicodedata.normalize("NFC", text).strip(), {})[text] = count
    for alike in spellings.values():
        if len(alike) > 1:
            raise LimbeckError(
                f"{path}: label column {column} writes one class in several ways: {_counted(alike)}",
                "write it in one way; spaces at the ends count",
            )


def _counted(counts: dict[str, int]) -> str:
    shown = [f"{text[:40]!r} ({count} rows)" for text, count in list(counts.items())[:_COUNTED]]
    return ", ".join(shown) + (" and others" if len(counts) > _COUNTED else "")


# ---- numbers in the cells of a user's file: one, a list, or a list as text ----


def structured(value: Any) -> Any:
    """A cell of CSV that is a list or a mapping is written as in JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def row_of_numbers(row: Any, *, typed: bool) -> Iterator[float | None]:
    """The numbers of a list; None for other values, and for a row that is not a list.

    Args:
        typed: text is no number, as in JSON lines and Parquet.
    """
    for value in row if isinstance(row, list | tuple) else [None]:
        if isinstance(value, str) and not typed:
            try:
                yield float(value)
            except ValueError:
                yield None
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            yield float(cast(float, value)) if number else None


def numbers_of(
    table: FileTable, what: str, rows: list[Any], width: int, start: int = 0
) -> np.ndarray:
    """Lists of numbers as float64 (n, width).

    Args:
        what: the rows are called, for messages.
        start: the place of the first of them in the file.

    Raises:
        LimbeckError: a row is not a list of this many numbers.
    """
    found = np.empty((len(rows), width))
    for place, row in enumerate(rows):
        numbers = list(row_of_numbers(row, typed=table.typed))
        if len(numbers) != width or None in numbers:
            raise LimbeckError(
                f"{table.path}, row {start + place + 1}: {what} are {row!r:.120}, expected {width} "
                f"number{'s' * (width != 1)}",
                "fill the gap, or leave the row out",
            )
        found[place] = numbers
    return found
