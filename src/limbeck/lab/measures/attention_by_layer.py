"""How much each teacher layer counts for each student layer, where examples decide.

Part of `limbeck.lab.measures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class LayerAttention:
    """The weights of an attention mapping (ALP-KD, Eqs. 5 and 6), of one term of a run.

    Attributes:
        term: its name in the recipe.
        student_layers: of the rows of `mean`.
        teacher_layers: of its columns.
        mean: mean weights over all examples; each row adds up to 1.
        deviation: standard deviations over examples.
        rows: the row numbers of the examples that are shown one by one.
        examples: their weights, by example, student layer and teacher layer.
        count: how many examples `mean` is over.
    """

    term: str
    student_layers: tuple[int, ...]
    teacher_layers: tuple[int, ...]
    mean: tuple[tuple[float, ...], ...]
    deviation: tuple[tuple[float, ...], ...]
    rows: tuple[int, ...]
    examples: tuple[tuple[tuple[float, ...], ...], ...]
    count: int


def layer_attention(
    term: str,
    student_layers: Sequence[int],
    teacher_layers: Sequence[int],
    weights: Iterable[Tensor],
    *,
    shown: int = 10,
) -> LayerAttention:
    """Mean weights (RAIL-KD, Figure 3) and the first examples' own (ALP-KD, Figure 3).

    Args:
        term: what it is called.
        student_layers: S of them.
        teacher_layers: T of them.
        weights: (B, S, T) of each batch, in the order of the rows.
        shown: how many examples are kept one by one.

    Raises:
        ValueError: no examples, or weights of another shape.
    """
    batches = [given.detach().double().cpu().numpy() for given in weights]
    found = np.concatenate(batches) if batches else np.empty((0, 0, 0))
    if found.shape[1:] != (len(student_layers), len(teacher_layers)) or not len(found):
        raise ValueError(
            f"weights of shape {found.shape} for {len(student_layers)} student and {len(teacher_layers)} teacher layers"
        )
    first = found[:shown]
    return LayerAttention(
        term,
        tuple(student_layers),
        tuple(teacher_layers),
        _rows(found.mean(axis=0)),
        _rows(found.std(axis=0)),
        tuple(range(len(first))),
        tuple(_rows(one) for one in first),
        len(found),
    )


def _rows(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in matrix)
