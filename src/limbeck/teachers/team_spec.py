"""What a recipe may say about how several teachers teach. Part of `limbeck.teachers`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, model_validator

from limbeck.support.settings import MOST, Count, Number, Settings

Ranking = Literal["uniform", "teacher-rank", "student-rank"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)


class _Ranked(Settings):
    student_runs: str | None = Field(
        None,
        description="student-rank: folder of the runs that distil a student from each teacher "
        "alone, to be shared by several runs; OUT/students by default",
    )
    student_epochs: Number | None = Field(
        None,
        gt=0,
        le=10**6,
        description="student-rank: passes of those runs; as the run's, if left out",
    )

    @model_validator(mode="after")
    def _says_what_it_reads(self) -> _Ranked:
        by = getattr(self, "by", None)
        idle = [key for key in _Ranked.model_fields if getattr(self, key) is not None]
        if idle and by not in ("student-rank", "best-of"):
            raise ValueError(f"`{'`, `'.join(idle)}`: read with by: student-rank or best-of only")
        return self


class SampledSpec(_Ranked):
    """One teacher sampled for each optimisation step (SKDBERT)."""

    use: Literal["sample"]
    by: Ranking | Literal["best-of", "adaptive"] | list[Number] = Field(
        "uniform",
        description="probability of each teacher: uniform, by the rank of its dev score or of its "
        "student's, best-of (a run with each of these three, the best on dev), adaptive (learned "
        "in training), or one number a teacher",
    )
    holdout: Count | None = Field(
        None, description="adaptive: training rows held out to see progress on (128)"
    )
    block: Count | None = Field(
        None, description="adaptive: optimisation steps that a sampled teacher stays (10)"
    )
    explore: Number | None = Field(
        None, gt=0, le=1, description="adaptive: share of samples that are uniform (0.2)"
    )
    rate: Number | None = Field(
        None, gt=0, le=10, description="adaptive: how fast probabilities follow progress (0.1)"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> SampledSpec:
        own = ("holdout", "block", "explore", "rate")
        idle = [key for key in own if getattr(self, key) is not None]
        if idle and self.by != "adaptive":
            raise ValueError(f"`{'`, `'.join(idle)}`: read with by: adaptive only")
        _check_weights(self.by)
        return self


class EnsembleSpec(_Ranked):
    """An ensemble: all teachers run in every step; soft labels are those of their weighted mean (WKD)."""

    use: Literal["ensemble"]
    by: Ranking | Literal["best-of"] | list[Number] = Field(
        "uniform",
        description="weight of each teacher in the mean of the logits: uniform, by the rank of its "
        "dev score or of its student's, best-of (a run with each of these three, the best on dev), "
        "or one number a teacher",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> EnsembleSpec:
        _check_weights(self.by)
        return self


class ChainSpec(Settings):
    """From the largest to the smallest, each distils the next one; the last one teaches (TAKD)."""

    use: Literal["chain"]


TeamSpec = Annotated[SampledSpec | EnsembleSpec | ChainSpec, Field(discriminator="use")]

USES: dict[str, type[BaseModel]] = {
    "sample": SampledSpec,
    "ensemble": EnsembleSpec,
    "chain": ChainSpec,
}
"""What each value of `use` may say."""


def _check_weights(by: str | list[float]) -> None:
    if isinstance(by, list) and (not by or min(by) < 0 or not 0 < max(by) <= MOST):
        raise ValueError(
            f"by: give one number a teacher, none below 0 or above {MOST:,.0f}, and not all 0"
        )
