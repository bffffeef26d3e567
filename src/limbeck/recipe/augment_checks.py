"""Settings of augmentation that do not go together. Part of `limbeck.recipe`."""

from __future__ import annotations

from limbeck.lab.augmentation import FROM_TEACHER
from limbeck.recipe.fields import RecipeFields
from limbeck.support.errors import Problem


def augment_problems(recipe: RecipeFields) -> list[Problem]:
    """A model that is missing or of no use, what is read by a language model that nothing asks, and a teacher that
    is not there to be asked.
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
                "augment.replace_by: nearest, and nothing says whose word vectors",
                "set augment.model=teacher, another encoder, or augment.embeddings=FILE",
            )
        )
    if spec.model is not None and spec.embeddings is not None:
        problems.append(
            Problem(
                f"augment.model: {spec.model} would have no effect: with replace_by=nearest all vectors are those of "
                "augment.embeddings",
                "leave one of them out",
            )
        )
    if spec.context == "edited":
        problems.append(
            Problem(
                "augment.context: edited is what a masked language model reads, and replace_by=nearest asks none",
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
            "augment, outputs: stored outputs know no augmented examples, of which the student would learn",
            "give the teacher (--teacher DIR in the place of outputs), or leave augment out",
        )
    ]


def _masked_problems(model: str | None) -> list[Problem]:
    if model is None:
        return [
            Problem(
                "augment.model: none is named, and a masked language model proposes the words",
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
