"""The card itself: metadata and text, written into the student's folder. Part of `limbeck.cards`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.cards import tables
from limbeck.cards.facts import StudentFacts, dataset_of, teacher_names, usage, without_paths
from limbeck.cards.metadata import languages, metadata, own_splits
from limbeck.cards.settings import CardSettings, read_settings
from limbeck.recipe import Recipe
from limbeck.recipe.catalog import HEADER, find, names
from limbeck.records import Record
from limbeck.records.words import (
    agreement_said,
    headline,
    learned_nothing,
    one_answer,
    repeated_said,
)
from limbeck.runtimes.cascade import is_cascade
from limbeck.runtimes.manifest import exports_of_student
from limbeck.support import cells, files, plain, templates
from limbeck.support.errors import LimbeckError
from limbeck.support.words import count_of, short_text
from limbeck.tables import classes, model
from limbeck.tasks import TASKS

log = logging.getLogger(__name__)

CARD_NAME = "README.md"
MARKER = "<!-- Written by limbeck. Without this line, limbeck leaves the file as it is. -->"
# Recipe keys of no use to readers of a card.
_PRIVATE = ("plugins", "report_to", "workers", "cache", "log_steps", "save_steps")


def is_ours(card: Path) -> bool:
    """Whether limbeck may write a card there: it has no card, or one by limbeck."""
    try:
        return MARKER in card.read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False


def write_card(
    run: str | Path, settings: CardSettings | None = None, *, out: str | Path | None = None
) -> Path:
    """Write a finished run's model card atomically, and return its path.

    Args:
        run: the run's folder.
        settings: facts about the model that its record lacks; later cards keep them.
        out: another file than `student/README.md`.

    A cascade has had its card since it was made: its path is returned.

    Exported models of a student that the run held before are left out, with a warning.

    Example:
        ```python
        limbeck.write_card("runs/student")
        ```

    Raises:
        LimbeckError: no finished run, runs for the spread that are not runs or of another task, settings for a
            cascade, or a README there that a person wrote.
    """
    folder = files.at_home(run)
    if is_cascade(folder):
        if settings not in (None, CardSettings()) or out is not None:
            raise LimbeckError(
                f"{run} is a cascade, whose card takes no settings",
                f"leave them out; its card is {folder / CARD_NAME}",
            )
        return folder / CARD_NAME
    card = folder / "student" / CARD_NAME if out is None else files.at_home(out)
    if not is_ours(card):
        raise LimbeckError(
            f"{card} was written by a person, or changed so that limbeck leaves it alone",
            "write the card to another file with --out, or remove that one",
        )
    said = (settings or CardSettings()).within(read_settings(folder))
    text = render_card(folder, said)
    for problem in exports_of_student(folder)[1]:
        log.warning("%s: the card leaves it out; %s", problem.message, problem.fix)
    files.write_whole(card, text)
    said.write(folder)
    return card


def render_card(run: Path, settings: CardSettings, name: str | None = None) -> str:
    """The card's text; `name` is the model's on the Hub, by default the run's folder's own.

    Raises:
        LimbeckError: as `write_card`.
    """
    record = Record.of_finished(run)
    student = StudentFacts(run, record)
    called = name or run.resolve().name
    template = templates.templates_of("limbeck.cards").get_template("card.md.j2")
    text = template.render(
        card_data=metadata(student, settings, called).to_yaml(),
        marker=MARKER,
        **_content(student, settings, called, local=name is None),
    )
    return str(ModelCard(text)).rstrip() + "\n"


def _content(
    student: StudentFacts, settings: CardSettings, name: str, *, local: bool
) -> dict[str, Any]:
    record, exports = student.record, student.exports
    python = usage(student, name, local=local)
    split, found = next(iter(record.classification.items()), ("", None))
    return {
        "title": name,
        "summary": _summary(student),
        "warning": cells.in_markdown(learned_nothing(record) or ""),
        "headline": [
            (label, cells.in_markdown(line)) for label, line in headline(record, student.bytes)
        ],
        "usage": None if python is None else python.rstrip(),
        "exports": tables.export_table(student) if exports else None,
        "several_exports": len(exports) > 1,
        "gate_rows": f"{exports[0].gate.rows:,} {exports[0].gate.split}" if exports else "",
        "scores": tables.score_table(record, own_splits(student)),
        "score_notes": _score_notes(student, settings.seeds),
        "classes": []
        if found is None
        else classes.class_tables(found, None if settings.examples else 0),
        "class_notes": [
            cells.in_markdown(f"{words[0].upper()}{words[1:]}.")
            for words in (
                []
                if found is None
                else classes.class_words(found, record.row_tests.get(split), record.thresholds)
            )
        ],
        "spread": tables.spread_of(student, settings.seeds, settings.baseline),
        "sizes": tables.size_table(student),
        "latency": tables.latency_table(record),
        "latency_note": _latency_note(record),
        "method": _method(record),
        "training": tables.training_table(student),
        "recipe": _recipe(record),
        "limits": map(cells.in_markdown, limits(student, settings)),
    }


def _summary(student: StudentFacts) -> str:
    record = student.record
    layers = f"{record.student.layers}-layer " if record.student.layers else ""
    what = f"A {layers}{student.architecture} model for {cells.in_markdown(model.task_title(record.task))}"
    if student.labels:
        classes = [*map(cells.in_markdown, student.labels[:8])]
        classes += ["…"] if len(student.labels) > 8 else []
        what += f" (classes: {', '.join(classes)})"
    teachers = teacher_names(record)
    if record.kind == "finetune" or not teachers:
        return f"{what}, fine-tuned with limbeck."
    by = f"distilled by `{record.method}` from {_list(teachers)}"
    if record.team is None and record.teacher is not None and record.teacher.layers is not None:
        by += f" ({count_of(record.teacher.layers, 'layer')})"
    return f"{what}, {by} with limbeck."


def _list(words: Sequence[str]) -> str:
    shown = [f"`{word}`" for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _score_notes(student: StudentFacts, seeds: Sequence[str]) -> list[str]:
    record = student.record
    agreement = agreement_said(record.examples)
    notes = [] if agreement is None else [f"Scores are {agreement}: no labels were read."]
    for split, tests in [*record.row_tests_alone.items()][:1]:
        notes += [
            cells.in_markdown(f"On {split}, {words}.")
            for words in classes.row_test_words(tests, "student", "teacher")
        ]
    notes += classes.floor_words(record)
    if not seeds:
        notes.append(f"One run, seed {record.seed}: the spread over seeds is not known.")
    return notes


def _latency_note(record: Record) -> str:
    bench = record.bench
    if bench is not None and bench.rows:
        return f"{bench.said} Latencies of other benches or machines are not comparable with these."
    where = record.hardware.get("processor")
    return (
        f"Timed in turns at the end of the run on {where}. Latencies of other runs or machines are "
        "not comparable with these."
    )


def _method(record: Record) -> str:
    if record.method not in names():
        return f"`{record.method}`."
    entry = find(record.method)
    paper = f" ({entry.paper})" if entry.paper else ""
    return f"`{entry.method}`: {entry.summary}{paper}."


def _recipe(record: Record) -> str | None:
    """The recipe's settings that differ from limbeck's defaults, in a group from the group's."""
    shown = {}
    for key, value in record.recipe.items():
        field = Recipe.model_fields.get(key)
        usual: Any = None
        if field is not None and not field.is_required():
            usual = field.get_default(call_default_factory=True)
        usual = usual.model_dump(mode="json") if hasattr(usual, "model_dump") else usual
        if key in (*_PRIVATE, *HEADER[1:]) or value in (None, usual):
            continue
        if isinstance(value, dict) and isinstance(usual, dict):
            value = {name: own for name, own in value.items() if own != usual.get(name, ...)}
        shown[key] = value
    return plain.write_yaml(without_paths(shown), width=88).rstrip() if shown else None


