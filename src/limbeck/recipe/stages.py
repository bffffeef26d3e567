"""Stages: one recipe, trained in one go or in two, each with terms and settings of its own.

Part of `limbeck.recipe`. The first stage is a recipe like any other, made here out of the keys it
has and the top level's for those it leaves out; the run trains one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np

from limbeck.data import CorpusSpec
from limbeck.objectives import Loss
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.groups import FirstStage

RecipeT = TypeVar("RecipeT", bound=RecipeFields)

TRAINING = (
    "epochs",
    "max_steps",
    "lr",
    "batch_size",
    "accumulation",
    "lr_schedule",
    "warmup",
    "weight_decay",
    "pad_to",
)
"""Training settings that a first stage may have for itself."""

LOSS_KEYS = tuple(one.name for one in fields(Loss))
"""What a stage trains by: of these it has its own."""
TRANSFORMS = ("mixup", "input_transform")
"""Those of them that say what is done to inputs."""


@dataclass(frozen=True)
class StageOf(Generic[RecipeT]):
    """One stage of a run; `Stage`, beside `Recipe`, is one of a recipe.

    Attributes:
        number: 1, 2, …
        of: how many stages the run has.
        recipe: a recipe of this single stage, with a seed of its own.
        corpus: sentence pairs that take the place of the recipe's task and data.
        supplementary: its rows are another task's or a corpus's, and have no labels but for a decoder's targets.
        same_rows: it trains on the very rows of the last stage.
    """

    number: int
    of: int
    recipe: RecipeT
    corpus: CorpusSpec | None = None
    supplementary: bool = False
    same_rows: bool = True

    @property
    def last(self) -> bool:
        """Whether its student is the run's: scored after every epoch, the best one kept."""
        return self.number == self.of

    @property
    def setting(self) -> str:
        """What stands before its keys in the user's recipe."""
        return "" if self.last else "first_stage."


def stages_of(recipe: RecipeT) -> list[StageOf[RecipeT]]:
    """The recipe's stages in their order: one, two, or two joined into one."""
    first = recipe.first_stage
    if first is None:
        return [StageOf(1, 1, recipe)]
    alone: dict[str, Any] = {"first_stage": None, "joint": False, "keep_first_stage": False}
    if recipe.joint:
        terms = {**first.objectives, **recipe.objectives}
        joined: dict[str, Any] = {"objectives": terms}
        joined |= {key: getattr(first, key) or getattr(recipe, key) for key in TRANSFORMS}
        joined["curriculum"] = first.curriculum or recipe.curriculum
        return [StageOf(1, 1, recipe.model_copy(update=alone | joined))]
    changes = {key: getattr(first, key) for key in TRAINING if getattr(first, key) is not None}
    changes |= _rows_of(first, recipe)
    changes |= {
        # How examples are weighed is of the run's own terms: before them no student knows what it is unsure of.
        **{k: getattr(first, k, RecipeFields.model_fields[k].default) for k in LOSS_KEYS},
        "seed": stage_seed(recipe.seed, 1),
        # They choose among epochs by dev scores, and the head is not trained yet.
        "patience": None,
        "select_by": "primary",
    }
    supplementary = is_supplement(first)
    return [
        StageOf(
            1,
            2,
            recipe.model_copy(update=alone | changes),
            corpus=first.corpus,
            supplementary=supplementary,
            same_rows=not supplementary and first.train_rows is None,
        ),
        StageOf(2, 2, recipe.model_copy(update=alone)),
    ]


def stage_seed(seed: int, stage: int) -> int:
    """The seed of a stage before the last one, which keeps the run's: other draws for each stage."""
    return int(np.random.SeedSequence([seed, stage]).generate_state(1)[0])


def is_supplement(first: FirstStage) -> bool:
    """Whether a first stage trains on other rows than the task's."""
    return any((first.task, first.data, first.corpus))


def _rows_of(first: FirstStage, recipe: RecipeFields) -> dict[str, Any]:
    """The first stage's task, rows and teacher."""
    rows: dict[str, Any] = {"teacher": first.teacher or recipe.teacher}
    # Beside outputs the run's model gives layers to start from, and teaches nothing.
    gives_layers = first.teacher is None and bool(recipe.outputs)
    if rows["teacher"] is not None and not gives_layers:
        # One fixed teacher, whoever teaches afterwards.
        rows |= {"teachers": None, "team": None, "outputs": None}
    if not is_supplement(first):
        # Rows that this stage has for itself are a sample of the labelled ones.
        if first.train_rows is not None:
            rows |= {"unlabelled": [], "labelled_share": None}
        return rows | {"train_rows": first.train_rows or recipe.train_rows}
    rows |= {
        "task": first.task or recipe.task,
        "data": first.data or recipe.data,
        "train_rows": first.train_rows,
        "classes": None,
        "labels": None,
        "unlabelled": [],
        "labelled_share": None,
        # A condition of the target task's rows.
        "label_noise": 0.0,
    }
    if first.data is not None:  # columns belong to their file
        rows |= {"text_columns": first.text_columns, "label_column": first.label_column}
    return rows
