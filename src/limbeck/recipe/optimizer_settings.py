"""Keys of the optimiser and of the learning rate that go together, and what they leave open.

Part of `limbeck.recipe`.
"""

from __future__ import annotations

from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.quick import USUAL
from limbeck.support.errors import Problem

_MOMENTUM = 0.9
_EPSILON = 1e-8
_DECAY = 0.1
# SKDBERT's Appendix B, after CRD: epochs 150, 180 and 210 of 240.
_MILESTONES = (5 / 8, 3 / 4, 7 / 8)


class OptimisationKeys(RecipeFields):
    """What the keys come to."""

    @property
    def passes(self) -> float:
        """Over the training rows, as far as they are known before these are read."""
        return USUAL.epochs if self.epochs is None else self.epochs

    def passes_over(self, rows: int) -> float:
        """How often a stage sees its rows, with fractions where it stops after so many steps."""
        if self.max_steps is None:
            return self.passes
        return self.max_steps * self.batch_size * self.accumulation / rows

    @property
    def epsilon(self) -> float:
        """Of AdamW."""
        return _EPSILON if self.adam_epsilon is None else self.adam_epsilon

    @property
    def sgd_momentum(self) -> float:
        """Of SGD."""
        return _MOMENTUM if self.momentum is None else self.momentum

    @property
    def milestones(self) -> tuple[float, ...]:
        """Shares of the steps after which the rate falls; none for a rate without steps."""
        if self.lr_schedule != "step":
            return ()
        if self.lr_milestones is None:
            return _MILESTONES
        return tuple(m if m < 1 else m / self.passes for m in self.lr_milestones)

    @property
    def decay(self) -> float:
        """What the rate is multiplied by at each."""
        return _DECAY if self.lr_decay is None else self.lr_decay


def optimisation_problems(recipe: RecipeFields) -> list[Problem]:
    """Keys that would have no effect, and milestones that are never reached."""
    problems = []
    if recipe.optimizer != "sgd":
        idle = ["momentum"] * (recipe.momentum is not None) + ["nesterov"] * recipe.nesterov
        problems += [
            Problem(
                f"{key}: {recipe.optimizer} has none of it", "set optimizer: sgd, or leave it out"
            )
            for key in idle
        ]
    elif recipe.adam_epsilon is not None:
        problems.append(
            Problem("adam_epsilon: sgd has none of it", "set optimizer: adamw, or leave it out")
        )
    elif recipe.nesterov and recipe.momentum == 0:
        problems.append(Problem("nesterov: momentum is 0", "raise momentum, or leave it out"))
    first = None if recipe.first_stage is None else recipe.first_stage.lr_schedule
    if "step" not in (recipe.lr_schedule, first):
        problems += [
            Problem(
                f"{key}: the rate follows lr_schedule {recipe.lr_schedule}, without steps",
                "set lr_schedule: step, or leave it out",
            )
            for key in ("lr_milestones", "lr_decay")
            if getattr(recipe, key) is not None
        ]
        return problems
    return problems + _milestone_problems(recipe)


def _milestone_problems(recipe: RecipeFields) -> list[Problem]:
    given = recipe.lr_milestones
    if given is None:
        return []
    if not given or any(m <= 0 for m in given) or list(given) != sorted(set(given)):
        return [
            Problem(
                f"lr_milestones: {given} are not epochs (or shares) one after the other",
                "write them in order, say [150, 180, 210]",
            )
        ]
    epochs = [m for m in given if m >= 1]
    if epochs and (recipe.max_steps is not None or recipe.epochs is None):
        decides = "max_steps decides" if recipe.max_steps is not None else "the rows decide"
        return [
            Problem(
                f"lr_milestones: epochs are given, and {decides} how long the run is",
                "write shares of the run, say [5/8, 3/4, 7/8]",
            )
        ]
    late = [m for m in epochs if recipe.epochs is not None and m >= recipe.epochs]
    if late:
        return [
            Problem(
                f"lr_milestones: {late[0]:g} is never reached in {recipe.epochs:g} epochs",
                "lower it, raise epochs, or write shares of the run, say [5/8, 3/4, 7/8]",
            )
        ]
    return []
