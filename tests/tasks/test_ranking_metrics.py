"""nDCG, MRR and recall: against numbers worked by hand, all orders of ties, scikit-learn and sentence-transformers."""

from itertools import permutations
from math import log2
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import ndcg_score

from limbeck.support.errors import LimbeckError
from limbeck.tasks import retrieval
from limbeck.tasks.metrics import (
    by_query,
    mean_scores,
    ndcg,
    ranking_metric,
    recall,
    reciprocal_rank,
    retrieval_scores,
    scores_by_query,
)
from limbeck.tasks.retrieval import exact_search


def test_worked_by_hand() -> None:
    scores, grades = np.array([0.1, 0.9, 0.5, 0.3]), np.array([1, 0, 2, 0])
    # Ranked: grades 0, 2, 0, 1; at best 2, 1, 0, 0.
    gained, ideal = 2 / log2(3) + 1 / log2(5), 2 + 1 / log2(3)
    assert ndcg(scores, grades, 10) == pytest.approx(gained / ideal)
    assert ndcg(scores, grades, 2) == pytest.approx(2 / log2(3) / ideal)
    assert reciprocal_rank(scores, grades, 10) == 0.5
    assert reciprocal_rank(scores, grades, 1) == 0
    assert recall(scores, grades, 2) == 0.5
    assert recall(scores, grades, 2, known=np.array([1, 2, 1, 1, 0])) == 0.25


def in_every_order(metric, scores: np.ndarray, grades: np.ndarray, k: int) -> float:
    """The mean over all orders that the scores allow, each with scores of its own."""
    found = []
    for order in permutations(range(len(scores))):
        ranked = np.array(order)
        if (np.diff(scores[ranked]) <= 0).all():
            falling = np.empty(len(scores))
            falling[ranked] = -np.arange(len(scores))
            found.append(metric(falling, grades, k))
    return float(np.mean(found))


@pytest.mark.parametrize("metric", [ndcg, reciprocal_rank, recall])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_ties_are_the_mean_over_their_orders(metric, k) -> None:
    generator = np.random.default_rng(k)
    for _ in range(6):
        scores = generator.integers(0, 3, 6).astype(float)
        grades = generator.integers(0, 3, 6).astype(float)
        grades[0] = 1
        expected = in_every_order(metric, scores, grades, k)
        assert metric(scores, grades, k) == pytest.approx(expected)


def test_as_scikit_learn_has_it() -> None:
    generator = np.random.default_rng(0)
    for k in (1, 5, 10, 30):
        scores = generator.integers(0, 8, (40, 20)) / 2
        grades = generator.integers(0, 4, (40, 20)) * generator.integers(0, 2, (40, 20))
        ours = [ndcg(s, g, k) for s, g in zip(scores, grades, strict=True) if g.any()]
        kept = grades.any(axis=1)
        theirs = ndcg_score(grades[kept], scores[kept], k=k)
        assert np.mean(ours) == pytest.approx(theirs)


class ScoresAsWritten:
    """A cross-encoder that gives each passage the number that is its text."""

    def predict(self, pairs, **settings) -> np.ndarray:
        return np.array([float(passage) for _, passage in pairs])


def test_as_the_reranking_evaluator_has_it() -> None:
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    generator = np.random.default_rng(1)
    scores = generator.permutation(600).reshape(40, 15).astype(float)
    grades = (generator.random((40, 15)) < 0.2).astype(float)
    grades[:, 0] = 1
    samples = [
        {
            "query": str(number),
            "positive": [str(s) for s, g in zip(scores[number], grades[number], strict=True) if g],
            "negative": [
                str(s) for s, g in zip(scores[number], grades[number], strict=True) if not g
            ],
        }
        for number in range(40)
    ]
    evaluator = CrossEncoderRerankingEvaluator(samples, at_k=10)
    evaluator.store_metrics_in_model_card_data = lambda *args, **kwargs: None
    theirs = evaluator(ScoresAsWritten())
    ours = mean_scores(
        scores_by_query(
            ("ndcg@10", "mrr@10"), scores.ravel(), grades.ravel(), np.repeat(np.arange(40), 15)
        ),
        "the test",
    )
    assert ours == pytest.approx({name: 100 * theirs[name] for name in ours})


