"""Scores of samples of kept predictions, type by type: against scipy, scikit-learn and loops over the drawn units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from scipy import stats
from sklearn import metrics

from limbeck.evaluation.row_tests import kept_share, primary_of_samples, row_tests
from limbeck.tasks import EMBEDDING, MULTI_LABEL, PAIR_SCORE, SENTENCE, TASKS, Task, as_kind
from limbeck.tasks.classes import METRICS_OF_SEVERAL
from limbeck.tasks.metrics import METRICS, quadratic_kappa_of_ranks
from limbeck.tasks.retrieval import RETRIEVAL_METRICS, retrieval_results

ROWS, SAMPLES = 60, 12
CLASSES = ("a", "b", "c")
PAIRS = Task("sts", "STS", ("a", "b"), (), ("spearman", "pearson"), "spearman", kind=EMBEDDING)
RANKED = Task("rank", "rank", ("q", "p"), (), ("ndcg@10", "mrr@10"), "ndcg@10", kind=PAIR_SCORE)
SEVERAL = Task("tags", "tags", ("text",), CLASSES, METRICS_OF_SEVERAL, "micro_f1", kind=MULTI_LABEL)
SINGLE = Task("three", "three", ("text",), CLASSES, ("matthews",), "matthews", kind=SENTENCE)


def drawn(count: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, count, (SAMPLES, count))


def assert_by_loop(task, kept, loop, count: int = ROWS, unit: str = "rows") -> None:
    """The primary score of every sample is what `loop` makes of the sample's units."""
    found = primary_of_samples(task, kept)
    assert (found.count, found.unit) == (count, unit)
    samples = drawn(count)
    assert found.score(samples) == pytest.approx([100 * loop(units) for units in samples])
    everyone = np.arange(count)
    assert found.score(everyone[None]) == pytest.approx(100 * loop(everyone))


def numbers(seed: int, noise: float = 1.0) -> dict[str, list]:
    right = np.random.default_rng(0).normal(size=ROWS).round(1)
    given = right + noise * np.random.default_rng(seed).normal(size=ROWS)
    # Cosines and similarities that occur twice share their rank.
    return {"prediction": given.round(1).tolist(), "label": right.tolist()}


@pytest.mark.parametrize("primary", ["spearman", "pearson"])
def test_cosines_of_pairs(primary):
    kept = numbers(1)
    x, y = np.array(kept["prediction"]), np.array(kept["label"])
    theirs = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}[primary]
    task = replace(PAIRS, primary=primary)
    assert_by_loop(task, kept, lambda units: theirs(x[units], y[units]).statistic, unit="pairs")


def candidates(seed: int, *, noise: float = 1.0) -> tuple[Dataset, np.ndarray]:
    """Rows of 25 queries, their candidates not side by side, and scores; nothing is relevant for the first query."""
    rng, own = np.random.default_rng(3), np.random.default_rng(seed)
    queries = rng.permutation(np.repeat(np.arange(25), rng.integers(3, 14, 25)))
    grades = rng.integers(0, 3, len(queries)) * (queries > 0)
    for query in range(1, 25):
        grades[np.flatnonzero(queries == query)[0]] = 1
    rows = {"index": [*range(len(queries))], "q": [f"query {one}" for one in queries]}
    rows |= {"p": ["text"] * len(queries), "label": grades.astype(float).tolist()}
    return Dataset.from_dict(rows), grades + noise * own.normal(size=len(queries))


def test_rankings_of_candidates_by_query():
    rows, scores = candidates(1)
    results = PAIR_SCORE.results_of_rows(RANKED, scores, rows)
    grades, queries = np.array(rows["label"][:]), np.array(rows["q"][:])
    # As the queries first occur.
    ranked = [one for one in dict.fromkeys(queries.tolist()) if one != "query 0"]

    def ndcg(units):
        found = [
            metrics.ndcg_score([grades[queries == one]], [scores[queries == one]], k=10)
            for one in (ranked[unit] for unit in units)
        ]
        return np.mean(found)

    assert_by_loop(RANKED, results.predictions, ndcg, 24, "queries")
    known = primary_of_samples(RANKED, results.predictions)
    assert known.score(np.arange(24)[None]) == pytest.approx(results.scores["primary"])


def test_what_queries_find():
    task = replace(PAIRS, metrics=RETRIEVAL_METRICS, primary="ndcg@10")
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(90, 6))
    judged = [sorted(rng.choice(np.arange(20, 90), 4, replace=False).tolist()) for _ in range(20)]
    # Nothing that was judged for the third query is relevant.
    grades = [
        [float(place != 2), 1.0 * (place != 2), 0.0, 2.0 * (place != 2)] for place in range(20)
    ]
    rows = Dataset.from_dict(
        {"index": [*range(90)], "judged": judged + [[]] * 70, "grades": grades + [[]] * 70}
    )
    results = retrieval_results(task, vectors, rows)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    asked = [query for query in range(20) if query != 2]

    def ndcg(units):
        found = []
        for query in (asked[at] for at in units):
            right = np.zeros(90)
            right[judged[query]] = grades[query]
            found.append(metrics.ndcg_score([right[20:]], [unit[query] @ unit[20:].T], k=10))
        return np.mean(found)

    assert_by_loop(task, results.predictions, ndcg, 19, "queries")
    score = EMBEDDING.sampled_score(task, "ndcg@10", results.predictions)
    assert score(np.arange(19)[None])[0] == pytest.approx(results.scores["primary"])
    assert EMBEDDING.sampled_score(task, "mrr@10", results.predictions) is None


