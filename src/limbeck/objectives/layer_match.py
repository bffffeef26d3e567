"""Hidden states of mapped layers, compared: PKD, CKD, ALP-KD, RAIL-KD, ILD, DistilBERT's cosine.

Part of `limbeck.objectives`.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from limbeck import functional as F
from limbeck.mappings import Mapping, MappingSpec
from limbeck.mappings.maps import Projections, ProjectSpec
from limbeck.objectives import mapped
from limbeck.objectives.base import Borrowed, ModelShape, Shape
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Pool
from limbeck.support.step_state import StepState


class LayerSpec(mapped.MappedSpec):
    """Hidden states of mapped layers: seen how → projected how → compared how."""

    has_features: ClassVar[bool] = True

    compare: str = Field(
        description="a comparison of hidden states: mse, normalized_mse, cosine_distance, hidden_mse, or "
        "one that you have registered"
    )
    pool: Pool | None = Field(
        None,
        description="sentence vector of a layer: first token, masked mean, last token; null compares every token",
    )
    project: ProjectSpec | None = Field(None, description="learned linear maps, if any")
    through: str | None = Field(None, description="term of the stage whose learned map serves too")
    compare_layers: Literal["each", "joined"] = Field(
        "each",
        description="compare each mapped student layer separately, or all of them concatenated",
    )
    mean_over: Literal["valid", "all", "batch_and_features"] = Field(
        "valid",
        description="hidden_mse: `all` counts padding too; normalized_mse: `batch_and_features` "
        "divides by the width (both as some releases do)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "LayerSpec":
        comparison = mapped.comparison_of(self.compare)
        if self.stack == "cross":
            raise ValueError("cross-attention has no hidden states; use stack: decoder")
        if self.pool is None and comparison.sees == "vectors":
            of_tokens = mapped.names_where(lambda one: one.sees in ("hidden", "tokens"))
            raise ValueError(
                f"{self.compare} compares sentence vectors, which need `pool`: cls, mean or last; "
                f"to compare every token use {' or '.join(of_tokens)}"
            )
        if self.pool is not None and comparison.sees == "tokens":
            of_vectors = mapped.names_where(lambda one: one.sees in ("hidden", "vectors"))
            raise ValueError(
                f"{self.compare} compares every token; leave `pool` out, or use {' or '.join(of_vectors)}"
            )
        if self.through is not None and (
            self.project is not None or self.compare_layers == "joined"
        ):
            raise ValueError(
                "`through` brings the other term's map, for each layer; leave `project` and `compare_layers` out"
            )
        self._check_joined()
        self._check_projection()
        if self.mean_over != "valid" and self.mean_over not in comparison.variants:
            able = mapped.names_where(lambda one: self.mean_over in one.variants)
            raise ValueError(
                f"mean_over: {self.mean_over} goes with {' and '.join(able)}; leave it out"
            )
        return self

    def _check_joined(self) -> None:
        if self.compare_layers != "joined":
            return
        if self.mapping.combine == "costs":
            raise ValueError(
                "compare_layers: joined makes one vector of all layers; combine: costs keeps them apart"
            )
        if self.pairs == "mean":
            raise ValueError(
                "compare_layers: joined gives a single comparison; `pairs` has no effect, leave it out"
            )

    def _check_projection(self) -> None:
        if self.project is None:
            return
        reads_layers = self.mapping.reads_representations
        reads_pairs = reads_layers or self.mapping.reads_costs
        if reads_layers and self.compare_layers == "joined":
            raise ValueError(
                f"kind: {self.mapping.kind} maps layers before it weighs them, compare_layers: "
                "joined maps them after; leave `compare_layers` or `project` out"
            )
        if reads_pairs and self.project.share == "none":
            raise ValueError(
                f"kind: {self.mapping.kind} compares every student layer with every teacher layer "
                "in one space; set project.share to all"
            )
        if self.compare_layers == "joined" and self.project.share == "all":
            raise ValueError(
                "compare_layers: joined has a single map a side; `project.share` has no effect, leave it out"
            )

    @property
    def lender(self) -> str | None:
        """The term of the recipe's `through`."""
        return self.through


