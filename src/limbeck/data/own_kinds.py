"""`--data FILE --kind …`: a user's own tokens to tag, questions to answer, or plain text.

A source of the data stage, next to `own`, which reads classes and numbers. Files: CoNLL columns,
SQuAD's JSON, lines of text, or tables with the columns that are named. A single file is divided into
train, dev and test; a folder may hold train, dev (or validation) and test files.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limbeck.data import files
from limbeck.data.label_column import class_order
from limbeck.data.own import Rows, files_of, groups_of, made_splits
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.table import FileTable, miscounted_texts, read_table
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.plain import loads
from limbeck.tasks import CAUSAL_LM, MASKED, SPANS, TOKENS
from limbeck.tasks.positions import metrics_for_tags, said_of_tags
from limbeck.tasks.task import Task

# Reading words and tags in columns, as the CoNLL shared tasks write them. A line holds a word,
# whatever else, and last its tag, with tabs or spaces between; a blank line ends a sentence.
# Comments (`# sent_id = 3`) and `-DOCSTART-` lines are no words. A line that begins with "#" is a word
# (`#metoo NOUN`) if it has as many columns, and the same tag, as lines that do not.


_DOCUMENT = "-DOCSTART-"
_HEADINGS = ("word", "token", "words", "tokens")
Columns = list[list[Any]]
"""The columns of a file in the requested order."""


def read_conll(path: Path) -> Columns:
    """Read the words of each sentence, and their tags (the last column).

    A first line with "word" or "token" is a header.

    Raises:
        LimbeckError: a line without a tag, a column of numbers instead of words, a file without sentences.
    """
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    with files.readable(path):
        lines = [*files.lines_of(path)]
        known = [_conll_fields(line) for line in lines if line.strip() and not line.startswith("#")]
        widths, last = {len(fields) for fields in known}, {fields[-1].strip() for fields in known}
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith(_DOCUMENT):
                words.append([])
                tags.append([])
                continue
            fields = _conll_fields(line)
            if number == 1 and fields[0].lower() in _HEADINGS:
                continue
            if line.startswith("#") and not (
                len(fields) in widths
                and (" " not in fields[0] if "\t" in line else fields[-1].strip() in last)
            ):
                continue  # a comment
            if len(fields) < 2 or not fields[0] or not fields[-1].strip():
                raise LimbeckError(
                    f"{path}, line {number}: expected a word and its tag, found {line[:60]!r}",
                    "write word TAB tag, one word per line, and a blank line after each sentence",
                )
            words[-1].append(fields[0])
            tags[-1].append(fields[-1].strip())
    words, tags = ([row for row in rows if row] for rows in (words, tags))
    if not words:
        raise LimbeckError(f"{path} holds no sentences", "check that the right file is named")
    counted = all(row == list(map(str, range(1, len(row) + 1))) for row in words)
    if counted and any(len(row) > 1 for row in words):
        raise LimbeckError(
            f"{path}: the first column numbers the words (1, 2, …), and is no column of words",
            "write word TAB tag, one word per line; remove the first column of CoNLL-U",
        )
    return [words, tags]


def _conll_fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.rstrip(" ").split(" ")


# Reading SQuAD's own JSON: articles of paragraphs of questions.


def squad_articles(path: Path) -> list[Any] | None:
    """The articles of a file that is one JSON object with the key `data`; None of any other file."""
    try:
        with files.opened_text(path) as file:
            content = loads(file.read())
    except (OSError, ValueError):
        return None
    articles = content.get("data") if isinstance(content, dict) else None
    return articles if isinstance(articles, list) else None


def _articles(path: Path) -> list[Any] | None:
    """The same, of a file whose name may be such a file's."""
    return squad_articles(path) if files.ending_of(path) == ".json" else None


