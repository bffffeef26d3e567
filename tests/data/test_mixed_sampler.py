"""Batches of labeled and unlabeled examples, and orders by length in arrays."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

from limbeck.data.samplers import MixedSampler, labelled_in_batch, length_grouped
from limbeck.support.errors import LimbeckError


def sampler(labelled: int, unlabelled: int, *, share=0.25, batch_size=8, **options):
    mask = np.arange(labelled + unlabelled) % 7 < 0
    mask[np.random.default_rng(0).permutation(len(mask))[:labelled]] = True
    return mask, MixedSampler(mask, 5, share=share, batch_size=batch_size, **options)


def batches(found, size=8):
    order = list(found)
    return [order[start : start + size] for start in range(0, len(order), size)]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("labelled", "unlabelled"), [(5, 600), (600, 50), (3, 4)])
def test_every_batch_has_its_share_and_every_unlabelled_row_comes_once(
    labelled, unlabelled, grouped
):
    lengths = np.arange(labelled + unlabelled) % 31 if grouped else None
    mask, found = sampler(labelled, unlabelled, lengths=lengths)
    made = batches(found)
    assert sum(map(len, made)) == len(found)
    shares = [int(mask[batch].sum()) for batch in made]
    assert shares[:-1] == [2] * (len(made) - 1) and shares[-1] >= 1
    seen = Counter(row for batch in made for row in batch)
    assert all(seen[row] == 1 for row in np.flatnonzero(~mask))
    times = [seen[row] for row in np.flatnonzero(mask)]
    assert max(times) - min(times) <= 1


def test_by_hand():
    """8 unlabeled rows, 6 a batch: a whole batch with 2 labelled ones, and 2 with 1."""
    _, found = sampler(3, 8)
    assert [len(batch) for batch in batches(found)] == [8, 3]
    assert (found.known, found.others, found.last) == (2, 6, (1, 2))


def test_an_order_is_a_function_of_seed_and_epoch():
    _, one = sampler(9, 80)
    _, other = sampler(9, 80)
    first = list(one)
    assert first == list(one) == list(other)
    other.set_epoch(1)
    second = list(other)
    assert second != first and len(second) == len(first)
    one.set_epoch(1)
    assert list(one) == second


def test_batches_by_length_need_less_padding_and_the_longest_comes_first():
    lengths = np.random.default_rng(1).integers(3, 60, 900)

    def padding(**options):
        _, found = sampler(100, 800, **options)
        made = [lengths[batch] for batch in batches(found)]
        return sum(int(len(one) * one.max() - one.sum()) for one in made), made

    plain, _ = padding()
    grouped, made = padding(lengths=lengths)
    assert grouped < plain / 3
    assert made[0].max() == lengths.max()
    widths = [batch.max() for batch in made[1:-1]]
    assert widths != sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("share", "size", "count"), [(0.25, 8, 2), (0.3, 8, 2), (0.5, 3, 2), (0.1, 5, 1)]
)
def test_shares_are_whole_examples(share, size, count):
    assert labelled_in_batch(share, size) == count


@pytest.mark.parametrize(("share", "size"), [(0.1, 4), (0.95, 8), (0.5, 1)])
def test_shares_that_are_none_or_all_of_a_batch(share, size):
    with pytest.raises(LimbeckError, match="raise batch_size"):
        labelled_in_batch(share, size)


@pytest.mark.parametrize("none", ["labelled", "unlabelled"])
def test_a_share_of_nothing(none):
    with pytest.raises(LimbeckError, match=f"no {none} training rows"):
        MixedSampler(np.full(9, none == "unlabelled"), 0, share=0.5, batch_size=4)


@pytest.mark.parametrize(("rows", "batch_size"), [(1, 4), (7, 4), (100, 3), (5000, 8), (333, 32)])
def test_orders_by_length_are_those_of_transformers(rows, batch_size):
    lengths = np.random.default_rng(rows).integers(1, 40, rows)
    ours = length_grouped(lengths, batch_size, torch.Generator().manual_seed(3))
    theirs = get_length_grouped_indices(
        lengths.tolist(), batch_size, generator=torch.Generator().manual_seed(3)
    )
    assert ours.tolist() == [int(place) for place in theirs]