@mapped.takes_comparisons("hidden", "vectors", "tokens")
class LayerMatch(mapped.ComparedTerm):
    """Hidden states of mapped layers, pooled or token by token, mapped to one width and compared.

    Args:
        maps: another term's maps, used here too if the spec has `through`.

    Raises:
        LimbeckError: widths differ and nothing brings them together, or one map is to serve layers
            of several widths.
    """

    settings_class = LayerSpec
    settings: LayerSpec

    def __init__(
        self, settings: LayerSpec, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting)
        self._borrowed = Borrowed(maps)
        self.projections: Projections | None = None
        if maps is None:
            self.projections = build_projections(
                settings.project,
                self.mapping,
                settings.mapping,
                (self.student_shape, self.teacher_shape),
                joined=settings.compare_layers == "joined",
                setting=setting,
                kept=shape.kept.get(self.teacher_shape.width, ()),
            )
        self._refuse_widths()
        self.numbers = {layer: number for number, layer in enumerate(self.mapping.student_layers)}

    @property
    def maps(self) -> Projections:
        """Its own maps, or the maps of the term in `through`."""
        found = self.projections or self._borrowed.lender
        assert found is not None
        return found

    def _refuse_widths(self) -> None:
        for student, teacher in self.maps.widths:
            if student != teacher:
                mapping = self.settings.mapping
                both_read = mapping.reads_representations or mapping.reads_costs
                raise LimbeckError(
                    f"{self.setting}: the student's vectors are {student} wide and the teacher's "
                    f"{teacher}, and nothing brings them to one width",
                    f"map both sides: project: {{to: 128{', share: all' if both_read else ''}}}",
                )

    @property
    def sees_padding(self) -> bool:
        """Where a release's mean runs over all positions."""
        return self.settings.mean_over == "all"

    @property
    def together(self) -> bool:
        """Side by side they are one vector."""
        return self.settings.compare_layers == "joined"

    @property
    def _mapped_before_mixing(self) -> bool:
        shared = self.settings.compare_layers == "each" and self.maps.shared
        return shared and self.settings.mapping.combine != "concat"

    def shared_map(self, side: str, hidden: Tensor) -> Tensor:
        """One map for all layers of a side is applied once a layer, before layers are mixed."""
        if not self._mapped_before_mixing:
            return hidden
        maps = self.maps.student if side == "student" else self.maps.teacher
        found: Tensor = maps(hidden, 0)
        return found

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: mapped.Masks
    ) -> Tensor:
        """Each layer separately, or all of them concatenated; through their maps."""
        if self.settings.compare_layers == "joined":
            joined = torch.cat(list(states.values()), dim=-1)
            target = torch.cat(list(targets.values()), dim=-1)
            states, targets = {0: joined}, {0: target}
        if not self._mapped_before_mixing:
            states = {j: self.maps.student(s, self.numbers.get(j, 0)) for j, s in states.items()}
            targets = {j: self.maps.teacher(t, self.numbers.get(j, 0)) for j, t in targets.items()}
        return super().compare(states, targets, masks)

    def distance(self, state: Tensor, target: Tensor, masks: mapped.Masks) -> Tensor:
        """The term named by the recipe's `compare`."""
        if self.settings.pool is not None:
            # One position an example, valid if any of its tokens is.
            masks = masks._replace(tokens=masks.tokens.bool().any(1))
        return self.comparison.by(self.settings.mean_over)(state, target, masks)


def build_projections(
    spec: ProjectSpec | None,
    mapping: Mapping,
    mapping_spec: MappingSpec,
    shapes: tuple[ModelShape, ModelShape],
    *,
    joined: bool,
    setting: str,
    kept: Sequence[int] = (),
) -> Projections:
    """The maps of both sides for a mapping's student layers, or for all student layers side by side (`joined`).

    Raises:
        LimbeckError: one map is to serve student layers whose vectors differ in width.
    """
    student_shape, teacher_shape = shapes
    rows = mapping.rows(StepState())
    side_by_side = mapping_spec.combine == "concat"
    student = [student_shape.width] * len(rows)
    teacher = [teacher_shape.width * (len(row) if side_by_side else 1) for row in rows]
    if joined:
        student, teacher = [sum(student)], [sum(teacher)]
    if spec and spec.share == "all" and len(set(teacher)) > 1:
        raise LimbeckError(
            f"{setting}.project.share: one map cannot serve all layers, the teacher's vectors "
            f"side by side are {', '.join(map(str, teacher))} wide",
            "leave `share` out: one map for each student layer",
        )
    return Projections(
        spec,
        student,
        teacher,
        student_width=student_shape.width,
        teacher_width=teacher_shape.width,
        kept=kept,
    )


# ---- the comparisons that ship ----


@mapped.comparison("mse", sees="vectors")
def _mse(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """Squared error of sentence vectors, mean over the width."""
    return F.mse(student, teacher)


def _by_features_too(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    return F.normalized_mse(student, teacher) / student.shape[-1]


@mapped.comparison(
    "normalized_mse", sees="vectors", variants={"batch_and_features": _by_features_too}
)
def _normalized_mse(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """Squared error of sentence vectors of length 1, summed over the width."""
    return F.normalized_mse(student, teacher)


@mapped.comparison("cosine_distance")
def _cosine_distance(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """1 − the cosine of both vectors; 0 for an example none of whose tokens is valid."""
    if student.dim() == 2:
        return F.cosine_distance(student[:, None], teacher[:, None], masks.tokens[:, None])
    return F.cosine_distance(student, teacher, masks.tokens)


def _over_padding_too(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    return F.mse(student, teacher)


@mapped.comparison("hidden_mse", sees="tokens", variants={"all": _over_padding_too})
def _hidden_mse(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """Squared error of every valid token's vector, mean over the width."""
    return F.hidden_mse(student, teacher, masks.tokens)
