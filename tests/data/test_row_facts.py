"""What training asks of all its rows: one answer for a table, for rows encoded in their turn, and for others."""

import hashlib

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.utils.data import Subset

import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.data.encoding import LazyRows, encode
from limbeck.data.row_facts import facts_of
from limbeck.tasks import TEXT_READING


@pytest.fixture(scope="module")
def rows():
    task, splits = load_task("sst2", "pocket")
    return task, splits["train"].select(range(40))


def digest(rows):
    found = hashlib.blake2b(digest_size=8)
    facts_of(rows).add_to(found)
    return found.hexdigest()


def test_a_table_and_rows_encoded_in_their_turn_answer_alike(rows):
    task, raw = rows
    table, _ = encode(raw, task, tiny.tokenizer(), 32)
    lazy = LazyRows(raw, task, tiny.tokenizer(), 32)
    one, other = facts_of(table), facts_of(lazy)
    assert (one.encoded, other.encoded) == (True, False)
    assert np.array_equal(one.numbers, other.numbers)
    assert np.array_equal(one.labels, other.labels)
    assert one.mean_tokens == pytest.approx(other.mean_tokens)
    tokens, size = one.lengths_of(TEXT_READING, ""), other.lengths_of(TEXT_READING, "")
    assert list(tokens) == [len(ids) for ids in table["input_ids"]]
    assert list(size) == [len(text.encode()) for text in raw["sentence"]]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_digest_is_that_of_the_examples(rows, lazy):
    task, raw = rows
    made = (
        (lambda raw: LazyRows(raw, task, tiny.tokenizer(), 32))
        if lazy
        else (lambda raw: encode(raw, task, tiny.tokenizer(), 32)[0])
    )
    assert digest(made(raw)) == digest(made(raw))
    assert digest(made(raw)) != digest(made(raw.select(range(39))))


def test_little_is_known_of_other_collections():
    table = Dataset.from_dict({"input_ids": [[1, 2], [3]], "labels": [[1, 1], [0]]})
    assert facts_of(table).labels is None  # one a token
    assert facts_of(table).numbers is None
    some = facts_of(Subset([{"labels": torch.tensor(1)}], [0]))
    assert (some.labels, some.numbers, some.mean_tokens) == (None, None, None)


def test_a_column_of_lengths_goes_before_counting():
    table = Dataset.from_dict({"input_ids": [[1, 2], [3]], "length": [7, 9]})
    assert list(facts_of(table).lengths_of(TEXT_READING, "length")) == [7, 9]
