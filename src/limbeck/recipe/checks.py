"""Keys of a recipe's stages that contradict each other. Part of `limbeck.recipe`."""

from __future__ import annotations

from limbeck.data import CorpusSpec
from limbeck.input_transforms import InputTransform, chosen
from limbeck.objectives import TermSpec
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.groups import FirstStage
from limbeck.recipe.stages import is_supplement
from limbeck.support.errors import Problem
from limbeck.tasks.abstract_type import TASK_TYPES

_ROWS = ("task", "data", "text_columns", "label_column", "train_rows", "corpus", "teacher")


def stage_problems(recipe: RecipeFields) -> list[Problem]:
    """Keys of the stages and of the data that contradict each other."""
    problems = _mixup_problems(recipe) + _width_problems(recipe)
    if recipe.stratified and not _draws_rows(recipe):
        problems.append(
            Problem("stratified: all training rows are used", "set train_rows, or leave it out")
        )
    first = recipe.first_stage
    if recipe.keep_first_stage and (first is None or recipe.joint):
        one = f"{recipe.method} has none" if first is None else "joined stages are one"
        problems.append(
            Problem(
                f"keep_first_stage: there is no first stage to keep a student of, {one}",
                f"leave keep_first_stage out, or {'add a first_stage' if first is None else 'joint'}",
            )
        )
    if first is None:
        if recipe.joint:
            problems.append(
                Problem(
                    f"joint: {recipe.method} has no first_stage to join",
                    "leave joint out, or take a method of two stages",
                )
            )
        return problems
    if not first.objectives:
        problems.append(
            Problem("first_stage.objectives: none are given", "add one, or set first_stage=null")
        )
    if recipe.joint:
        return problems + _joint_problems(first, recipe)
    if first.corpus is not None:
        problems += _corpus_problems(first, first.corpus, recipe)
    if (first.text_columns or first.label_column) and first.data is None:
        problems.append(
            Problem(
                "first_stage.text_columns, label_column: they name columns of first_stage.data, "
                "and none is given",
                "add first_stage.data, or leave them out",
            )
        )
    if is_supplement(first) and not has_targets(recipe):
        problems += [
            Problem(
                f"first_stage.objectives.{name}: it reads labels, and this stage has none: it "
                f"trains on {'a corpus' if first.corpus else 'the text of another task'}",
                f"take it out: first_stage.objectives.{name}=null",
            )
            for name in label_terms(first.objectives)
        ]
    if _writes(recipe) and first.corpus is not None:
        problems += _decoder_problems(first)
    return problems


def has_targets(recipe: RecipeFields) -> bool:
    """Whether a first stage on another task's rows reads their labels: a decoder writes those of any task."""
    first = recipe.first_stage
    return first is not None and first.corpus is None and _writes(recipe)


def _writes(recipe: RecipeFields) -> bool:
    return recipe.kind in TASK_TYPES and TASK_TYPES.get(str(recipe.kind)).classes_as_text


def _decoder_problems(first: FirstStage) -> list[Problem]:
    """Terms of a corpus's stage that look at a decoder: its input is made of targets."""
    problems = []
    for name, term in first.objectives.items():
        setting = f"first_stage.objectives.{name}"
        if term.reads_decoder:
            fix = f"compare the encoder: {setting}.stack=encoder; or train on a task's rows"
        elif term.reads_logits and not term.reads_labels:
            fix = f"take it out: {setting}=null; or train on a task's rows"
        else:
            continue
        problems.append(
            Problem(
                f"{setting}: it looks at the decoder, which reads the targets of this stage's "
                "rows, and a corpus has none",
                fix,
            )
        )
    return problems


