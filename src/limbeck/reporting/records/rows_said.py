"""Which rows a run was trained on, in words. Part of `limbeck.reporting.records`."""

from __future__ import annotations

from limbeck.reporting.records.course_facts import Examples


def rows_said(examples: Examples) -> str | None:
    """Labelled and unlabelled training rows and what was left out; None of a run whose rows all have labels."""
    left_out = {
        "in dev or test": examples.unlabelled_in_scored_splits,
        "repeated": examples.unlabelled_repeated,
        "blank": examples.unlabelled_blank,
        "without stored outputs": examples.without_outputs,
    }
    if not examples.unlabelled and not any(left_out.values()):
        return None
    said = f"{examples.labelled or 0:,} with a label, {examples.unlabelled:,} without"
    others = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count)
    return f"{said} ({others}: left out)" if others else said
