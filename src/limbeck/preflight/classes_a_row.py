"""Whether a model was trained for one class a row, or for any number, as the rows are.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

from transformers import PretrainedConfig

from limbeck.support.errors import Problem
from limbeck.tasks import Task

_SEVERAL = "multi_label_classification"


def other_problem(side: str, config: PretrainedConfig, task: Task) -> list[Problem]:
    """Classes that exclude each other on one side, and do not on the other."""
    trained, wanted = getattr(config, "problem_type", None), task.kind.problem_type
    if trained is None or not task.labels or not task.kind.labels_examples:
        return []
    if (trained == wanted) or (wanted is None and trained != _SEVERAL):
        return []
    of_several = f"any number of classes a row ({_SEVERAL})"
    one = "a number" if trained == "regression" else "one class a row"
    theirs = of_several if wanted is None else f"{one} ({trained})"
    ours, kind = ("one", "multi-label") if wanted is None else ("any number of classes", "sentence")
    return [
        Problem(
            f"{side}: it was trained for {theirs}, and rows of {task.name} have {ours}",
            f"give a {side} that was fine-tuned on {task.name}, or set kind={kind}",
        )
    ]


def unsaid_problem(side: str, config: PretrainedConfig, task: Task) -> list[Problem]:
    """A teacher for rows of any number of classes that does not say whether its own exclude each other."""
    trained = getattr(config, "problem_type", None)
    if not task.kind.several_classes or trained is not None or config.num_labels == 1:
        return []
    return [
        Problem(
            f"{side}: its config.json does not say whether it was trained for one class a row; its outputs are read as "
            "the probability of each class by itself",
            f"write problem_type: {_SEVERAL} into it if that is right; one that was trained for one class a row "
            "(softmax) teaches kind=sentence",
            "warning",
        )
    ]
