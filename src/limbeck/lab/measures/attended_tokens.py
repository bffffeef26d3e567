"""Attention maps of both models for one example. Part of `limbeck.lab.measures`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import functional as F
from limbeck.activations import ActivationKey, Request, capture, token_mask
from limbeck.support.errors import Problem, raise_problems
from limbeck.support.machine import evaluating

Map = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class MapPair:
    """A student layer's attention and a teacher layer's, for one example.

    Attributes:
        student_layer: from 1.
        teacher_layer: from 1.
        student: probabilities by query and key; each row adds up to 1.
        teacher: probabilities of the same form.
        divergence: KL of the teacher's maps from the student's, mean over all heads and tokens (internal-kd, Eq. 2);
            None where heads or tokens differ.
    """

    student_layer: int
    teacher_layer: int
    student: Map
    teacher: Map
    divergence: float | None


@dataclass(frozen=True)
class AttentionMaps:
    """Attention of teacher and student over the tokens of one example.

    Attributes:
        row: its number in the split.
        head: the number of the shown head, from 1; None for the mean of all.
        student_tokens: as its tokenizer has them, without padding.
        teacher_tokens: as its tokenizer has them, without padding.
        pairs: of layers.
    """

    row: int
    head: int | None
    student_tokens: tuple[str, ...]
    teacher_tokens: tuple[str, ...]
    pairs: tuple[MapPair, ...]


def attention_maps(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    batch: Mapping[str, Tensor],
    teacher_batch: Mapping[str, Tensor],
    tokens: tuple[Sequence[str], Sequence[str]],
    pairs: Sequence[tuple[int, int]],
    *,
    row: int = 0,
    head: int | None = None,
) -> AttentionMaps:
    """Attention probabilities side by side (Aguilar et al. 2020, Figures 5 and 11).

    Args:
        student: whose maps are shown.
        teacher: the model to compare with.
        batch: one example as the student reads it.
        teacher_batch: the same as the teacher reads it.
        tokens: the student's tokens of it and the teacher's, padding left out.
        pairs: (student layer, teacher layer).
        row: the example's number.
        head: from 1; by default the mean of all heads.

    Raises:
        LimbeckError: a layer or a head that a model lacks, or attention that cannot be seen.
    """
    sides = (student, batch), (teacher, teacher_batch)
    found, masks = [], []
    for place, (model, inputs) in enumerate(sides):
        asked = sorted({pair[place] for pair in pairs})
        with evaluating(model):
            trace = capture(model, inputs, Request.attention(asked))
            masks.append(token_mask(model, inputs))
        maps = {layer: trace[ActivationKey("probabilities", layer)].float() for layer in asked}
        _need_head(head, maps, "student" if place == 0 else "teacher")
        found.append(maps)
    alike = masks[0].shape == masks[1].shape and list(tokens[0]) == list(tokens[1])
    shown = []
    for mine, theirs in pairs:
        one, other = found[0][mine], found[1][theirs]
        divergence = None
        if alike and one.shape == other.shape:
            divergence = float(F.attention_kl(one, other, masks[0]))
        own, taught = _shown(one, masks[0], head), _shown(other, masks[1], head)
        shown.append(MapPair(mine, theirs, own, taught, divergence))
    return AttentionMaps(row, head, tuple(tokens[0]), tuple(tokens[1]), tuple(shown))


def _shown(maps: Tensor, mask: Tensor, head: int | None) -> Map:
    """(1, H, N, N) to rows of the first example's tokens."""
    one = maps[0].mean(dim=0) if head is None else maps[0, head - 1]
    kept = mask[0].bool()
    return tuple(tuple(map(float, row)) for row in one[kept][:, kept].cpu())


def _need_head(head: int | None, maps: Mapping[int, Tensor], side: str) -> None:
    problems = [
        Problem(f"head: layer {layer} of the {side} has no head {head}", f"1 to {one.shape[1]}")
        for layer, one in maps.items()
        if head is not None and not 1 <= head <= one.shape[1]
    ]
    raise_problems(problems)


# How much each teacher layer counts for each student layer, where examples decide.


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
        term: its name.
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
