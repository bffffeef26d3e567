"""The values that several records share, and a record's facts in words. Part of `limbeck.records`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from limbeck.records.facts import Examples, Numbers
from limbeck.records.record import Record
from limbeck.support import words

_MB = 1e6

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


def repeated_said(examples: Examples, *, own: bool = True) -> list[str]:
    """A sentence for each scored split that has training rows among its own; `own`: also for the run's dev and test."""
    totals = {"dev": examples.dev, "test": examples.test}
    known = {split: "" if total is None else f" of {total:,}" for split, total in totals.items()}
    return [
        f"{count:,}{known[split]} {split} rows are also training rows."
        if split in known
        else f"{count:,} rows of {split.partition(' #')[0]} are also training or dev rows."
        for split, count in examples.in_train.items()
        if count and (own or split not in known)
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


# What a reader wants first, in a terminal and in a card.


def headline(record: Record, size: int) -> Iterator[tuple[str, str]]:
    """Label and text of the lines on scores, size and speed.

    Args:
        record: a finished run's.
        size: bytes of the model's weights; 0 if unknown.
    """
    for split in record.scores:
        yield "Score", _score(record, split)
    floor = {} if record.floor is None else record.floor.scores
    known = {split: floor.get(split, {}).get("primary") for split in record.scores}
    if found := [f"{split} {score:.1f}" for split, score in known.items() if score is not None]:
        yield "Floor", f"{', '.join(found)} by words alone (TF-IDF and a linear model)"
    if size:
        yield "Size", _size(record, size)
    if record.vocabulary is not None:
        yield "Kept", record.vocabulary.said
    for stack, layers in (record.picked_layers or {}).items():
        of = "" if stack == "main" else f" of the {stack}"
        yield "Layers", f"{', '.join(map(str, layers))}{of}, picked by importance"
    if (ratio := speedup(record)) is not None:
        yield "Speed", f"{ratio:.1f} × the teacher's ({_how_timed(record)})"


def scores_said(scores: Mapping[str, float | None]) -> str:
    """Say scores, 0 to 100, the primary one first; a score that is not a number is a dash.

    A primary score that is one of the others is not printed twice; a mean of them is called "score".
    """
    others = {name: value for name, value in scores.items() if name != "primary"}
    first = {primary_name(scores): scores["primary"]} if "primary" in scores else {}
    shown = (first | others).items()
    return ", ".join(f"{name} {'–' if value is None else f'{value:.1f}'}" for name, value in shown)


def primary_name(scores: Mapping[str, float | None]) -> str:
    """The name of the score that is the primary one; "score" where it is a mean of several."""
    primary = scores.get("primary")
    return next((n for n, value in scores.items() if value == primary and n != "primary"), "score")


def speedup(run: Record) -> float | None:
    """How many times as fast as its teacher a run's student is: the run has timed them in turns."""
    student = run.student.latency_ms
    teacher = None if run.teacher is None else run.teacher.latency_ms
    if student is None or teacher is None or not student.median:
        return None
    return teacher.median / student.median


def _score(record: Record, split: str) -> str:
    """Every score of a split; of the one that selects also the epochs it was chosen from, and the share kept."""
    own, last, chosen = record.scores[split], record.last, ""
    name = split.partition(" #")[0]  # a file without its digest
    if split == "dev" and record.best and last and last.primary is not None and last.epoch > 1:
        epochs = f"{record.best.epoch} of {last.epoch}"
        chosen = f" (best epoch, {epochs}; the last has {last.primary:.1f})"
    elif split == "test" and record.examples.test:
        chosen = f" ({record.examples.test:,} rows)"
    if (agreement := agreement_said(record.examples, split)) is not None:
        classes = record.classification.get(split)
        found = f"{name} {scores_said({key.replace('_', ' '): v for key, v in own.items()})}"
        if classes is not None and classes.divergence is not None:
            found += f", Jensen-Shannon divergence {classes.divergence:.3f} bits"
        return f"{found}: {agreement}{chosen}"
    said = f"{name} {scores_said(own)}{chosen}"
    primary, theirs = own.get("primary"), teacher_scores(record).get(split, {}).get("primary")
    if theirs is None or primary is None:
        return said
    said += f"; {_teacher_name(record)} {theirs:.1f}"
    if theirs <= 0:
        return said
    said += f": {100 * primary / theirs:.1f} % kept"
    return said if record.kept is None or split != "dev" else f"{said} ({record.kept.interval})"


def _teacher_name(record: Record) -> str:
    """The name of the teacher that the student is compared with."""
    if record.team is None:
        return "teacher"
    path = record.teacher.path if record.teacher is not None else None
    name = next((f" ({one.name})" for one in record.team.members if one.path == path), "")
    return f"best teacher of {len(record.team.members)}{name}"


def _size(record: Record, size: float) -> str:
    said, own = f"{size / _MB:.1f} MB", record.student.parameters
    theirs = record.teacher.parameters if record.teacher is not None else None
    # By parameters: the teacher's file may be of another precision.
    return f"{said}, {100 * own / theirs:.0f} % of the teacher's" if own and theirs else said


def _how_timed(record: Record) -> str:
    """How a latency was measured: it means nothing without it."""
    time = record.student.latency_ms
    assert time is not None
    parts = ["torch", f"batch {time.batch_size}"]
    parts += [f"{time.tokens} tokens"] if time.tokens is not None else []
    if time.device not in (None, "cpu"):
        parts.append(str(time.device))
    elif time.threads:
        parts.append(words.count_of(time.threads, "thread"))
    return ", ".join([*parts, "timed in turns"])


# A model that has learned nothing: one that predicts one class for every row, or scores no better than that.


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


def learned_nothing(record: Record) -> str | None:
    """That the model predicts one class for every dev row, or scores as that would, and what to try; None otherwise."""
    if (only := one_answer(record)) is not None:
        found = f"predicts {words.short_text(only)!r} for every dev row, which needs no model"
    elif (constant := record.best_constant) is not None:
        always = f"always predicting {words.short_text(constant.prediction)!r}"
        found = f"is no better on dev than {always} ({constant.score:.1f}), which needs no model"
    else:
        return None
    return f"{found}; train it longer, at another rate or on more rows"


def model_word(record: Record) -> str:
    """The word for a run's model: a fine-tuned one is no student."""
    return "student" if record.kind == "distill" else "model"
