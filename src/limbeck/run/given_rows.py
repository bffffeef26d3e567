"""Rows given as objects: which splits and columns they have, what they are called, and the files that they become.

Part of `limbeck.run`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Image, Value
from datasets.table import InMemoryTable
from pyarrow import parquet

from limbeck.data.table import USUAL_LABELS, usual_label, usual_texts
from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.given import PREFIX
from limbeck.tasks import TASK_TYPES, TASKS

_SPLITS = {"train": "train", "test": "test"}
_SPLITS |= dict.fromkeys(("dev", "validation", "valid", "val"), "dev")
# Names that the datasets library gives what it read from a file.
_NO_NAMES = frozenset({"csv", "json", "parquet", "arrow", "text", "pandas", "generator", "sql"})
_ROWS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GivenRows:
    """Rows by split, their reference, and the recipe settings that they bring."""

    splits: dict[str, Dataset]
    reference: str
    settings: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write a file for each split, as a user would have them."""
        for split, rows in self.splits.items():
            table: pa.Table = rows.with_format("arrow")[:]
            parquet.write_table(table.cast(rows.features.arrow_schema), folder / f"{split}.parquet")


def read_rows(data: Any, recipe: Mapping[str, Any]) -> GivenRows:
    """Rows that were given, as `data` of a recipe whose other settings are these.

    Raises:
        LimbeckError: no rows, splits of other names, columns that are neither named nor found.
    """
    splits = {split: _as_files_hold(rows, split) for split, rows in _splits(data).items()}
    train = splits["train"]
    labelled = {**train.features, **splits.get("dev", train).features}
    task = recipe.get("task") or _name_of(train)
    settings = {} if recipe.get("task") else {"task": task}
    if _named_by_columns(recipe.get("kind")) and task not in TASKS:
        settings |= _columns(train, labelled, recipe)
    name = re.sub(r"[^\w.-]", "-", str(task))
    return GivenRows(splits, f"{PREFIX}{name}@{_fingerprint(splits)}", settings)


def read_rows_to_label(data: Any) -> GivenRows:
    """Rows of any splits, as `data` of `label`, which looks at their text.

    Raises:
        LimbeckError: no rows, splits of other names.
    """
    splits = {
        split: _as_files_hold(rows, split) for split, rows in _splits(data, training=False).items()
    }
    name = re.sub(r"[^\w.-]", "-", _name_of(next(iter(splits.values()))))
    return GivenRows(splits, f"{PREFIX}{name}@{_fingerprint(splits)}", {})


def _named_by_columns(kind: Any) -> bool:
    """Whether a task type's rows are of texts and labels in columns with names of their own."""
    if kind in (None, "sentence"):
        return True
    return kind in TASK_TYPES and TASK_TYPES.get(str(kind)).problem_type is not None


def read_unlabelled_rows(given: Any, task: str | None) -> GivenRows:
    """Rows without labels, as `unlabelled` of a recipe.

    Raises:
        LimbeckError: no rows.
    """
    rows = _dataset("unlabelled", given)
    name = re.sub(r"[^\w.-]", "-", f"{task or 'rows'}-unlabelled")
    splits = {"rows": rows}
    return GivenRows(splits, f"{PREFIX}{name}@{_fingerprint(splits)}", {})


def _splits(data: Any, *, training: bool = True) -> dict[str, Dataset]:
    """Train, which `training` needs, and dev and test where there are some."""
    if not isinstance(data, Mapping):
        return {"train": _dataset("data", data)}
    strange = [str(name) for name in data if name not in _SPLITS]
    if strange or not data:
        raise LimbeckError(
            f"data: {', '.join(strange) or 'nothing'} is none of the splits train, dev (validation) and test",
            "give the splits that are meant by these names: data={'train': …, 'dev': …}",
        )
    found: dict[str, Dataset] = {}
    for name, rows in data.items():
        if _SPLITS[name] in found:
            raise LimbeckError(f"data: {', '.join(data)} name one split twice", "keep one of them")
        found[_SPLITS[name]] = _dataset(f"data[{name!r}]", rows)
    if training and "train" not in found:
        raise LimbeckError(f"data: there is no train split (there: {', '.join(data)})", "give one")
    return found


