"""Predictions of classes in cells and sentences, the same in a terminal, on a page and in a card.

Part of `limbeck.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limbeck.records import Record
from limbeck.records.facts import ClassificationScores, ModelScores, RowTests
from limbeck.tables.cells import decimal, one_line, signed

Cells = list[list[str]]
"""Headings, then rows."""

SIGNIFICANT = 0.05
FEW = 100
"""Below so many rows a bootstrap's interval is too narrow: of 50 it covers some 90 % where it says 95."""
# Of classes; a terminal's or a page's matrix of more cannot be read.
MOST_SHOWN = 12


def whole_cells(found: ClassificationScores) -> Cells:
    """The scores of all classes together, of the student and of the teacher, with the difference."""
    models = [found.student, *([found.teacher] if found.teacher is not None else [])]
    names = ["student"] if found.teacher is None else ["student", "teacher", "difference"]
    several = found.student.micro_f1 is not None
    alike = "accuracy" if found.labels is None else "agreement with the teacher"
    lines: list[tuple[str, list[float | None]]] = [
        ("micro F1", [model.micro_f1 for model in models]),
        ("rows with all classes right" if several else alike, [m.accuracy for m in models]),
        ("macro F1", [model.macro_f1 for model in models]),
        ("expected calibration error", [model.calibration_error for model in models]),
        (
            "the same by chance, of a perfectly calibrated model",
            [model.calibration_error_of_chance for model in models],
        ),
    ]
    for at, covered in enumerate(found.student.coverage):
        what = "all classes right" if several else alike
        name = f"{what} of the surest {100 * covered.coverage:.0f} %"
        values = [
            model.coverage[at].accuracy if at < len(model.coverage) else None for model in models
        ]
        lines.append((name, values))
    return [
        ["", *names],
        *(
            [name, *_compared(values)]
            for name, values in lines
            if any(v is not None for v in values)
        ),
    ]


def class_cells(found: ClassificationScores) -> Cells:
    """Precision, recall and F1 of each class that has rows; beside the teacher's with the difference."""
    taught = found.teacher is not None
    heading = ["class", "rows"]
    for score in ("precision", "recall", "F1"):
        heading += [score, "teacher's", "difference"] if taught else [score]
    cells = [heading]
    for one in found.classes:
        row = [one.name, f"{one.rows:,}"]
        for own, theirs in (
            (one.precision, one.teacher_precision),
            (one.recall, one.teacher_recall),
            (one.f1, one.teacher_f1),
        ):
            row += _compared([own, theirs] if taught else [own])
        cells.append(row)
    return cells


def confusion_cells(found: ClassificationScores, model: ModelScores) -> Cells | None:
    """Rows by label (down) and prediction (across); None of more classes than can be read."""
    matrix = model.confusion
    if matrix is None or len(matrix) > MOST_SHOWN:
        return None
    rows = [
        [name, *(f"{count:,}" for count in row)]
        for name, row in zip(found.names, matrix, strict=True)
    ]
    down = "label" if found.labels is None else "teacher"
    return [[f"{down} ↓ predicted →", *predicted_names(found, model)], *rows]


def predicted_names(found: ClassificationScores, model: ModelScores) -> list[str]:
    """What the columns of a model's confusion matrix are called."""
    columns = len((model.confusion or [[]])[0])
    return [*found.names, *(["no class"] if columns > len(found.names) else [])]


def count_cells(found: ClassificationScores) -> Cells | None:
    """Of several labels a row each class's answers by what is right; None of one class a row."""
    if all(one.counts is None for one in found.classes):
        return None
    names = ("true positives", "false positives", "false negatives", "true negatives")
    taught = found.teacher is not None
    cells = [
        ["class", *(word for name in names for word in ([name, "teacher's"] if taught else [name]))]
    ]
    for one in found.classes:
        row = [one.name]
        for name in names:
            for counts in [one.counts, one.teacher_counts] if taught else [one.counts]:
                value = None if counts is None else getattr(counts, name.replace(" ", "_"))
                row.append("–" if value is None else f"{value:,}")
        cells.append(row)
    return cells


def disagreement_cells(found: ClassificationScores, most: int | None = None) -> Cells:
    """A row of each: label, both predictions with their probabilities, and the text where it is kept.

    Labels that are the teacher's predictions are not said twice. `most`: how many are shown.
    """
    shown = found.disagreements[:most]
    told = any(one.text is not None for one in shown)
    label = ["label"] if found.labels is None else []
    cells = [["row", *label, "student", "teacher", *(["text"] if told else [])]]
    for one in shown:
        text = [] if one.text is None else [one_line(" | ".join(one.text.values()))]
        cells.append(
            [
                str(one.index),
                *([one.label] if label else []),
                _sure(one.student, one.student_probability),
                _sure(one.teacher, one.teacher_probability),
                *text,
            ]
        )
    return cells


