"""How alike two models' layers represent the same examples: a student-by-teacher matrix.

It reads finished models through the same
`capture` as the objectives do, so the layers are numbered as recipes number them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import number_of_layers
from limbeck.evaluation.pooled_states import Pool, pooled_states
from limbeck.support.errors import LimbeckError, Problem, unknown

Measure = Literal["cka", "cosine"]


def linear_cka(left: Tensor, right: Tensor) -> Tensor:
    """Linear centred kernel alignment of two views, (n, d) and (n, e), of the same n examples.

    ‖XᵀY‖² / (‖XᵀX‖·‖YᵀY‖) of the centred features (Kornblith et al. 2019, Eq. 5 with their linear
    kernel): 1 when one view is a rotation and scaling of the other, 0 when they share no direction
    (or one view is constant). The widths may differ. With fewer examples than features it runs
    high, so compare matrices made from the same examples. Computed in float64.
    """
    x, y = _centred(left), _centred(right)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} examples cannot be compared with {len(y)}")
    shared = (x.T @ y).square().sum()
    own = (x.T @ x).norm() * (y.T @ y).norm()
    return torch.where(own > 0, shared / own.clamp_min(torch.finfo(own.dtype).tiny), 0.0)


def mean_cosine(left: Tensor, right: Tensor) -> Tensor:
    """Mean over examples of the cosine between two views, both (n, d); in float64."""
    return torch.cosine_similarity(left.double(), right.double(), dim=-1).mean()


_MEASURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cka": linear_cka,
    "cosine": mean_cosine,
}


def layer_similarity(
    teacher: PreTrainedModel,
    student: PreTrainedModel,
    batches: Iterable[Mapping[str, Tensor]],
    *,
    measure: Measure = "cka",
    pool: Pool = "mean",
    student_layers: Sequence[int] | None = None,
    teacher_layers: Sequence[int] | None = None,
    as_teacher_reads: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None,
) -> np.ndarray:
    """Similarity of every student layer (rows) to every teacher layer (columns), float64.

    Each layer's output is pooled to one vector an example over all `batches` (a few hundred
    examples are enough; all pooled states are held in memory). Layers default to 1..M and 1..L; 0
    is the embedding output. `cosine` compares coordinates one by one, so it needs equal widths and
    a student that shares the teacher's basis; `cka` needs neither. `as_teacher_reads` gives the
    teacher's inputs of a batch, where they are not the student's.

    Raises LimbeckError for an unknown measure, no examples, layers that do not exist, or `cosine`
    between different widths.
    """
    if measure not in _MEASURES:
        raise LimbeckError(unknown("measure", measure, list(_MEASURES)))
    rows = _layers("student", student, student_layers)
    columns = _layers("teacher", teacher, teacher_layers)
    batches = list(batches)
    if not batches:
        raise LimbeckError("there is no batch to compare layers on", "give at least one batch")
    student_states = pooled_states(student, rows, batches, pool)
    theirs = batches if as_teacher_reads is None else [as_teacher_reads(one) for one in batches]
    teacher_states = pooled_states(teacher, columns, theirs, pool)
    widths = student_states[0].shape[-1], teacher_states[0].shape[-1]
    if measure == "cosine" and widths[0] != widths[1]:
        raise LimbeckError(
            f"cosine cannot compare a student of width {widths[0]} with a teacher of {widths[1]}",
            "use measure='cka'",
        )
    compare = _MEASURES[measure]
    return np.array([[float(compare(s, t)) for t in teacher_states] for s in student_states])


@dataclass(frozen=True)
class LayerSimilarity:
    """How alike the layers of two models represent the same examples.

    Attributes:
        student_layers: of the matrices' rows, 0 for the embedding output.
        teacher_layers: of their columns.
        cka: linear centred kernel alignment of every pair, 0 to 1.
        cosine: mean cosine of every pair, −1 to 1; None where widths differ.
        examples: how many were compared.
        pool: which vector of a layer stands for an example.
    """

    student_layers: tuple[int, ...]
    teacher_layers: tuple[int, ...]
    cka: tuple[tuple[float, ...], ...]
    cosine: tuple[tuple[float, ...], ...] | None
    examples: int
    pool: Pool


def similarity_of_layers(
    teacher: PreTrainedModel,
    student: PreTrainedModel,
    batches: Iterable[Mapping[str, Tensor]],
    teacher_batches: Iterable[Mapping[str, Tensor]],
    *,
    pool: Pool = "mean",
) -> LayerSimilarity:
    """Every student layer beside every teacher layer, by both measures.

    RAIL-KD's Figure 2 shows the cosines. Each model runs once over its own inputs of the same examples.

    Raises:
        LimbeckError: a model without layers over tokens.
        ValueError: the batches are not of as many examples.
    """
    layers = _layers("student", student, None), _layers("teacher", teacher, None)
    mine = pooled_states(student, layers[0], batches, pool)
    theirs = pooled_states(teacher, layers[1], teacher_batches, pool)
    alike = mine[0].shape[-1] == theirs[0].shape[-1]

    def table(compare: Callable[[Tensor, Tensor], Tensor]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(float(compare(s, t)) for t in theirs) for s in mine)

    return LayerSimilarity(
        tuple(layers[0]),
        tuple(layers[1]),
        table(linear_cka),
        table(mean_cosine) if alike else None,
        len(mine[0]),
        pool,
    )


def _layers(side: str, model: PreTrainedModel, asked: Sequence[int] | None) -> list[int]:
    total = number_of_layers(model)
    layers = list(range(1, total + 1)) if asked is None else list(asked)
    missing = [layer for layer in layers if not 0 <= layer <= total]
    if missing or not layers:
        raise LimbeckError(
            Problem(
                f"the {side} has no layers {missing}" if missing else f"no {side} layers named",
                f"choose from 0 (embedding output) to {total}",
            )
        )
    return layers


def _centred(features: Tensor) -> Tensor:
    features = features.double()
    return features - features.mean(dim=0, keepdim=True)
