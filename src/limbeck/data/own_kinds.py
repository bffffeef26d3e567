"""`--data FILE --kind …`: a user's own tokens to tag, questions to answer, or plain text.

A source of the data stage, beside `own`, which reads classes and numbers. Files: CoNLL columns,
SQuAD's JSON, lines of text, or tables with the columns that are named. A single file is divided into
train, dev and test; a folder may hold train, dev (or validation) and test files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limbeck.data.files import (
    CONLL,
    TEXT_COLUMN,
    ending_of,
    form_of,
    lines_of,
    open_rows,
    opened_text,
    readable,
)
from limbeck.data.label_column import class_order
from limbeck.data.own import Rows, files_of, groups_of, made_splits
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.table import FileTable, read_table
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.plain import loads
from limbeck.support.settings import MAX_ROWS
from limbeck.tasks import MASKED, SPANS, TOKENS
from limbeck.tasks.positions import metrics_for_tags, said_of_tags
from limbeck.tasks.task import Task

# Reading words and tags in columns, as the CoNLL shared tasks write them. A line holds a word,
# whatever else, and last its tag, with tabs or spaces between; a blank line ends a sentence.
# Comments (`# sent_id = 3`) and `-DOCSTART-` lines are no words.


_DOCUMENT = "-DOCSTART-"
_HEADINGS = ("word", "token", "words", "tokens")
_TAG = re.compile(r"[Oo]|[BILUESbilues]([-_].+)?")


def read_conll(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Read the words of each sentence, and their tags (the last column).

    A first line that says "word" or "token" is a header.

    Raises:
        LimbeckError: a line without a tag, a column of numbers in place of words, a file without sentences.
    """
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    width = None
    with readable(path):
        for number, line in enumerate(lines_of(path), start=1):
            if not line.strip() or line.startswith(_DOCUMENT):
                words.append([])
                tags.append([])
                continue
            fields = line.split("\t") if "\t" in line else line.split(" ")
            if number == 1 and fields[0].lower() in _HEADINGS:
                continue
            if line.startswith("#") and _is_comment(line, fields, width):
                continue
            if len(fields) < 2 or not fields[0] or not fields[-1].strip():
                raise LimbeckError(
                    f"{path}, line {number}: expected a word and its tag, found {line[:60]!r}",
                    "write word TAB tag, one word a line, and a blank line after each sentence",
                )
            width = width or len(fields)
            words[-1].append(fields[0])
            tags[-1].append(fields[-1].strip())
    words, tags = ([row for row in rows if row] for rows in (words, tags))
    if not words:
        raise LimbeckError(f"{path} holds no sentences", "check that the right file is named")
    counted = all(row == list(map(str, range(1, len(row) + 1))) for row in words)
    if counted and any(len(row) > 1 for row in words):
        raise LimbeckError(
            f"{path}: the first column numbers the words (1, 2, …), and is no column of words",
            "write word TAB tag, one word a line; of CoNLL-U leave the first column out",
        )
    return words, tags


def _is_comment(line: str, fields: Sequence[str], width: int | None) -> bool:
    """Whether a line that begins with "#" is none of a word: it has other columns, or no tag of an entity last."""
    if width not in (None, len(fields)):
        return True
    if "\t" in line:
        return " " in fields[0]
    return _TAG.fullmatch(fields[-1].strip()) is None


# Reading SQuAD's own JSON: articles of paragraphs of questions.


def is_squad(path: Path) -> bool:
    """Whether the file is one JSON object with the key `data`, not an object per line."""
    try:
        with opened_text(path) as file:
            content = loads(file.read())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def _check(question: Any, context: Any, answers: Any) -> None:
    """Raise TypeError for values of another type than SQuAD's."""
    for answer in answers:
        start, text = answer["answer_start"], answer["text"]
        if not isinstance(text, str) or not isinstance(start, int) or abs(start) > len(context):
            raise TypeError(f"an answer is {answer!r:.60}")
    if not isinstance(question, str) or not isinstance(context, str):
        raise TypeError(f"the question or context of {question!r:.60} is no text")


def read_squad(path: Path) -> tuple[list[str], list[str], list[dict[str, list[Any]]]]:
    """Questions, contexts and answers of a file for which `is_squad` holds.

    Raises LimbeckError for another layout inside, and for questions without an answer (SQuAD 2.0):
    they have no score in SQuAD 1.1.
    """
    questions: list[str] = []
    contexts: list[str] = []
    answers: list[dict[str, list[Any]]] = []
    unanswered, place = 0, "the file"
    try:
        with opened_text(path) as file:
            articles = loads(file.read())["data"]
        for article in articles:
            place = f"the article behind question {len(questions)}"
            for paragraph in article["paragraphs"]:
                place = f"the paragraph behind question {len(questions)}"
                for asked in paragraph["qas"]:
                    place = f"question {len(questions) + 1}"
                    found = asked["answers"]
                    unanswered += not found
                    _check(asked["question"], paragraph["context"], found)
                    questions.append(asked["question"])
                    contexts.append(paragraph["context"])
                    answers.append(
                        {
                            "text": [answer["text"] for answer in found],
                            "answer_start": [answer["answer_start"] for answer in found],
                        }
                    )
    except (KeyError, TypeError) as error:
        raise LimbeckError(
            f"{path}, {place}: not in SQuAD's layout: "
            + (f"no {error}" if isinstance(error, KeyError) else str(error)),
            "expected data → paragraphs → context, qas → question, answers → text, answer_start",
        ) from error
    if unanswered or not questions:
        raise LimbeckError(
            f"{path}: {unanswered} of {len(questions)} questions have no answer",
            "take them out: every question needs an answer in its context, as in SQuAD 1.1",
        )
    return questions, contexts, answers