def _dataset(where: str, rows: Any) -> Dataset:
    if not isinstance(rows, Dataset):
        try:
            if isinstance(rows, list):
                rows = Dataset.from_list(
                    [{"text": row} if isinstance(row, str) else row for row in rows]
                )
            elif isinstance(rows, Mapping):
                rows = Dataset.from_dict(dict(rows))
            elif type(rows).__name__ == "DataFrame":
                rows = Dataset.from_pandas(rows, preserve_index=False)
        except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
            raise LimbeckError(f"{where}: these are no rows: {error}", _ROWS_FIX) from error
    if not isinstance(rows, Dataset):
        raise LimbeckError(f"{where}: a {type(rows).__name__} holds no rows to read", _ROWS_FIX)
    if not len(rows):
        raise LimbeckError(f"{where} holds no rows", "give some")
    images = [name for name, feature in rows.features.items() if isinstance(feature, Image)]
    if images:
        raise LimbeckError(
            f"{where}: column {images[0]!r} holds images, which are read from a folder alone",
            "write them to a folder for each class, data=FOLDER and kind=image; or remove_columns",
        )
    return rows


_ROWS_FIX = (
    "give a datasets.Dataset, a DatasetDict, a dict of them by split, a pandas DataFrame, a list of "
    "rows {'text': …, 'label': …}, or a list of texts"
)


def _as_files_hold(rows: Dataset, split: str) -> Dataset:
    """Rows without what the datasets library alone understands."""
    for name, feature in dict(rows.features).items():
        if split == "test" and isinstance(feature, ClassLabel) and set(rows[name]) == {-1}:
            rows = rows.remove_columns(name)  # as the Hub marks a test split without labels
        elif split == "train" and _marks_no_label(name, feature):
            rows = _with_gaps(rows, name)
    return rows


def _marks_no_label(name: str, feature: Any) -> bool:
    """Whether −100 in a column can only say that a row has no label, as in transformers' losses."""
    whole = isinstance(feature, Value) and feature.dtype.startswith("int")
    return isinstance(feature, ClassLabel) or (name in USUAL_LABELS and whole)


def _with_gaps(rows: Dataset, name: str) -> Dataset:
    """The rows with nothing where a label is −100, as a file has it."""
    table: pa.Table = rows.with_format("arrow")[:]
    labels = table.column(name)
    none = pc.equal(labels, pa.scalar(NO_LABEL, labels.type))
    if not pc.any(none).as_py():
        return rows
    known = pc.if_else(none, pa.scalar(None, labels.type), labels)
    table = table.set_column(table.schema.get_field_index(name), name, known)
    features = rows.features
    return Dataset(InMemoryTable(table.cast(features.arrow_schema)), info=rows.info)


def _name_of(rows: Dataset) -> str:
    info = rows.info
    name = info.dataset_name or ""
    if not name or name in _NO_NAMES:
        return "rows"
    config = info.config_name if info.config_name not in (None, "default", name) else None
    name = name if config is None else f"{name}-{config}"
    return f"own-{name}" if name in TASKS else name


def _columns(
    train: Dataset, features: Mapping[str, Any], recipe: Mapping[str, Any]
) -> dict[str, Any]:
    """Text and label columns that the recipe does not name; dev alone (`features`) may have the label's.

    Raises:
        LimbeckError: there are none, or several that could be meant.
    """
    label, texts = recipe.get("label_column"), recipe.get("text_columns")
    found: dict[str, Any] = {}
    problems = []
    there = ", ".join(train.column_names)
    # Without a label column, of several labels a row the classes are columns of 0 and 1.
    ticked = bool(recipe.get("classes")) and {*map(str, recipe["classes"])} <= {*features}
    if label is None and not ticked:
        named = [name for name, kind in features.items() if isinstance(kind, ClassLabel)]
        label = usual_label([*features], named)
        found["label_column"] = label
    if label is None and recipe.get("teacher"):
        found.pop("label_column")  # the teacher's predictions are
    elif label is None and not ticked:
        problems.append(
            Problem(f"data: none of the columns {there} is called label", "label_column='…'")
        )
    if not texts:
        words = [n for n, kind in train.features.items() if _is_text(kind) and n != label]
        texts = usual_texts(words)
        found["text_columns"] = texts
    if not texts:
        problems.append(
            Problem(
                f"data: which of the columns {there} holds the text is not clear",
                "text_columns=['…'], or two of them for pairs",
            )
        )
    if problems:
        raise LimbeckError(problems)
    if found:
        log.info("data: %s", ", ".join(f"{key} {value}" for key, value in found.items()))
    return found


def _is_text(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string")


def _fingerprint(splits: Mapping[str, Dataset]) -> str:
    """12 hexadecimal digits of all that the rows hold, names of splits, columns and classes included."""
    digest = hashlib.blake2b(digest_size=6)
    for split, rows in sorted(splits.items()):
        each = {name: getattr(kind, "feature", kind) for name, kind in rows.features.items()}
        classes = {name: kind.names for name, kind in each.items() if isinstance(kind, ClassLabel)}
        digest.update(json.dumps([split, len(rows), classes], sort_keys=True).encode())
        read = rows.with_format("arrow")
        for start in range(0, len(rows), _ROWS):
            for row in read[start : start + _ROWS].to_pylist():
                digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()