def read_squad(path: Path, articles: Sequence[Any]) -> Columns:
    """Questions, contexts and answers.

    Raises LimbeckError for another layout inside, and for questions without an answer (SQuAD 2.0):
    they have no score in SQuAD 1.1.
    """
    rows: list[tuple[str, str, dict[str, list[Any]]]] = []
    unanswered = 0
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    texts, found = (asked["question"], paragraph["context"]), asked["answers"]
                    answers = [one["text"] for one in found]
                    starts = [one["answer_start"] for one in found]
                    if not all(isinstance(text, str) for text in texts):
                        raise TypeError(f"a question or context is no text: {asked!r:.80}")
                    if strange := _strange_answer(answers, starts, texts[1]):
                        raise TypeError(f"{strange}: {found!r:.80}")
                    unanswered += not found
                    rows.append((*texts, {"text": answers, "answer_start": starts}))
    except (KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise LimbeckError(
            f"{path}, behind question {len(rows)}: not in SQuAD's layout: {reason}",
            "expected data → paragraphs → context, qas → question, answers → text, answer_start",
        ) from error
    if unanswered or not rows:
        raise LimbeckError(
            f"{path}: {unanswered} of {len(rows)} questions have no answer",
            "take them out: every question needs an answer in its context, as in SQuAD 1.1",
        )
    return [list(column) for column in zip(*rows, strict=True)]


def _strange_answer(texts: Sequence[Any], starts: Sequence[Any], context: str) -> str | None:
    """What of a question's answers is no text, or no place in its context; None if nothing is."""
    if not all(isinstance(text, str) for text in texts):
        return "an answer is no text"
    if not all(type(one) is int and 0 <= one <= len(context) for one in starts):
        return "an answer_start is no place in the text"
    return None


# ---- the readers ----


class KindLayout(NamedTuple):
    """Which columns a table of a kind has, and how its files are read.

    Attributes:
        texts: names of the text columns, unless others are named.
        label: name of the label column; None for text that is its own label.
        endings: endings of files in addition to the usual ones.
        read: reads the columns of a file by their names, the label's last.
        other_label: name of the label column in a table that lacks `label`.
    """

    texts: tuple[str, ...]
    label: str | None
    endings: tuple[str, ...]
    read: Callable[[Path, Sequence[str]], Columns]
    other_label: str | None = None


@data_reader("tags, answers or text")
class OwnKind(OnDisk):
    """Files of words to tag, questions to answer, or plain text."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """Requests for other data than classes or numbers."""
        return super().reads(request) and request.task_type.row_layout == "own"

    def read_rows(self, request: DataRequest) -> Loaded:
        """CoNLL columns, SQuAD's JSON, lines of text, or named columns, which come out under the kind's own names.

        Tags are numbered as in `labelling`, otherwise by the datasets library's names in a Parquet file, otherwise with
        "O" first and the rest in alphabetical order; a known task keeps its own.
        """
        kind = request.task_type
        if kind.name not in _LAYOUTS:
            raise LimbeckError(
                f"kind: limbeck reads no files of kind {kind.name}",
                "register a reader of them (limbeck.data_reader)",
            )
        layouts = _LAYOUTS[kind.name]
        files = files_of(request.path, request.files, layouts[0].endings)
        layout = _layout(layouts, request, files["train"])
        names = _named(layout, request, files["train"])
        if layout.label and "test" in files and not _has_labels(files["test"], names[-1]):
            del files["test"]
        read = {split: layout.read(file, names) for split, file in files.items()}
        train, tags = files["train"], read["train"][-1]
        task = request.known or _new_task(request, layout, _tags(train, names[-1], tags))
        rows = {
            split: Rows(
                dict(zip(task.text_columns, columns, strict=False)),
                _as_ids(task, columns[-1], files[split]),
            )
            for split, columns in read.items()
        }
        groups = _groups(train, request.division.group_column)
        return task, made_splits(request, task, rows, groups)


def _layout(layouts: Sequence[KindLayout], request: DataRequest, path: Path) -> KindLayout:
    """The layout with as many text columns as are given, otherwise the first that fits the table, or the last."""
    first, *others = layouts
    if not others:
        return first
    if request.text_columns:
        fits = (one for one in layouts if len(one.texts) == len(request.text_columns))
    else:
        with closing(files.open_rows(path)) as source:
            columns = {*source.columns}
        fits = (one for one in layouts if columns.issuperset(one.texts))
    return next(fits, others[-1])


def _named(usual: KindLayout, request: DataRequest, path: Path) -> list[str]:
    """The columns of a table, the label's last."""
    texts, label = request.text_columns or usual.texts, request.label_column
    width = len(usual.texts)
    reader = f"kind {request.task_type.name} ({', '.join(usual.texts)})"
    found = miscounted_texts(texts, width, width, reader)
    problems = [] if found is None else [found]
    if label is not None and usual.label is None:
        problems.append(
            Problem(f"label column {label!r}: the text is its own label", "leave it out")
        )
    raise_problems(problems)
    if usual.label is None:
        return [*texts]
    return [*texts, label or _usual_label(usual, path)]


def _usual_label(usual: KindLayout, path: Path) -> str:
    """The layout's name of the label column, or its other name if a table has only that."""
    label, other = usual.label or "", usual.other_label
    if other is None or _in_columns(path) or not path.is_file():  # reading a pipe would wait
        return label
    with closing(files.open_rows(path)) as source:
        return other if other in source.columns and label not in source.columns else label


def _has_labels(path: Path, label: str) -> bool:
    """Whether a file has labels; a file that has only the columns of its kind is taken to have some."""
    if _in_columns(path) or _articles(path) is not None:
        return True
    with closing(files.open_rows(path)) as source:
        return label in source.columns


def _groups(path: Path, column: str | None) -> np.ndarray | None:
    """As `groups_of`, for a table; raises LimbeckError for a file that has only the columns of its kind."""
    if column is None:
        return None
    if files.form_of(path) in (None, "text") or _articles(path) is not None:
        raise LimbeckError(
            f"group_column: {path} has no column {column!r}",
            "give a table with that column (CSV, JSON lines, Parquet), or files for train, dev and test",
        )
    return groups_of(read_table(path), column)


def _new_task(request: DataRequest, usual: KindLayout, found: Sequence[str]) -> Task:
    name, kind, labelling = request.new_name, request.task_type, request.labelling
    label = usual.label or usual.texts[-1]
    if kind is not TOKENS and (labelling.classes or labelling.holds):
        raise LimbeckError(
            f"classes, labels: a task of kind {kind.name} has no classes", "leave them out"
        )
    task = Task(name, name, usual.texts, (), (), "accuracy", label_column=label, kind=kind)
    if kind is SPANS:
        return replace(task, metrics=("exact_match", "f1"), primary="f1")
    if kind.language_model:
        return replace(task, metrics=("accuracy", "perplexity"))
    tags = class_order(found, labelling, "the column of tags")
    metrics, primary = metrics_for_tags(tags)
    return replace(task, labels=tags, metrics=metrics, primary=primary, said=said_of_tags(tags))


def _tags(path: Path, column: str, written: list[Any]) -> Sequence[str]:
    """The tags of the training rows, in the order of their ids; none of labels that are no lists."""
    if not isinstance(written[0], list):
        return ()
    if files.form_of(path) == "parquet":
        with closing(files.open_rows(path)) as source:
            if stored := source.class_names.get(column):
                return stored
    return sorted({*chain.from_iterable(written)}, key=lambda tag: (tag.upper() != "O", tag))


def _as_ids(task: Task, written: list[Any], path: Path) -> list[Any]:
    """Tags as ids; other labels as they are."""
    if not task.labels:
        return written
    ids = {tag: number for number, tag in enumerate(task.labels)}
    for row, tags in enumerate(written, start=1):
        if strange := [tag for tag in tags if tag not in ids]:
            raise LimbeckError(
                f"{path}, row {row}: the tag {strange[0]!r}",
                f"tags of the task: {', '.join(task.labels[:20])}",
            )
    return [[ids[tag] for tag in tags] for tags in written]


# ---- files ----


def _in_columns(path: Path) -> bool:
    """Whether a file of words and tags is written as CoNLL's."""
    return files.ending_of(path) in files.CONLL or files.form_of(path) in ("tsv", "text")


def _read_tokens(path: Path, names: Sequence[str]) -> Columns:
    if _in_columns(path):
        return read_conll(path)
    table = _table(path, names)
    columns = [table.named(name) for name in names]
    for row, both in enumerate(zip(*columns, strict=True), start=1):
        for name, values in zip(names, both, strict=True):
            if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                lacks = isinstance(values, list) and None in values
                raise LimbeckError(
                    f"{path}, row {row}: {name} is {values!r:.80}, expected a list of strings",
                    "leave out rows in which a word has no tag (predict gives none to words beyond max_length)"
                    if lacks
                    else 'write {"tokens": ["…"], "tags": ["O"]}, one object per line',
                )
        words, tags = both
        if len(words) != len(tags) or not words:
            raise LimbeckError(
                f"{path}, row {row}: {len(words)} words and {len(tags)} tags",
                "give every word one tag",
            )
    return columns


def _read_spans(path: Path, names: Sequence[str]) -> Columns:
    if (articles := _articles(path)) is not None:
        return read_squad(path, articles)
    table = _table(path, names)
    *names_of_texts, label = names
    texts, written = [table.texts(name) for name in names_of_texts], list(table.columns[label])
    for row, (context, answers) in enumerate(zip(texts[-1], written, strict=True), start=1):
        both = answers if isinstance(answers, dict) else {}
        found = both.get("text"), both.get("answer_start")
        lists = [one for one in found if isinstance(one, list)]
        if len(lists) < 2 or len(lists[0]) != len(lists[1]):
            raise LimbeckError(
                f"{path}, row {row}: {label} is {answers!r:.80}",
                'expected {"text": ["…"], "answer_start": [0]}, as in SQuAD',
            )
        if strange := _strange_answer(lists[0], lists[1], context):
            raise LimbeckError(
                f"{path}, row {row}: {strange}: {answers!r:.80}",
                "answer_start is the number of the answer's first character in the context, from 0",
            )
    return [*texts, written]


def _read_texts(path: Path, names: Sequence[str]) -> Columns:
    if files.form_of(path) == "text" and len(names) == 1:
        # Its one column is meant, whatever the columns of tables are called.
        names = [files.TEXT_COLUMN]
    table = _table(path, names)
    return [table.texts(name) for name in names]


def _table(path: Path, names: Sequence[str]) -> FileTable:
    table = read_table(path)
    table.need(names, fix="name --text-columns and --label-column")
    return table


WORDS = "tokens"
"""The column of the words that are tagged."""
_TEXT = KindLayout(("text",), None, (), _read_texts)
_LAYOUTS = {
    TOKENS.name: (KindLayout((WORDS,), "tags", files.CONLL, _read_tokens, "ner_tags"),),
    SPANS.name: (KindLayout(("question", "context"), "answers", (), _read_spans),),
    MASKED.name: (_TEXT,),
    CAUSAL_LM.name: (KindLayout(("prompt", "answer"), None, (), _read_texts), _TEXT),
}
