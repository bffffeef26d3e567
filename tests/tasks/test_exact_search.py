"""Exact search against a loop over all pairs, whatever the pieces."""

import pytest
import torch

from limbeck.support.errors import LimbeckError
from limbeck.tasks.retrieval import exact_search


def by_a_loop(queries: torch.Tensor, corpus: torch.Tensor, k: int) -> list[list[int]]:
    found = []
    for query in queries.tolist():
        products = [sum(a * b for a, b in zip(query, row, strict=True)) for row in corpus.tolist()]
        found.append(sorted(range(len(products)), key=lambda row: (-products[row], row))[:k])
    return found


@pytest.mark.parametrize(("piece", "at_once"), [(1000, 1000), (7, 2), (1, 1), (5, 3)])
@pytest.mark.parametrize("k", [1, 6, 50])
def test_a_loop_finds_the_same(piece, at_once, k) -> None:
    generator = torch.Generator().manual_seed(0)
    # Whole numbers of few values: many products are equal, and exact in any order of adding.
    queries = torch.randint(-1, 2, (5, 3), generator=generator).float()
    corpus = torch.randint(-1, 2, (40, 3), generator=generator).float()
    named = torch.tensor([[row, 39 - row, -1] for row in range(5)])
    found = exact_search(queries, corpus, k, named=named, piece=piece, queries_at_once=at_once)
    expected = by_a_loop(queries, corpus, k)
    assert found.places.tolist() == expected
    products = queries @ corpus.T
    assert torch.equal(found.scores, products.gather(1, found.places))
    for row, (own, best) in enumerate(zip(products.tolist(), found.scores.tolist(), strict=True)):
        assert int(found.tied[row]) == own.count(best[-1]) - best.count(best[-1])
        assert found.known[row, :2].tolist() == [own[row], own[39 - row]]
    assert found.known[:, 2].isnan().all()


def test_low_precision_is_searched_in_float32() -> None:
    corpus = torch.tensor([[1.0, 2**-9], [1.0, 0.0]], dtype=torch.bfloat16)
    found = exact_search(torch.tensor([[1.0, 1.0]], dtype=torch.bfloat16), corpus, 2)
    assert found.scores.tolist() == [[1 + 2**-9, 1.0]]


@pytest.mark.parametrize(
    ("queries", "corpus", "k", "said"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), 1, "shape"),
        (torch.ones(3), torch.ones(2, 3), 1, "shape"),
        (torch.ones(0, 3), torch.ones(2, 3), 1, "no queries"),
        (torch.ones(1, 3), torch.ones(2, 3), 0, "k=0"),
        (torch.ones(1, 3), torch.full((2, 3), float("nan")), 1, "not finite"),
    ],
)
def test_refusals(queries, corpus, k, said) -> None:
    with pytest.raises(LimbeckError, match=said):
        exact_search(queries, corpus, k)
