"""The scores of a checkpoint that is no run of limbeck's. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence

from datasets import Dataset
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.data import Collator, Labelling, encode, load_task
from limbeck.embedding import modules_of
from limbeck.run.class_checks import class_names, resolve_class_order
from limbeck.run.known_classes import names_at
from limbeck.run.model_predictions import compact_outputs_of
from limbeck.run.model_thresholds import decided_by
from limbeck.run.scored_split import Scored, split_to_score
from limbeck.students import load_model, read_config, read_processor
from limbeck.support.errors import LimbeckError
from limbeck.tasks import (
    SENTENCE,
    TASKS,
    Processor,
    Results,
    Task,
    TaskType,
    kind_of_config,
)

# A model without a limit, or one of thousands of tokens, is measured on texts this long.
LONGEST = 512
_HUB = "hub"


def score_checkpoint(
    path: str,
    task: str | None,
    data: str | None,
    split: str | None = None,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Scored:
    """A fine-tuned model's predictions by its own tokenizer, on a task's rows or a user's own.

    Raises:
        LimbeckError: no such checkpoint, no task named, rows or classes that do not fit the model.
    """
    config = read_config(path)
    if task is None and data is None:
        raise LimbeckError(
            f"evaluate: {path} is no run of limbeck's, and a checkpoint does not say what to score it on",
            "add --task and --data, say --task mrpc --data glue, or --data FILE with its columns",
        )
    kind = kind_of_config(config)
    target, rows = load_task(
        task,
        data or _HUB,
        text_columns=text_columns,
        label_column=label_column,
        kind=wanted_kind(kind, task),
        labelling=Labelling(teacher=names_at(path)),
        for_training=False,
    )
    chosen = split_to_score(target, rows, split)
    return Scored(
        target, chosen, rows[chosen], checkpoint_results(path, target, rows[chosen], chosen)
    )


def checkpoint_results(
    path: str,
    target: Task,
    rows: Dataset,
    split: str,
    *,
    side: str = "model",
    max_length: int | None = None,
) -> Results:
    """Scores and predictions of a fine-tuned model on rows of a split, cut to `max_length` tokens.

    Of an embedding model to as many as its folder says.

    Raises:
        LimbeckError: no such checkpoint, or classes that do not fit the rows.
    """
    model = load_model(path, head="required", auto=target.kind.auto)
    unproven = class_names(target, model, side=side)
    target = decided_by(target, model.config)
    tokenizer = read_processor(path, target.kind.reads)
    preflight.refuse_unfit(path, model, tokenizer)
    length = target.kind.scored_length(max_length or longest_of(model, tokenizer))
    length = min(length, preflight.positions_of(model) or length)
    encoded, _ = encode(rows, target, tokenizer, length)
    outputs = compact_outputs_of(model, encoded, Collator(tokenizer, kind=target.kind))
    resolve_class_order(target, unproven, outputs, rows[target.label_column][:], split, side=side)
    return target.kind.results(target, outputs, encoded, rows, tokenizer)


def wanted_kind(kind: TaskType, task: str | None) -> str | None:
    """The kind to read rows as: a known task has its own, which a text-to-text model may answer in words."""
    if task in TASKS:
        return kind.name if kind.classes_as_text else None
    return None if kind is SENTENCE else kind.name


def longest_of(model: PreTrainedModel, processor: Processor) -> int:
    """Tokens of a text that a checkpoint is measured on: of an embedding model as its folder says, of others as its
    tokenizer does, at most 512."""
    modules = modules_of(model.config)
    own = getattr(processor, "model_max_length", None) or LONGEST
    longest = (None if modules is None else modules.max_tokens) or min(own, LONGEST)
    return min(preflight.positions_of(model) or longest, longest)
