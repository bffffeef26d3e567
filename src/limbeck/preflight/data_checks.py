"""Problems with the rows: columns, empty splits, labels, ids, and text that will be truncated.

Part of `limbeck.preflight`. Each check takes loaded splits as they are and returns its findings.
"""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from limbeck.data import Conditions
from limbeck.data.splits import plain_text
from limbeck.functional.labels import NO_LABEL
from limbeck.preflight.score_checks import teacher_record
from limbeck.support.errors import Problem, problem_list
from limbeck.tasks import Task
from limbeck.tasks.abstract_type import no_unlabelled

# Rows that are tokenised again to find the longest example, once it is known that some are cut.
_LENGTH_SAMPLE = 5_000


@problem_list
def check_values(task: Task, split: str, dataset: Dataset) -> Iterator[Problem]:
    """Rows without text (or image) or without a label the task knows."""
    columns = task.text_columns[: task.kind.needed_texts]
    for column in columns:
        blank = _blank(task, dataset, column)
        if blank:
            which = f" in {column!r}" if len(columns) > 1 else ""
            yield Problem(
                f"{split}: {blank} of {len(dataset)} rows have no {task.kind.reads.noun}{which}",
                "remove those rows, or check text_columns",
                "error" if blank == len(dataset) else "warning",
            )
    wrong = task.kind.check_rows(task, dataset)
    yield from [Problem(f"{split}: {what}", "fix or remove those rows") for what in wrong]
    if task.kind.row_layout != "one label":  # of several classes, tags and spans the type itself
        return
    labels = np.asarray(dataset.with_format("numpy")[task.label_column][:], dtype=np.float64)
    if split == "train" and no_unlabelled(task.kind) is None:
        labels = labels[~np.isnan(labels) if task.regression else labels != NO_LABEL]
        if not len(labels):
            return
    unknown = ~np.isfinite(labels)
    if not task.regression:
        unknown |= ~np.isin(labels, np.arange(len(task.labels)))
    if unknown.any():
        there = ", ".join(str(value) for value in np.unique(labels[unknown])[:5])
        allowed = "a number" if task.regression else f"0..{len(task.labels) - 1}"
        yield Problem(
            f"{split}: {int(unknown.sum())} of {len(dataset)} labels are not {allowed}: {there}",
            "remove rows without a label, or check label_column",
        )
    elif len(np.unique(labels)) == 1:
        only = labels[0] if task.regression else task.labels[int(labels[0])]
        yield Problem(
            f"{split}: every row has the same label, {only}",
            "take rows of every class: nothing can be learned or scored from one",
            "warning",
        )


def _blank(task: Task, dataset: Dataset, column: str) -> int:
    """The number of blank rows in a column: for text by Arrow, as there may be millions."""
    values = dataset.with_format("arrow")[:].column(column)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return sum(1 for value in dataset[column][:] if task.kind.reads.is_blank(value))
    trimmed = (pc.binary_length(pc.utf8_trim_whitespace(chunk)) for chunk in values.chunks)
    return sum(int(np.sum(lengths.fill_null(0).to_numpy(False) == 0)) for lengths in trimmed)


