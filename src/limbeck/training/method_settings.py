"""What limbeck reads besides the Trainer's own arguments. Part of `limbeck.training`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from transformers import TrainingArguments

from limbeck.recipe import Recipe
from limbeck.tasks import TaskType
from limbeck.training.method import of_kind, recipe_of
from limbeck.training.optimizer import Optimisation

BESIDE = (
    *("curriculum", "min_confidence", "unlabelled_weight", "example_weights"),
    *("mixup", "input_transform"),
)
"""Settings that go with terms, and stand in a method's recipe."""


@dataclass
class MethodSettings:
    """What limbeck reads besides the Trainer's own arguments; plain `TrainingArguments` have the defaults."""

    method: str | None = field(
        default=None,
        metadata={
            "help": "A shipped method's name, a recipe file, or (in Python) a Recipe; kd if neither it nor objectives "
            "are given."
        },
    )
    objectives: dict | str | None = field(
        default=None,
        metadata={
            "help": "The terms themselves by name, instead of a method: settings as in a recipe, or (in Python) "
            "limbeck.Objective."
        },
    )
    curriculum: dict | str | None = field(
        default=None, metadata={"help": "With objectives: when each layer learns."}
    )
    min_confidence: float | None = field(
        default=None,
        metadata={
            "help": "With objectives: examples of whose class the teacher's probability is lower do not count in the "
            "terms that learn from its logits."
        },
    )
    unlabelled_weight: float | None = field(
        default=None,
        metadata={
            "help": "With objectives: how much an example without a label counts in those terms, next to one with a "
            "label; 1 if left out."
        },
    )
    example_weights: dict | str | None = field(
        default=None,
        metadata={
            "help": "With objectives: how much each example counts in those terms, by its name (use) and settings: "
            "confidence, llkd."
        },
    )
    mixup: dict | str | None = field(
        default=None, metadata={"help": "With objectives: mix the inputs of both models."}
    )
    input_transform: dict | str | None = field(
        default=None,
        metadata={
            "help": "With objectives: another input transform, by its name (use) and settings."
        },
    )
    first_stage: dict | str | None = field(
        default=None,
        metadata={
            "help": "Changes to the method's first stage, by its keys in a recipe: epochs, lr, batch_size, objectives."
        },
    )
    optimisation: dict | str | None = field(
        default=None,
        metadata={
            "help": "What the Trainer's own arguments do not reach: momentum and nesterov (SGD), milestones and decay "
            "(a rate that falls in steps), bert_adam and epsilon; the method's own if left out."
        },
    )
    cache_teacher_outputs: Literal["off", "auto", "memory", "disk"] = field(
        default="off",
        metadata={
            "help": "Ask the teacher once about each training example: memory (logits and pooled states), disk (all "
            "that the terms ask), auto (disk, where it can be and saves time)."
        },
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "Attention implementation of student and teachers: eager, sdpa, …; as loaded if left out."
        },
    )
    compile: bool = field(
        default=False,
        metadata={"help": "Run the training passes of student and teacher as compiled graphs."},
    )
    skip_unused_embeddings: bool = field(
        default=True,
        metadata={
            "help": "Leave the embeddings of tokens that no training row holds out of every step, where a first batch "
            "shows that outputs and gradients stay the same."
        },
    )
    group_by_length: bool = field(
        default=False,
        metadata={"help": "Batch examples of similar length; text needs an input_ids column."},
    )
    labelled_share: float | None = field(
        default=None,
        metadata={
            "help": "Share of labelled examples in each batch, where others have none; an epoch is then one pass over "
            "the unlabelled ones. As they come if left out."
        },
    )
    candidates: int | None = field(
        default=None,
        metadata={
            "help": "Task types pair-score and embedding: candidates of a query in an epoch at most, one of the best "
            "grade and others that are sampled again every epoch; all if left out."
        },
    )
    compact_metrics: bool = field(
        default=False,
        metadata={
            "help": "Hand compute_metrics and predict what the task type's scores need in place of the logits, which "
            "are as large as a vocabulary for some."
        },
    )

    @classmethod
    def of(cls, args: TrainingArguments) -> MethodSettings:
        """Those of a `DistillationConfig`; of plain arguments the defaults."""
        return args if isinstance(args, MethodSettings) else MethodSettings(method="kd")

    def recipe(self, kind: TaskType | None = None) -> Recipe:
        """The method, or the terms, as a checked recipe; the settings of `first_stage` are not in it.

        Args:
            kind: of the student, whose terms it has; None where it is not known yet.

        Raises:
            LimbeckError: every mistake in it, together.
        """
        beside = {key: getattr(self, key) for key in BESIDE}
        terms: Any = self.objectives
        found = recipe_of(self.method or "kd", terms, **beside)
        return found if kind is None else of_kind(found, kind)

    def how_to_optimise(self) -> Optimisation:
        """The optimiser and schedule where the Trainer's own arguments do not reach."""
        given: Any = self.optimisation
        given = dict(given or {})
        if "milestones" in given:
            given["milestones"] = tuple(given["milestones"])
        return Optimisation(**given)


OWN_SETTINGS = tuple(one.name for one in fields(MethodSettings))
"""The names of limbeck's own settings."""
