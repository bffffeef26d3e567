"""What words alone reach: against scikit-learn used directly, on classes, several labels, numbers and pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score

from limbeck.evaluation import linear_floor
from limbeck.evaluation.linear_floor import fit_floor, has_floor
from limbeck.tasks import TASKS, Task
from limbeck.tasks.classes import MULTI_LABEL
from limbeck.tasks.text import TEXT

TOPICS = Task("own", "own", ("text",), ("cars", "food", "space"), ("accuracy",), "accuracy")
WORDS = {"cars": "engine wheel road", "food": "bread soup salt", "space": "moon orbit star"}


def topics(count: int, seed: int = 0) -> Dataset:
    """A third of each topic; a row has two words of its topic and two that any topic has."""
    rng = np.random.default_rng(seed)
    labels = [row % 3 for row in range(count)]
    texts = [
        " ".join([
            *rng.choice(WORDS[TOPICS.labels[label]].split(), 2),
            *rng.choice(["the", "of", "and", "to", "in", "it"], 2),
        ])
        for label in labels
    ]  # fmt: skip
    return Dataset.from_dict({"text": texts, "label": labels, "index": list(range(count))})


def test_classes_as_scikit_learn_predicts_them():
    train, dev = topics(60), topics(45, seed=1)
    floor = fit_floor(TOPICS, train, seed=0)
    found = floor.results(TOPICS, dev)
    words = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True)
    seen, unseen = words.fit_transform(train["text"][:]), words.transform(dev["text"][:])
    # One class against the others, each by itself; the answer is the likeliest of the three.
    sure = []
    for number in range(3):
        right = [label == number for label in train["label"]]
        sure.append(LogisticRegression(C=10).fit(seen, right).predict_proba(unseen)[:, 1])
    expected = np.argmax(sure, axis=0)
    assert found.predictions["prediction"] == expected.tolist()
    assert found.scores["primary"] == pytest.approx(100 * accuracy_score(dev["label"], expected))
    assert (floor.rows, floor.given, floor.taught, floor.cut) == (60, 60, 0, False)
    probabilities = np.array(found.predictions["probabilities"])
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(45), abs=1e-5)


def test_the_same_rows_and_seed_give_the_same_model():
    train, dev = topics(60), topics(45, seed=1)
    first, second = (fit_floor(TOPICS, train, seed=3).results(TOPICS, dev) for _ in range(2))
    assert first.predictions == second.predictions


def test_numbers_of_pairs_as_a_ridge_on_both_texts_and_what_they_share():
    task = TASKS["stsb"]
    one, other = topics(60)["text"][:], topics(60, seed=2)["text"][:]
    numbers = [len({*a.split()} & {*b.split()}) / 1.0 for a, b in zip(one, other, strict=True)]
    rows = Dataset.from_dict(
        {"sentence1": one, "sentence2": other, "label": numbers, "index": list(range(60))}
    )
    given = fit_floor(task, rows, seed=0).results(task, rows).predictions["prediction"]
    words = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True)
    words.fit(one + other)
    a, b = words.transform(one).toarray(), words.transform(other).toarray()
    features = np.hstack([a, b, a * b, np.abs(a - b), (a * b).sum(axis=1, keepdims=True)])
    expected = Ridge(alpha=1.0).fit(features, numbers).predict(features)
    assert given == pytest.approx(expected.tolist(), abs=1e-2)


def test_several_labels_are_each_a_question_of_its_own():
    task = replace(TOPICS, kind=MULTI_LABEL, metrics=("micro_f1",), primary="micro_f1")
    singles = topics(60)
    texts = [
        f"{text} {singles['text'][(row * 7) % 60]}" for row, text in enumerate(singles["text"])
    ]
    labels = np.zeros((60, 3), dtype=np.float32)
    for row in range(60):
        labels[row, [singles["label"][row], singles["label"][(row * 7) % 60]]] = 1
    labels[:, 2] = 0  # a class that no row has
    rows = Dataset.from_dict({"text": texts, "label": labels, "index": list(range(60))})
    found = fit_floor(task, rows, seed=0).results(task, rows)
    assert found.scores["micro_f1"] == pytest.approx(100)
    assert np.array(found.predictions["prediction"])[:, 2].sum() == 0


def test_rows_without_a_label_count_by_what_their_teacher_says():
    train, dev = topics(60), topics(45, seed=1)
    labels = [label if row < 6 else -100 for row, label in enumerate(train["label"])]
    some = train.remove_columns("label").add_column("label", labels)
    alone = fit_floor(TOPICS, some, seed=0)
    assert (alone.rows, alone.taught) == (6, 0)
    taught = fit_floor(TOPICS, some, 0, {row: train["label"][row] for row in range(6, 60)})
    assert (taught.rows, taught.given, taught.taught) == (60, 60, 54)
    whole = fit_floor(TOPICS, train, 0)
    assert taught.results(TOPICS, dev).predictions == whole.results(TOPICS, dev).predictions


def test_too_many_rows_or_too_much_text_is_cut_and_said(monkeypatch):
    train = topics(60)
    monkeypatch.setattr(linear_floor, "MOST_ROWS", 40)
    floor = fit_floor(TOPICS, train, seed=0)
    assert (floor.rows, floor.given, floor.cut) == (40, 60, True)
    monkeypatch.setattr(linear_floor, "_MOST_CHARACTERS", 300)
    few = fit_floor(TOPICS, train, seed=0)
    assert 5 < few.rows < 40 and few.cut
    # Fewer rows than twice the classes say nothing.
    monkeypatch.setattr(linear_floor, "_MOST_CHARACTERS", 60)
    assert fit_floor(TOPICS, train, seed=0) is None


def test_nothing_to_learn_is_no_floor():
    rows = topics(12)
    one = rows.filter(lambda row: row["label"] == 0)
    assert fit_floor(TOPICS, one, 0) is None
    blank = rows.remove_columns("text").add_column("text", ["…"] * 12)
    assert fit_floor(TOPICS, blank, 0) is None
    assert has_floor(TOPICS) and not has_floor(TASKS["squad"])
    assert not has_floor(TASKS["cifar10"])


def test_generated_words_are_held_against_words():
    task = replace(TOPICS, kind=TEXT)
    found = fit_floor(task, topics(60), 0).results(task, topics(45, seed=1))
    assert {*found.predictions["label"]} == {"cars", "food", "space"}


def test_text_without_spaces_has_a_word_a_character():
    task = replace(TOPICS, labels=("no", "yes"))
    texts = [f"我{'喜欢' if row % 2 else '讨厌'}这部电影{row}" for row in range(20)]
    rows = Dataset.from_dict(
        {"text": texts, "label": [row % 2 for row in range(20)], "index": list(range(20))}
    )
    floor = fit_floor(task, rows, 0)
    assert {"喜", "欢", "喜 欢"} <= {*floor.vectorizer.get_feature_names_out()}
    assert sparse.issparse(floor.vectorizer.transform(texts))
