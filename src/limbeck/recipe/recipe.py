"""A recipe in use: loaded, checked, with its keys resolved. Part of `limbeck.recipe`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, field_validator

from limbeck.data import Conditions, CorpusSpec, Division
from limbeck.input_transforms import InputTransform, MixupSpec, TransformSpec
from limbeck.objectives import RECORDED, CurriculumSpec, Loss, TermSpec, WeightingSpec
from limbeck.recipe import quick, validation
from limbeck.recipe.augment_spec import AugmentSpec
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.groups import FirstStage, ImageSpec, StudentSpec
from limbeck.recipe.load import as_written_then, read_raw
from limbeck.students.execution import Attention, Precision
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import write_yaml
from limbeck.tasks import TASKS
from limbeck.teachers.team import TeamSpec

# SKDBERT's Appendix B, after CRD: epochs 150, 180 and 210 of 240.
_MILESTONES = (5 / 8, 3 / 4, 7 / 8)

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
"""The keys of the loss; each stage has its own."""
TRANSFORMS = ("mixup", "input_transform")
"""The loss keys that change inputs."""

__all__ = ["FirstStage", "ImageSpec", "Recipe", "Stage", "StudentSpec"]


class Recipe(RecipeFields):
    """A checked recipe.

    Example:
        ```python
        recipe = limbeck.Recipe.load("rail-kd-l", teacher="runs/teacher", data="questions.csv")
        limbeck.distill(recipe, out="runs/student")
        ```
    """

    @classmethod
    def load(cls, path_or_name: str | Path | None = None, /, **overrides: Any) -> "Recipe":
        """Read a YAML file or a shipped method; overrides win, dotted keys reach inside.

        Without either, the method is the usual one for the teacher's task type.

        Raises:
            LimbeckError: every mistake in it, together.
        """
        raw = read_raw(path_or_name, overrides)
        return validation.check(raw, cls, known_tasks=tuple(TASKS))

    @classmethod
    def recorded(cls, raw: dict[str, Any], run: str) -> "Recipe":
        """The recipe that a run's record holds. Raises LimbeckError where it holds none."""
        try:
            return cls.model_validate(as_written_then(raw), context=RECORDED)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3]
            )
            raise LimbeckError(
                f"the record of {run} holds no complete recipe ({wrong})",
                "name a run that this version of limbeck made",
            ) from None

    @field_validator("outputs", mode="before")
    @classmethod
    def _one_is_a_list(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [str(one) if isinstance(one, Path) else one for one in given]
        return [str(given)] if isinstance(given, str | Path) else given

    @property
    def taught_by(self) -> tuple[str | None, list[str] | None]:
        """The `teacher` and `outputs` of a stage with one teacher; outputs replace the model."""
        return (None, self.outputs) if self.outputs else (self.teacher, None)

    @property
    def needs_teacher(self) -> bool:
        """Whether any term, of either stage, looks at a teacher."""
        terms = list(self.objectives.values())
        if self.first_stage is not None:
            terms += self.first_stage.objectives.values()
        return any(term.needs_teacher for term in terms)

    @property
    def groups_by_length(self) -> bool:
        """Whether batches are of similar length: not where inputs are mixed, nor where all are of one
        width (`pad_to`), unless the recipe sets it.

        Mixing lengthens the shorter of two inputs (CR-ILD, §4.2), and there is little to lengthen
        where partners are alike.
        """
        if self.group_by_length is not None:
            return self.group_by_length
        mixes = self.transform is not None and self.transform.mixes
        return not mixes and self.pad_to is None

    @property
    def loss(self) -> Loss:
        """The loss of the last stage."""
        return Loss(**{key: getattr(self, key) for key in LOSS_KEYS})

    @property
    def transform(self) -> InputTransform | None:
        """The change to the inputs of every training step, if any."""
        return self.loss.transform

    @property
    def lead(self) -> str | None:
        """The teacher whose layers and tokenizer a student may start from: the first of several."""
        return self.teacher or (self.teachers[0] if self.teachers else None)

    @property
    def conditions(self) -> Conditions:
        """The changes to the training rows before the run."""
        return Conditions(*(getattr(self, key) for key in Conditions._fields))

    @property
    def division(self) -> Division:
        """Where the run's dev and test rows come from."""
        return Division(*(getattr(self, key) for key in Division._fields))

    @property
    def padded_width(self) -> int | None:
        """How wide every batch is, in tokens; None where its longest example decides."""
        return self.max_length if self.pad_to == "max_length" else self.pad_to

    @property
    def passes(self) -> float:
        """Passes over the training rows, as far as they are known before these are read."""
        return quick.USUAL.epochs if self.epochs is None else self.epochs

    def passes_over(self, rows: int) -> float:
        """Passes of a stage over its rows, with fractions if `max_steps` ends it earlier."""
        if self.max_steps is None:
            return self.passes
        return self.max_steps * self.batch_size * self.accumulation / rows

    @property
    def epsilon(self) -> float:
        """AdamW's epsilon."""
        return 1e-8 if self.adam_epsilon is None else self.adam_epsilon

    @property
    def sgd_momentum(self) -> float:
        """SGD's momentum."""
        return 0.9 if self.momentum is None else self.momentum

    @property
    def milestones(self) -> tuple[float, ...]:
        """Shares of the steps after which the rate falls to a tenth; none for a rate without steps."""
        return _MILESTONES if self.lr_schedule == "step" else ()

    def stages(self) -> "list[Stage]":
        """The stages in order: one, or two."""
        return stages_of(self)

    def to_yaml(self) -> str:
        """Return the complete recipe as YAML, with every default; reading it returns the same recipe."""
        return write_yaml(self.model_dump(mode="json"))


@dataclass(frozen=True)
class Stage:
    """One stage of a run.

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
    recipe: Recipe
    corpus: CorpusSpec | None = None
    supplementary: bool = False
    same_rows: bool = True

    @property
    def last(self) -> bool:
        """Whether its student is the run's: scored after every epoch, the best one kept."""
        return self.number == self.of

    @property
    def setting(self) -> str:
        """The prefix of the stage's keys in the user's recipe."""
        return "" if self.last else "first_stage."


def stages_of(recipe: Recipe) -> list[Stage]:
    """The recipe's stages in their order: one, two, or two joined into one."""
    first = recipe.first_stage
    if first is None:
        return [Stage(1, 1, recipe)]
    alone: dict[str, Any] = {"first_stage": None, "joint": False, "keep_first_stage": False}
    if recipe.joint:
        terms = {**first.objectives, **recipe.objectives}
        joined: dict[str, Any] = {"objectives": terms}
        joined |= {key: getattr(first, key) or getattr(recipe, key) for key in TRANSFORMS}
        joined["curriculum"] = first.curriculum or recipe.curriculum
        return [Stage(1, 1, recipe.model_copy(update=alone | joined))]
    changes = {key: getattr(first, key) for key in TRAINING if getattr(first, key) is not None}
    changes |= _rows_of(first, recipe)
    changes |= {
        # Weights of examples belong to the run's own terms: an untrained student's uncertainty means nothing.
        **{k: getattr(first, k, RecipeFields.model_fields[k].default) for k in LOSS_KEYS},
        "seed": stage_seed(recipe.seed, 1),
        # They choose among epochs by dev scores, and the head is not trained yet.
        "patience": None,
        "select_by": "primary",
    }
    supplementary = first.supplementary
    return [
        Stage(
            1,
            2,
            recipe.model_copy(update=alone | changes),
            corpus=first.corpus,
            supplementary=supplementary,
            same_rows=not supplementary and first.train_rows is None,
        ),
        Stage(2, 2, recipe.model_copy(update=alone)),
    ]


def stage_seed(seed: int, stage: int) -> int:
    """The seed of a stage before the last one, which keeps the run's: other draws for each stage."""
    return int(np.random.SeedSequence([seed, stage]).generate_state(1)[0])


def _rows_of(first: FirstStage, recipe: Recipe) -> dict[str, Any]:
    """The first stage's task, rows and teacher."""
    rows: dict[str, Any] = {"teacher": first.teacher or recipe.teacher}
    # Beside outputs the run's model gives layers to start from, and teaches nothing.
    gives_layers = first.teacher is None and bool(recipe.outputs)
    if rows["teacher"] is not None and not gives_layers:
        # One fixed teacher, whichever teachers follow.
        rows |= {"teachers": None, "team": None, "outputs": None}
    if not first.supplementary:
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


# The types that `fields` names without importing their modules, which load torch.
_TYPES = {
    "Attention": Attention,
    "AugmentSpec": AugmentSpec,
    "CorpusSpec": CorpusSpec,
    "CurriculumSpec": CurriculumSpec,
    "MixupSpec": MixupSpec,
    "Precision": Precision,
    "TeamSpec": TeamSpec,
    "TermSpec": TermSpec,
    "TransformSpec": TransformSpec,
    "WeightingSpec": WeightingSpec,
}
for _group in (FirstStage, RecipeFields, Recipe):
    _group.model_rebuild(_types_namespace=_TYPES)
