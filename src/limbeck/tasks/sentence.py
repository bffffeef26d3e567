"""One class or one number for a text or a pair: GLUE. Part of `limbeck.tasks`."""

from __future__ import annotations

from typing import Any

from datasets import ClassLabel, Value
from transformers import AutoModelForSequenceClassification

from limbeck.tasks.abstract_type import TASK_TYPES, task_type
from limbeck.tasks.batch_columns import CUT
from limbeck.tasks.classes import Classes
from limbeck.tasks.long_texts import encode_cut
from limbeck.tasks.modality import Processor
from limbeck.tasks.output_arrays import truncated
from limbeck.tasks.task_like import Rows, TaskLike


@task_type("sentence")
class Sentence(Classes):
    """Classification or regression of text."""

    summary = "one class or one number for a text or a pair"
    auto = AutoModelForSequenceClassification
    whole_text = True

    def features(self, task: TaskLike) -> dict[str, Any]:
        """Text, and a class id or a number."""
        label = Value("float32") if task.regression else ClassLabel(names=list(task.labels))
        return {column: Value("string") for column in task.text_columns} | {
            task.label_column: label
        }

    def encode(self, task: TaskLike, tokenizer: Processor, max_length: int, rows: Rows) -> Rows:
        """Pairs are cut token by token from the longer of the two texts."""
        return encode_texts(task, self.texts(task, rows), tokenizer, max_length, rows)


def encode_texts(
    task: TaskLike, texts: list[list[str]], tokenizer: Processor, max_length: int, rows: Rows
) -> Rows:
    """One text or two of each row, cut token by token from the longer; labels as they are."""
    encoded = encode_cut(tokenizer, *texts, max_length=max_length)
    columns: Rows = dict(encoded)
    columns["index"] = rows["index"]
    columns[CUT] = truncated(encoded)
    if task.label_column in rows:
        columns["labels"] = rows[task.label_column]
    return columns


SENTENCE = TASK_TYPES.get("sentence")
