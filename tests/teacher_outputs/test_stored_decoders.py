"""Stored teacher outputs of encoder–decoders: two sequences an example, each of its own length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf
from datasets import Dataset

from limbeck.activations import Request, capture
from limbeck.outputs.building import build, measure
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.key import fingerprint
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.teachers.teacher import Teacher

# In the batches that are stored, neighbours read as much and write another number of tokens.
LENGTHS = (6, 3, 6, 4, 3)
ANSWERS = (2, 3, 1, 1, 3)
# By hand, of an example that reads n tokens and writes m: which of its dimensions are tokens.
READ, WRITTEN = "main", "decoder"
SHAPES = {
    ("hidden", "encoder"): (READ, None),
    ("hidden", "decoder"): (WRITTEN, None),
    ("probabilities", "main"): (None, READ, READ),
    ("scores", "decoder"): (None, WRITTEN, WRITTEN),
    ("probabilities", "cross"): (None, WRITTEN, READ),
    ("query", "cross"): (None, WRITTEN, None),
    ("key", "cross"): (None, READ, None),
    ("value", "decoder"): (None, WRITTEN, None),
}
POOLED = (
    Request.hidden([2], "mean", "decoder")
    | Request.hidden([1], "last", "decoder")
    | Request.hidden([2], "mean", "main")
)
EVERYTHING = POOLED | Request.of_logits()
for what, stack in SHAPES:
    EVERYTHING = EVERYTHING | (
        Request.hidden([0, 2], stack=stack)
        if what == "hidden"
        else Request.attention([2], what, stack)
    )


@pytest.fixture(scope="module")
def live() -> Teacher:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_heads": 2}
    config = hf.T5Config(
        **sizes,
        num_layers=2,
        num_decoder_layers=3,
        decoder_start_token_id=0,
        initializer_factor=2.0,
    )
    return Teacher(hf.T5ForConditionalGeneration(config))


def tokens(lengths: tuple[int, ...], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, 40, (n,), generator=generator).tolist() for n in lengths]


def padded(rows: list[list[int]], extra: int, fill: int) -> torch.Tensor:
    width = max(map(len, rows)) + extra
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def batch(rows: list[int], *, extra: int = 0) -> dict[str, torch.Tensor]:
    read, written = tokens(LENGTHS, 1), tokens(ANSWERS, 2)
    ids = padded([read[row] for row in rows], extra, 0)
    labels = padded([written[row] for row in rows], extra, -100)
    index = torch.tensor(rows)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": labels,
        "index": index,
    }


def stored(folder, teacher: Teacher, request: Request, batches=None) -> CachedTeacher:
    store = Store(folder)
    with store.writing("key") as place:
        batches = batches or [batch([0, 2, 3]), batch([1, 4])]
        build(place, teacher, batches, Ask(request), precision="fp32")
    return CachedTeacher(teacher, store.find("key"))


def real_only(value: torch.Tensor, shape: tuple[str | None, ...], asked) -> torch.Tensor:
    """Zero at padding of either sequence, by a loop over examples."""
    real = {READ: asked["attention_mask"].bool(), WRITTEN: asked["labels"] != -100}
    for example in range(len(value)):
        for dimension, size in enumerate(shape):
            if size is not None:
                padding = (~real[size][example]).nonzero().flatten()
                value[example].index_fill_(dimension, padding, 0.0)
    return value


@pytest.mark.parametrize(("rows", "extra"), [([0, 1, 2], 0), ([4, 1], 3), ([3, 0, 4, 2], 1)])
def test_each_stack_equals_the_live_one_whatever_the_batch(live, tmp_path, rows, extra):
    asked = batch(rows, extra=extra)
    answer = stored(tmp_path, live, EVERYTHING)(asked, EVERYTHING)
    expected = live(asked, EVERYTHING)
    assert set(answer.values) == set(EVERYTHING.items)
    for seen in EVERYTHING.items:
        shape = () if seen.pool else SHAPES[seen.what, seen.stack]
        right = real_only(expected[seen].clone(), shape, asked)
        assert answer[seen].shape == right.shape, seen
        assert float((answer[seen] - right).norm() / right.norm()) < 1e-3, seen
    right = real_only(expected.logits.clone(), (WRITTEN, None), asked)
    torch.testing.assert_close(answer.logits, right, rtol=0, atol=1e-4)
    assert answer.masks.keys() == expected.masks.keys() == {"main", "encoder", "decoder", "cross"}
    assert all(torch.equal(answer.mask(name), expected.mask(name)) for name in answer.masks)


def test_a_request_of_the_encoder_alone_stores_no_answer(live, tmp_path):
    request = Request.hidden([1, 2]) | Request.attention([1])
    asked = batch([4, 0])
    answer = stored(tmp_path, live, request)(asked, request)
    for seen in request.items:
        shape = (READ, None) if seen.what == "hidden" else (None, READ, READ)
        right = real_only(live(asked, request)[seen].clone(), shape, asked)
        torch.testing.assert_close(answer[seen], right, rtol=1e-3, atol=1e-3)


def test_the_size_is_known_before_anything_is_stored(live, tmp_path):
    lengths = {"main": np.array(LENGTHS), "decoder": np.array(ANSWERS)}
    request = (
        Request.hidden([1], stack="decoder")
        | Request.attention([3], "probabilities", "cross")
        | Request.attention([3], "key", "cross")
        | Request.of_logits()
    )
    estimate = measure(live, batch([0, 1]), Ask(request), lengths, precision="fp32")
    # Width 16, two heads of 6, two bytes a number; 40 logits of four bytes a token.
    by_hand = sum(
        2 * (16 * m + 2 * m * n + 2 * n * 6) + 4 * 40 * m
        for n, m in zip(LENGTHS, ANSWERS, strict=True)
    )
    assert estimate.bytes == by_hand
    stored(tmp_path, live, request)
    assert 0 <= Store(tmp_path).find("key").bytes - by_hand < 20_000  # the file's own frame


def test_the_key_follows_the_labels_that_a_decoder_reads(live):
    def key(answers: list[list[int]]) -> str:
        columns = {"input_ids": tokens(LENGTHS, 1), "labels": answers, "index": list(range(5))}
        return fingerprint(live.model, Dataset.from_dict(columns), Ask(POOLED), "fp32")

    written = tokens(ANSWERS, 2)
    assert key(written) == key(written)
    assert key(written) != key([[9, *row[1:]] for row in written])


def test_a_decoder_that_reads_the_input_has_its_lengths(tmp_path):
    """BART's classification head makes the decoder's input from the encoder's."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": 2, f"{stack}_attention_heads": 2}
    config = hf.BartConfig(
        **sizes, max_position_embeddings=32, eos_token_id=3, pad_token_id=0, bos_token_id=1,
        decoder_start_token_id=3, init_std=0.3, num_labels=3,
    )  # fmt: skip
    teacher = Teacher(hf.BartForSequenceClassification(config))

    def ended(rows: list[int]) -> dict[str, torch.Tensor]:
        asked = batch(rows) | {"labels": torch.zeros(len(rows), dtype=torch.long)}
        for row, example in enumerate(rows):
            asked["input_ids"][row, LENGTHS[example] - 1] = 3
        return asked

    request = (
        Request.hidden([2], stack="decoder")
        | Request.attention([2], "probabilities", "cross")
        | Request.of_logits()
    )
    cached = stored(tmp_path, teacher, request, [ended([0, 2, 3]), ended([1, 4])])
    asked = ended([3, 2, 1])
    answer, expected = cached(asked, request), capture(teacher.model, asked, request)
    real = asked["attention_mask"].bool()
    (hidden,) = (seen for seen in request.items if seen.what == "hidden")
    torch.testing.assert_close(answer[hidden][real], expected[hidden][real], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(answer.logits, expected.logits, rtol=0, atol=1e-5)
    (maps,) = (seen for seen in request.items if seen.what == "probabilities")
    right = expected[maps] * real[:, None, :, None] * real[:, None, None, :]
    torch.testing.assert_close(answer[maps], right, rtol=1e-3, atol=1e-3)
