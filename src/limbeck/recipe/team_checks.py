"""What a recipe says about several teachers and cannot mean. Part of `limbeck.recipe`."""

from __future__ import annotations

from limbeck.recipe.fields import RecipeFields
from limbeck.support.errors import Problem
from limbeck.teachers import ChainSpec, EnsembleSpec


def team_problems(recipe: RecipeFields) -> list[Problem]:
    """Keys about several teachers that contradict each other or the terms."""
    problems = _outputs(recipe)
    if recipe.team is None:
        return problems + _without_team(recipe)
    problems += _wrong_list(recipe)
    if isinstance(recipe.team, EnsembleSpec):
        problems += [
            Problem(
                f"objectives.{name}: {term.compare} looks at a teacher's layers, and teachers that "
                "are averaged have none in common",
                "take it out, or sample one teacher for each step: team.use=sample",
            )
            for name, term in recipe.objectives.items()
            if term.needs_layers and term.needs_teacher
        ]
    return problems


def _outputs(recipe: RecipeFields) -> list[Problem]:
    """Keys that go with stored outputs, and those that do not."""
    if not recipe.outputs:
        idle = {
            "missing_outputs": recipe.missing_outputs != "error",
            "output_classes": bool(recipe.output_classes),
        }
        return [
            Problem(
                f"{key}: read with outputs only", "add outputs (--outputs STORE), or leave it out"
            )
            for key, said in idle.items()
            if said
        ]
    problems = []
    if recipe.teachers:
        problems.append(
            Problem(
                "teachers, outputs: both say who teaches",
                "label with the models first (`limbeck label`) and give all as outputs, or leave one out",
            )
        )
    if len(recipe.outputs) > 1 and recipe.team is None:
        problems.append(
            Problem(
                f"outputs: {len(recipe.outputs)} are given, and {recipe.method} learns from one teacher",
                "say how they teach (team.use=sample or ensemble), take a method of several (skd-uniform, "
                "wkd-uniform, mt-bert), or give one",
            )
        )
    if isinstance(recipe.team, ChainSpec):
        problems.append(
            Problem(
                f"outputs: {recipe.method} distils teachers one into another, which takes their models",
                "give them as teachers, or take another method of several (skd-uniform, wkd-uniform, mt-bert)",
            )
        )
    if recipe.teacher is not None and not recipe.student.from_teacher:
        problems.append(
            Problem(
                "teacher, outputs: the outputs teach, and the student starts from student.init, so that nobody reads "
                "the teacher",
                "leave one of them out; or start from the teacher's layers: leave student.init out (--student)",
            )
        )
    if recipe.teacher_dropout:
        problems.append(
            Problem("teacher_dropout: stored outputs have none", "leave it out, or give the model")
        )
    return problems + _of_a_corpus(recipe)


def _of_a_corpus(recipe: RecipeFields) -> list[Problem]:
    """Outputs that are to teach on pairs that the run itself makes of a corpus, which nobody can have labelled.

    Another task's rows may stand in a store, so they are looked up there.
    """
    first = recipe.first_stage
    if first is None or first.corpus is None or recipe.joint:
        return []
    reads = any(term.needs_teacher for term in first.objectives.values())
    if not reads or (first.teacher or recipe.teacher) is not None:
        return []
    return [
        Problem(
            "first_stage.corpus, outputs: the pairs are made of the corpus when the run starts, so no stored outputs "
            "are of them",
            "give this stage a teacher of its own: first_stage.teacher=DIR; or leave first_stage out: first_stage=null",
        )
    ]


def _without_team(recipe: RecipeFields) -> list[Problem]:
    if recipe.teachers is None:
        return []
    return [
        Problem(
            f"teachers: {len(recipe.teachers)} are given, and {recipe.method} learns from one",
            "say how they teach (team.use=sample, ensemble or chain), take a method of several "
            "(skd-uniform, wkd-uniform, mt-bert, takd), or give one with --teacher",
        )
    ]


def _wrong_list(recipe: RecipeFields) -> list[Problem]:
    teachers, team = recipe.teachers or recipe.outputs or [], recipe.team
    key = "outputs" if recipe.outputs else "teachers"
    twice = sorted({path for path in teachers if teachers.count(path) > 1})
    problems = [
        Problem(f"{key}: {path} is named twice", "name it once; team.by gives it more weight")
        for path in twice
    ]
    by = None if isinstance(team, ChainSpec) or team is None else team.by
    if isinstance(by, list) and teachers and len(by) != len(teachers):
        problems.append(
            Problem(
                f"team.by: {len(by)} numbers for {len(teachers)} teachers",
                "give one number a teacher, in the order of teachers",
            )
        )
    return problems