# ---- the readers ----


Columns = dict[str, list[Any]]


class Wanted(NamedTuple):
    """The names of the columns to read: text, and label (None for text that is its own)."""

    texts: tuple[str, ...]
    label: str | None
    max_rows: int = MAX_ROWS


class KindLayout(NamedTuple):
    """How a kind's files are read, and which columns a table of it has unless others are named."""

    wanted: Wanted
    endings: tuple[str, ...]
    read: Callable[[Path, Wanted], Columns]


@data_reader("tags, answers or text")
class OwnKind(OnDisk):
    """Files of words to tag, questions to answer, or plain text."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """What is no class or number."""
        return super().reads(request) and request.task_type.row_layout == "own"

    def read_rows(self, request: DataRequest) -> Loaded:
        """CoNLL columns, SQuAD's JSON, lines of text, or named columns, which come out under the kind's own names.

        Tags are numbered as `labelling` has them, else as a Parquet file of the datasets library names them, else with
        "O" first and the rest in alphabetical order; a known task keeps its own.
        """
        kind = request.task_type
        if kind.name not in _LAYOUTS:
            raise LimbeckError(
                f"kind: limbeck reads no files of kind {kind.name}",
                "register a reader of them (limbeck.data_reader)",
            )
        layout = _LAYOUTS[kind.name]
        wanted = _wanted(layout.wanted, request)
        files = files_of(request.path, request.files, layout.endings)
        read = {split: layout.read(file, wanted) for split, file in files.items()}
        task = request.known or _new_task(request, layout.wanted, _tags(files, read, wanted))

        def rows(split: str) -> Rows:
            columns = (read[split][name] for name in wanted.texts)
            texts = dict(zip(task.text_columns, columns, strict=True))
            if wanted.label is None:  # masked text is its own label
                return texts, texts[task.label_column]
            return texts, _labels(task, read[split][wanted.label], files[split])

        def groups() -> np.ndarray | None:
            return _groups(files["train"], request.division.group_column, request.max_rows)

        return task, made_splits(request, task, files, rows, groups)


def _wanted(usual: Wanted, request: DataRequest) -> Wanted:
    texts, label = request.text_columns or usual.texts, request.label_column
    problems = []
    if len(texts) != len(usual.texts):
        problems.append(
            Problem(
                f"{len(texts)} text columns are named: {', '.join(texts)}",
                f"name {len(usual.texts)}: in place of {', '.join(usual.texts)}",
            )
        )
    if label is not None and usual.label is None:
        problems.append(
            Problem(f"label column {label!r}: the text is its own label", "leave it out")
        )
    if problems:
        raise LimbeckError(problems)
    return Wanted(texts, label or usual.label, request.max_rows)


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


def _new_task(request: DataRequest, usual: Wanted, found: Sequence[str]) -> Task:
    name, kind, labelling = request.new_name, request.task_type, request.labelling
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
    if form_of(files["train"]) == "parquet":
        with closing(open_rows(files["train"])) as source:
            stored = source.class_names.get(wanted.label)
        if stored:
            return stored
    written = read["train"][wanted.label]
    found = {tag for tags in written for tag in tags} if isinstance(written[0], list) else set()
    return sorted(found, key=lambda tag: (tag.upper() != "O", tag))


def _labels(task: Task, written: list[Any], path: Path) -> list[Any]:
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
    table = _table(path, wanted)
    columns = {name: table.named(name) for name in (wanted.texts[0], wanted.label)}
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
    table = _table(path, wanted)
    written = list(table.columns[wanted.label])
    for row, answers in enumerate(written, start=1):
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
    return {name: table.texts(name) for name in wanted.texts} | {wanted.label: written}


def _read_masked(path: Path, wanted: Wanted) -> Columns:
    if form_of(path) == "text":  # its one column is meant, whatever those of tables are called
        table = read_table(path, wanted.max_rows)
        return {wanted.texts[0]: table.texts(TEXT_COLUMN)}
    return {wanted.texts[0]: _table(path, wanted).texts(wanted.texts[0])}


def _table(path: Path, wanted: Wanted) -> FileTable:
    table = read_table(path, wanted.max_rows)
    names = [*wanted.texts, *([] if wanted.label is None else [wanted.label])]
    table.need(names, fix="name --text-columns and --label-column")
    return table


_LAYOUTS = {
    TOKENS.name: KindLayout(Wanted(("tokens",), "tags"), CONLL, _read_tokens),
    SPANS.name: KindLayout(Wanted(("question", "context"), "answers"), (), _read_spans),
    MASKED.name: KindLayout(Wanted(("text",), None), (), _read_masked),
}
