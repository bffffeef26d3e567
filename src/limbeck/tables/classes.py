"""Predictions of classes in tables and sentences, the same in a terminal, on a page and in a card.

Part of `limbeck.tables`.
"""

from collections.abc import Mapping, Sequence

from limbeck.records import Record
from limbeck.records.facts import ClassificationScores, ModelScores, RowTests
from limbeck.support.cells import CellTable, decimal, one_line, shown, signed
from limbeck.support.words import count_of, listed, short_text

SIGNIFICANT = 0.05
FEW = 100
"""Below this number of rows a bootstrap's interval is too narrow: with 50 it covers about 90 % instead of 95."""
# Number of classes; a terminal's or a page's matrix of more cannot be read.
MOST_SHOWN = 12


def class_tables(found: ClassificationScores, examples: int | None = None) -> list[CellTable]:
    """All classes together, each class, several labels' answers, and at most this many disagreements (None: all)."""
    tables = [whole_table(found), class_table(found)]
    if any(one.counts is not None for one in found.classes):
        tables.append(count_table(found))
    if found.disagreements[:examples]:
        tables.append(disagreement_table(found, examples))
    return tables


def whole_table(found: ClassificationScores) -> CellTable:
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
        parts = [model.coverage[at : at + 1] for model in models]
        values = [part[0].accuracy if part else None for part in parts]
        lines.append((f"{what} of the surest {100 * covered.coverage:.0f} %", values))
    known = [
        [name, *_compared(values)]
        for name, values in lines
        if any(value is not None for value in values)
    ]
    return CellTable(f"All classes, {found.rows:,} {found.unit}", [["measure", *names], *known])


def class_table(found: ClassificationScores) -> CellTable:
    """Precision, recall and F1 of each class that has rows; compared with the teacher's."""
    taught = found.teacher is not None
    heading = ["class", found.unit]
    for score in ("precision", "recall", "F1"):
        heading += [score, "teacher's", "difference"] if taught else [score]
    cells = [heading]
    for one in found.classes:
        row = [short_text(one.name), f"{one.rows:,}"]
        for own, theirs in (
            (one.precision, one.teacher_precision),
            (one.recall, one.teacher_recall),
            (one.f1, one.teacher_f1),
        ):
            row += _compared([own, theirs] if taught else [own])
        cells.append(row)
    return CellTable("By class", cells)


def confusion_table(found: ClassificationScores, model: ModelScores) -> CellTable | None:
    """Rows by label (down) and prediction (across); None of more classes than can be read."""
    matrix = model.confusion
    if matrix is None or len(matrix) > MOST_SHOWN:
        return None
    counts = [[f"{count:,}" for count in row] for row in matrix]
    rows = [[name, *row] for name, row in zip(shown_names(found), counts, strict=True)]
    down = "label" if found.labels is None else "teacher"
    heading = [f"{down} ↓ predicted →", *predicted_names(found, model)]
    return CellTable("Confusion", [heading, *rows])


def shown_names(found: ClassificationScores) -> list[str]:
    """The names of the classes, long ones shortened."""
    return [*map(short_text, found.names)]


def predicted_names(found: ClassificationScores, model: ModelScores) -> list[str]:
    """The names of the columns of a model's confusion matrix."""
    columns = len((model.confusion or [[]])[0])
    return [*shown_names(found), *(["no class"] if columns > len(found.names) else [])]


def count_table(found: ClassificationScores) -> CellTable:
    """With several labels per row, each class's predictions by label."""
    names = ("true positives", "false positives", "false negatives", "true negatives")
    taught = found.teacher is not None
    heading = ["class"]
    for name in names:
        heading += [name, "teacher's"] if taught else [name]
    cells = [heading]
    for one in found.classes:
        row = [short_text(one.name)]
        for name in names:
            for counts in [one.counts, one.teacher_counts] if taught else [one.counts]:
                value = getattr(counts, name.replace(" ", "_"), None)
                row.append(shown(value, "{:,}".format))
        cells.append(row)
    return CellTable("Answers by class", cells)


