import pickle

import pytest
import torch

from limbeck.data import EpochSampler
from limbeck.support.errors import LimbeckError


def order(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("options", [{}, {"lengths": [7, 3, 9, 1] * 16, "batch_size": 4}])
def test_an_epoch_is_a_pure_function_of_seed_and_epoch(options):
    sampler = EpochSampler(64, seed=3, **options)
    first = [order(sampler, epoch) for epoch in range(4)]
    torch.manual_seed(99)
    again = EpochSampler(64, seed=3, **options)
    assert order(again, 2) == first[2]
    assert order(again, 0) == first[0]
    assert order(pickle.loads(pickle.dumps(again)), 3) == first[3]
    assert all(sorted(indices) == list(range(64)) for indices in first)
    assert len({tuple(indices) for indices in first}) == 4


def test_it_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    list(EpochSampler(10, seed=0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_seed_and_epoch_do_not_trade_places():
    assert order(EpochSampler(50, seed=0), 1) != order(EpochSampler(50, seed=1), 0)


def test_grouped_batches_hold_similar_lengths():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 100, (400,), generator=generator).tolist()

    def padding(indices):
        batches = [indices[start : start + 8] for start in range(0, 400, 8)]
        return sum(
            max(lengths[i] for i in batch) * len(batch) - sum(lengths[i] for i in batch)
            for batch in batches
        )

    grouped = list(EpochSampler(lengths, seed=1, lengths=lengths, batch_size=8))
    shuffled = list(EpochSampler(lengths, seed=1))
    assert padding(grouped) < padding(shuffled) / 3
    assert lengths[grouped[0]] == max(lengths)


def test_grouped_batches_come_in_no_order_of_length():
    lengths = list(range(1, 401))
    batches = torch.tensor(list(EpochSampler(lengths, seed=1, lengths=lengths, batch_size=8)))
    means = (batches.view(50, 8) + 1.0).mean(1)
    # Sorted by length the rank correlation with the place would be -1; 0.3 is two deviations of none.
    places = torch.arange(50.0)
    assert abs(torch.corrcoef(torch.stack([means, places]))[0, 1]) < 0.3


@pytest.mark.parametrize("rows", [1, 5, 8, 9, 16, 17, 403])
def test_batches_stay_whole_when_they_are_shuffled(rows):
    """Cut as a loader cuts them, batches are still of like length, and the part of one comes last."""
    lengths = [7 * place % rows for place in range(rows)]
    indices = list(EpochSampler(lengths, seed=2, lengths=lengths, batch_size=8))
    assert sorted(indices) == list(range(rows))
    assert lengths[indices[0]] == max(lengths)
    for start in range(8, rows - 7, 8):
        batch = [lengths[index] for index in indices[start : start + 8]]
        assert batch == sorted(batch, reverse=True)


def test_every_place_sees_every_example():
    # Over many epochs the first place is near uniform: 1000 draws of 10, each 100 ± 5 sd.
    sampler = EpochSampler(10, seed=5)
    firsts = [order(sampler, epoch)[0] for epoch in range(1000)]
    assert all(50 < firsts.count(example) < 150 for example in range(10))


def test_length_and_empty():
    assert len(EpochSampler([1, 2, 3], seed=0)) == 3
    assert list(EpochSampler(0, seed=0)) == []
    assert list(EpochSampler(0, seed=0, lengths=[], batch_size=2)) == []


@pytest.mark.parametrize("options", [{"lengths": [1, 2]}, {"lengths": [1, 2, 3]}])
def test_bad_lengths(options):
    with pytest.raises(LimbeckError, match=r"lengths|batch size"):
        EpochSampler(3, seed=0, **options)
