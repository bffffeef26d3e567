"""What the label column of a user's own data says the task is: which classes, in which order, or numbers.

Below `own`. Text and whole numbers are classes; numbers with a decimal point are a regression, unless they are two
whole ones. A teacher's outputs decide where both would do, and its names give the order. What was understood is said.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from limbeck.data.table import FileTable
from limbeck.students import generic_labels, spelling
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.plain import loads

Holds = Literal["classes", "numbers"]

# Python's int() and float() also take "1_2" and "infinity", which are class names here.
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SHOWN = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labelling:
    """What is known of a label column before it is read.

    Attributes:
        classes: the class names in id order, as the user gives them; () to find them.
        holds: whether they are classes or numbers, as the user says; None to find out.
        teacher: names of the teacher's outputs in id order, one for a regression; () without one.
        separator: what stands between several labels of a row, where they are text; None to find it.
    """

    classes: tuple[str, ...] = ()
    holds: Holds | None = None
    teacher: tuple[str, ...] = ()
    separator: str | None = None

    def problems(self) -> list[Problem]:
        """Why these cannot all hold."""
        found = []
        if self.classes and self.holds == "numbers":
            found.append(Problem("classes: labels: numbers have none", "leave one of them out"))
        if self.classes and len(set(self.classes)) < len(self.classes):
            found.append(Problem(f"classes: one is named twice: {', '.join(self.classes)}", "once"))
        if len(self.classes) == 1:
            found.append(Problem(f"classes: only {self.classes[0]!r}", "name two or more"))
        return found


@dataclass(frozen=True)
class LabelColumn:
    """A label column as read: class names in id order (() for numbers), and ids or numbers by split.

    None stands for a row without a label, and for a split without any.

    `said` is what was understood, why, and how to say otherwise; None if it was said already.
    """

    names: tuple[str, ...]
    values: dict[str, list | None]
    said: Problem | None


def class_order(found: Sequence[str], given: Labelling, column: str) -> tuple[str, ...]:
    """The classes in id order: as given, else as the teacher has them, else as they are found.

    Raises:
        LimbeckError: a class is found that is not among those given.
    """
    if given.classes:
        strange = [name for name in found if name not in given.classes]
        if strange:
            raise LimbeckError(
                f"classes: {column} holds {strange[0]!r}, which is none of {', '.join(given.classes)}",
                f"name every class, in the order of the head: it holds {_some(found)}",
            )
        return given.classes
    spelled = spelling(found, given.teacher)
    own = {spelled(name): name for name in found}
    theirs = {spelled(name): name for name in given.teacher}
    if own.keys() <= theirs.keys() and not generic_labels(given.teacher):
        return tuple(own.get(plain, name) for plain, name in theirs.items())
    return tuple(found)


def read_labels(
    tables: dict[str, FileTable], labels: dict[str, list | None], column: str, given: Labelling
) -> LabelColumn:
    """What the label column says the task is, and its values as class ids or numbers.

    Raises:
        LimbeckError: labels that are missing or do not fit together, or are not what they are said to be.
    """
    for split, values in labels.items():
        _check_labels(tables[split].path, column, values or [], gaps=split == "train")
    there = {split: _known(values) for split, values in labels.items()}
    found = _read_known(tables, there, column, given)
    spread = {split: _spread(labels[split], read) for split, read in found.values.items()}
    return replace(found, values=spread)


def _known(values: list | None) -> list | None:
    """The labels that are there; None where there is none at all."""
    known = [value for value in values or () if value is not None]
    return known or None


def _spread(written: list | None, read: list | None) -> list | None:
    """What was read of the labels that are there, at their places; None at the others."""
    if read is None or written is None:
        return None
    ids = iter(read)
    return [None if value is None else next(ids) for value in written]


def _read_known(
    tables: dict[str, FileTable], labels: dict[str, list | None], column: str, given: Labelling
) -> LabelColumn:
    """The same of labels without gaps."""
    parsed = _parse_untyped(tables, labels)
    kinds = {type(value) for values in parsed.values() for value in values or []}
    numeric = kinds <= {int, float}
    if len(kinds) > 1 and not numeric:
        raise LimbeckError(
            f"label column {column!r} mixes {' and '.join(sorted(k.__name__ for k in kinds))}",
            "use text or whole numbers for classes, decimal numbers for a regression",
        )
    known = [value for values in parsed.values() for value in values or []]
    holds, why = _holds(known, kinds, given, column)
    if holds == "numbers":
        said = _said_numbers(column, why, known, given)
        return LabelColumn((), parsed, said)
    if float in kinds:
        parsed = {
            split: values and [int(value) for value in values] for split, values in parsed.items()
        }
    # Of training rows without any label the dev split says which classes there are.
    first = next(split for split, values in parsed.items() if values)
    names, ids = _classes(tables[first], parsed[first] or [], column, given)
    for split, values in parsed.items():
        strange = sorted({value for value in values or () if value not in ids})
        if strange:
            raise LimbeckError(
                f"{tables[split].path} has the label {strange[0]!r}, which {first} has not",
                f"labels of {first}: {_some(names)}",
            )
    by_split = {
        split: None if values is None else [ids[value] for value in values]
        for split, values in parsed.items()
    }
    return LabelColumn(names, by_split, _said_classes(column, why, names, kinds, given))


def _holds(values: list[Any], kinds: set[type], given: Labelling, column: str) -> tuple[Holds, str]:
    """Whether a column holds classes or numbers, and why that is what it is taken for."""
    numeric = kinds <= {int, float}
    fractions = [value for value in values if isinstance(value, float) and value % 1]
    holds = "classes" if given.classes else given.holds
    if holds == "numbers" and not numeric:
        raise LimbeckError(
            f"labels: numbers, but label column {column!r} holds {values[0]!r}", "leave labels out"
        )
    if holds == "classes" and fractions:
        raise LimbeckError(
            f"labels: classes, but label column {column!r} holds {fractions[0]!r}",
            "write a whole number or a name for each class, or leave labels and classes out",
        )
    if holds is not None:
        return holds, "classes says" if given.classes else "labels says"
    if not numeric:
        return "classes", "they are not numbers"
    if len(given.teacher) == 1:
        return "numbers", "the teacher puts out one number"
    if float not in kinds:
        return "classes", "they are whole numbers"
    if fractions:
        return "numbers", "they have fractions"
    several = len(set(values))
    if len(given.teacher) >= several:
        return "classes", f"they are whole, and the teacher has {len(given.teacher)} classes"
    if several == 2:
        return "classes", "they are two whole numbers, as a table with gaps writes classes"
    return "numbers", "they are written with a decimal point"


def _classes(
    train: FileTable, values: list, column: str, given: Labelling
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Names of the classes in id order, and the id of each written value."""
    classes: list[Any] = sorted(set(values))
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
    _check_classes(train, column, classes)
    order = class_order(names, given, f"label column {column!r}")
    written: dict[str, Any] = dict(zip(names, classes, strict=True))
    return order, {written.get(name, name): number for number, name in enumerate(order)}


