"""A teacher's sentence embeddings as targets. Part of `limbeck.objectives`.

One by one, through a learned map where the widths differ, or by the similarities among the sentences of a
batch, for which no width matters.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Batch
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.mappings.projections import Projections, ProjectSpec
from limbeck.objectives.base import Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks.rules import EXAMPLE_WEIGHTS

_DISTANCES = {"embedding_mse": F.embedding_mse, "embedding_cosine": F.embedding_cosine}


class OfEmbeddingsSpec(TermSettings):
    """What every comparison of embeddings may be told."""

    dimensions: list[Count] | None = Field(
        None,
        min_length=1,
        description="also compare the student's first so many numbers, each as an embedding of its own (Matryoshka), "
        "so that it can be cut there; the mean over all widths is the loss",
    )


class OfEmbeddings(Objective):
    """A comparison of embeddings (B, d), and of the first numbers of the student's (Kusupati et al. 2022).

    Raises:
        LimbeckError: the task's models put out something else; more numbers are asked for than there are.
    """

    settings: OfEmbeddingsSpec

    def __init__(
        self,
        settings: OfEmbeddingsSpec,
        shape: Shape,
        setting: str,
        maps: Projections | None = None,
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        if not shape.kind.embeds:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares sentence embeddings, and the models of task type "
                f"{shape.kind.name} put out something else",
                "set kind=embedding, or use soft_kl for classes and numbers (method kd-soft)",
            )
        if self.needs_teacher and not shape.teacher.embedding:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares sentence embeddings, and the teacher gives none",
                "give an embedding model (limbeck.embedding.SENTENCE_EMBEDDERS.from_pretrained)",
            )
        self.widths = sorted({*(self.settings.dimensions or ()), shape.student.outputs})
        if self.widths[-1] > shape.student.outputs:
            raise LimbeckError(
                f"{setting}.dimensions: {self.widths[-1]}, and the student's embeddings have "
                f"{shape.student.outputs} numbers",
                "name widths below that",
            )

    def over_widths(self, student: Tensor, compare: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of a comparison over the widths at which embeddings (B, d) are looked at."""
        return torch.stack([compare(student[:, :width]) for width in self.widths]).mean()


class EmbeddingSpec(OfEmbeddingsSpec):
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
        if settings.dimensions and self.projections.mapped:
            raise LimbeckError(
                f"{setting}.dimensions: the first numbers of embeddings are compared one by one, and a map mixes them",
                "compare similarities there (similarity_mse, similarity_kl), or leave the map out",
            )

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d) of both sides."""
        distance, weights = _DISTANCES[self.settings.compare], batch.get(EXAMPLE_WEIGHTS)
        ours = self.projections.student(present(student.logits), 0)
        theirs = self.projections.teacher(present(teacher.logits), 0)
        if not self.settings.dimensions:
            return distance(ours, theirs, weights=weights)
        return self.over_widths(
            ours, lambda cut: distance(cut, theirs[:, : cut.shape[1]], weights=weights)
        )


class SimilaritySpec(OfEmbeddingsSpec):
    """The cosines of every two sentences of a batch, as the teacher has them."""

    compare: Literal["similarity_mse"]


@objective("similarity_mse", settings=SimilaritySpec)
class Similarities(OfEmbeddings):
    """Relational KD: both sides' matrices of cosines (Park et al. 2019)."""

    settings: SimilaritySpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d) and (B, e)."""
        theirs = present(teacher.logits)
        return self.over_widths(present(student.logits), lambda cut: F.similarity_mse(cut, theirs))


class SimilarityListSpec(OfEmbeddingsSpec):
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
        theirs, temperature = present(teacher.logits), self.settings.temperature
        return self.over_widths(
            present(student.logits),
            lambda cut: F.similarity_kl(cut, theirs, temperature=temperature),
        )
