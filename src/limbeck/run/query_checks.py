"""Whether batches can hold a query's candidates together, before the first step. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.data.row_facts import facts_of
from limbeck.data.samplers import together
from limbeck.run.prepared import Prepared
from limbeck.run.stage_inputs import StageInputs
from limbeck.support.errors import LimbeckError, Problem

_FILES = (
    "give pairs, triplets or candidates (columns anchor, positive, negative; or --text-columns)"
)


def query_problems(prepared: Prepared) -> list[Problem]:
    """What is wrong with `candidates` and `batch_size`, for every stage; nothing of rows that stand for themselves."""
    return [problem for inputs in prepared.stages for problem in _of_stage(inputs)]


def _of_stage(inputs: StageInputs) -> list[Problem]:
    recipe, kind = inputs.stage.recipe, inputs.rows.kind
    setting, facts = inputs.stage.setting, facts_of(inputs.rows.encoded)
    if kind.group_column is None or facts.groups(kind.group_column) is None:
        return _of_none(inputs)
    problems = _ungraded(inputs)
    if problems:
        return problems
    if recipe.labelled_share is not None:
        return [
            Problem(
                f"{setting}labelled_share: the candidates of a query belong into one batch",
                "leave it out",
            )
        ]
    try:
        order = together(
            kind, facts, recipe.seed, batch_size=recipe.batch_size, candidates=recipe.candidates
        )
    except LimbeckError as error:
        return error.problems
    assert order is not None  # they have groups
    largest, split = int(order.sizes.max()), order.split
    if not split:
        return []
    beside = kind.candidates is not None and kind.candidates.queries_are_rows
    what, and_itself = ("texts", " + 1") if beside else ("candidates", "")
    return [
        Problem(
            f"{setting}batch_size: {recipe.batch_size} rows; {split} of {len(order.sizes)} queries do not stand in one "
            f"batch with all their {what} (up to {largest}), and what is apart is not compared",
            f"raise batch_size; with candidates=N and a batch_size that is a multiple of N{and_itself} most fit",
            "warning",
        )
    ]


def _of_none(inputs: StageInputs) -> list[Problem]:
    """Settings and terms of candidates, where the rows are none."""
    recipe, kind, setting = inputs.stage.recipe, inputs.rows.kind, inputs.stage.setting
    if recipe.candidates is not None:
        return [
            Problem(
                f"{setting}candidates: {recipe.candidates}, and rows of kind {kind.name} are no candidates of queries",
                _FILES
                if kind.candidates is not None
                else "leave it out, or read them as kind=pair-score",
            )
        ]
    return [
        Problem(
            f"{setting}objectives.{name}: {term.compare} compares texts that belong together, and the rows are "
            "sentences",
            f"{_FILES}, or take it out: {setting}objectives.{name}=null",
        )
        for name, term in recipe.objectives.items()
        if kind.group_column is not None and term.compares_candidates
    ]


def _ungraded(inputs: StageInputs) -> list[Problem]:
    """Terms that look at grades of candidates that nobody judged, of rows whose labels say nothing else."""
    reading, setting = inputs.rows.kind.candidates, inputs.stage.setting
    if reading is None or not reading.queries_are_rows:
        return []
    grades = facts_of(inputs.rows.encoded).numbers_of(reading.grades_of[0])
    if grades is None or (grades > 0).any():
        return []
    return [
        Problem(
            f"{setting}objectives.{name}: {term.compare} looks at which passages belong to their query, and nobody "
            "says it of any",
            "give every passage a label, 1 for what answers the query, else 0; or compare the teacher's scores alone: "
            "--method listwise-kl or ranknet, or embedding-margin with objectives.margin.pairs=all",
        )
        for name, term in inputs.stage.recipe.objectives.items()
        # Without a teacher there is nothing else to learn from.
        if term.compares_candidates and (term.reads_labels or not term.needs_teacher)
    ]
