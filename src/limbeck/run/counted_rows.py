"""Whether any row counts where examples are weighed: known beforehand of stored outputs, and of a run when it is over.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from limbeck import functional as F
from limbeck.data.text_rows import keys_of
from limbeck.objectives.example_weights import COUNTED
from limbeck.outputs.stored_teacher import StoredTeacher
from limbeck.run.prepared import Prepared
from limbeck.support.errors import Problem

log = logging.getLogger(__name__)


def confidence_problems(prepared: Prepared) -> list[Problem]:
    """How many training rows `min_confidence` leaves, by one teacher's stored outputs; an error where it is none."""
    bound, task = prepared.recipe.min_confidence, prepared.task
    stored = [one.teacher for one in prepared.named if isinstance(one.teacher, StoredTeacher)]
    # Of several what counts is the confidence of their mean, or of the one whose step it is.
    if bound is None or len(stored) != 1 or not task.kind.classes_of_examples or task.regression:
        return []
    rows = prepared.splits["train"]
    sure = F.top_probability(torch.from_numpy(stored[0].outputs.logits(keys_of(task, rows))))
    counted = int((sure >= bound).sum())
    if not counted:
        return [
            Problem(
                f"min_confidence: {bound:g} leaves none of {len(rows):,} training rows: the surest output of "
                f"{stored[0].outputs.place} is {float(sure.max()):.3g}",
                "lower it, or leave it out",
            )
        ]
    return [
        Problem(
            f"min_confidence: {bound:g} lets {counted:,} of {len(rows):,} training rows count",
            "lower it for more of them",
            "note",
        )
    ]


def warn_of_none_counted(epochs: Sequence[Mapping[str, Any]]) -> None:
    """Say that in the last epoch the terms that learn from the teacher's logits learned from no example."""
    if epochs and epochs[-1]["train"].get(COUNTED) == 0:
        log.warning(
            "no example counted in the terms that learn from the teacher's logits, in the whole last epoch: lower "
            "min_confidence, or look at example_weights and unlabelled_weight"
        )
