"""Augmented examples, training rows with some words replaced: TinyBERT's data augmentation.

Rows are augmented after they are loaded and before they are tokenised. Jiao et al. 2020, Algorithm 1; SKDBERT §5.4 uses
it as `+da`. A masked language model proposes replacements for words of one token, the nearest word vectors for the
others, or for all if there is no such model; which words change is sampled for every augmented example.

The core's recipes have the settings (`recipe.augment_spec`) and find the rest by its registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limbeck.recipe.augment_spec import AUGMENTATION, FROM_TEACHER
from limbeck.support.errors import Problem

if TYPE_CHECKING:
    from datasets import Dataset

    from limbeck.recipe import Recipe
    from limbeck.recipe.fields import RecipeFields
    from limbeck.run.prepared import Prepared
    from limbeck.tasks import Task


@AUGMENTATION.register("words")
class WordReplacement:
    """The core's interface to augmentation; the augmenter itself is loaded when a run needs it."""

    def problems(self, recipe: RecipeFields) -> list[Problem]:
        """Settings that do not go together."""
        return settings_problems(recipe)

    def load(self, recipe: Recipe, task: Task, rows: Dataset) -> Any:
        """The augmenter of these training rows (`augmented_run.load_augmenter`)."""
        from limbeck.lab.augmentation.augmented_run import load_augmenter

        return load_augmenter(recipe, task, rows)

    def extend(self, prepared: Prepared, *, show: bool) -> Prepared:
        """The run with augmented examples behind its training rows."""
        from limbeck.lab.augmentation.augmented_run import with_augmented_examples

        return with_augmented_examples(prepared, show=show)


def settings_problems(recipe: RecipeFields) -> list[Problem]:
    """A missing or unusable model, settings for a language model although none is used, and a missing
    teacher.
    """
    spec = recipe.augment
    if spec is None:
        return []
    problems = _outputs_problems(recipe)
    if spec.replace_by == "masked":
        return problems + _masked_problems(spec.model)
    if spec.model is None and spec.embeddings is None:
        problems.append(
            Problem(
                "augment.replace_by: nearest, and no source of word vectors is given",
                "set augment.model=teacher, another encoder, or augment.embeddings=FILE",
            )
        )
    if spec.model is not None and spec.embeddings is not None:
        problems.append(
            Problem(
                f"augment.model: {spec.model} would have no effect: with replace_by=nearest all vectors come from "
                "augment.embeddings",
                "leave one of them out",
            )
        )
    if spec.context == "edited":
        problems.append(
            Problem(
                "augment.context: edited is for a masked language model, and replace_by=nearest does not use one",
                "leave one of them out",
            )
        )
    return problems


def _outputs_problems(recipe: RecipeFields) -> list[Problem]:
    """Outputs in a teacher's place, which were stored before there was an augmented example."""
    if not recipe.outputs:
        return []
    return [
        Problem(
            "augment, outputs: the student would train on augmented examples, which have no stored outputs",
            "give the teacher (--teacher DIR instead of outputs), or leave augment out",
        )
    ]


def _masked_problems(model: str | None) -> list[Problem]:
    if model is None:
        return [
            Problem(
                "augment.model: no model is named, and a masked language model proposes the words",
                "set augment.model=DIR, or augment.replace_by=nearest",
            )
        ]
    if model == FROM_TEACHER:
        return [
            Problem(
                "augment.model: teacher, and a fine-tuned teacher proposes no words",
                "name a masked language model, or set augment.replace_by=nearest",
            )
        ]
    return []
