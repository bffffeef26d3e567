"""What is wrong with the rows: columns, empty splits, labels, ids, and text that will be cut.

Part of `limbeck.preflight`. Each check takes loaded splits as they are and returns its findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import Problem
from limbeck.tasks import Task
from limbeck.tasks.known_types import no_unlabelled
from limbeck.tasks.long_texts import tokens_of

# Rows that are tokenised again to find the longest example, once it is known that some are cut.
_LENGTH_SAMPLE = 5_000


def check_columns(task: Task, rows: Mapping[str, Dataset], needed: Sequence[str]) -> list[Problem]:
    """Splits that are missing or empty, and columns that a needed split lacks."""
    problems = []
    for split in needed:
        if split not in rows:
            problems.append(
                Problem(
                    f"data of task {task.name!r}: no {split!r} split",
                    f"splits that are there: {', '.join(rows) or 'none'}; training needs {split!r}",
                )
            )
            continue
        if len(rows[split]) == 0:
            problems.append(
                Problem(f"data of task {task.name!r}: the {split!r} split is empty", "add rows")
            )
        present = rows[split].column_names
        missing = [c for c in (*task.text_columns, task.label_column) if c not in present]
        if missing:
            problems.append(
                Problem(
                    f"data of task {task.name!r}: the {split!r} split lacks "
                    f"{', '.join(map(repr, missing))}",
                    f"columns that are there: {', '.join(present)}; set text_columns and "
                    "label_column",
                )
            )
    return problems


def check_values(task: Task, split: str, dataset: Dataset) -> list[Problem]:
    """Rows without text (or image) or without a label the task knows."""
    problems = []
    for column in task.text_columns[: task.kind.needed_texts]:
        blank = _blank(task, dataset, column)
        if blank:
            problems.append(
                Problem(
                    f"{split}: {blank} of {len(dataset)} rows have no {task.kind.reads.noun} in {column!r}",
                    "remove those rows, or check text_columns",
                    "warning",
                )
            )
    wrong = task.kind.check_rows(task, dataset)
    problems += [Problem(f"{split}: {what}", "fix or remove those rows") for what in wrong]
    if not task.kind.has_classes:  # of several classes, tags and spans the type itself
        return problems
    try:
        labels = np.asarray(dataset.with_format("numpy")[task.label_column][:], dtype=np.float64)
    except (TypeError, ValueError):
        problems.append(
            Problem(
                f"{split}: the labels in {task.label_column!r} are not numbers",
                "load the data with limbeck.data.load_task, which numbers the classes",
            )
        )
        return problems
    if split == "train" and no_unlabelled(task.kind) is None:
        labels = labels[~np.isnan(labels) if task.regression else labels != NO_LABEL]
        if not len(labels):
            return problems
    unknown = ~np.isfinite(labels)
    if not task.regression:
        unknown |= ~np.isin(labels, np.arange(len(task.labels)))
    if unknown.any():
        there = ", ".join(str(value) for value in np.unique(labels[unknown])[:5])
        allowed = "a number" if task.regression else f"0..{len(task.labels) - 1}"
        problems.append(
            Problem(
                f"{split}: {int(unknown.sum())} of {len(dataset)} labels are not {allowed}: {there}",
                "remove rows without a label, or check label_column",
            )
        )
    elif len(np.unique(labels)) == 1:
        only = labels[0] if task.regression else task.labels[int(labels[0])]
        problems.append(
            Problem(
                f"{split}: every row has the same label, {only}",
                "take rows of every class: nothing can be learned or scored from one",
                "warning",
            )
        )
    return problems


def _blank(task: Task, dataset: Dataset, column: str) -> int:
    """How many rows say nothing in a column: of text by Arrow, as there may be millions."""
    values = dataset.with_format("arrow")[:].column(column)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return sum(1 for value in dataset[column][:] if task.kind.reads.is_blank(value))
    trimmed = (pc.binary_length(pc.utf8_trim_whitespace(chunk)) for chunk in values.chunks)
    return sum(int(np.sum(lengths.fill_null(0).to_numpy(False) == 0)) for lengths in trimmed)


def check_ids(split: str, dataset: Dataset, column: str = "index") -> list[Problem]:
    """Rows that share an id; ids join predictions and cached teacher outputs to their rows."""
    if column not in dataset.column_names:
        return []
    ids = dataset.with_format("numpy")[column][:]
    repeated = len(ids) - len(np.unique(ids))
    if not repeated:
        return []
    return [
        Problem(
            f"{split}: {repeated} of {len(ids)} rows repeat the {column!r} of another row",
            "give every row its own number",
        )
    ]


def check_truncation(
    task: Task,
    rows: Mapping[str, Dataset],
    truncated: Mapping[str, int],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> list[Problem]:
    """Examples that lose text to the length limit: how many, of how many, and the longest.

    `truncated` are the counts `encode` returned. The longest is sought among the 5,000 rows
    with the most characters, so that a large split costs no second pass.
    """
    problems = []
    for split, cut in truncated.items():
        if not cut or split not in rows:
            continue
        limit = max_length if split == "train" else task.kind.scored_length(max_length)
        setting = "max_length" if limit == max_length else "embedding.max_tokens"
        total = len(rows[split])
        longest = longest_of(task, rows[split], tokenizer)
        problems.append(
            Problem(
                f"{split}: {cut} of {total} examples ({100 * cut / total:.1f} %) are cut to "
                f"{setting} {limit}; the longest has {longest} tokens",
                f"raise {setting} as far as the models have positions ({longest} would cut none), or accept the loss",
                "warning",
            )
        )
    return problems


def check_scored_length(task: Task, max_length: int) -> list[Problem]:
    """Rows of training that are read further than those that are scored."""
    scored = task.kind.scored_length(max_length)
    if scored >= max_length:
        return []
    return [
        Problem(
            f"max_length {max_length}: the student is scored with {scored} tokens of a text, and shipped so",
            f"set embedding.max_tokens={max_length} to ship it as it is trained, or max_length={scored}",
            "warning",
        )
    ]


def longest_of(task: Task, dataset: Dataset, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of the longest example, special tokens included."""
    columns = task.kind.texts(task, dataset[:])
    characters = np.array([sum(len(text) for text in row) for row in zip(*columns, strict=True)])
    order = np.argsort(-characters, kind="stable")[:_LENGTH_SAMPLE]
    special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
    return special + max(
        sum(tokens_of(tokenizer, column[row]) for column in columns) for row in order
    )
