"""The task's own contrast of embeddings: a query nearer to its passage than to others. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Literal

from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.objectives.embedding_terms import OfEmbeddings, OfEmbeddingsSpec
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.support.settings import Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks.candidate_reading import EMBEDDED, QUERY_ID


class PairContrastSpec(OfEmbeddingsSpec):
    """Which passage of the batch belongs to a query, as the data's pairs and triplets say."""

    compare: Literal["pair_contrast"]
    temperature: Temperature = Field(0.05, description="divides the cosines")


@objective("pair_contrast", settings=PairContrastSpec)
class PairContrast(OfEmbeddings):
    """InfoNCE over the batch (multiple negatives ranking, Henderson et al. 2017), of the student alone."""

    needs_teacher = False
    compares_candidates = True
    settings: PairContrastSpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Embeddings (B, d), and which text belongs to which.

        Raises:
            LimbeckError: the batch does not say so.
        """
        grades = EMBEDDED.said(batch)
        EMBEDDED.queries(batch)  # says what is missing
        queries, tokens = batch[QUERY_ID], batch.get("input_ids")
        return self.over_widths(
            present(student.logits),
            lambda cut: F.pair_contrast(
                cut, queries, grades, tokens, temperature=self.settings.temperature
            ),
        )