def disagreement_table(found: ClassificationScores, most: int | None = None) -> CellTable:
    """A row of each: label, both predictions with their probabilities, and the text where it is kept.

    Labels that are the teacher's predictions are not repeated. `most`: the number of rows shown.
    """
    labelled = found.labels is None
    told = any(one.text is not None for one in found.disagreements[:most])
    heading = ["label"] * labelled + ["student", "teacher"] + ["text"] * told
    cells = [["row", *heading]]
    for one in found.disagreements[:most]:
        row = [str(one.index), *([one.label] if labelled else [])]
        row.append(_sure(one.student, one.student_probability))
        row.append(_sure(one.teacher, one.teacher_probability))
        text = [] if one.text is None else [one_line(" | ".join(one.text.values()))]
        cells.append([*row, *text])
    words = tuple(range(1, len(cells[0])))
    return CellTable("Where student and teacher disagree most", cells, words)


def class_words(
    found: ClassificationScores,
    tests: RowTests | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> list[str]:
    """The notes below the tables: agreement, tests over rows, divided ties, thresholds, the calibration error."""
    said = agreement_words(found)
    if tests is not None:
        said += row_test_words(tests, "student", "teacher")
    said += tie_words(found) + threshold_words(thresholds)
    if found.student.calibration_error is not None:
        said.append(
            f"expected calibration error: over {len(found.student.reliability)} equally wide bins of the predictions' "
            "probabilities, the mean distance of accuracy and mean probability, weighted by rows"
        )
    return said


def threshold_words(thresholds: Mapping[str, float] | None) -> list[str]:
    """From which probability on a row is of a class; one number where it is one for all."""
    if not thresholds:
        return []
    if len({*thresholds.values()}) == 1:
        return [
            f"a row is of a class from a probability of {next(iter(thresholds.values())):.3f} on"
        ]
    said = [f"{short_text(name)} {value:.3f}" for name, value in thresholds.items()]
    return [f"a row is of a class from a probability on: {listed(said, MOST_SHOWN)}"]


def agreement_words(found: ClassificationScores) -> list[str]:
    """The share of rows that both predict alike; nothing without a teacher."""
    if found.agreement is None:
        return []
    said = f"student and teacher agree on {found.agreement:.1f} % of {found.rows:,} {found.unit}"
    if found.divergence is not None:
        said += (
            f"; mean Jensen-Shannon divergence of their probabilities: {found.divergence:.3f} bits"
        )
    if found.labels == "teacher":
        said += "; labels are the teacher's own predictions, so no score shows how often either is right"
    return [said]


def tie_words(found: ClassificationScores) -> list[str]:
    """The models for which equal confidence had to be divided because only some rows count."""
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
    """A sentence for each test over rows, which names the test; `labels`: their source, as in a record."""
    said = []
    if tests.difference is not None:
        found = tests.difference
        how = (
            f"Tango's score interval over {tests.rows:,} {tests.unit}"
            if found.method == "score"
            else f"paired bootstrap over {tests.rows:,} {tests.unit}, {found.samples:,} samples"
        )
        if found.method == "bootstrap" and tests.rows < FEW:
            how += f"; over only {tests.rows:,} {tests.unit} it is too narrow and misses the truth more than stated"
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
            f"{count_of(exact.only_first, 'row')} only {first} {right}, {exact.only_second:,} only "
            f"{second}: {verdict} by McNemar's exact test ({p_words(exact.p)})"
        )
    if not said:
        said.append(
            f"{first} less {second}: no interval over {tests.rows:,} {tests.unit} (too few of them, a primary score "
            "that some sample leaves undefined, or predictions without the needed fields)"
        )
    return said


def floor_words(record: Record) -> list[str]:
    """The floor, and by how much student and teacher are above it on the first split."""
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


def row_test_table(tests: Mapping[str, RowTests]) -> CellTable:
    """A row for each split with a difference: its points, their interval, and over how much."""
    levels = {100 * one.difference.level for one in tests.values() if one.difference is not None}
    level = " and ".join(f"{level:.0f} %" for level in sorted(levels))
    cells = [["split", "difference", f"lowest ({level})", f"highest ({level})", "over"]]
    for split, one in tests.items():
        if one.difference is not None:
            found = one.difference
            points = [signed(value, 2) for value in (found.difference, found.low, found.high)]
            cells.append([split, *points, f"{one.rows:,} {one.unit}"])
    return CellTable("Student less teacher", cells)


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
    name = short_text(name)
    return name if probability is None else f"{name} ({probability:.2f})"
