"""Whether stored outputs can teach a recipe's terms, before any is read. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.outputs.stored_teacher import GivenOutputs
from limbeck.recipe import Recipe
from limbeck.support.errors import Problem
from limbeck.tasks import Task


def task_problems(task: Task) -> list[Problem]:
    """Rows of which nobody can store outputs."""
    if task.kind.stored_as.labels_examples and task.kind.reads.in_columns:
        return []
    return [
        Problem(
            f"outputs: they are of whole texts, and {task.name} is of kind {task.kind.name}",
            "give the teacher's model: --teacher",
        )
    ]


def term_problems(recipe: Recipe, task: Task, outputs: GivenOutputs) -> list[Problem]:
    """Terms and settings that need what a store of outputs does not hold."""
    problems = []
    for stage in recipe.stages():
        if stage.recipe.outputs is None:
            continue
        transform = stage.recipe.transform
        if transform is not None and transform.why_live is not None:
            problems.append(
                Problem(
                    f"outputs: {transform.why_live} ({transform.name}), so stored ones cannot serve",
                    "leave the transform out, or give the teacher's model: --teacher",
                )
            )
        for name, term in stage.recipe.objectives.items():
            setting = f"{stage.setting}objectives.{name}"
            if (
                term.needs_teacher
                and task.kind.stored_as is not task.kind
                and not outputs.embedding
                and not term.compares_candidates
            ):
                problems.append(_of_pairs(setting, term.compare, outputs))
            elif term.needs_teacher and outputs.lists is not None and not term.compares_candidates:
                problems.append(_of_margins(setting, term.compare, outputs.place))
            elif term.needs_teacher and term.needs_layers and outputs.embedding:
                problems.append(
                    Problem(
                        f"{setting}: {term.compare} compares layers, and {outputs.place} holds embeddings alone",
                        "compare embeddings (--method embedding-mse, embedding-cosine, embedding-similarity), or give "
                        "the teacher's model: --teacher",
                    )
                )
            elif term.needs_teacher and term.needs_layers and outputs.layers is None:
                problems.append(
                    Problem(
                        f"{setting}: {term.compare} compares layers, and {outputs.place} holds "
                        f"{outputs.what} alone",
                        "compare the logits (method kd or kd-soft); or store layers with `limbeck label --outputs "
                        "logits hidden:LAYER`, or give the teacher's model: --teacher",
                    )
                )
            elif (
                term.needs_teacher
                and term.shifts_matter
                and outputs.what not in ("logits", "score")
                and not outputs.several
            ):
                problems.append(
                    Problem(
                        f"{setting}: {term.compare} compares logits themselves, and of {outputs.what} they "
                        "are known but for a constant an example",
                        "use soft_kl or soft_cross_entropy, or label with --outputs logits",
                    )
                )
    return problems


def _of_pairs(setting: str, compare: str, outputs: GivenOutputs) -> Problem:
    """A term that looks at a text by itself, of which stored scores say nothing."""
    held = "scores" if outputs.lists is None else "margins, differences of two scores,"
    return Problem(
        f"{setting}: {compare} compares texts one by one, and {outputs.place} holds {held} of a query with a passage",
        "compare scores (--method embedding-margin, listwise-kl or ranknet), or give an embedding model: --teacher",
    )


def _of_margins(setting: str, compare: str, place: str) -> Problem:
    """A term that looks at each score, of which margins say nothing."""
    return Problem(
        f"{setting}: {compare} compares each score, and {place} holds margins: differences of two scores",
        "compare a query's candidates (--method margin-mse, listwise-kl or ranknet), or give the scores themselves: "
        "columns query, passage and score",
    )
