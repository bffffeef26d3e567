"""Scores of classes against scikit-learn and by hand; coverage with ties; which disagreements are shown."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from limbeck.evaluation.class_predictions import ClassPredictions, agreement
from limbeck.evaluation.classification import classification_scores, covered, task_classification
from limbeck.tables.classes import class_tables, whole_table
from limbeck.tasks import MULTI_LABEL, TASKS, Task, as_kind

NAMES = ("a", "b", "c")


def random_model(seed: int, rows: int = 200) -> ClassPredictions:
    probabilities = np.random.default_rng(seed).dirichlet([0.5] * 3, rows)
    return ClassPredictions(probabilities.argmax(axis=1), probabilities)


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, 200)


def test_every_count_is_scikit_learns(labels):
    student, teacher = random_model(1), random_model(2)
    found = classification_scores(NAMES, labels, student, teacher)
    for side, model in ((found.student, student), (found.teacher, teacher)):
        assert side.accuracy == pytest.approx(100 * metrics.accuracy_score(labels, model.ids))
        assert side.macro_f1 == pytest.approx(
            100 * metrics.f1_score(labels, model.ids, average="macro")
        )
        assert side.confusion == metrics.confusion_matrix(labels, model.ids).tolist()
    report = metrics.classification_report(
        labels, teacher.ids, target_names=NAMES, output_dict=True, zero_division=0
    )
    for one in found.classes:
        wanted = report[one.name]
        given = one.teacher_precision, one.teacher_recall, one.teacher_f1, one.rows
        assert given == pytest.approx(
            (
                100 * wanted["precision"],
                100 * wanted["recall"],
                100 * wanted["f1-score"],
                wanted["support"],
            )
        )
    assert found.agreement == pytest.approx(100 * metrics.accuracy_score(student.ids, teacher.ids))


def test_four_rows_by_hand():
    task = TASKS["mnli"]
    student = {"label": [0, 0, 0, 1], "prediction": [0, 0, 1, 1]}
    teacher = {"label": [0, 0, 0, 1], "prediction": [0, 0, 0, 0]}
    found = task_classification(task, student, teacher)
    first, second = found.classes  # the third has no rows
    assert (first.name, first.rows, first.precision) == ("entailment", 3, 100.0)
    assert first.recall == pytest.approx(200 / 3) and first.teacher_recall == 100.0
    assert (second.recall, second.precision, second.teacher_recall) == (100.0, 50.0, 0.0)
    assert second.teacher_precision is None and second.teacher_f1 == 0.0
    # F1 of 4/5 and 2/3; of the teacher 6/7 and 0.
    assert found.student.macro_f1 == pytest.approx(50 * (4 / 5 + 2 / 3))
    assert found.teacher.macro_f1 == pytest.approx(50 * 6 / 7)
    assert found.student.confusion == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert found.agreement == 50.0
    assert found.student.calibration_error is None and found.student.coverage == []
    assert task_classification(TASKS["stsb"], student) is None


def test_calibration_of_four_rows_by_hand():
    """Probabilities of .95, .91, .65 and .7: bins of fifteenths, (.9333, 1], (.8667, .9333] and (.6, .6667]."""
    probabilities = np.array([[0.95, 0.05], [0.91, 0.09], [0.35, 0.65], [0.7, 0.3]])
    model = ClassPredictions(probabilities.argmax(axis=1), probabilities)
    found = classification_scores(("x", "y"), np.array([0, 1, 1, 0]), model).student
    assert found.calibration_error == pytest.approx(100 * (0.05 + 0.91 + 0.35 + 0.3) / 4)
    full = [
        (point.rows, point.confidence, point.accuracy) for point in found.reliability if point.rows
    ]
    assert full == [(1, 0.65, 1.0), (1, 0.7, 1.0), (1, 0.91, 0.0), (1, 0.95, 1.0)]
    assert len(found.reliability) == 15 and found.reliability[0].accuracy is None


def test_coverage_takes_the_surest_and_shares_out_ties():
    confidence = np.array([0.9, 0.6, 0.8, 0.7, 0.99])
    right = np.array([True, False, False, True, True])
    half = covered(confidence, right, 0.5)  # .99, .9 and .8
    assert (half.rows, half.accuracy, half.confidence, half.tied) == (
        3,
        pytest.approx(200 / 3),
        0.8,
        0,
    )
    # Of four rows equally sure two count: whichever they are, half of three hits of four is expected.
    tied = covered(np.full(4, 0.5), np.array([True, True, True, False]), 0.5)
    assert (tied.rows, tied.accuracy, tied.tied) == (2, 75.0, 4)
    whole = covered(np.full(4, 0.5), np.array([True, True, True, False]), 1.0)
    assert (whole.accuracy, whole.tied) == (75.0, 0)


def test_coverage_does_not_depend_on_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    confidence, right = rng.integers(5, 10, 50) / 10, rng.random(50) < 0.7
    order = rng.permutation(50)
    for share in (0.1, 0.5, 0.8):
        assert covered(confidence, right, share) == covered(confidence[order], right[order], share)


def test_the_largest_distance_comes_first_with_its_text():
    student = {
        "label": [0, 1, 1],
        "prediction": [0, 0, 0],
        "probabilities": [[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]],
    }
    teacher = {
        "label": [0, 1, 1],
        "prediction": [0, 1, 1],
        "probabilities": [[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]],
    }
    texts = {"sentence": ["one", "two", "three " * 100]}
    found = task_classification(TASKS["sst2"], student, teacher, texts)
    assert [one.index for one in found.disagreements] == [2, 1]
    first = found.disagreements[0]
    assert (first.label, first.student, first.teacher) == ("positive", "negative", "positive")
    assert first.distance == pytest.approx(0.7)
    assert (first.student_probability, first.teacher_probability) == (0.8, 0.9)
    assert first.text["sentence"].endswith("three …") and len(first.text["sentence"]) < 310
    assert found.without_texts().disagreements[0].text is None
    assert task_classification(TASKS["sst2"], student, teacher).disagreements[0].text is None


def test_words_that_name_no_class_have_a_column_of_their_own():
    task = as_kind(TASKS["sst2"], "text")
    rows = {"label": ["positive", "negative"], "prediction": ["positive", "nonsense"]}
    found = task_classification(task, rows)
    assert found.student.confusion == [[0, 0, 1], [0, 1, 0]]
    assert found.student.accuracy == 50.0


def test_words_of_a_tagger_are_counted_one_by_one():
    task = TASKS["ner"]
    rows = {"label": [[0, 1], [2]], "prediction": [[0, 2], [2]]}
    found = task_classification(task, rows, rows)
    assert found.rows == 3 and found.agreement == 100.0 and found.disagreements == []
    assert [one.name for one in found.classes] == ["O", "B-PER", "I-PER"]


def several(seed: int, *, rows: int = 40) -> dict[str, list]:
    """Predictions at ½ of four classes, the last of which no row is of."""
    rng = np.random.default_rng(0)
    labels = (rng.random((rows, 4)) < [0.5, 0.3, 0.1, 0.0]).astype(int)
    likely = np.clip(0.5 * labels + 0.6 * np.random.default_rng(seed).random((rows, 4)), 0, 1)
    given = (likely >= 0.5).astype(int)
    return {
        "label": labels.tolist(),
        "prediction": given.tolist(),
        "probabilities": likely.tolist(),
    }


def test_several_labels_are_counted_by_class_and_by_row():
    task = Task("t", "t", ("text",), (*NAMES, "d"), ("micro_f1",), "micro_f1", kind=MULTI_LABEL)
    student, teacher = several(1), several(2)
    found = task_classification(task, student, teacher)
    assert [one.name for one in found.classes] == [*NAMES]
    for at, one in enumerate(found.classes):
        for side, counts, f1 in (
            (student, one.counts, one.f1),
            (teacher, one.teacher_counts, one.teacher_f1),
        ):
            pairs = [
                (row[at], right[at])
                for row, right in zip(side["prediction"], side["label"], strict=True)
            ]
            assert counts.true_positives == pairs.count((1, 1))
            assert counts.false_positives == pairs.count((1, 0))
            assert counts.false_negatives == pairs.count((0, 1))
            assert counts.true_negatives == pairs.count((0, 0))
            assert f1 == pytest.approx(
                100 * metrics.f1_score(*zip(*[p[::-1] for p in pairs], strict=True))
            )
    # Row by row: how probable its answers are together, and whether all of them are right.
    rows = []
    for likely, given, right in zip(
        student["probabilities"], student["prediction"], student["label"], strict=True
    ):
        together = 1.0
        for p, answer in zip(likely, given, strict=True):
            together *= p if answer else 1 - p
        rows.append((together, given == right))
    surest = sorted(rows, reverse=True)[:20]
    half = found.student.coverage[0]
    assert half.accuracy == pytest.approx(100 * sum(right for _, right in surest) / 20)
    assert half.confidence == pytest.approx(surest[-1][0])
    shown = {row[0]: row[1:] for row in whole_table(found).cells}
    assert shown["all classes right of the surest 50 %"][0] == f"{half.accuracy:.1f}"
    counts = class_tables(found)[2].cells
    assert counts[1][:2] == ["a", str(found.classes[0].counts.true_positives)]
    assert found.disagreements[0].student_probability == pytest.approx(
        rows[found.disagreements[0].index][0]
    )
    assert found.student.confusion is None


def test_two_models_agree_where_a_whole_row_is_alike():
    first, second = {"prediction": [0, 1, 1, 0]}, {"prediction": [0, 0, 1, 0]}
    assert agreement(TASKS["sst2"], first, second) == 0.75
    tags = {"prediction": [[0, 1], [2]]}, {"prediction": [[0, 1], [1]]}
    assert agreement(TASKS["ner"], *tags) == 0.5
    assert agreement(TASKS["stsb"], first, second) is None


def test_one_class_a_row_has_no_counts_beside_its_matrix():
    rows = {"label": [0, 1], "prediction": [0, 0]}
    titles = [one.title for one in class_tables(task_classification(TASKS["sst2"], rows))]
    assert titles == ["All classes, 2 rows", "By class"]


def test_what_a_tagger_is_scored_on_are_words():
    """Three rows of six words: "983 rows" stood over 90 of them."""
    task = TASKS["ner"]
    tags = [[0, 1], [2], [0, 0, 1]]
    found = task_classification(
        task, {"label": tags, "prediction": tags}, {"label": tags, "prediction": tags}
    )
    assert (found.rows, found.unit) == (6, "words")
    assert whole_table(found).title == "All classes, 6 words"
    assert [table.cells[0][1] for table in class_tables(found)][1] == "words"
