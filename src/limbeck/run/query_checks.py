"""Whether batches can hold a query's candidates together, before the first step. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.data.query_sampler import QuerySampler
from limbeck.data.row_facts import facts_of
from limbeck.errors import LimbeckError, Problem
from limbeck.run.prepared import Prepared
from limbeck.run.stage_inputs import StageInputs


def query_problems(prepared: Prepared) -> list[Problem]:
    """What is wrong with `candidates` and `batch_size`, for every stage; nothing of rows that stand for themselves."""
    return [problem for inputs in prepared.stages for problem in _of_stage(inputs)]


def _of_stage(inputs: StageInputs) -> list[Problem]:
    recipe, column = inputs.stage.recipe, inputs.rows.kind.group_column
    queries = None if column is None else facts_of(inputs.rows.encoded).groups(column)
    setting = inputs.stage.setting
    if recipe.candidates is not None and (queries is None or inputs.rows.kind.embeds):
        return [
            Problem(
                f"{setting}candidates: {recipe.candidates}, and rows of kind {inputs.rows.kind.name} are no candidates "
                "of queries",
                "leave it out, or read them as kind=pair-score",
            )
        ]
    if queries is None:
        return [
            Problem(
                f"{setting}objectives.{name}: {term.compare} compares texts that belong together, and the rows are "
                "sentences",
                "give pairs or triplets (columns anchor, positive, negative; or --text-columns), or take it out: "
                f"{setting}objectives.{name}=null",
            )
            for name, term in recipe.objectives.items()
            if column is not None and term.compares_candidates
        ]
    if recipe.labelled_share is not None:
        return [
            Problem(
                f"{setting}labelled_share: the candidates of a query belong into one batch",
                "leave it out",
            )
        ]
    try:
        order = QuerySampler(
            queries, recipe.seed, batch_size=recipe.batch_size, candidates=recipe.candidates
        )
    except LimbeckError as error:
        return error.problems
    largest, split = int(order.sizes.max()), order.split
    if not split:
        return []
    return [
        Problem(
            f"{setting}batch_size: {recipe.batch_size} rows; {split} of {len(order.sizes)} queries do not stand in one "
            f"batch with all their candidates (up to {largest}), and what is apart is not compared",
            "raise batch_size; with candidates=N and a batch_size that is a multiple of N most queries fit",
            "warning",
        )
    ]