# ---- what is said ----


def _said_classes(
    column: str, why: str, names: Sequence[str], kinds: set[type], given: Labelling
) -> Problem | None:
    what = f"label column {column!r}: {len(names)} classes, {_some(names)}, as {why}"
    otherwise = "classes=[…] gives another order" + (
        ", labels=numbers makes it a regression" if kinds <= {int, float} else ""
    )
    if float in kinds and given.holds is None and not given.classes:
        logger.warning("%s; %s", what, otherwise)
        return None
    return Problem(what, otherwise, "note")


def _said_numbers(column: str, why: str, values: list[Any], given: Labelling) -> Problem | None:
    low, high = min(values), max(values)
    what = f"label column {column!r}: numbers from {low:g} to {high:g}, a regression, as {why}"
    whole = all(value % 1 == 0 for value in values)
    if whole:
        otherwise = "labels=classes makes them classes"
    elif low >= 0 and high <= 1:
        otherwise = (
            "if they are a model's probabilities, write the class into the column, or give that "
            "model as teacher"
        )
    else:
        otherwise = "write the class into the column if they stand for classes"
    if given.holds is None and len(given.teacher) != 1:
        logger.warning("%s; %s", what, otherwise)
        return None
    return Problem(what, otherwise, "note")


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


# ---- values as they are written ----


def _parse_untyped(
    tables: dict[str, FileTable], labels: dict[str, list | None]
) -> dict[str, list | None]:
    """Labels of CSV and TSV files as whole numbers or decimals, if all of them are."""
    untyped = [split for split, table in tables.items() if not table.typed and labels[split]]
    written = [value for split in untyped for value in labels[split] or ()]
    for kind, pattern in ((int, _WHOLE), (float, _DECIMAL)):
        if all(pattern.fullmatch(value.strip()) for value in written):
            parsed = {split: [kind(value) for value in labels[split] or ()] for split in untyped}
            return labels | parsed
    return labels


def _check_labels(path: Path, column: str, values: list, *, gaps: bool) -> None:
    for row, value in enumerate(values, start=1):
        if gaps and value is None:
            continue
        empty = value is None or value == ""
        if empty or (isinstance(value, float) and not math.isfinite(value)):
            raise LimbeckError(
                f"{path}, row {row}: {column} is {value!r}", "fill the gap or remove the row"
            )
        if not isinstance(value, str | int | float):
            raise LimbeckError(
                f"{path}, row {row}: {column} holds {type(value).__name__}",
                "of several labels a row set kind=multi-label"
                if isinstance(value, list)
                else "use text or whole numbers for classes, decimal numbers for a regression",
            )


def _check_classes(train: FileTable, column: str, classes: list) -> None:
    if len(classes) < 2:
        raise LimbeckError(
            f"label column {column!r} of {train.path} holds one class only: {classes[0]!r}",
            "there is nothing to learn; check the column",
        )
    if len(classes) > max(2, len(train) // 2):
        raise LimbeckError(
            f"label column {column!r} of {train.path} holds {len(classes)} different values "
            f"in {len(train)} rows",
            "name the label column, not a text or an id; write a regression's numbers with a "
            "decimal point",
        )


# Numbers in the cells of a user's file: one, a list, or text that says so.


def structured(value: Any) -> Any:
    """A cell of CSV that is a list or a mapping is written as in JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def row_of_numbers(row: Any, *, typed: bool) -> Iterator[float | None]:
    """The numbers of a list; None for what is none, and for a row that is no list.

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
        LimbeckError: a row is no list of so many numbers.
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