def _mixup_problems(recipe: RecipeFields) -> list[Problem]:
    """Terms that need mixed inputs where nothing is mixed, and terms that mixing makes senseless."""
    first = recipe.first_stage
    parts = [("", recipe.objectives, _given(recipe))]
    if first is not None:
        joined = _given(first) | _given(recipe)
        parts = [
            ("", recipe.objectives, joined if recipe.joint else _given(recipe)),
            ("first_stage.", first.objectives, joined if recipe.joint else _given(first)),
        ]
    problems = []
    for prefix, terms, given in parts:
        if len(given) > 1:
            problems.append(
                Problem(
                    f"{prefix}mixup, {prefix}input_transform: inputs are transformed in one way",
                    "leave one of them out",
                )
            )
        mixes = any(transform.mixes for transform in given.values())
        for name, term in terms.items():
            if not mixes and term.needs_mixed:
                problems.append(
                    Problem(
                        f"{prefix}objectives.{name}: {term.needs_mixed}, and nothing is mixed",
                        f"add {prefix}mixup.alpha=1, or take the term out",
                    )
                )
            elif mixes and term.reads_labels and not term.mixes_labels:
                problems.append(
                    Problem(
                        f"{prefix}objectives.{name}: {term.compare} reads an example's one label, and "
                        "mixed input has that of two",
                        "take the term out, or leave mixup out",
                    )
                )
    return problems


def _given(stage: RecipeFields | FirstStage) -> dict[str, InputTransform]:
    """The transforms that are said, by their keys."""
    alone = {
        "mixup": chosen(stage.mixup, None),
        "input_transform": chosen(None, stage.input_transform),
    }
    return {key: transform for key, transform in alone.items() if transform is not None}


def _width_problems(recipe: RecipeFields) -> list[Problem]:
    """Rows that would not fit into the width they are padded to."""
    given = {"": recipe.pad_to}
    if recipe.first_stage is not None:
        given["first_stage."] = recipe.first_stage.pad_to
    return [
        Problem(
            f"{prefix}pad_to: {width} is less than max_length {recipe.max_length}, the longest row",
            "raise it, lower max_length, or write pad_to: max_length",
        )
        for prefix, width in given.items()
        if isinstance(width, int) and width < recipe.max_length
    ]


def _draws_rows(recipe: RecipeFields) -> bool:
    first = recipe.first_stage
    return recipe.train_rows is not None or (first is not None and first.train_rows is not None)


def label_terms(terms: dict[str, TermSpec], *, numbers: bool = False) -> list[str]:
    """Names of the terms that look at the label of an example; `numbers`: labels are numbers."""
    return [
        name
        for name, term in terms.items()
        if term.reads_labels or (numbers and term.reads_numbers)
    ]


def _joint_problems(first: FirstStage, recipe: RecipeFields) -> list[Problem]:
    problems = [
        Problem(
            f"joint: both stages have a term named {name!r}",
            "name one of them otherwise, or take it out of one stage",
        )
        for name in first.objectives
        if name in recipe.objectives
    ]
    idle = [key for key in _ROWS if getattr(first, key) is not None]
    if idle:
        problems.append(
            Problem(
                f"joint: one stage has one set of rows and one teacher, so "
                f"{', '.join(f'first_stage.{key}' for key in idle)} would have no effect",
                "leave joint out, or these keys",
            )
        )
    return problems


def _corpus_problems(first: FirstStage, corpus: CorpusSpec, recipe: RecipeFields) -> list[Problem]:
    problems = []
    idle = [key for key in ("task", "data", "train_rows") if getattr(first, key) is not None]
    if idle:
        problems.append(
            Problem(
                f"first_stage.corpus: it gives the rows, so "
                f"{', '.join(f'first_stage.{key}' for key in idle)} would have no effect",
                "leave one of them out; first_stage.corpus.size is the number of rows",
            )
        )
    for key in ("min_tokens", "max_tokens"):
        tokens = getattr(corpus, key)
        if tokens is not None and tokens > recipe.max_length:
            problems.append(
                Problem(
                    f"first_stage.corpus.{key}: {tokens} tokens are more than max_length "
                    f"{recipe.max_length}, to which rows are cut",
                    f"raise max_length, or lower {key}",
                )
            )
    return problems
