"""The values that several records share, and a record's facts in words. Part of `limbeck.records`."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from limbeck.records.facts import Examples, Numbers
from limbeck.records.record import Record

S = TypeVar("S")
T = TypeVar("T")


def grouped(things: Iterable[S], key: Callable[[S], T]) -> dict[T, list[S]]:
    """Group runs, for example, by a shared value, in the order of appearance."""
    found: dict[T, list[S]] = {}
    for one in things:
        found.setdefault(key(one), []).append(one)
    return found


def agreement_said(examples: Examples, split: str | None = None) -> str | None:
    """Say that scores are agreement with the teacher, and on how many texts; None where rows have labels.

    Args:
        examples: the run's rows.
        split: dev or test; by default both.
    """
    if examples.labels != "teacher":
        return None
    counts = {"dev": examples.dev, "test": examples.test}
    known = {name: n for name, n in counts.items() if n is not None and split in (None, name)}
    said = " and ".join(
        f"{n:,} {name}" if len(known) > 1 else f"{n:,}" for name, n in known.items()
    )
    return f"agreement with the teacher on {said} held-out texts"


def teacher_scores(record: Record) -> dict[str, Numbers]:
    """By split; with several teachers, the scores of the one that the student is compared with."""
    if record.examples.labels == "teacher":  # it agrees with itself
        return {}
    if record.teacher is not None:
        return record.teacher.scores
    return record.outputs[0].scores if record.outputs else {}


def repeated_said(examples: Examples) -> list[str]:
    """A sentence for each scored split that has training rows among its own."""
    totals = {"dev": examples.dev, "test": examples.test}
    known = {split: f" of {total:,}" for split, total in totals.items() if total is not None}
    return [
        f"{count:,}{known.get(split, '')} {split} rows are also training rows."
        for split, count in examples.in_train.items()
        if count
    ]


def rows_said(examples: Examples) -> str | None:
    """Labelled and unlabelled training rows and the rows left out; None for a run whose rows all have labels."""
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


# A classifier that predicts one class whatever it reads.


def one_answer(record: Record) -> str | None:
    """The class that a run's model predicts for every dev row; None if it distinguishes rows.

    None as well of a regression, and where the dev rows are of one class themselves.
    """
    predicted = [one for one in record.classes if one.precision is not None]
    if len(record.classes) < 2 or len(predicted) != 1:
        return None
    (only,) = predicted
    # Less is found where rows were given a class that no dev row has.
    return only.name if only.recall == 100 else None