def test_as_the_retrieval_evaluator_has_it() -> None:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    generator = torch.Generator().manual_seed(2)
    texts = {f"q{n}": f"q{n}" for n in range(12)}, {f"d{n}": f"d{n}" for n in range(60)}
    vectors = {name: torch.randn(8, generator=generator) for side in texts for name in side}
    relevant = {
        query: {f"d{n}" for n in torch.randperm(60, generator=generator)[:4].tolist()}
        for query in texts[0]
    }

    class Model:
        """Knows its texts' vectors by heart."""

        def encode_query(self, sentences, **settings):
            return torch.stack([vectors[one] for one in sentences])

        encode_document = encode_query

    evaluator = InformationRetrievalEvaluator(
        *texts, relevant, write_csv=False, score_functions={"dot": lambda a, b: a @ b.T}
    )
    theirs = evaluator.compute_all_metrics(Model())["dot"]
    queries, corpus = (torch.stack([vectors[name] for name in side]) for side in texts)
    names = [*texts[1]]
    nothing = torch.empty((len(queries), 0), dtype=torch.int64)
    found = exact_search(queries, corpus, 20, nothing)
    ranked = {
        query: {names[place]: score for score, place in zip(scores, places, strict=True)}
        for query, scores, places in zip(
            texts[0], found.scores.tolist(), found.places.tolist(), strict=True
        )
    }
    grades = {query: dict.fromkeys(sorted(names), 1.0) for query, names in relevant.items()}
    ours = mean_scores(
        retrieval_scores(("ndcg@10", "mrr@10", "recall@5"), ranked, grades), "the test"
    )
    assert ours["ndcg@10"] == pytest.approx(100 * theirs["ndcg@k"][10])
    assert ours["mrr@10"] == pytest.approx(100 * theirs["mrr@k"][10])
    assert ours["recall@5"] == pytest.approx(100 * theirs["recall@k"][5])


def test_what_was_not_retrieved_counts() -> None:
    relevant = {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 1.0}, "c": {"x": 0.0}}
    found = retrieval_scores(("recall@1", "ndcg@2"), {"a": {"x": 0.5, "z": 0.1}}, relevant)
    np.testing.assert_allclose(found["recall@1"], [0.5, 0, np.nan])
    np.testing.assert_allclose(found["ndcg@2"], [1 / (1 + 1 / log2(3)), 0, np.nan])
    assert mean_scores(found, "rows")["recall@1"] == 25


def test_bf16_scores_do_not_follow_the_rows_order() -> None:
    """Three digits make many of them equal; to the last bit."""
    generator = np.random.default_rng(3)
    queries = np.repeat(np.arange(30), 12)
    rough = torch.from_numpy(4 + generator.random(360) / 10).bfloat16().double().numpy()
    assert len(np.unique(rough)) < 10
    grades = generator.integers(0, 3, 360).astype(float)
    names = ("ndcg@10", "mrr@10", "recall@3")
    first = mean_scores(scores_by_query(names, rough, grades, queries), "rows")
    for _ in range(4):
        order = generator.permutation(360)
        again = scores_by_query(names, rough[order], grades[order], queries[order])
        assert mean_scores(again, "rows") == pytest.approx(first, abs=1e-12)


@pytest.mark.parametrize("values", [1, 3])
def test_what_is_retrieved_of_equals_does_not_follow_the_corpus_order(values, monkeypatch) -> None:
    """Embeddings of few values, or one: the search's depth cuts among equals."""
    monkeypatch.setattr(retrieval, "_DEPTH", 5)
    generator = np.random.default_rng(values)
    task = SimpleNamespace(name="own", metrics=("ndcg@4", "mrr@4", "recall@5"), primary="ndcg@4")
    vectors = np.eye(3)[generator.integers(0, values, 33)]
    # Three queries, each with two passages of 30 that were judged.
    judged = [[3, 20], [9, 32], [30, 31], *[[]] * 30]
    grades = [[1.0, 2.0], [1.0, 1.0], [2.0, 0.0], *[[]] * 30]
    found = []
    for order in [np.arange(33), *(generator.permutation(33) for _ in range(4))]:
        rows = Dataset.from_dict(
            {
                "index": order.tolist(),
                "judged": [judged[place] for place in order],
                "grades": [grades[place] for place in order],
            }
        )
        found.append(retrieval.retrieval_results(task, vectors[order], rows).scores)
    assert all(one == pytest.approx(found[0], abs=1e-12) for one in found)
    # The same of all candidates at once, where nothing is cut.
    unit = np.array([vectors[query] @ vectors[3:].T for query in range(3)])
    for name in task.metrics:
        own = [
            ranking_metric(name)(
                unit[query],
                np.array(
                    [
                        dict(zip(judged[query], grades[query], strict=True)).get(n, 0.0)
                        for n in range(3, 33)
                    ]
                ),
            )
            for query in range(3)
        ]
        assert found[0][name] == pytest.approx(100 * np.mean(own))


def test_queries_are_found_by_their_rows() -> None:
    rows = by_query(np.array([7, 3, 7, 3, 9]))
    assert [part.tolist() for part in rows] == [[0, 2], [1, 3], [4]]
    scores = scores_by_query(
        ("mrr@10",),
        np.array([1, 5, 2, 4, 0.0]),
        np.array([np.nan, 0, 1, 2, 0]),
        np.array([7, 3, 7, 3, 9]),
    )
    np.testing.assert_allclose(scores["mrr@10"], [1, 0.5, np.nan])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ranking_metric("ndgc@10"), "unknown ranking metric"),
        (lambda: ranking_metric("ndcg@0"), "unknown ranking metric"),
        (lambda: ndcg(np.array([1, np.nan]), np.ones(2), 5), "not finite"),
        (lambda: ndcg(np.ones(2), np.array([1.0, -1]), 5), "below 0"),
        (lambda: mean_scores({"mrr@10": [float("nan")]}, "dev"), "no query has a candidate"),
    ],
)
def test_refusals(call, said) -> None:
    with pytest.raises(LimbeckError, match=said):
        call()
