"""`--data FILE --kind …`: a user's own tokens to tag, questions to answer, or plain text.

A source of the data stage, beside `own`, which reads classes and numbers. Files: CoNLL columns,
SQuAD's JSON, lines of text, or tables with the columns that are named. A single file is divided into
train, dev and test; a folder may hold train, dev (or validation) and test files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from datasets import DatasetDict

from limbeck.data.conll import read_conll
from limbeck.data.endings import CONLL, ending_of, form_of, stem_of
from limbeck.data.own import groups_of, one_file, split_files
from limbeck.data.own_labels import Labelling, class_order
from limbeck.data.splits import AS_USUAL, Division, check_splits, make_split, with_held_out
from limbeck.data.squad_json import is_squad, read_squad
from limbeck.data.tables import MAX_ROWS, read_table, stored_classes
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import MASKED, SPANS, TOKENS, TaskType
from limbeck.tasks.positions import metrics_for_tags, said_of_tags
from limbeck.tasks.task import Task

Columns = dict[str, list[Any]]

_ANY = Labelling()


class Wanted(NamedTuple):
    """The names of the columns to read: text, and label (None for text that is its own)."""

    texts: tuple[str, ...]
    label: str | None
    max_rows: int = MAX_ROWS


class _Reader(NamedTuple):
    """How a kind's files are read, and which columns a table of it has unless others are named."""

    wanted: Wanted
    endings: tuple[str, ...]
    read: Callable[[Path, Wanted], Columns]


def read_own_kind(
    name: str | None,
    path: Path,
    kind: TaskType,
    *,
    known: Task | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    labelling: Labelling = _ANY,
    seed: int = 0,
    for_training: bool = True,
    max_rows: int = MAX_ROWS,
    named: Mapping[str, Path] = MappingProxyType({}),
    division: Division = AS_USUAL,
) -> tuple[Task, DatasetDict]:
    """The task and splits of a file, or of a folder with a train file.

    The columns come out under the kind's own names. Tags are numbered as `labelling` has them, else as a Parquet
    file of the datasets library names them, else with "O" first and the rest in alphabetical order; a `known` task
    keeps its own. Raises LimbeckError for missing columns, and for tags, answers or text that are none.
    """
    if kind.name not in _READERS:
        raise LimbeckError(
            f"kind: limbeck reads no files of kind {kind.name}",
            "register a reader of them (limbeck.data_reader)",
        )
    reader = _READERS[kind.name]
    wanted = _wanted(reader.wanted, text_columns, label_column)._replace(max_rows=max_rows)
    files = split_files(path, reader.endings) if path.is_dir() else one_file(path, named)
    read = {split: reader.read(file, wanted) for split, file in files.items()}
    task = known or _new_task(
        name or stem_of(path.resolve()), kind, reader.wanted, _tags(files, read, wanted), labelling
    )
    splits = DatasetDict()
    for split, columns in read.items():
        texts = dict(zip(task.text_columns, (columns[c] for c in wanted.texts), strict=True))
        labels = _labels(task, columns, wanted, files[split])
        alone = list(read) == ["train"]
        if alone and not for_training:
            splits["dev"] = make_split(task, texts, labels)
        elif split == "train":
            shares = division.beside(read)
            groups = _groups(files[split], division.group_column, max_rows)
            # Masked text is its own label.
            own = labels or texts[task.label_column]
            splits |= with_held_out(task, texts, own, seed, shares, groups)
        else:
            splits[split] = make_split(task, texts, labels)
    check_splits(task, splits, str(path), for_training=for_training)
    return task, splits


def _wanted(usual: Wanted, text_columns: Sequence[str] | None, label_column: str | None) -> Wanted:
    texts = tuple(text_columns or usual.texts)
    problems = []
    if len(texts) != len(usual.texts):
        problems.append(
            Problem(
                f"{len(texts)} text columns are named: {', '.join(texts)}",
                f"name {len(usual.texts)}: in place of {', '.join(usual.texts)}",
            )
        )
    if label_column is not None and usual.label is None:
        problems.append(
            Problem(f"label column {label_column!r}: the text is its own label", "leave it out")
        )
    if problems:
        raise LimbeckError(problems)
    return Wanted(texts, label_column or usual.label)


def _groups(path: Path, column: str | None, max_rows: int) -> np.ndarray | None:
    """As `groups_of`, of a table; raises LimbeckError for a file that has no columns beside those of its kind."""
    if column is None:
        return None
    no_table = form_of(path) in (None, "text")
    if no_table or (ending_of(path) == ".json" and is_squad(path)):
        raise LimbeckError(
            f"group_column: {path} has no column {column!r}",
            "give a table with that column (CSV, JSON lines, Parquet), or files for train, dev and test",
        )
    return groups_of(read_table(path, max_rows), column)


