"""Training settings that data and students bring, under whatever the user sets.

Part of `limbeck.recipe`. Pocket data and named CNNs have settings known to work; a paper's epochs and
rates are left out where the models are of another size.
"""

from __future__ import annotations

from typing import Any

from limbeck.lab.cifar_nets import SHAPES
from limbeck.lab.digits import DIGITS
from limbeck.lab.pocket import RECOMMENDED, TEXT_STUDENT, TEXT_TEACHER
from limbeck.lab.pocket.vocabulary import MAX_LENGTH
from limbeck.paper_settings import QUICK
from limbeck.recipe.quick import USUAL
from limbeck.students import starts_random


def fill_pocket(raw: dict[str, Any]) -> None:
    """Pocket data bring training settings known to work on them; whatever the user sets wins."""
    student = raw.get("student")
    from_scratch = isinstance(student, dict) and starts_random(student.get("init"))
    known = pocket_settings(raw.get("task"), kind=raw.get("kind"), from_scratch=from_scratch)
    known["max_length"] = MAX_LENGTH
    if raw.get("data") == "pocket":
        for key, value in known.items():
            raw.setdefault(key, value)


def fill_images(raw: dict[str, Any]) -> None:
    """Named CNNs bring the settings they are published with; whatever else is set wins."""
    if raw.get("data") == DIGITS:
        raw.setdefault("task", DIGITS)
    if named_net(raw):
        epochs = {"epochs": _SMALL_SET_EPOCHS} if raw.get("data") == DIGITS else {}
        stepped = {} if "lr_schedule" in raw else {"lr_schedule": "step", "warmup": 0.0}
        for key, value in (_NET_SETTINGS | epochs | stepped).items():
            raw.setdefault(key, value)


def fill_papers(raw: dict[str, Any]) -> None:
    """What a paper's settings leave open follows no rows, and its students have their first layers."""
    if raw.get("settings", QUICK) == QUICK:
        return
    for key, value in USUAL._asdict().items():
        raw.setdefault(key, value)
    if isinstance(raw.get("student"), dict):
        raw["student"].setdefault("pick", "first")


# SKDBERT's Appendix B, after CRD.
_NET_SETTINGS: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.05,
    "weight_decay": 5e-4,
    "batch_size": 64,
    "epochs": 240,
    "max_grad_norm": 0.0,
}


_SMALL_SET_EPOCHS = 30


def of_other_size(raw: dict[str, Any]) -> bool:
    """Whether the models are none that the papers' epochs and rates are right for.

    A pocket model is a hundredth of their width, and a named CNN reads images and learns by SGD.
    """
    return raw.get("data") == "pocket" or named_net(raw)


def named_net(raw: dict[str, Any]) -> bool:
    """Whether the student is a CNN named by its shape."""
    student = raw.get("student")
    init = student.get("init") if isinstance(student, dict) else None
    return isinstance(init, str) and init in SHAPES


def without_papers_rates(base: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe without the paper's epochs, rates, batch sizes and optimiser, in both stages."""
    kept = {key: value for key, value in base.items() if key not in PAPER_SETTINGS}
    if isinstance(kept.get("first_stage"), dict):
        first = kept["first_stage"].items()
        kept["first_stage"] = {key: value for key, value in first if key not in PAPER_SETTINGS}
    if isinstance(kept.get("team"), dict):  # students that rank are trained as the run's is
        kept["team"] = {k: v for k, v in kept["team"].items() if k != "student_epochs"}
    return kept


def with_toy_start(base: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe that starts from pretrained weights, which pocket data have none of: from a random toy."""
    if raw.get("data") != "pocket" or base.get("student") != {"init": "pretrained"}:
        return base
    return base | {"student": {"init": "pocket"}}


# The optimiser and its clipping go with the rate.
PAPER_SETTINGS = ("epochs", "lr", "batch_size", "optimizer", "max_grad_norm")


def pocket_settings(task: Any, *, from_scratch: bool, kind: Any = None) -> dict[str, Any]:
    """Settings known to work for a pocket task's teacher, or students; empty for other tasks."""
    if not isinstance(task, str) or task not in RECOMMENDED:
        return {}
    recommended = RECOMMENDED[task].teacher if from_scratch else RECOMMENDED[task].student
    if kind == "text":
        recommended = TEXT_TEACHER if from_scratch else TEXT_STUDENT
    return {key: value for key, value in recommended._asdict().items() if value is not None}
