"""A teacher's sentence embeddings as targets. Part of `limbeck.objectives`.

One by one, through a learned map where the widths differ, or by the similarities among the sentences of a
batch, for which no width matters.
"""

from collections.abc import Callable
from collections.abc import Mapping as Batch
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.functional.candidate_lists import PairWeighting
from limbeck.mappings.maps import Projections, ProjectSpec
from limbeck.objectives.base import Shape, TermSettings
from limbeck.objectives.predictions import OfLogits, present
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, Number, Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks import candidates, rules

_DISTANCES = {"embedding_mse": F.embedding_mse, "embedding_cosine": F.embedding_cosine}


class OfEmbeddingsSpec(TermSettings):
    """The settings of every comparison of embeddings."""

    dimensions: list[Count] | None = Field(
        None,
        min_length=1,
        description="also compare the student's first this many numbers, each as a separate embedding (Matryoshka), "
        "so that it can be truncated there; the mean over all widths is the loss",
    )


class OfEmbeddings(OfLogits):
    """A comparison of embeddings (B, d), and of the first numbers of the student's (Kusupati et al. 2022).

    Raises:
        LimbeckError: the task's models have other outputs; more numbers are requested than there are.
    """

    settings: OfEmbeddingsSpec

    def __init__(self, settings: OfEmbeddingsSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if not shape.student.embedding:
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

    project: ProjectSpec = Field(
        default_factory=lambda: ProjectSpec.model_validate(
            {"to": "teacher", "sides": "student", "when": "widths-differ"}
        ),
        description="learned map of the student's embeddings, not part of the saved student; by default to the "
        "teacher's width where the widths differ and the student was not cut out of the teacher",
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
            settings.project,
            [ours],
            [theirs],
            student_width=ours,
            teacher_width=theirs,
            kept=shape.kept.get(theirs, ()),
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

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Embeddings (B, d) of both sides."""
        distance, weights = _DISTANCES[self.settings.compare], batch.get(rules.EXAMPLE_WEIGHTS)
        ours, theirs = self.projections.student(ours, 0), self.projections.teacher(theirs, 0)
        if not self.settings.dimensions:
            return distance(ours, theirs, weights=weights)
        return self.over_widths(
            ours, lambda cut: distance(cut, theirs[:, : cut.shape[1]], weights=weights)
        )


@objective("similarity_mse", settings=OfEmbeddingsSpec)
class Similarities(OfEmbeddings):
    """Relational KD: both sides' matrices of cosines (Park et al. 2019)."""

    compares_examples = True

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Embeddings (B, d) and (B, e)."""
        return self.over_widths(ours, lambda cut: F.similarity_mse(cut, theirs))


class SimilarityListSpec(OfEmbeddingsSpec):
    """Which other sentences of the batch a sentence is nearest to, as a distribution."""

    temperature: Temperature = Field(0.05, description="divides both sides' cosines")


@objective("similarity_kl", settings=SimilarityListSpec)
class SimilarityLists(OfEmbeddings):
    """Listwise KL over in-batch similarities (SEED, Fang et al. 2021)."""

    compares_examples = True
    settings: SimilarityListSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Embeddings (B, d) and (B, e)."""
        own = self.settings
        return self.over_widths(
            ours, lambda cut: F.similarity_kl(cut, theirs, temperature=own.temperature)
        )


# Terms over the candidates of a query: listwise KL, margins, ranked pairs.


class OfCandidatesSpec(TermSettings):
    """The settings of every comparison of a query's candidates."""

    unsaid = ("scale",)

    scale: Number = Field(
        1.0,
        gt=0,
        description="multiplies the student's scores; cosines are at most 1 apart from 0, and a cross-encoder's scores "
        "are not",
    )


class OfCandidates(OfLogits):
    """A comparison of the scores of candidates, query by query.

    A cross-encoder's outputs (B, 1) are scores; of embeddings (B, d) a candidate's score is its inner product with
    its query's. Student and teacher may be one of each.

    Raises:
        LimbeckError: rows are no candidates of queries, or the teacher gives neither scores nor embeddings.
    """

    # A batch without labels raises a specific error, and a batch with some leaves out the unlabeled rows.
    counts_labelled = True
    compares_candidates = True
    compares_examples = True
    settings: OfCandidatesSpec

    def __init__(self, settings: OfCandidatesSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if shape.kind.candidates is None:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares the candidates of a query, and {shape.kind.name} has no "
                "candidates",
                "read the data as kind=pair-score (of a DistillationTrainer build the student with "
                "limbeck.build_student(MODEL, kind=limbeck.tasks.PAIR_SCORE)), or use soft_kl",
            )
        gives_scores = shape.teacher.embedding or shape.teacher.labels == 1
        if settings.needs_teacher and not gives_scores:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares scores of a query's candidates, and the teacher gives neither "
                f"embeddings nor one score, but {shape.teacher.labels} numbers",
                "give an embedding model, or a cross-encoder with one output",
            )
        self.needs_teacher, self.reads_labels = settings.needs_teacher, settings.reads_labels
        self.candidates = shape.kind.candidates
        self.of_teacher = self.candidates if shape.teacher.embedding else candidates.SCORED

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """What `compare` makes of the student's scores (B,), and of the teacher's or the batch's grades (B,).

        Raises:
            LimbeckError: the batch lacks each row's query, or its relevance.
        """
        ours = self.settings.scale * self.candidates.scores(present(student.logits), batch)
        if not self.needs_teacher:
            return self.compare(ours, self.candidates.grades(batch), batch)
        return self.compare(ours, self.of_teacher.scores(present(teacher.logits), batch), batch)


class ListwiseSpec(OfCandidatesSpec):
    """KL from the teacher's distribution over a query's candidates to the student's."""

    temperature: Temperature = Field(1.0, description="divides both sides' scores")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")


@objective("listwise_kl", settings=ListwiseSpec)
class ListwiseKL(OfCandidates):
    """ListNet's top-one distributions of teacher and student (Cao et al. 2007)."""

    settings: ListwiseSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Scores (B,) of both sides."""
        queries, own = self.candidates.queries(batch), self.settings
        return F.listwise_kl(
            ours, theirs, queries, temperature=own.temperature, scale_by_t2=own.scale_by_t2
        )


class MarginSpec(OfCandidatesSpec):
    """Squared error of differences between the scores of a query's candidates."""

    pairs: Literal["labels", "all"] = Field(
        "labels",
        description="which pairs: of different grades (labels), as in the paper, or all, which needs no labels",
    )

    @property
    def reads_labels(self) -> bool:
        """Where they choose the pairs."""
        return self.pairs == "labels"


@objective("margin_mse", settings=MarginSpec)
class MarginMse(OfCandidates):
    """Margin-MSE (Hofstätter et al. 2020)."""

    settings: MarginSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Scores (B,) of both sides, and the batch's grades (B,)."""
        grades = self.candidates.grades(batch) if self.reads_labels else None
        return F.margin_mse(ours, theirs, self.candidates.queries(batch), grades)


class RankedSpec(OfCandidatesSpec):
    """Pairs of a query's candidates in the order of their targets: RankNet, and LambdaLoss's weights for it."""

    of: Literal["teacher", "labels"] = Field(
        "teacher", description="source of the right order: the teacher's scores, or grades"
    )
    weighting: PairWeighting = Field(
        "uniform",
        description="how much a pair counts: uniform (RankNet), or by what its order changes in nDCG (LambdaLoss): "
        "lambda_rank, ndcg_loss2, ndcg_loss2_plus",
    )

    @property
    def needs_teacher(self) -> bool:
        """Where its scores are the targets."""
        return self.of == "teacher"

    @property
    def reads_labels(self) -> bool:
        """Where grades are the targets."""
        return self.of == "labels"


@objective("ranked_pairs", settings=RankedSpec)
class RankedPairs(OfCandidates):
    """RankNet (Burges et al. 2005) and LambdaLoss (Wang et al. 2018), of a teacher's order or of grades."""

    settings: RankedSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Scores (B,) of the student, and of the teacher or the batch's grades (B,)."""
        queries = self.candidates.queries(batch)
        return F.ranked_pairs(ours, theirs, queries, weighting=self.settings.weighting)


# The task's own contrast of embeddings: a query nearer to its passage than to others.


class PairContrastSpec(OfEmbeddingsSpec):
    """Identify each query's passages in the batch, by the data's pairs and triplets."""

    temperature: Temperature = Field(0.05, description="divides the cosines")


@objective("pair_contrast", settings=PairContrastSpec)
class PairContrast(OfEmbeddings):
    """InfoNCE over the batch (multiple negatives ranking, Henderson et al. 2017), of the student alone."""

    needs_teacher = False
    compares_candidates = True
    compares_examples = True
    settings: PairContrastSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Embeddings (B, d), and which text belongs to which.

        Raises:
            LimbeckError: the batch does not identify them.
        """
        grades = candidates.EMBEDDED.said(batch)
        candidates.EMBEDDED.queries(batch)  # raises an error for missing columns
        given = batch[candidates.QUERY_ID], grades, batch.get("input_ids")
        temperature = self.settings.temperature
        return self.over_widths(
            ours, lambda cut: F.pair_contrast(cut, *given, temperature=temperature)
        )
