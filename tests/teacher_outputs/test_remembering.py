"""A teacher that remembers: the live teacher's outputs, from fewer passes."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from limbeck.activations import Request
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.teachers.teacher import Teacher

LENGTHS = (7, 3, 5, 6, 2, 4)
POOLED = Request.hidden([1, 3], pool="cls") | Request.hidden([2], pool="mean") | Request.of_logits()


@pytest.fixture(scope="module")
def live() -> Teacher:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        num_labels=3,
        initializer_range=0.3,
    )
    return Teacher(BertForSequenceClassification(config))


@pytest.fixture
def passes(live):
    """Counts passes of the model, and the examples in each."""
    seen: list[int] = []
    hook = live.model.bert.embeddings.register_forward_hook(
        lambda module, inputs, output: seen.append(len(output))
    )
    yield seen
    hook.remove()


def batch(rows: list[int], extra: int = 0) -> dict[str, torch.Tensor]:
    """The examples of those numbers, padded to the longest of them and `extra` more."""
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(5, 40, (len(LENGTHS), max(LENGTHS)), generator=generator)
    longest = max(LENGTHS[row] for row in rows) + extra
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : LENGTHS[row]] = text[row, : LENGTHS[row]]
        mask[place, : LENGTHS[row]] = 1
    return {"input_ids": ids, "attention_mask": mask, "index": torch.tensor(rows) + 100}


def assert_same(answer, expected, request):
    assert set(answer.values) == set(request.items)
    for seen in request.items:
        torch.testing.assert_close(answer[seen], expected[seen], rtol=0, atol=1e-5)
    if request.logits:
        torch.testing.assert_close(answer.logits, expected.logits, rtol=0, atol=1e-5)
    else:
        assert answer.logits is None
    assert torch.equal(answer.mask(), expected.mask())


def test_equals_the_live_teacher_whatever_the_batch_and_its_padding(live):
    remembering = RememberingTeacher(live)
    for rows, extra in [([0, 1, 2], 0), ([2, 4], 0), ([5, 3, 0, 1], 6), ([1], 9), ([4, 4, 2], 3)]:
        examples = batch(rows, extra)
        assert_same(remembering(examples, POOLED), live(examples, POOLED), POOLED)


@pytest.mark.parametrize(
    "request_", [Request.of_logits(), Request.hidden([2], pool="mean"), Request()], ids=str
)
def test_gives_what_was_asked_for_and_no_more(live, request_):
    remembering = RememberingTeacher(live)
    remembering(batch([0, 1, 2]), POOLED)
    assert_same(remembering(batch([2, 0]), request_), live(batch([2, 0]), request_), request_)


def test_the_model_runs_only_for_what_was_not_seen(live, passes):
    remembering = RememberingTeacher(live)
    remembering(batch([0, 1, 2]), POOLED)
    assert passes == [3]
    # Any order, any padding, and layers not asked for before.
    remembering(batch([2, 0], extra=3), POOLED)
    remembering(batch([1]), Request.hidden([1, 2, 3], pool="mean"))
    assert passes == [3]
    remembering(batch([1, 3]), POOLED)
    assert len(passes) == 2
    remembering(batch([3, 1, 0]), POOLED)
    assert len(passes) == 2


def test_what_is_as_long_as_the_text_is_asked_live(live, passes):
    remembering = RememberingTeacher(live)
    for request in (Request.hidden([1]), Request.attention([2]), Request.hidden([0], pool="cls")):
        remembering(batch([0, 1]), POOLED)
        passes.clear()
        answer = remembering(batch([0, 1]), request)
        assert len(passes) == 1
        assert_same(answer, live(batch([0, 1]), request), request)


def test_other_poolings_can_be_remembered(live, passes):
    remembering = RememberingTeacher(live, pools=("last",))
    request = Request.hidden([1, 3], pool="last")
    remembering(batch([0, 1]), request)
    passes.clear()
    answer = remembering(batch([1, 0]), request)
    assert not passes
    assert_same(answer, live(batch([1, 0]), request), request)


def test_what_is_remembered_is_nobody_s_to_change(live):
    remembering = RememberingTeacher(live)
    first = remembering(batch([0, 1]), POOLED)
    first.logits.zero_()
    for value in first.values.values():
        value.zero_()
    assert_same(remembering(batch([0, 1]), POOLED), live(batch([0, 1]), POOLED), POOLED)


def test_other_rows_under_the_same_numbers_are_asked_anew(live):
    """As when one process distils on one file of rows and then on another."""
    remembering = RememberingTeacher(live)
    remembering(batch([0, 1, 2]), POOLED)
    others = batch([3, 4, 5])
    others["index"] = batch([0, 1, 2])["index"]
    assert_same(remembering(others, POOLED), live(others, POOLED), POOLED)


def test_the_same_rows_under_other_numbers_or_none_are_known(live, passes):
    remembering = RememberingTeacher(live)
    examples = batch([0, 1, 2])
    remembering(examples, POOLED)
    passes.clear()
    remembering(examples | {"index": examples["index"] + 7}, POOLED)
    del examples["index"]
    remembering(examples, POOLED)
    assert not passes
