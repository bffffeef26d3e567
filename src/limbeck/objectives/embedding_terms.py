"""A teacher's sentence embeddings as targets. Part of `limbeck.objectives`.

One by one, through a learned map where the widths differ, or by the similarities among the sentences of a
batch, for which no width matters.
"""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Literal

from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.errors import LimbeckError
from limbeck.mappings.projections import Projections, ProjectSpec
from limbeck.objectives.base import Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.schedules import Temperature
from limbeck.step_state import StepState
from limbeck.tasks.abstract_type import EXAMPLE_WEIGHTS

_DISTANCES = {"embedding_mse": F.embedding_mse, "embedding_cosine": F.embedding_cosine}


class OfEmbeddings(Objective):
    """A comparison of embeddings (B, d).

    Raises:
        LimbeckError: the task's models put out something else.
    """

    def __init__(
        self, settings: TermSettings, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        if not shape.kind.embeds:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares sentence embeddings, and the models of task type "
                f"{shape.kind.name} put out something else",
                "set kind=embedding, or use soft_kl for classes and numbers (method kd-soft)",
            )


class EmbeddingSpec(TermSettings):
    """The teacher's embedding of each sentence: squared error, or cosine."""

    compare: Literal["embedding_mse", "embedding_cosine"]
    project: ProjectSpec = Field(
        default_factory=lambda: ProjectSpec.model_validate(
            {"to": "teacher", "sides": "student", "when": "widths-differ"}
        ),
        description="learned map of the student's embeddings, left out of what is shipped; by default to the "
        "teacher's width where the widths differ",
    )


@objective("embedding_mse", "embedding_cosine", settings=EmbeddingSpec)
class EmbeddingTarget(OfEmbeddings):
    """The teacher's embedding as a target (Reimers and Gurevych 2020)."""

    weighs_examples = True
    settings: EmbeddingSpec

    def __init__(self, settings: EmbeddingSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        ours, theirs = shape.student.outputs, shape.teacher.outputs
        self.projections = Projections(
            settings.project, [ours], [theirs], student_width=ours, teacher_width=theirs
        )
        ((own, other),) = self.projections.widths
        if own != other:
            raise LimbeckError(
                f"{setting}: the student's embeddings have {own} numbers, the teacher's {other}",
                f"leave {setting}.project out, or let it map one to the other's width",
            )

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d) of both sides."""
        return _DISTANCES[self.settings.compare](
            self.projections.student(present(student.logits), 0),
            self.projections.teacher(present(teacher.logits), 0),
            weights=batch.get(EXAMPLE_WEIGHTS),
        )


class SimilaritySpec(TermSettings):
    """The cosines of every two sentences of a batch, as the teacher has them."""

    compare: Literal["similarity_mse"]


@objective("similarity_mse", settings=SimilaritySpec)
class Similarities(OfEmbeddings):
    """Relational KD: both sides' matrices of cosines (Park et al. 2019)."""

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d) and (B, e)."""
        return F.similarity_mse(present(student.logits), present(teacher.logits))


class SimilarityListSpec(TermSettings):
    """Which other sentences of the batch a sentence is nearest to, as a distribution."""

    compare: Literal["similarity_kl"]
    temperature: Temperature = Field(0.05, description="divides both sides' cosines")


@objective("similarity_kl", settings=SimilarityListSpec)
class SimilarityLists(OfEmbeddings):
    """Listwise KL over in-batch similarities (SEED, Fang et al. 2021)."""

    settings: SimilarityListSpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d) and (B, e)."""
        return F.similarity_kl(
            present(student.logits), present(teacher.logits), temperature=self.settings.temperature
        )
