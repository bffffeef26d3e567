"""The last member of a cascade that is no model: a store of a teacher's outputs. Part of `limbeck.scoring`."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from datasets import Dataset

from limbeck.data.outputs_file import QUANTITIES
from limbeck.data.row_ids import row_ids
from limbeck.outputs.manifest import MANIFEST
from limbeck.outputs.store import place_and_member
from limbeck.outputs.stored_teacher import GivenOutputs, as_logits
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME
from limbeck.run.in_place import outputs_of_store
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import Task, TaskType
from limbeck.tasks.rules import USUAL, Thresholds
from limbeck.teachers.labeller import RowsMissingError

if TYPE_CHECKING:
    from limbeck.labelling.language_models.endpoint import EndpointLabeller

logger = logging.getLogger(__name__)

SENT_ON = "sent on"
"""Stands for the member that answers where a row is sent on and the store does not know it."""


def is_store(place: str | Path) -> bool:
    """Whether a store of teacher outputs is meant, `STORE` or `STORE#MEMBER`, and no model's folder."""
    where, _ = place_and_member(str(place))
    folder = at_home(where)
    holds = [(folder / name).is_file() for name in (MANIFEST, "config.json", RECORD_NAME)]
    return "://" in where or holds == [True, False, False]


@dataclass(frozen=True)
class StoredMember:
    """Answers the rows that a store knows, found by their texts.

    Attributes:
        name: as it was named.
        place: `STORE`, or `STORE#MEMBER`.
        outputs: of the teacher, in the order of the cascade's classes.
        live: the teacher itself, which runs on the rows that are not stored.
    """

    name: str
    place: str
    outputs: GivenOutputs
    live: "EndpointLabeller | None" = None

    @classmethod
    def open(cls, name: str, place: str, kind: TaskType, classes: Sequence[str]) -> "StoredMember":
        """The outputs in a store.

        Raises:
            LimbeckError: they cannot be read, or are of other classes or another task type.
        """
        task = Task("the cascade", place, (), tuple(classes), (), "", kind=kind)
        recipe = Recipe.recorded({"method": "cascade"}, place)
        return cls(name, place, outputs_of_store(place, task, recipe))

    @property
    def thresholds(self) -> Thresholds:
        """The probability from which each of several classes is predicted: its teacher's, by default ½."""
        return self.outputs.thresholds or USUAL

    def logits(self, columns: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Logits (n, C) of rows by their text columns, and which rows have any (n,); 0 for the others."""
        ids = row_ids(columns)
        known = self.outputs.known(ids)
        found = np.zeros((len(ids), len(self.outputs.classes)), dtype=np.float32)
        if known.any():
            found[known] = self.outputs.logits(ids[known])
        left = np.flatnonzero(~known)
        while self.live is not None and len(left):
            texts = ([column[row] for column in columns] for row in left.tolist())
            # The missing column is the one in its prompt.
            rows = [dict(zip(self.live.bound.columns, one, strict=False)) for one in texts]
            try:
                scores = self.live.score(rows)
            except RowsMissingError as error:
                for problem in error.problems:
                    logger.warning("%s: %s", self.live.name, problem.message)
                left = np.delete(left, [*error.reasons])  # the others' answers are kept
                continue
            what = next(one for one in QUANTITIES if one in scores)
            found[left], known[left] = as_logits(what, scores[what]), True
            break
        return found, known

    def logits_of(self, task: Task, rows: Dataset) -> np.ndarray:
        """Logits of a split's rows (n, C).

        Raises:
            LimbeckError: rows that are not stored.
        """
        found, known = self.logits([rows[name][:] for name in task.text_columns])
        if not known.all():
            raise LimbeckError(
                f"{self.place} has no outputs for {int((~known).sum()):,} of {len(rows):,} rows that are requested",
                "label these rows too (`limbeck label`), or name rows that it knows",
            )
        return found

    def fingerprint(self) -> str:
        """Fingerprint of all stored outputs."""
        known = json.dumps(self.outputs.about, sort_keys=True, default=str)
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