def classes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    right = np.random.default_rng(0).integers(0, 3, ROWS)
    wrong = np.random.default_rng(seed).random(ROWS) < 0.4
    return np.where(wrong, (right + 1) % 3, right), right


def test_matthews_of_three_classes():
    given, right = classes(1)
    kept = {"prediction": given.tolist(), "label": right.tolist()}

    def loop(units):
        return metrics.matthews_corrcoef(right[units], given[units])

    assert_by_loop(SINGLE, kept, loop)
    # A model that gives every row one class.
    alike = primary_of_samples(SINGLE, kept | {"prediction": [1] * ROWS})
    assert (alike.score(drawn(ROWS)) == 0).all()


@pytest.mark.parametrize("name", ["cola", "mrpc"])
def test_generated_words_are_classes(name):
    task = as_kind(TASKS[name], "text")
    given, right = classes(2)
    right = right % 2
    written = [[*task.labels, "nonsense"][one] for one in given]
    kept = {"prediction": written, "label": [task.labels[one] for one in right]}
    # What names no class is wrong: of accuracy and F1 another class, of Matthews' one more.
    chosen = np.where(given == 2, 1 - right, given)

    def loop(units):
        if name == "cola":
            return metrics.matthews_corrcoef(right[units], given[units])
        return task.scores(np.eye(2)[chosen[units]], right[units])["primary"] / 100

    assert_by_loop(task, kept, loop)


@pytest.mark.parametrize("primary", ["macro_f1", "average_precision", "micro_f1"])
def test_several_labels_by_class(primary):
    rng = np.random.default_rng(6)
    # The last class is so rare that samples lack it.
    right = (rng.random((ROWS, 3)) < [0.5, 0.3, 0.03]).astype(int)
    right[0, 2] = 1
    likely = np.clip(right * 0.3 + rng.random((ROWS, 3)) * 0.7, 0, 1).round(1)
    given = (likely >= 0.5).astype(int)
    assert any(not right[units, 2].any() for units in drawn(ROWS))

    def loop(units):
        meant, chosen, sure = right[units], given[units], likely[units]
        there = [at for at in range(3) if meant[:, at].any()]
        if primary == "micro_f1":
            return metrics.f1_score(meant, chosen, average="micro")
        if primary == "macro_f1":
            return np.mean([metrics.f1_score(meant[:, at], chosen[:, at]) for at in there])
        return np.mean([metrics.average_precision_score(meant[:, at], sure[:, at]) for at in there])

    task = replace(SEVERAL, primary=primary)
    kept = {"prediction": given.tolist(), "label": right.tolist()}
    assert_by_loop(task, kept | {"probabilities": likely.tolist()}, loop)
    without = primary_of_samples(task, kept)
    assert (without is None) == (primary == "average_precision")


def test_intervals_and_tests_name_what_was_sampled():
    rows, scores = candidates(1, noise=2.0)
    better = PAIR_SCORE.results_of_rows(RANKED, candidates(2, noise=0.1)[1], rows)
    worse = PAIR_SCORE.results_of_rows(RANKED, scores, rows)
    found = row_tests(RANKED, better.predictions, worse.predictions)
    assert (found.rows, found.unit, found.mcnemar) == (24, "queries", None)
    gap = better.scores["primary"] - worse.scores["primary"]
    assert found.difference.difference == pytest.approx(gap)
    assert 0 < found.difference.low < gap < found.difference.high
    both = worse.scores["primary"], better.scores["primary"]
    kept = kept_share(RANKED, worse.predictions, better.predictions, both)
    assert (kept.rows, kept.unit, kept.paired) == (24, "queries", True)
    assert kept.low < kept.share < kept.high < 1
    pairs = row_tests(PAIRS, numbers(1, noise=0.1), numbers(1))
    assert (pairs.rows, pairs.unit) == (ROWS, "pairs") and pairs.difference.low > 0


def test_predictions_that_do_not_say_whose_candidates_they_are():
    rows, scores = candidates(1)
    now = PAIR_SCORE.results_of_rows(RANKED, scores, rows).predictions
    before = {name: now[name] for name in ("index", "prediction", "label")}
    found = row_tests(RANKED, now, before)
    assert found.difference is None and found.mcnemar is None
    assert kept_share(RANKED, before, None, (50.0, 60.0)) is None
    assert not kept_share(RANKED, now, before, (50.0, 60.0)).paired


def test_quadratic_kappa_is_that_of_scikit_learn_by_sample():
    """One rank is in neither side, which does not bring its neighbors nearer to each other."""
    random = np.random.default_rng(0)
    right = random.choice([0, 2, 3, 4], 50)
    given = np.where(random.random(50) < 0.5, right, random.choice([0, 2, 3, 4], 50))
    rows = random.integers(0, 50, (5, 50))
    expected = [
        100
        * metrics.cohen_kappa_score(right[one], given[one], weights="quadratic", labels=range(5))
        for one in rows
    ]
    found = quadratic_kappa_of_ranks(given, right)(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert METRICS["quadratic_kappa"](given[rows[0]], right[rows[0]]) == found[0]
    away = [abs(one - other) for one, other in zip(given.tolist(), right.tolist(), strict=True)]
    assert METRICS["mean_absolute_error"](given, right) == pytest.approx(2 * sum(away))


@pytest.mark.parametrize("constant", ["given", "labels", "both"])
def test_a_constant_has_no_kappa(constant):
    ranks, same = np.arange(6) % 3, np.ones(6, dtype=int)
    sides = {"given": (same, ranks), "labels": (ranks, same), "both": (same, same)}
    assert METRICS["quadratic_kappa"](*sides[constant]) == 0.0
