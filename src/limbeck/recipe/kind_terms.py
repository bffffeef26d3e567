"""What the terms of a method are for models of another kind: a soft label of embeddings is their squared error.

Part of `limbeck.recipe`. A task type says which of its terms mean another one (`TaskType.becomes`), so that every
method for classifiers is one for that type too, and recipes and records name what is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from limbeck.support.errors import LimbeckError, Problem
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
        if kept != terms:
            _say(raw, kind, kept, first=bool(prefix))
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


def _say(raw: dict[str, Any], kind: str, terms: Mapping[str, Any], *, first: bool) -> None:
    """Put what is trained in the place of the formula for classes; the summary says of which kind it is."""
    if first:
        return  # the formula is of the loss that the run ends with
    raw["formula"] = "L = " + " + ".join(
        " ".join([*_weight(term.get("weight", 1)), str(term.get("compare"))])
        for term in terms.values()
    )
    if raw.get("summary"):
        raw["summary"] = f"as of kind {kind}, of: {raw['summary']}"


def _weight(weight: Any) -> list[str]:
    """A factor before a term; none where it is 1."""
    if not isinstance(weight, str | int | float):
        return ["λ(t)"]
    if isinstance(weight, float):
        weight = Fraction(weight).limit_denominator(100)
    return [] if weight == 1 else [str(weight)]


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
