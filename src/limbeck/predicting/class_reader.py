"""Rows of one class or several: sentences, pairs, images. Part of `limbeck.predicting`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax

from limbeck.predicting.row_reader import (
    LABELS,
    LOGITS,
    PREDICTION,
    PROBABILITIES,
    SCORE,
    SCORES,
    ReadRows,
    RowReader,
)
from limbeck.tasks.thresholds import USUAL


class ClassReader(RowReader):
    """A classifier's rows; of a multi-label one each row has a list of classes."""

    outputs = (LABELS, SCORES, PROBABILITIES, LOGITS)

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """Class names, their probabilities, all probabilities, all logits."""
        if not read.kept or read.kept[0] is None:
            return {}
        logits = np.stack(read.kept)
        probabilities = (
            expit(logits.astype(np.float64)) if self.facts.multi_label else softmax(logits, axis=1)
        )
        chosen = self._chosen(logits, probabilities)
        found: dict[str, list[Any]] = {}
        if LABELS in asked:
            names = [[self.facts.classes[one] for one in ones] for ones in chosen]
            found[PREDICTION] = names if self.facts.multi_label else [one[0] for one in names]
        if SCORES in asked:
            likely = [row[ones].tolist() for row, ones in zip(probabilities, chosen, strict=True)]
            found[SCORE] = likely if self.facts.multi_label else [one[0] for one in likely]
        if PROBABILITIES in asked:
            found[PROBABILITIES] = [self.by_class(row) for row in probabilities]
        if LOGITS in asked:
            found[LOGITS] = [self.by_class(row) for row in logits]
        return found

    def _chosen(self, logits: np.ndarray, probabilities: np.ndarray) -> list[np.ndarray]:
        """The ids of each row's classes."""
        if self.facts.multi_label:
            thresholds = np.array(self.facts.thresholds or [USUAL] * probabilities.shape[1])
            return [np.flatnonzero(row >= thresholds) for row in probabilities]
        return list(logits.argmax(axis=1)[:, None])

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, numbers, and a struct by class."""
        many = pa.list_ if self.facts.multi_label else (lambda one: one)
        types = {
            LABELS: (PREDICTION, many(pa.string())),
            SCORES: (SCORE, many(pa.float32())),
            PROBABILITIES: (PROBABILITIES, self.class_struct),
            LOGITS: (LOGITS, self.class_struct),
        }
        return dict(types[name] for name in self.outputs if name in asked)