def _new_task(
    name: str, kind: TaskType, usual: Wanted, found: Sequence[str], labelling: Labelling
) -> Task:
    label = usual.label or usual.texts[0]
    if kind is not TOKENS and (labelling.classes or labelling.holds):
        raise LimbeckError(
            f"classes, labels: a task of kind {kind.name} has no classes", "leave them out"
        )
    task = Task(name, name, usual.texts, (), (), "accuracy", label_column=label, kind=kind)
    if kind is SPANS:
        return replace(task, metrics=("exact_match", "f1"), primary="f1")
    if kind is MASKED:
        return replace(task, metrics=("accuracy", "perplexity"))
    tags = class_order(found, labelling, "the column of tags")
    metrics, primary = metrics_for_tags(tags)
    return replace(task, labels=tags, metrics=metrics, primary=primary, said=said_of_tags(tags))


def _tags(files: dict[str, Path], read: dict[str, Columns], wanted: Wanted) -> Sequence[str]:
    """The tags of the training rows, in the order of their ids."""
    if wanted.label is None:
        return ()
    if stored := stored_classes(files["train"], wanted.label):
        return stored
    written = read["train"][wanted.label]
    found = {tag for tags in written for tag in tags} if isinstance(written[0], list) else set()
    return sorted(found, key=lambda tag: (tag.upper() != "O", tag))


def _labels(task: Task, columns: Columns, wanted: Wanted, path: Path) -> list[Any] | None:
    if wanted.label is None:
        return None
    written = columns[wanted.label]
    if not task.labels:
        return written
    ids = {tag: number for number, tag in enumerate(task.labels)}
    for row, tags in enumerate(written, start=1):
        strange = [tag for tag in tags if tag not in ids]
        if strange:
            raise LimbeckError(
                f"{path}, row {row}: the tag {strange[0]!r}",
                f"tags of the task: {', '.join(task.labels[:20])}",
            )
    return [[ids[tag] for tag in tags] for tags in written]


# ---- files ----


def _read_tokens(path: Path, wanted: Wanted) -> Columns:
    assert wanted.label is not None
    if ending_of(path) in CONLL or form_of(path) in ("tsv", "text"):
        words, tags = read_conll(path)
        return {wanted.texts[0]: words, wanted.label: tags}
    columns = _table(path, wanted)
    for row, (words, tags) in enumerate(zip(*columns.values(), strict=True), start=1):
        for column, values in ((wanted.texts[0], words), (wanted.label, tags)):
            if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                raise LimbeckError(
                    f"{path}, row {row}: {column} is {values!r:.80}, expected a list of strings",
                    'write {"tokens": ["…"], "tags": ["O"]}, one object per line',
                )
        if len(words) != len(tags) or not words:
            raise LimbeckError(
                f"{path}, row {row}: {len(words)} words and {len(tags)} tags",
                "give every word one tag",
            )
    return columns


def _read_spans(path: Path, wanted: Wanted) -> Columns:
    assert wanted.label is not None
    if ending_of(path) == ".json" and is_squad(path):
        return dict(zip((*wanted.texts, wanted.label), read_squad(path), strict=True))
    columns = _table(path, wanted)
    for row, (question, context, answers) in enumerate(zip(*columns.values(), strict=True), 1):
        if not (isinstance(question, str) and isinstance(context, str)):
            raise LimbeckError(f"{path}, row {row}: question or context is no text", "fill the gap")
        well_formed = (
            isinstance(answers, dict)
            and isinstance(answers.get("text"), list)
            and isinstance(answers.get("answer_start"), list)
            and len(answers["text"]) == len(answers["answer_start"])
        )
        if not well_formed:
            raise LimbeckError(
                f"{path}, row {row}: {wanted.label} is {answers!r:.80}",
                'expected {"text": ["…"], "answer_start": [0]}, as in SQuAD',
            )
    return columns


def _read_masked(path: Path, wanted: Wanted) -> Columns:
    if form_of(path) == "text":  # its one column is meant, whatever those of tables are called
        return dict.fromkeys(
            wanted.texts, next(iter(map(list, read_table(path, wanted.max_rows).columns.values())))
        )
    columns = _table(path, wanted)
    wrong = [r for r, text in enumerate(columns[wanted.texts[0]], 1) if not isinstance(text, str)]
    if wrong:
        raise LimbeckError(f"{path}, row {wrong[0]}: no text", "fill the gap")
    return columns


def _table(path: Path, wanted: Wanted) -> Columns:
    table = read_table(path, wanted.max_rows)
    names = [name for name in (*wanted.texts, wanted.label) if name is not None]
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise LimbeckError(
            f"{path} has no column {', '.join(map(repr, missing))}",
            f"name --text-columns and --label-column; there are: {', '.join(table.columns)}",
        )
    return {name: table.named(name) for name in names}


_READERS = {
    TOKENS.name: _Reader(Wanted(("tokens",), "tags"), CONLL, _read_tokens),
    SPANS.name: _Reader(Wanted(("question", "context"), "answers"), (), _read_spans),
    MASKED.name: _Reader(Wanted(("text",), None), (), _read_masked),
}