def threshold_words(thresholds: Mapping[str, float] | None) -> list[str]:
    """From which probability on a row is of a class; one number where it is one for all."""
    if not thresholds:
        return []
    if len({*thresholds.values()}) == 1:
        return [
            f"a row is of a class from a probability of {next(iter(thresholds.values())):.3f} on"
        ]
    listed = ", ".join(f"{name} {value:.3f}" for name, value in [*thresholds.items()][:MOST_SHOWN])
    more = len(thresholds) - MOST_SHOWN
    return [
        f"a row is of a class from a probability on: {listed}{f' and {more} more' if more > 0 else ''}"
    ]


def agreement_words(found: ClassificationScores) -> list[str]:
    """The share of rows that both predict alike; nothing without a teacher."""
    if found.agreement is None:
        return []
    said = f"student and teacher agree on {found.agreement:.1f} % of {found.rows:,} rows"
    if found.divergence is not None:
        said += (
            f"; mean Jensen-Shannon divergence of their probabilities: {found.divergence:.3f} bits"
        )
    if found.labels == "teacher":
        said += "; labels are the teacher's own predictions, and no score says how often either is right"
    return [said]


def tie_words(found: ClassificationScores) -> list[str]:
    """Of which models equal confidence had to be divided where only some rows count."""
    said = []
    for name, model in (("student", found.student), ("teacher", found.teacher)):
        for part in model.coverage if model is not None else ():
            if part.tied:
                said.append(
                    f"{name}, surest {100 * part.coverage:.0f} %: {part.tied:,} rows have the lowest confidence that "
                    f"counts ({part.confidence:.4f}); each counts in part"
                )
    return said


def row_test_words(
    tests: RowTests, first: str, second: str, *, labels: str | None = None
) -> list[str]:
    """A sentence for each test over rows, which names the test; `labels`: whose they are, as a record says."""
    said = []
    if tests.difference is not None:
        found = tests.difference
        how = (
            f"Tango's score interval over {tests.rows:,} {tests.unit}"
            if found.method == "score"
            else f"paired bootstrap over {tests.rows:,} {tests.unit}, {found.samples:,} samples"
        )
        if found.method == "bootstrap" and tests.rows < FEW:
            how += f"; over so few {tests.unit} it is too narrow, and covers the truth less often than it says"
        said.append(
            f"{first} less {second}: {signed(found.difference, 2)} points of the primary score, "
            f"{100 * found.level:.0f} % interval {signed(found.low, 2)} to {signed(found.high, 2)} ({how})"
        )
    if tests.mcnemar is not None:
        exact = tests.mcnemar
        right = "has right" if labels is None else "predicts as the teacher"
        verdict = (
            "significantly different" if exact.p < SIGNIFICANT else "not significantly different"
        )
        said.append(
            f"{exact.only_first:,} rows only {first} {right}, {exact.only_second:,} only {second}: {verdict} by "
            f"McNemar's exact test ({p_words(exact.p)})"
        )
    if not said:
        said.append(
            f"{first} less {second}: no interval over {tests.rows:,} {tests.unit} (too few of them, a primary score "
            "that some sample leaves undefined, or predictions that do not tell it)"
        )
    return said


def floor_words(record: Record) -> list[str]:
    """What the floor is, and by how much student and teacher are above it on the first split."""
    floor = record.floor
    if floor is None:
        return []
    of = f" of {floor.given:,}" if floor.rows < floor.given else ""
    taught = f", {floor.taught:,} of them with the teacher's labels" if floor.taught else ""
    said = [
        "Words alone: TF-IDF of words and pairs of words with a linear model, fitted on "
        f"{floor.rows:,}{of} of the same training rows{taught}."
    ]
    model = "student" if record.kind == "distill" else "model"
    for name, tests in ((model, floor.student_tests), ("teacher", floor.teacher_tests)):
        for split, one in [*tests.items()][:1]:
            said += [
                f"On {split}, {words}."
                for words in row_test_words(one, name, "words alone", labels=record.examples.labels)
                if one.difference is not None
            ]
    return said


def row_test_cells(tests: Mapping[str, RowTests]) -> Cells:
    """A row for each split with a difference: its points, their interval, and over how much."""
    levels = {100 * one.difference.level for one in tests.values() if one.difference is not None}
    level = " and ".join(f"{level:.0f} %" for level in sorted(levels))
    cells = [["split", "difference", f"lowest ({level})", f"highest ({level})", "over"]]
    for split, one in tests.items():
        if one.difference is not None:
            found = one.difference
            points = [signed(value, 2) for value in (found.difference, found.low, found.high)]
            cells.append([split, *points, f"{one.rows:,} {one.unit}"])
    return cells


def p_words(p: float) -> str:
    """A p-value in two digits, of a tiny one its bound."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _compared(values: Sequence[float | None]) -> list[str]:
    """The numbers, and of two their difference."""
    cells = [decimal(value) for value in values]
    if len(values) < 2:
        return cells
    own, theirs = values
    return [*cells, "–" if own is None or theirs is None else signed(own - theirs)]


def _sure(name: str, probability: float | None) -> str:
    return name if probability is None else f"{name} ({probability:.2f})"
