"""What is known of a model's limits, sentence by sentence. Part of `limbeck.cards`."""

from __future__ import annotations

from limbeck.cards.card_settings import CardSettings, own_splits
from limbeck.cards.facts import StudentFacts
from limbeck.records import Record
from limbeck.records.words import agreement_said, one_answer, repeated_said
from limbeck.tables.model import task_title
from limbeck.tasks import TASKS

# A class below this recall is named.
_WEAK = 50.0


def limits(student: StudentFacts, settings: CardSettings, languages: list[str] | None) -> list[str]:
    """Sentences; each follows from the record."""
    record = student.record
    said = [_scored(student), _domain(student), _rows(student, languages), *_length(student)]
    said += repeated_said(record.examples)
    said += _classes(student) + _conditions(student)
    known = [one for one in record.classification.values() if one.student.reliability]
    said.append(f"Bias{'' if known else ', calibration'} and adversarial input were not examined.")
    if settings.license is None:
        said.append("No licence is stated: those of the base model and of the training data apply.")
    if student.own_architecture:
        said.append(
            f"transformers does not know the architecture {record_type(student)}: limbeck loads it."
        )
    if record.kind == "distill":
        said.append(
            "The model learned from a teacher's outputs, so it repeats errors of its teacher."
        )
    return [sentence for sentence in said if sentence]


def record_type(student: StudentFacts) -> str:
    """The configuration's own name of the architecture."""
    return str(student.config.get("model_type"))


def _scored(student: StudentFacts) -> str:
    record = student.record
    if (agreement := agreement_said(record.examples)) is not None:
        return f"Its scores are {agreement}: how often it is right is not known."
    task = TASKS.get(record.task)
    rows = "" if record.examples.dev is None else f"{record.examples.dev:,} "
    which = "published test" if task is not None and task.dev_is_test else "dev"
    flattered = (
        f"The best epoch was selected on the same {rows}{which} rows that give the {which} score, which flatters it a "
        "little."
    )
    fresh = _primary(record, [split for split in record.scores if _is_fresh(split)])
    if not fresh:
        return f"{flattered} No other rows were scored."
    return f"{flattered} On rows that chose nothing it scores {fresh}."


def _is_fresh(split: str) -> bool:
    """Whether a split holds rows of the run's own task that chose nothing: a test split, or rows scored later."""
    return split == "test" or " of " in split


def _primary(record: Record, splits: list[str]) -> str:
    """Splits with their primary scores, in words; a file's rows by the file's name."""
    return ", ".join(
        f"{score:.1f} ({task_title(split.partition(' #')[0])})"
        for split in splits
        if (score := record.scores[split].get("primary")) is not None
    )


def _domain(student: StudentFacts) -> str:
    own, record = own_splits(student), student.record
    others = [split for split in record.scores if split not in own and not _is_fresh(split)]
    title = task_title(record.task)
    if not (found := _primary(record, others)):
        return f"It was scored on rows of {title} alone: how it does on other text is not known."
    return f"Out of domain it scores {found}."


def _rows(student: StudentFacts, languages: list[str] | None) -> str:
    examples = student.record.examples
    rows = "an unknown number of" if examples.train is None else f"{examples.train:,}"
    tongue = f" (language: {', '.join(languages)})" if languages else ""
    more = f", {examples.unlabelled:,} of them without a label" if examples.unlabelled else ""
    unknown = (
        "" if languages or not student.kind.reads.in_columns else " Their language is not recorded."
    )
    return f"It was trained on {rows} rows of {task_title(student.record.task)}{tongue}{more}.{unknown}"


def _length(student: StudentFacts) -> list[str]:
    if not student.kind.reads.in_columns:
        return []
    examples = student.record.examples
    cut = [
        f"{count:,} of {total:,} {split} rows"
        for split, total in (("train", examples.train), ("dev", examples.dev))
        if (count := examples.truncated.get(split)) and total
    ]
    tail = f" ({', '.join(cut)} were longer)" if cut else " (no row was longer)"
    return [f"Inputs were cut at {student.max_length} tokens{tail}; longer ones were never seen."]


def _classes(student: StudentFacts) -> list[str]:
    classes = student.record.classes
    weak = [one for one in classes if one.recall is not None and one.recall < _WEAK]
    found = [
        f"Of the {one.rows:,} dev rows of class {one.name!r} it finds {one.recall:.1f} %."
        for one in weak
    ]
    if student.labels and not classes:
        return found
    if (only := one_answer(student.record)) is not None:
        return [
            *found,
            f"It predicts {only!r} for every dev row: what it reads makes no difference.",
        ]
    never = [one.name for one in classes if one.precision is None]
    if never:
        found.append(f"It never predicted {', '.join(map(repr, never))} on dev.")
    return found


def _conditions(student: StudentFacts) -> list[str]:
    examples = student.record.examples
    found = []
    if examples.relabelled:
        found.append(f"{examples.relabelled:,} training rows were given a wrong class on purpose.")
    if examples.augmented:
        found.append(f"{examples.augmented:,} of the training rows are augmented examples.")
    if examples.without_outputs:
        found.append(
            f"{examples.without_outputs:,} rows were left out, as stored teacher outputs lack them."
        )
    return found
