"""Terms over the candidates of a query: listwise KL, margins, ranked pairs. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Literal

from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Request, Trace
from limbeck.errors import LimbeckError
from limbeck.functional.candidate_lists import PairWeighting
from limbeck.mappings.projections import Projections
from limbeck.objectives.base import NOTHING, Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.schedules import Temperature
from limbeck.step_state import StepState
from limbeck.tasks.abstract_type import need_labels


class OfCandidates(Objective):
    """A comparison of the scores (B, 1) of candidates, query by query.

    Raises:
        LimbeckError: rows are no candidates of queries.
    """

    # A batch without labels is told as such, and one in which some are missing leaves those out.
    counts_labelled = True

    def __init__(
        self, settings: TermSettings, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        if shape.kind.group_column is None:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares the candidates of a query, and {shape.kind.name} has none",
                "read the data as kind=pair-score (of a DistillationTrainer build the student with "
                "limbeck.build_student(MODEL, kind=limbeck.tasks.PAIR_SCORE)), or use soft_kl",
            )

    def queries(self, batch: Batch[str, Tensor]) -> Tensor:
        """Whose candidate each row is, (B,). Raises LimbeckError for a batch that does not say it."""
        column = self.shape.kind.group_column
        if column is None or column not in batch:
            raise LimbeckError(
                f"{self.setting}: the batch has no {column}, so nobody knows which candidates are of one query",
                f"give the rows a column {column} of whole numbers, one for each query",
            )
        return batch[column]


def _scores(trace: Trace) -> Tensor:
    return present(trace.logits).squeeze(-1)


class ListwiseSpec(TermSettings):
    """KL from the teacher's distribution over a query's candidates to the student's."""

    compare: Literal["listwise_kl"]
    temperature: Temperature = Field(1.0, description="divides both sides' scores")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")


@objective("listwise_kl", settings=ListwiseSpec)
class ListwiseKL(OfCandidates):
    """ListNet's top-one distributions of teacher and student (Cao et al. 2007)."""

    settings: ListwiseSpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Scores (B, 1) of both sides."""
        own = self.settings
        return F.listwise_kl(
            _scores(student),
            _scores(teacher),
            self.queries(batch),
            temperature=own.temperature,
            scale_by_t2=own.scale_by_t2,
        )


class MarginSpec(TermSettings):
    """Squared error of differences between the scores of a query's candidates."""

    compare: Literal["margin_mse"]
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

    @property
    def means_over_labelled(self) -> bool:
        """Where labels choose the pairs."""
        return self.settings.reads_labels

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Scores (B, 1) of both sides, and the batch's grades (B)."""
        grades = None
        if self.settings.reads_labels:
            need_labels(batch, ("labels",))
            grades = batch["labels"].float()
        return F.margin_mse(_scores(student), _scores(teacher), self.queries(batch), grades)


class RankedSpec(TermSettings):
    """Pairs of a query's candidates in the order of their targets: RankNet, and LambdaLoss's weights for it."""

    compare: Literal["ranked_pairs"]
    of: Literal["teacher", "labels"] = Field(
        "teacher", description="what the right order is known from: the teacher's scores, or grades"
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

    @property
    def means_over_labelled(self) -> bool:
        """Where grades are the targets."""
        return self.settings.reads_labels

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' scores, or the student's alone where grades are the targets."""
        if self.settings.reads_labels and side == "teacher":
            return NOTHING
        return super().request(side, step_state)

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Scores (B, 1) of the student, and of the teacher or the batch's grades (B)."""
        own = self.settings
        if own.reads_labels:
            need_labels(batch, ("labels",))
        targets = batch["labels"].float() if own.reads_labels else _scores(teacher)
        return F.ranked_pairs(
            _scores(student), targets, self.queries(batch), weighting=own.weighting
        )
