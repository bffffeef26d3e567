"""Texts that make a score say little: dev rows the student was trained on, and tokens that say nothing.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from limbeck.errors import Problem
from limbeck.tasks import Task

# Of dev rows in train: below it repetitions are the data's own (CoLA has 1.5 %), and move no score by much.
REPEATED = 0.05
# Of tokens that a tokenizer does not know; those trained for a language leave almost none.
_UNKNOWN = 0.2
_CHARACTERS = 2000  # of a text are looked at
_SAMPLE = 512
_PIECE = 10_000


def check_overlap(task: Task, rows: Mapping[str, Dataset]) -> list[Problem]:
    """Dev rows that stand in train word for word, on which a student is right by heart."""
    scored = {split: _rows(task, rows[split][:]) for split in task.scored_splits if split in rows}
    train, wanted = rows["train"], {row for dev in scored.values() for row in dev}
    found: set[tuple[str, ...]] = set()
    for start in range(0, len(train), _PIECE):  # of millions of rows few at a time
        found |= wanted.intersection(_rows(task, train[start : start + _PIECE]))
    problems = []
    for split, dev in scored.items():
        known = sum(row in found for row in dev)
        if known > REPEATED * len(dev):
            problems.append(
                Problem(
                    f"{split}: {known} of {len(dev)} rows stand in train too, word for word, so scores there "
                    "say what was learned by heart",
                    "remove repeated rows before the data is split, or give train and dev files of "
                    "different rows",
                    "warning",
                )
            )
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


def _rows(task: Task, rows: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return list(zip(*task.kind.texts(task, rows), strict=True))
