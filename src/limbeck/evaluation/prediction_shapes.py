"""Models' predictions in the shapes that the analyses count with.

Part of `limbeck.evaluation`; read by `limbeck.reporting.analysis` too.
"""

from __future__ import annotations

import numpy as np


def class_outputs(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n, C) in float64 and class ids (n,).

    Raises ValueError for other shapes, ids outside 0..C−1, and no examples.
    """
    logits, labels = np.asarray(logits, dtype=float), np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise ValueError(
            f"logits of shape {logits.shape} do not match labels of shape {labels.shape}; "
            "expected (n, C) and (n,), n at least 1"
        )
    labels = labels.astype(int)
    if labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise ValueError(f"labels outside 0..{logits.shape[1] - 1}")
    return logits, labels


def number_outputs(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs (n,) or (n, 1) as float64 (n,), and the right numbers (n,).

    Raises ValueError for other shapes, and for no examples.
    """
    labels = np.asarray(labels, dtype=float)
    given = np.asarray(outputs, dtype=float)
    if given.shape not in (labels.shape, (*labels.shape, 1)) or labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"outputs of shape {given.shape} do not match labels of shape {labels.shape}; "
            "expected (n,) or (n, 1) and (n,), n at least 1"
        )
    return given.reshape(-1), labels