# A class below this recall is named.
_WEAK = 50.0


def limits(student: StudentFacts, settings: CardSettings) -> Iterator[str]:
    """Sentences; each follows from the record."""
    record, title = student.record, model.task_title(student.record.task)
    yield _scored(record)
    others = [one for one in record.scores if one not in own_splits(student) and not _is_fresh(one)]
    if found := _primary(record, others):
        yield f"Out of domain it scores {found}."
    else:
        yield f"It was scored on rows of {title} alone: how it does on other text is not known."
    examples, spoken = record.examples, languages(settings, dataset_of(record))
    rows = "an unknown number of" if examples.train is None else f"{examples.train:,}"
    tongue = f" (language: {', '.join(spoken)})" if spoken else ""
    more = f", {examples.unlabelled:,} of them without a label" if examples.unlabelled else ""
    of_text = student.kind.reads.in_columns
    unknown = " Their language is not recorded." if of_text and not spoken else ""
    yield f"It was trained on {rows} rows of {title}{tongue}{more}.{unknown}"
    if of_text:
        cut = [
            f"{count:,} of {total:,} {split} rows"
            for split, total in (("train", examples.train), ("dev", examples.dev))
            if (count := examples.truncated.get(split)) and total
        ]
        longer = f"{', '.join(cut)} were longer" if cut else "no row was longer"
        length = student.max_length
        yield f"Inputs were cut at {length} tokens ({longer}); longer ones were never seen."
    yield from repeated_said(examples)
    yield from _weak_classes(record)
    for count, what in (
        (examples.relabelled, "training rows were given a wrong class on purpose"),
        (examples.augmented, "of the training rows are augmented examples"),
        (examples.without_outputs, "rows were left out, as stored teacher outputs lack them"),
    ):
        if count:
            yield f"{count:,} {what}."
    known = any(one.student.reliability for one in record.classification.values())
    yield f"Bias{'' if known else ', calibration'} and adversarial input were not examined."
    if settings.license is None:
        yield "No license is stated: the licenses of the base model and of the training data apply."
    if student.own_architecture:
        kind = student.config.get("model_type")
        yield f"transformers does not know the architecture {kind}: limbeck loads it."
    if record.kind == "distill":
        yield "The model learned from a teacher's outputs, so it repeats errors of its teacher."


