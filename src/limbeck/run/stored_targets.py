"""A text-to-text teacher's store in the teacher's place, held against a run's task, terms and tokenizer.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives.predictions import SoftSpec
from limbeck.outputs import OutputStore, digest_of_tokenizer
from limbeck.outputs.columns import LOGITS
from limbeck.outputs.stored_teacher import GivenOutputs, StoredTokens
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import checksum_of_text
from limbeck.tasks import Processor, Task


def about_store(store: OutputStore) -> dict[str, Any]:
    """What a record keeps of a store."""
    manifest = store.manifest
    return {
        "teacher": manifest.teacher.name,
        "fingerprint": manifest.teacher.fingerprint,
        "rows": manifest.rows.fingerprint,
        "settings": manifest.settings,
        "content": checksum_of_text(" ".join(shard.checksum for shard in manifest.shards)),
    }


def of_targets(place: str, store: OutputStore, task: Task, limit: int) -> GivenOutputs:
    """The outputs of a text-to-text teacher for a task that a decoder answers.

    Args:
        limit: bytes that all entries of the local cache together may take.

    Raises:
        LimbeckError: the store keeps no tokens of a vocabulary, or was asked with other prompts.
    """
    tokens, rows = store.manifest.tokens, store.manifest.rows
    if tokens is None or not rows.target:
        raise LimbeckError(
            f"outputs: {place} holds {', '.join(c.name for c in store.columns) or 'nothing'}, and no logits of a "
            "vocabulary about texts and targets",
            f"label again with --outputs {LOGITS}:top64",
        )
    asked = store.manifest.teacher.fingerprint.get("task")
    if asked != task.name:
        raise LimbeckError(
            f"outputs: the prompts of {place} begin with {asked!r}, and those of this task with {task.name!r}",
            f"label again with --task {task.name}, or name the task as it was labelled: task={asked}",
        )
    return GivenOutputs(
        place,
        LOGITS,
        task.labels,
        np.unique(store.row_ids),
        _nothing,
        about_store(store) | {"tokens": tokens.model_dump(mode="json")},
        tokens=StoredTokens(store, tokens.rule, limit),
    )


def _nothing(ids: np.ndarray) -> np.ndarray:
    raise LimbeckError(
        "outputs: a text-to-text teacher's are of tokens, not of classes",
        "read them by their tokens",
    )


def token_problems(
    recipe: Recipe, outputs: GivenOutputs, tokenizer: Processor
) -> Iterator[Problem]:
    """Terms that look at another part of the vocabulary, several stores, a student with other tokens."""
    tokens = outputs.tokens
    if tokens is None:
        return
    kept, place = tokens.kept, outputs.place
    if recipe.team is not None:
        yield Problem(
            f"outputs: {place} keeps a part of a vocabulary, and a team's members have nothing in common to weigh",
            "give one store",
        )
    made_by = tokens.store.manifest.teacher.fingerprint.get("tokenizer")
    if made_by != digest_of_tokenizer(tokenizer):
        yield Problem(
            f"outputs: {place} holds tokens of another tokenizer than the student's",
            "save the student with the teacher's tokenizer, or label with a teacher of the student's",
        )
    for stage in recipe.stages():
        if stage.recipe.outputs is None:
            continue
        for name, term in stage.recipe.objectives.items():
            asked = term.kept if isinstance(term, SoftSpec) else None
            if not (term.needs_teacher and term.reads_logits) or asked == kept:
                continue
            setting = f"{stage.setting}objectives.{name}"
            if not isinstance(term, SoftSpec):
                yield Problem(
                    f"{setting}: {term.compare} reads all logits, and {place} keeps {kept} of them",
                    "use soft_kl or soft_cross_entropy, or give the teacher's model: --teacher",
                )
                continue
            yield Problem(
                f"{setting}: it looks at {asked or 'all logits'} of the vocabulary, and {place} keeps {kept}",
                _as_kept(setting, kept, term.temperature),
            )


def _as_kept(setting: str, kept: KeptTokens, temperature: float) -> str:
    """The settings by which a term looks at what is kept, or the outputs that it would need."""
    asked = f"{setting}.tokens={kept.how}{kept.count}"
    if temperature == kept.temperature:
        return f"set {asked}"
    again = KeptTokens(kept.how, kept.count, temperature)
    return (
        f"set {asked} and {setting}.temperature={kept.temperature:g}, or label again with "
        f"--outputs {LOGITS}:{again}"
    )
