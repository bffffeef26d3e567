"""Hidden states of mapped layers, compared. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch

import torch
from torch import Tensor

from limbeck import functional as F
from limbeck.capture import Request, Seen, Trace
from limbeck.errors import LimbeckError
from limbeck.mapping import Mapping, build_mapping, concatenation, pairs, weighted_sum
from limbeck.moment import Moment
from limbeck.objectives.base import Objective
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import LayerSpec
from limbeck.projections import Projections


class LayerMatch(Objective):
    """Hidden states of mapped layers, compared.

    PKD, CKD, ALP-KD, RAIL-KD and DistilBERT's cosine are settings of it.
    """

    def __init__(self, spec: LayerSpec, shape: Shape, setting: str) -> None:
        super().__init__()
        self.spec = spec
        self.mapping: Mapping = build_mapping(
            spec.mapping,
            teacher_depth=shape.teacher.layers,
            student_depth=shape.student.layers,
            setting=f"{setting}.mapping",
        )
        self.projections = self._build_projections(spec, shape, setting)
        self._refuse_widths(setting)

    def _build_projections(self, spec: LayerSpec, shape: Shape, setting: str) -> Projections:
        rows = self.mapping.rows(Moment())
        side_by_side = spec.mapping.combine == "concat"
        student = [shape.student.width] * len(rows)
        teacher = [shape.teacher.width * (len(row) if side_by_side else 1) for row in rows]
        if spec.slots == "joined":
            student, teacher = [sum(student)], [sum(teacher)]
        if spec.project and spec.project.share == "all" and len(set(teacher)) > 1:
            raise LimbeckError(
                f"{setting}.project.share: one map cannot serve all layers, the teacher's vectors "
                f"side by side are {', '.join(map(str, teacher))} wide",
                "leave `share` out: one map for each student layer",
            )
        return Projections(
            spec.project,
            student,
            teacher,
            student_width=shape.student.width,
            teacher_width=shape.teacher.width,
        )

    def _refuse_widths(self, setting: str) -> None:
        for student, teacher in self.projections.widths:
            if student != teacher:
                share = ", share: all" if self.mapping.reads_representations else ""
                raise LimbeckError(
                    f"{setting}: the student's vectors are {student} wide and the teacher's "
                    f"{teacher}, and nothing brings them to one width",
                    f"map both sides: project: {{to: 128{share}}}",
                )

    def request(self, side: str, moment: Moment) -> Request:
        """The mapped layers' hidden states, pooled where the recipe says so."""
        layers = self.mapping.slots if side == "student" else self.mapping.active(moment)
        return Request.hidden(layers, pool=self.spec.pool)

    def active_layers(self, moment: Moment) -> list[list[int]]:
        """[student layer, teacher layer] pairs that may meet at `moment`."""
        rows = self.mapping.rows(moment)
        return [[j, k] for j, row in zip(self.mapping.slots, rows, strict=True) for k in row]

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """Hidden states (B, N, d) or pooled (B, d) of the mapped layers."""
        states = [student[self._seen(j)] for j in self.mapping.slots]
        layers = {k: teacher[self._seen(k)] for k in self.mapping.active(moment)}
        distances = self._distances(states, layers, student.mask(), moment)
        return distances.mean() if self.spec.pairs == "mean" else distances.sum()

    def _seen(self, layer: int) -> Seen:
        return Seen("hidden", layer, self.spec.pool)

    def _distances(
        self, states: list[Tensor], layers: dict[int, Tensor], mask: Tensor, moment: Moment
    ) -> Tensor:
        """The distance of each slot, (S)."""
        shared = self.spec.slots == "each" and bool(
            self.spec.project and self.spec.project.share == "all"
        )
        early = shared and self.spec.mapping.combine != "concat"
        if early:
            states = [self.projections.student(state, 0) for state in states]
            layers = {k: self.projections.teacher(layer, 0) for k, layer in layers.items()}
        weights = self.mapping.weights(moment, states, layers)
        if self.spec.mapping.combine == "costs":
            return self._costs(weights, states, layers, mask, projected=early)
        if self.spec.mapping.combine == "concat":
            assert not isinstance(weights, Tensor)  # MappingSpec refuses attention with concat
            targets = concatenation(weights, layers)
        else:
            targets = weighted_sum(weights, layers)
        if self.spec.slots == "joined":
            states, targets = [torch.cat(states, dim=-1)], [torch.cat(targets, dim=-1)]
        if not early:
            states = [self.projections.student(state, j) for j, state in enumerate(states)]
            targets = [self.projections.teacher(target, j) for j, target in enumerate(targets)]
        return torch.stack(
            [self._distance(s, t, mask) for s, t in zip(states, targets, strict=True)]
        )

    def _costs(
        self,
        weights: tuple[dict[int, float], ...] | Tensor,
        states: list[Tensor],
        layers: dict[int, Tensor],
        mask: Tensor,
        *,
        projected: bool,
    ) -> Tensor:
        """Per slot Σ_k w_jk · distance(h_S^j, h_T^k): comparisons are weighted, not layers."""
        assert not isinstance(weights, Tensor)  # MappingSpec refuses attention with costs
        totals: list[list[Tensor]] = [[] for _ in states]
        for slot, layer, weight in pairs(weights):
            state, target = states[slot], layers[layer]
            if not projected:
                state = self.projections.student(state, slot)
                target = self.projections.teacher(target, slot)
            totals[slot].append(weight * self._distance(state, target, mask))
        return torch.stack([torch.stack(row).sum() for row in totals])

    def _distance(self, state: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        match self.spec.compare:
            case "mse":
                return F.mse(state, target)
            case "normalized_mse":
                return F.normalized_mse(state, target)
            case "hidden_mse":
                return F.hidden_mse(state, target, mask)
            case _:
                return F.cosine_distance(state, target, mask if self.spec.pool is None else None)
