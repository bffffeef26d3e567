"""What the terms of a method are for models of another kind: a soft label of embeddings is their squared error.

Part of `limbeck.recipe`. A task type says which of its terms mean another one (`TaskType.becomes`), so that every
method for classifiers is one for that type too, and recipes and records name what is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limbeck.errors import LimbeckError, Problem
from limbeck.tasks import TASK_TYPES

# What a term keeps of its settings when it becomes another.
_KEPT = ("weight",)


def put_terms_of_kind(raw: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Put the task type's own terms in the places of those that mean something else there.

    Args:
        raw: a merged recipe, not checked yet; changed in place.
        given: what the user set by key, of which nothing may get lost.

    Raises:
        LimbeckError: settings of a term that is no longer there.
    """
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in TASK_TYPES:
        return
    becomes = TASK_TYPES.get(kind).becomes
    problems = []
    for prefix, stage in (("", raw), ("first_stage.", raw.get("first_stage"))):
        if not isinstance(stage, dict) or not isinstance(stage.get("objectives"), dict):
            continue
        terms: dict[str, Any] = stage["objectives"]
        kept = {}
        for name, term in terms.items():
            compare = str(term.get("compare")) if isinstance(term, dict) else ""
            if compare not in becomes:
                kept[name] = term
                continue
            now = becomes[compare]
            problems += _lost(f"{prefix}objectives.{name}", compare, now, kind, given)
            if now is not None:
                own = {key: value for key, value in term.items() if key in _KEPT}
                kept[name] = {"compare": now, **own}
        stage["objectives"] = kept
        if terms and not kept:
            problems.append(
                Problem(
                    f"{prefix}objectives: method {raw.get('method')} learns from labels alone, and kind {kind} has "
                    "none",
                    "take a method that learns from a teacher: limbeck methods",
                )
            )
    if problems:
        raise LimbeckError(problems)


def _lost(
    key: str, compare: str, now: str | None, kind: str, given: Mapping[str, Any]
) -> list[Problem]:
    """Settings of a term that the user named and that would have no effect."""
    becomes = f"becomes {now}" if now is not None else "is left out, as there are no labels"
    allowed = {f"{key}.{name}" for name in _KEPT} if now is not None else set()
    return [
        Problem(
            f"{setting}: of kind {kind} the term {compare} {becomes}, and the setting would have no effect",
            "leave it out, or give the term's `compare` yourself",
        )
        for setting in given
        if setting.startswith(f"{key}.") and setting not in allowed
    ]
