"""Texts that make a score say little: scored rows the student was trained on, and tokens that say nothing.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from limbeck.support.errors import Problem
from limbeck.tasks import Task
from limbeck.tasks.embedding_rows import texts_of_rows

# Of scored rows in train: below it repetitions are the data's own (CoLA has 1.5 %), and move no score by much.
REPEATED = 0.05
# Of tokens that a tokenizer does not know; those trained for a language leave almost none.
_UNKNOWN = 0.2
_CHARACTERS = 2000  # of a text are looked at
_SAMPLE = 512
_PIECE = 10_000


def rows_in_train(task: Task, rows: Mapping[str, Dataset]) -> dict[str, int]:
    """Count, by split, the scored rows whose texts also stand among the training rows.

    Case and outer whitespace make no difference. Two texts of a row have to stand in one training row, in the same
    order. A model of embeddings reads each text by itself: there every text has to stand in some training row.
    """
    scored = {split: _rows(task, rows[split][:]) for split in task.scored_splits if split in rows}
    train, wanted = rows["train"], {one for dev in scored.values() for row in dev for one in row}
    found: set[Hashable] = set()
    for start in range(0, len(train), _PIECE):  # of millions of rows few at a time
        read = _rows(task, train[start : start + _PIECE])
        found |= wanted.intersection(one for row in read for one in row)
    return {split: sum(found.issuperset(row) for row in dev) for split, dev in scored.items()}


def check_overlap(rows: Mapping[str, Dataset], in_train: Mapping[str, int]) -> list[Problem]:
    """Scored rows that are training rows too, on which a student is right by heart.

    Args:
        rows: the loaded splits.
        in_train: how many rows of each (`rows_in_train`).
    """
    problems = []
    for split, known in in_train.items():
        said = f"{split}: {known:,} of {len(rows[split]):,} rows are also training rows"
        if known > REPEATED * len(rows[split]):
            problems.append(
                Problem(
                    f"{said}, so scores there say what was learned by heart",
                    "remove repeated rows before the data is split, or give train and dev files of "
                    "different rows",
                    "warning",
                )
            )
        elif known:
            problems.append(Problem(said, "", "note"))
    return problems


def check_unknown_tokens(
    task: Task, train: Dataset, tokenizer: PreTrainedTokenizerBase, *, side: str
) -> list[Problem]:
    """A tokenizer that reads much of the text as its unknown token: that of another language or script."""
    if tokenizer.unk_token_id is None:
        return []
    columns = [[t[:_CHARACTERS] for t in c] for c in task.kind.texts(task, train[:_SAMPLE])]
    ids = tokenizer(*columns, add_special_tokens=False, verbose=False)["input_ids"]
    tokens = sum(map(len, ids))
    unknown = sum(row.count(tokenizer.unk_token_id) for row in ids)
    if unknown <= _UNKNOWN * tokens:
        return []
    return [
        Problem(
            f"{side}: its tokenizer does not know {100 * unknown / tokens:.0f} % of the tokens of "
            f"{len(ids)} training rows, which all become {tokenizer.unk_token!r}",
            "choose a model made for this language and script",
            "warning",
        )
    ]


def _rows(task: Task, rows: Mapping[str, Any]) -> list[tuple[Hashable, ...]]:
    """By row what is looked for among the training rows: all its texts together, or each by itself."""
    if not task.kind.embeds:
        columns = [map(_plain, column) for column in task.kind.texts(task, rows)]
        return [(texts,) for texts in zip(*columns, strict=True)]
    found: list[list[str]] = [[] for _ in rows[task.text_columns[0]]]
    for one in texts_of_rows(task, rows):
        found[one.place].append(_plain(one.text))
    return [tuple(texts) for texts in found]


def _plain(text: str) -> str:
    return text.strip().casefold()
