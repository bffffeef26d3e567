"""The model: means and pairs by hand, what takes part, sparse gradients, token dropout, files, graphs."""

from __future__ import annotations

import pytest
import torch
from static_models import TEXTS, batch, outputs, student
from torch import nn
from transformers import AutoModelForSequenceClassification

import tiny_runs as tiny
from limbeck.static import StaticConfig, StaticStudent, pair_rows, static_student


def small(**settings) -> StaticStudent:
    """Token vectors (1, 10), (2, 20), …, weights 1, and a head that returns the mean."""
    made = StaticStudent(StaticConfig(vocab_size=5, hidden_size=2, num_labels=2, **settings)).eval()
    with torch.no_grad():
        made.vectors.weight.copy_(torch.tensor([[n, 10.0 * n] for n in range(5)]))
        made.weights.weight.fill_(1.0)
        made.head[0].weight.copy_(torch.eye(2))
        made.head[0].bias.zero_()
    return made


def test_output_is_the_weighted_mean_of_the_tokens_that_count() -> None:
    made = small()
    with torch.no_grad():
        made.weights.weight[3] = 0.5
        made.counted[0] = made.counted[4] = False
    ids = torch.tensor([[4, 1, 3, 0], [2, 2, 1, 4], [4, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]])
    # (1 + 0.5 · 3) / 2; (2 + 2) / 2, as the mask leaves token 1 out; nothing.
    expected = torch.tensor([[1.25, 12.5], [2.0, 20.0], [0.0, 0.0]])
    torch.testing.assert_close(made(ids, mask).logits, expected)


@pytest.mark.parametrize(("power", "divisor"), [(1.0, 2.0), (0.5, 1.41421356), (0.0, 1.0)])
def test_pairs_of_neighbors_are_hashed_and_averaged(power, divisor) -> None:
    made = small(pairs=7, pair_power=power)
    made.counted[4] = False
    with torch.no_grad():
        made.pairs.weight.copy_(torch.arange(14.0).view(7, 2))
    ids = torch.tensor([[4, 1, 2, 3, 4]])
    # Of whole numbers without a bound: neither the special token 4 nor padding has a pair.
    rows = [(a * 1692481079 + b * 1267914797) % 2147483647 % 7 for a, b in ((1, 2), (2, 3))]
    added = [sum(2.0 * row + odd for row in rows) / divisor for odd in (0, 1)]
    expected = torch.tensor([[2.0 + added[0], 20.0 + added[1]]])
    torch.testing.assert_close(made(ids).logits, expected)


def test_hash_is_the_same_for_the_largest_vocabularies() -> None:
    first, second = 999_983, 1_000_003
    found = pair_rows(torch.tensor([first]), torch.tensor([second]), 200_000)
    assert found.tolist() == [(first * 1692481079 + second * 1267914797) % 2147483647 % 200_000]


def test_hash_spreads_pairs_of_frequent_tokens() -> None:
    """The commonest tokens have neighboring numbers: a tenth of 200,000 rows is filled as chance fills it."""
    tokens = torch.arange(1000, 1000 + 141)
    rows = pair_rows(tokens[:, None], tokens[None], 200_000)
    taken, pairs = len(rows.unique()), rows.numel()
    assert taken == pytest.approx(200_000 * (1 - (1 - 1 / 200_000) ** pairs), rel=0.03)


def test_padding_changes_nothing() -> None:
    made = student(num_labels=3, pairs=11)
    ids = torch.tensor([[2, 4, 6, 3]])
    alone = made(ids).logits
    for padded, mask in (
        ([0, 0, 2, 4, 6, 3], [0, 0, 1, 1, 1, 1]),
        ([2, 4, 6, 3, 0], [1] * 4 + [0]),
    ):
        found = made(torch.tensor([padded]), torch.tensor([mask])).logits
        torch.testing.assert_close(found, alone)


def test_special_tokens_take_no_part() -> None:
    made = student(embeds=True)
    bare = made(**batch(TEXTS, add_special_tokens=False)).logits
    torch.testing.assert_close(bare, made(**batch(TEXTS)).logits)
    assert made.counted.tolist() == [False] * 4 + [True] * 10
    assert not made(**batch(["unheard"])).logits.any()


