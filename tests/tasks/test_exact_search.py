"""Exact search against a loop over all pairs, however many queries at once."""

import pytest
import torch

from limbeck.tasks import retrieval
from limbeck.tasks.retrieval import exact_search

NONE = torch.empty((1, 0), dtype=torch.int64)


@pytest.mark.parametrize("at_once", [1 << 26, 80, 1])
@pytest.mark.parametrize("k", [1, 6, 50])
def test_a_loop_finds_the_same(at_once, k, monkeypatch) -> None:
    monkeypatch.setattr(retrieval, "_SCORES_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    # Whole numbers of few values: many products are equal, and exact in any order of adding.
    queries = torch.randint(-1, 2, (5, 3), generator=generator).float()
    corpus = torch.randint(-1, 2, (40, 3), generator=generator).float()
    named = torch.tensor([[row, 39 - row, -1] for row in range(5)])
    found = exact_search(queries, corpus, k, named)
    products = queries @ corpus.T
    assert torch.equal(found.scores, products.gather(1, found.places))
    for row, (own, best) in enumerate(zip(products.tolist(), found.scores.tolist(), strict=True)):
        assert best == sorted(own, reverse=True)[:k]
        assert len({*found.places[row].tolist()}) == min(k, 40)
        assert int(found.tied[row]) == own.count(best[-1]) - best.count(best[-1])
        assert found.known[row, :2].tolist() == [own[row], own[39 - row]]
    assert found.known[:, 2].isnan().all()


def test_low_precision_is_searched_in_float32() -> None:
    corpus = torch.tensor([[1.0, 2**-9], [1.0, 0.0]], dtype=torch.bfloat16)
    found = exact_search(torch.tensor([[1.0, 1.0]], dtype=torch.bfloat16), corpus, 2, NONE)
    assert found.scores.tolist() == [[1 + 2**-9, 1.0]]
