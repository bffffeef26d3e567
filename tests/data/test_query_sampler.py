"""Candidates of a query stand in one batch, every row comes once an epoch, and an epoch is a function of its number."""

import numpy as np
import pytest

from limbeck.data.samplers import QuerySampler
from limbeck.support.errors import LimbeckError


def batches(sampler: QuerySampler) -> list[list[int]]:
    order, size = list(sampler), sampler.batch_size
    return [order[start : start + size] for start in range(0, len(order), size)]


def parts(sampler: QuerySampler, queries: np.ndarray) -> dict[int, int]:
    """In how many batches each query stands."""
    found: dict[int, int] = {}
    for batch in batches(sampler):
        for query in {int(queries[row]) for row in batch}:
            found[query] = found.get(query, 0) + 1
    return found


@pytest.mark.parametrize("by_length", [False, True])
def test_equal_queries_are_never_split(by_length) -> None:
    queries = np.random.default_rng(0).permutation(np.repeat(np.arange(30) * 7, 4))
    lengths = np.random.default_rng(1).integers(3, 60, len(queries)) if by_length else None
    sampler = QuerySampler(queries, 3, batch_size=12, lengths=lengths)
    seen = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert sorted(sampler) == list(range(len(queries)))
        assert set(parts(sampler, queries).values()) == {1} and sampler.split == 0
        assert list(sampler) == list(sampler)
        seen.append(list(sampler))
    assert seen[0] != seen[1] != seen[2]
    if by_length:  # memory runs out at once, or not at all
        assert lengths[batches(sampler)[0]].max() == lengths.max()


@pytest.mark.parametrize("seed", range(5))
def test_of_unequal_queries_only_few_are_split(seed) -> None:
    generator = np.random.default_rng(seed)
    queries = generator.permutation(np.repeat(np.arange(200), generator.integers(1, 9, 200)))
    sampler = QuerySampler(queries, seed, batch_size=16)
    assert sorted(sampler) == list(range(len(queries)))
    split = sum(count > 1 for count in parts(sampler, queries).values())
    assert split == sampler.split
    assert split <= 6  # three of a hundred
    assert all(len(batch) == 16 for batch in batches(sampler)[:-1])


def test_a_query_that_fills_more_than_a_batch_stands_in_as_few_as_it_can() -> None:
    queries = np.repeat([0, 1, 2], [20, 4, 4])
    sampler = QuerySampler(queries, 0, batch_size=8)
    assert sorted(sampler) == list(range(28))
    assert parts(sampler, queries)[0] <= 4 and sampler.split >= 1


def test_a_query_that_is_a_row_stands_beside_its_candidates_in_every_epoch() -> None:
    queries = np.repeat(np.arange(12), np.random.default_rng(0).integers(4, 9, 12))
    first = np.flatnonzero(np.diff(queries, prepend=-1))
    asking = np.isin(np.arange(len(queries)), first)
    grades = np.where(asking, np.nan, 0.0)
    grades[first + 1] = 1.0
    sampler = QuerySampler(queries, 1, batch_size=8, candidates=3, grades=grades, asking=asking)
    seen = set()
    for epoch in range(30):
        sampler.set_epoch(epoch)
        order = list(sampler)
        assert len(order) == len(set(order)) == len(sampler)
        for query, start in enumerate(first):
            own = [row for row in order if queries[row] == query]
            there = int((queries == query).sum()) - 1
            assert start in own and start + 1 in own and len(own) == 1 + min(there, 3)
        assert sampler.split == 0
        seen |= set(order)
    assert len(seen) == len(queries)
    with pytest.raises(LimbeckError, match="8 and their query, and batches have 8 rows"):
        QuerySampler(queries, 1, batch_size=8, candidates=8, asking=asking)


def test_some_candidates_of_each_query_and_always_one_of_the_best() -> None:
    queries = np.repeat(np.arange(12), 10)
    grades = np.tile([0, 0, 1, 3, 0, np.nan, 3, 0, 0, 1], 12)
    sampler = QuerySampler(queries, 5, batch_size=12, candidates=4, grades=grades)
    assert len(sampler) == 48
    seen: set[int] = set()
    best: set[int] = set()
    for epoch in range(12):
        sampler.set_epoch(epoch)
        order = list(sampler)
        assert len(order) == len(set(order)) == 48
        for query in range(12):
            rows = [row for row in order if queries[row] == query]
            assert len(rows) == 4 and max(grades[rows]) == 3
            best |= {row % 10 for row in rows if grades[row] == 3}
        seen |= set(order)
        assert sampler.split == 0
    assert len(seen) > 110 and best == {3, 6}


def test_queries_with_fewer_keep_them_all() -> None:
    queries = np.repeat(np.arange(4), [2, 3, 9, 1])
    sampler = QuerySampler(queries, 5, batch_size=8, candidates=4)
    assert len(sampler) == 2 + 3 + 4 + 1 == len(list(sampler))
    assert sampler.sizes.tolist() == [2, 3, 4, 1]


@pytest.mark.parametrize("candidates", [1, 9])
def test_refusals(candidates) -> None:
    with pytest.raises(LimbeckError, match="candidates"):
        QuerySampler(np.zeros(10), 0, batch_size=8, candidates=candidates)


def test_no_rows() -> None:
    assert list(QuerySampler(np.empty(0), 0, batch_size=4)) == []