@problem_list
def check_truncation(
    task: Task,
    rows: Mapping[str, Dataset],
    truncated: Mapping[str, int],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> Iterator[Problem]:
    """Examples that lose text to the length limit: how many, of how many, and the longest.

    `truncated` are the counts `encode` returned. The longest is sought among the 5,000 rows
    with the most characters, so that a large split costs no second pass.
    """
    for split, cut in truncated.items():
        if not cut or split not in rows:
            continue
        limit = max_length if split == "train" else task.kind.scored_length(max_length)
        setting = "max_length" if limit == max_length else "embedding.max_tokens"
        total = len(rows[split])
        longest = longest_of(task, rows[split], tokenizer)
        yield Problem(
            f"{split}: {cut} of {total} examples ({100 * cut / total:.1f} %) are cut to "
            f"{setting} {limit}; the longest has {longest} tokens",
            f"raise {setting} as far as the models have positions ({longest} would cut none), or accept the loss",
            "warning",
        )


@problem_list
def check_scored_length(task: Task, max_length: int) -> Iterator[Problem]:
    """Rows of training with a larger length limit than the scored rows."""
    scored = task.kind.scored_length(max_length)
    if scored >= max_length:
        return
    yield Problem(
        f"max_length {max_length}: the student is scored with {scored} tokens of a text, and shipped so",
        f"set embedding.max_tokens={max_length} to ship it as it is trained, or max_length={scored}",
        "warning",
    )


def longest_of(task: Task, dataset: Dataset, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of the longest example, special tokens included."""
    columns = task.kind.texts(task, dataset[:])
    characters = np.array([sum(len(text) for text in row) for row in zip(*columns, strict=True)])
    order = np.argsort(-characters, kind="stable")[:_LENGTH_SAMPLE]
    longest = [[column[row] for row in order] for column in columns]
    return max(task.kind.lengths_of(tokenizer, longest))


# Were teacher and student trained on the same rows: as few of them, with the same noise. A teacher
# trained by limbeck has its rows in its record.


# What decides nothing unless another key is set.
_IDLE_WITHOUT = {
    "train_rows_seed": "train_rows",
    "stratified": "train_rows",
    "label_noise_seed": "label_noise",
}


@problem_list
def check_conditions(
    path: str | Path | None, task: Task, student: Conditions, *, setting: str = "teacher"
) -> Iterator[Problem]:
    """A teacher of this task whose training rows were under other conditions than the student's."""
    found = teacher_record(path, task)
    if found is None:
        return
    record, place = found
    recipe = record.get("recipe") or {}
    # A record of a version that knew no such condition: there was none.
    known = {key: recipe[key] for key in Conditions._fields if key in recipe}
    theirs, ours = _said(Conditions()._replace(**known)), _said(student)
    if theirs == ours:
        return
    others = (key for key in Conditions._fields if theirs.get(key) != ours.get(key))
    changes = " ".join(
        f"{key}={theirs.get(key) or _written(Conditions._field_defaults[key])}"
        for key in others
        if key in theirs or key not in _IDLE_WITHOUT
    )
    yield Problem(
        f"{setting}: it was trained on {_words(theirs)}, the student is to be on {_words(ours)} ({place})",
        f"give a teacher that saw the same rows, or give the student the teacher's: {changes}; "
        "if it is meant so: teacher_rows=any",
        "warning",
    )


def _said(conditions: Conditions) -> dict[str, str]:
    """The conditions that decide something."""
    given = conditions._asdict()
    return {
        key: _written(value) for key, value in given.items() if given[_IDLE_WITHOUT.get(key, key)]
    }


def _words(said: dict[str, str]) -> str:
    if not said:
        return "all rows as they are"
    return "rows with " + " ".join(f"{key}={value}" for key, value in said.items())


def _written(value: object) -> str:
    return "null" if value is None else str(value).lower()


# Whether a model was trained for one class per row, or for any number, as the rows are.


_SEVERAL = "multi_label_classification"


@problem_list
def other_problem(side: str, config: PretrainedConfig, task: Task) -> Iterator[Problem]:
    """Classes that exclude each other on one side, and do not on the other."""
    trained, wanted = getattr(config, "problem_type", None), task.kind.problem_type
    if trained is None or not task.kind.row_classes(task):
        return
    if (trained == wanted) or (wanted is None and trained != _SEVERAL):
        return
    of_several = f"any number of classes per row ({_SEVERAL})"
    one = "a number" if trained == "regression" else "one class per row"
    theirs = of_several if wanted is None else f"{one} ({trained})"
    ours, kind = ("one", "multi-label") if wanted is None else ("any number of classes", "sentence")
    yield Problem(
        f"{side}: it was trained for {theirs}, and rows of {task.name} have {ours}",
        f"give a {side} that was fine-tuned on {task.name}, or set kind={kind}",
    )


@problem_list
def unsaid_problem(side: str, config: PretrainedConfig, task: Task) -> Iterator[Problem]:
    """A teacher for rows of any number of classes whose own classes may or may not exclude each other."""
    trained = getattr(config, "problem_type", None)
    if task.kind.problem_type is None or trained is not None or config.num_labels == 1:
        return
    yield Problem(
        f"{side}: its config.json does not state whether it was trained for one class per row; its outputs are read as "
        "separate probabilities of each class",
        f"write problem_type: {_SEVERAL} into it if that is right; a model that was trained for one class per row "
        "(softmax) teaches kind=sentence",
        "warning",
    )


# Texts that make a score unreliable: scored rows the student was trained on, and uninformative
# tokens.


# Share of scored rows in train: below it repetitions are the data's own (CoLA has 1.5 %), and hardly affect scores.
REPEATED = 0.05
# Share of tokens that a tokenizer does not know; one trained for the language has almost no unknown tokens.
_UNKNOWN = 0.2
_CHARACTERS = 2000  # of a text are looked at
_SAMPLE = 512
_PIECE = 10_000
_NEAR = 0.9  # of the words of both
_READ, _START = 50_000, 1000  # training rows, and characters of each text, that are looked at


def rows_in_train(task: Task, rows: Mapping[str, Dataset]) -> dict[str, int]:
    """Count, by split, the scored rows whose texts are also among the training rows (`count_among`)."""
    scored = {split: rows[split] for split in task.scored_splits if split in rows}
    return count_among(task, scored, task, [rows["train"]])


def count_among(
    task: Task, scored: Mapping[str, Dataset], own: Task, others: Iterable[Dataset]
) -> dict[str, int]:
    """Count, by split, the rows whose texts are also among others, whose columns are those of `own`.

    Case and outer whitespace make no difference. Two texts of a row must be in one other row, in the same
    order. A model of embeddings reads each text separately: there every text must be in some other row.
    """
    read = {split: _rows(task, rows[:]) for split, rows in scored.items()}
    wanted = {one for rows in read.values() for row in rows for one in row}
    found: set[Hashable] = set()
    for rows in others:
        for start in range(0, len(rows), _PIECE):  # of millions of rows few at a time
            piece = _rows(own, rows[start : start + _PIECE])
            found |= wanted.intersection(one for row in piece for one in row)
    return {split: sum(found.issuperset(row) for row in rows) for split, rows in read.items()}


def near_copies(task: Task, rows: Mapping[str, Dataset]) -> dict[str, int]:
    """Count, by split, the scored rows that share nine tenths of their words with a training row, equal ones among
    them. Punctuation and the order of words make no difference. Texts are read up to their thousandth character, of the
    training rows up to 50,000, evenly spaced.

    Two sets that share so much also share one of the few rarest words of each: only such pairs are compared.
    """
    scored = {split: _rows(task, rows[split][:]) for split in task.scored_splits if split in rows}
    sets = {one: _word_set(one) for read in scored.values() for row in read for one in row}
    counts = Counter(word for words in sets.values() for word in words)

    def rarest(words: Set[Hashable]) -> list[Hashable]:
        many = len(words) - math.ceil(_NEAR * len(words)) + 1
        if sum(word not in counts for word in words) >= many:  # no scored row has its rarest
            return []
        return sorted(words, key=lambda word: (counts[word], word))[:many]

    having: dict[Hashable, list[Hashable]] = {}
    for one, words in sets.items():
        for word in rarest(words):
            having.setdefault(word, []).append(one)
    train, found = rows["train"], set[Hashable]()
    step = -(-len(train) // _READ) or 1
    for start in range(0, len(train), _PIECE * step):
        chosen = range(start, min(start + _PIECE * step, len(train)), step)
        for words in (_word_set(one) for row in _rows(task, train[chosen]) for one in row):
            near = {one for word in rarest(words) for one in having.get(word, ())}
            found |= {
                one for one in near if len(sets[one] & words) >= _NEAR * len(sets[one] | words)
            }
    return {split: sum(found.issuperset(row) for row in read) for split, read in scored.items()}


@problem_list
def check_overlap(
    task: Task, rows: Mapping[str, Dataset], in_train: Mapping[str, int]
) -> Iterator[Problem]:
    """Scored rows that are training rows too, on which a student is right by heart, or nearly are.

    Args:
        task: the task.
        rows: the loaded splits.
        in_train: how many rows of each (`rows_in_train`), empty for images.
    """
    for split, near in (near_copies(task, rows) if in_train else {}).items():
        if near > in_train[split]:
            yield Problem(
                f"{split}: {near - in_train[split]:,} of {len(rows[split]):,} rows share nine tenths of their words "
                "with a training row",
                "",
                "note",
            )
    for split, known in in_train.items():
        said = f"{split}: {known:,} of {len(rows[split]):,} rows are also training rows"
        if known > REPEATED * len(rows[split]):
            yield Problem(
                f"{said}, so scores there measure memorization",
                "remove repeated rows before the data is split, or give train and dev files of different rows",
                "warning",
            )
        elif known:
            yield Problem(said, "", "note")


@problem_list
def check_unknown_tokens(
    task: Task, train: Dataset, tokenizer: PreTrainedTokenizerBase, *, side: str
) -> Iterator[Problem]:
    """A tokenizer that reads much of the text as its unknown token: one for another language or script."""
    if tokenizer.unk_token_id is None:
        return
    some = train[range(0, len(train), -(-len(train) // _SAMPLE) or 1)]
    columns = [[t[:_CHARACTERS] for t in c] for c in task.kind.texts(task, some)]
    ids = tokenizer(*columns, add_special_tokens=False, verbose=False)["input_ids"]
    # The mean over rows: a long text without spaces may become one unknown token.
    unknown = sum(row.count(tokenizer.unk_token_id) / max(1, len(row)) for row in ids) / len(ids)
    if unknown <= _UNKNOWN:
        return
    yield Problem(
        f"{side}: its tokenizer does not know {100 * unknown:.0f} % of the tokens of "
        f"{len(ids)} training rows, which all become {tokenizer.unk_token!r}",
        "choose a model made for this language and script",
        "warning",
    )


def _rows(task: Task, rows: Mapping[str, Any]) -> list[tuple[Hashable, ...]]:
    """By row the texts looked up among the training rows: all of a row together, or each separately."""
    found = task.kind.compared_texts(task, rows)
    return [tuple(tuple(map(plain_text, texts)) for texts in row) for row in found]


def _word_set(texts: Hashable) -> Set[Hashable]:
    """The words of texts that are looked up together, each with its text's place and its number among equal ones.

    A text without words is one itself.
    """
    assert isinstance(texts, tuple)
    return {
        (place, word, number)
        for place, text in enumerate(texts)
        for word, count in Counter(re.findall(r"\w+", text[:_START]) or [text]).items()
        for number in range(count)
    }