@pytest.mark.parametrize("pairs", [0, 50])
def test_gradients_hold_the_rows_of_the_batch_alone(pairs) -> None:
    made = student(num_labels=2, pairs=pairs, token_dropout=0.0)
    made(torch.tensor([[2, 5, 7, 5, 3]])).logits.sum().backward()
    found = made.vectors.weight.grad.coalesce()
    assert found.indices().tolist() == [[5, 7]] and found.values().all()
    assert made.weights.weight.grad.coalesce().indices().tolist() == [[5, 7]]
    if pairs:
        rows = pair_rows(torch.tensor([5, 7]), torch.tensor([7, 5]), pairs)
        assert made.pairs.weight.grad.coalesce().indices()[0].tolist() == sorted(rows.tolist())


def test_token_dropout_leaves_out_its_share_as_its_generator_says() -> None:
    """Vectors are all ones and divided by the tokens that are left: each token adds its weight."""
    made = small(token_dropout=0.25).train()
    ids = torch.arange(1, 4).repeat(2000, 1)
    with torch.no_grad():
        made.vectors.weight.fill_(1.0)
        made.weights.weight[:, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    first, second, other = (
        made(ids, generator=torch.Generator().manual_seed(seed)).logits[:, 0] for seed in (3, 3, 4)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)
    # Token 1 is one of three, of two or alone; of a text that would be empty nothing is left out.
    near = pytest.approx
    assert sorted(value.item() for value in first.unique()) == [0, near(1 / 3), 0.5, 1]
    assert (first == 0).float().mean().item() == near(0.25 * (1 - 0.25**2), abs=0.02)
    assert torch.equal(made.eval()(ids).logits, made(ids).logits)


@pytest.mark.parametrize(
    "settings", [{"num_labels": 3, "pairs": 20}, {"embeds": True, "normalize": True}]
)
def test_a_saved_student_is_loaded_by_transformers(settings, tmp_path) -> None:
    made = student(**settings)
    made.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is StaticStudent
    torch.testing.assert_close(outputs(loaded), outputs(made))


def test_a_new_student_counts_all_tokens_alike_and_no_pairs() -> None:
    made = static_student(tiny.tokenizer(), 4, num_labels=3)
    config = made.config
    assert (config.pairs, config.head_width, config.token_dropout) == (200_000, 64, 0.3)
    assert config.pair_power == 0.5
    assert (made.weights.weight == 1).all() and not made.pairs.weight.any()
    assert made.vectors.weight.std() > 0
    embeds = static_student(tiny.tokenizer(), 4, embeds=True)
    assert embeds.pairs is None and embeds.config.token_dropout == 0
    assert embeds(**batch(["good"])).logits.shape == (1, 4)


@pytest.mark.parametrize(
    "settings",
    [{"num_labels": 2, "pairs": 30, "head_width": 5}, {"embeds": True, "normalize": True}],
)
@pytest.mark.slow
def test_traced_graph_gives_the_same(settings) -> None:
    made = student(**settings)
    inputs = batch(TEXTS)
    auto = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    graph = torch.export.export(
        made, (), inputs, dynamic_shapes=dict.fromkeys(inputs, auto), strict=False
    )
    found = graph.module()(**batch(TEXTS[:3])).logits
    torch.testing.assert_close(found, outputs(made, TEXTS[:3]))


def test_word_pairs_learn_what_single_words_cannot() -> None:
    """Of `good bad` and `bad good` only the order says which it is."""
    texts, labels = ["good bad", "bad good"], torch.tensor([0, 1])
    right = {}
    for pairs in (0, 1000):
        made = static_student(
            tiny.tokenizer(), 4, num_labels=2, pairs=pairs, head_width=0, token_dropout=0.0
        )
        optimizer = torch.optim.SGD(made.parameters(), lr=0.5)
        for _ in range(20):
            loss = nn.functional.cross_entropy(made(**batch(texts)).logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right[pairs] = (outputs(made.eval(), texts).argmax(1) == labels).sum().item()
    assert right == {0: 1, 1000: 2}