def _scored(record: Record) -> str:
    if (agreement := agreement_said(record.examples)) is not None:
        return f"Its scores are {agreement}: how often it is right is not known."
    task = TASKS.get(record.task)
    rows = "" if record.examples.dev is None else f"{record.examples.dev:,} "
    which = "published test" if task is not None and task.dev_is_test else "dev"
    flattered = (
        f"The best epoch was selected on the same {rows}{which} rows that give the {which} score, which flatters it a "
        "little."
    )
    known = record.examples.in_train
    fresh = _primary(
        record,
        [one for one in record.scores if one == "test" or (_is_fresh(one) and one not in known)],
    )
    if not fresh:
        return f"{flattered} No other rows were scored."
    return f"{flattered} On rows that chose nothing it scores {fresh}."


def _is_fresh(split: str) -> bool:
    """Whether a split holds rows of the run's own task that chose nothing: a test split, or rows scored later."""
    return split == "test" or " of " in split


def _primary(record: Record, splits: list[str]) -> str:
    """Splits with their primary scores, in words; a file's rows by the file's name."""
    return ", ".join(
        f"{score:.1f} ({model.task_title(split.partition(' #')[0])})"
        for split in splits
        if (score := record.scores[split].get("primary")) is not None
    )


def _weak_classes(record: Record) -> Iterator[str]:
    for one in record.classes:
        if one.recall is not None and one.recall < _WEAK:
            yield f"Of the {one.rows:,} dev rows of class {short_text(one.name)!r} it finds {one.recall:.1f} %."
    never = [short_text(one.name) for one in record.classes if one.precision is None]
    if never and one_answer(record) is None:
        yield f"It never predicted {', '.join(map(repr, never))} on dev."
