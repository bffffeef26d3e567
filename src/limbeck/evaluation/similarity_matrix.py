"""How alike two models' layers represent the same examples: a student-by-teacher matrix.

It reads finished models through the same
`capture` as the objectives do, so the layers are numbered as recipes number them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import number_of_layers
from limbeck.evaluation.model_outputs import pooled_states
from limbeck.support.settings import Pool


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


@dataclass(frozen=True)
class LayerSimilarity:
    """How alike the layers of two models represent the same examples.

    Attributes:
        student_layers: of the matrices' rows, 0 for the embedding output.
        teacher_layers: of their columns.
        cka: linear centred kernel alignment of every pair, 0 to 1.
        cosine: mean cosine of every pair, −1 to 1; None where widths differ.
        examples: number of compared examples.
        pool: how the tokens of a layer become one vector per example.
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
    """Every student layer with every teacher layer, by both measures.

    RAIL-KD's Figure 2 shows the cosines. Each model runs once over its own inputs of the same examples.

    Raises:
        LimbeckError: a model without layers over tokens.
        ValueError: the batches are not of as many examples.
    """
    layers = [[*range(1, number_of_layers(model) + 1)] for model in (student, teacher)]
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


def _centred(features: Tensor) -> Tensor:
    features = features.double()
    return features - features.mean(dim=0, keepdim=True)
