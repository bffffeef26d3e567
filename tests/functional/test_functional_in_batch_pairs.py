"""Queries and passages in one batch: loops, sentence-transformers' losses, and which passage is no negative."""

from math import exp, log

import pytest
import torch

import limbeck.functional as functional

NAN = float("nan")
# Two triplets, a pair, a passage whose query stands elsewhere, and a query without its passage.
QUERIES = torch.tensor([4, 4, 4, 7, 7, 7, 2, 2, 9, 11])
GRADES = torch.tensor([NAN, 1, 0, NAN, 1, 0, NAN, 1, 1, NAN])


def draw(seed: int = 0, rows: int = 10) -> torch.Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed))


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a @ b / a.norm() / b.norm()).item()


def test_similarities_to_the_own_query() -> None:
    vectors = draw()
    found = functional.query_similarities(vectors, QUERIES, GRADES)
    expected = [0.0] * 10
    for query, passages in {0: (1, 2), 3: (4, 5), 6: (7,)}.items():
        for passage in passages:
            expected[passage] = (vectors[query] @ vectors[passage]).item()
    torch.testing.assert_close(found, torch.tensor(expected))


def by_hand(vectors: torch.Tensor, right: dict[int, int], temperature: float, left_out=()) -> float:
    passages = (1, 2, 4, 5, 7, 8)
    total = 0.0
    for query, own in right.items():
        others = [p for p in passages if (query, p) not in left_out]
        whole = sum(exp(cosine(vectors[query], vectors[p]) / temperature) for p in others)
        total -= cosine(vectors[query], vectors[own]) / temperature - log(whole)
    return total / len(right)


@pytest.mark.parametrize("temperature", [1, 0.05])
def test_contrast_with_all_passages_of_the_batch(temperature) -> None:
    found = functional.pair_contrast(draw(), QUERIES, GRADES, temperature=temperature)
    assert found.item() == pytest.approx(by_hand(draw(), {0: 1, 3: 4, 6: 7}, temperature), rel=1e-5)


def test_what_is_known_to_belong_to_a_query_is_no_negative_of_it() -> None:
    tokens = torch.arange(10)[:, None].repeat(1, 3)
    tokens[6] = tokens[0]  # the query of the pair is that of the first triplet
    tokens[5] = tokens[4]  # a negative of the second has the text of its positive
    found = functional.pair_contrast(draw(), QUERIES, GRADES, tokens, temperature=0.5)
    left_out = {(0, 7), (6, 1), (3, 5)}
    expected = by_hand(draw(), {0: 1, 3: 4, 6: 7}, 0.5, left_out)
    assert found.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("temperature", [1, 0.05])
def test_sentence_transformers_comes_to_the_same(temperature, monkeypatch) -> None:
    from sentence_transformers.sentence_transformer import losses

    vectors = draw(3, 12)
    rows = vectors.view(4, 3, 6)
    loss = losses.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature)
    theirs = loss.compute_loss_from_embeddings([rows[:, place] for place in range(3)], None)
    queries, grades = torch.arange(12) // 3, torch.tensor([NAN, 1, 0] * 4)
    ours = functional.pair_contrast(vectors, queries, grades, temperature=temperature)
    torch.testing.assert_close(ours, theirs)


def test_margins_of_embeddings_are_those_of_sentence_transformers() -> None:
    from sentence_transformers.sentence_transformer import losses

    student, teacher = draw(1, 12), draw(2, 12)
    queries, grades = torch.arange(12) // 3, torch.tensor([NAN, 1, 0] * 4)
    sides = [functional.query_similarities(one, queries, grades) for one in (student, teacher)]
    ours = functional.margin_mse(*sides, queries, grades)
    rows, told = student.view(4, 3, 6), teacher.view(4, 3, 6)
    margins = (told[:, 0] * told[:, 1]).sum(-1) - (told[:, 0] * told[:, 2]).sum(-1)
    loss = losses.MarginMSELoss(torch.nn.Identity())
    theirs = loss.compute_loss_from_embeddings([rows[:, place] for place in range(3)], margins)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("grades", [GRADES.new_full((10,), NAN), GRADES.nan_to_num(1)])
def test_nothing_that_belongs_together_is_0_without_a_gradient(grades) -> None:
    vectors = draw().requires_grad_()
    value = functional.pair_contrast(vectors, QUERIES, grades, temperature=0.1)
    value = value + functional.query_similarities(vectors, QUERIES, grades).sum()
    value.backward()
    assert value.item() == 0 and (vectors.grad == 0).all()


def test_a_pair_alone_has_nothing_to_be_told_from() -> None:
    vectors = draw(0, 2).requires_grad_()
    queries, grades = torch.tensor([1, 1]), torch.tensor([NAN, 1])
    value = functional.pair_contrast(vectors, queries, grades, temperature=0.1)
    value.backward()
    assert value.item() == 0 and vectors.grad.isfinite().all()
