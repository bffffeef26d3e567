"""Stored teacher outputs: what the live teacher says, to float16's precision, whatever the batch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from limbeck.activations import Request
from limbeck.input_transforms import Mixture, Mixup, MixupSpec, StepInputs
from limbeck.outputs import mapped
from limbeck.outputs.building import build, measure
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.key import fingerprint
from limbeck.outputs.manifest import EntryAbout
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import SentBatch
from limbeck.teachers.teacher import Teacher
from numberless import META, numbers_are_told_apart

# In the batches that are stored, 7, 5, 5 and 3, 3, 2: neighbours alike and not.
LENGTHS = (7, 3, 5, 5, 2, 3)
FIRST = 100  # the number of the first example
EVERYTHING = (
    Request.hidden([1, 3], pool="cls")
    | Request.hidden([2], pool="mean")
    | Request.hidden([0, 3])
    | Request.attention([1, 3])
    | Request.attention([2], "scores")
    | Request.attention([3], "query")
    | Request.attention([3], "value")
    | Request.of_logits()
)


def config(**changes) -> BertConfig:
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_labels": 3}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}
    return BertConfig(**(sizes | {"initializer_range": 0.3} | changes))


@pytest.fixture(scope="module")
def live() -> Teacher:
    torch.manual_seed(0)
    return Teacher(BertForSequenceClassification(config()))


def tokens() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, 40, (n,), generator=generator).tolist() for n in LENGTHS]


def batch(rows: list[int], *, extra: int = 0, left: bool = False) -> dict[str, torch.Tensor]:
    """Those examples, padded on one side to the longest of them and `extra` more."""
    width = max(LENGTHS[row] for row in rows) + extra
    ids, mask = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(2))
    for place, row in enumerate(rows):
        start = width - LENGTHS[row] if left else 0
        ids[place, start : start + LENGTHS[row]] = torch.tensor(tokens()[row])
        mask[place, start : start + LENGTHS[row]] = 1
    return {"input_ids": ids, "attention_mask": mask, "index": torch.tensor(rows) + FIRST}


def dataset(**changes) -> Dataset:
    columns = {
        "input_ids": tokens(),
        "attention_mask": [[1] * n for n in LENGTHS],
        "labels": [0, 1, 2, 0, 1, 2],
        "index": [FIRST + row for row in range(len(LENGTHS))],
    }
    return Dataset.from_dict(columns | changes)


def store_all(store: Store, teacher: Teacher, request: Request, key: str = "key", **about):
    """In two batches of other rows than the tests ask for together."""
    batches = [batch([0, 3, 2]), batch([5, 1, 4])]
    with store.writing(key) as folder:
        build(folder, teacher, batches, Ask(request), precision="fp32", about=EntryAbout(**about))
    return store.find(key)


def stored(store: Store, teacher: Teacher, request: Request) -> CachedTeacher:
    return CachedTeacher(teacher, store_all(store, teacher, request))


def valid(value: torch.Tensor, shape: tuple, mask: torch.Tensor) -> torch.Tensor:
    """Zero where a token dimension points at padding."""
    for dimension, size in enumerate(shape, start=1):
        if isinstance(size, str):
            view = [len(mask)] + [1] * (value.dim() - 1)
            view[dimension] = mask.shape[1]
            value = value * mask.view(view)
    return value


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("rows", "extra"), [([0, 1, 2], 0), ([4, 1], 3), ([5, 0, 3, 4], 1)])
def test_equals_the_live_teacher_whatever_the_batch_and_its_padding(
    live, tmp_path, rows, extra, left
):
    teacher = stored(Store(tmp_path), live, EVERYTHING)
    asked = batch(rows, extra=extra, left=left)
    # Places count from the left, so a model pads on the right when its answers are stored.
    if left:
        asked["position_ids"] = (asked["attention_mask"].cumsum(1) - 1).clamp(min=0)
    answer, expected = teacher(asked, EVERYTHING), live(asked, EVERYTHING)
    mask = asked["attention_mask"].bool()
    assert set(answer.values) == set(EVERYTHING.items)
    for seen in EVERYTHING.items:
        shape = teacher.mapped.by_seen[seen].shape
        found, right = answer[seen], valid(expected[seen], shape, mask)
        assert found.shape == right.shape and found.dtype == torch.float32
        assert float((found - right).norm() / right.norm()) < 1e-3, seen
    assert torch.equal(answer.mask(), expected.mask())
    if not left:  # BERT's head reads the first place, which padding then takes
        torch.testing.assert_close(answer.logits, expected.logits, rtol=0, atol=1e-5)


def test_answers_are_read_on_the_host_and_each_is_sent_once(live, tmp_path):
    """The batch is on a device; what it was on the host says where its answers lie."""
    teacher = stored(Store(tmp_path), live, EVERYTHING)
    host = batch([4, 0, 1])
    given = SentBatch({name: value.to(META) for name, value in host.items()}, host)
    expected = teacher(host, EVERYTHING)
    with numbers_are_told_apart() as sent:
        answer = teacher(given, EVERYTHING)
    assert sent == ["_to_copy"] * (len(EVERYTHING.items) + 1)
    for found, right in (
        *((answer[seen], expected[seen]) for seen in EVERYTHING.items),
        (answer.logits, expected.logits),
        (answer.mask(), expected.mask()),
    ):
        assert (found.device, found.shape, found.dtype) == (META, right.shape, right.dtype)


def test_pieces_are_read_together(live, tmp_path, monkeypatch):
    """Every batch in a piece of its own, written while the next is asked; later ones need more room."""
    asked = batch([4, 0, 5, 2, 1, 3])
    whole = stored(Store(tmp_path / "whole"), live, EVERYTHING)(asked, EVERYTHING)
    monkeypatch.setattr(mapped, "_PIECE_BYTES", 1)
    store = Store(tmp_path / "pieces")
    with store.writing("key") as folder:
        batches = [batch(rows) for rows in ([4], [5], [1, 3], [0, 2])]
        build(folder, live, batches, Ask(EVERYTHING), precision="fp32")
    pieces = CachedTeacher(live, store.find("key"))
    assert all(len(parts) == 4 for parts in pieces.mapped.pieces.values())
    found = pieces(asked, EVERYTHING)
    for seen in EVERYTHING.items:
        torch.testing.assert_close(found[seen], whole[seen], rtol=1e-3, atol=1e-5)


def test_a_full_disk_stops_the_build_and_leaves_nothing(live, tmp_path, monkeypatch):
    def full(self, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.MappedWriter, "add", full)
    store = Store(tmp_path)
    with pytest.raises(OSError, match="No space"):
        store_all(store, live, EVERYTHING)
    assert store.find("key") is None and not any(tmp_path.iterdir())


def test_only_what_is_asked_for_is_read(live, tmp_path):
    teacher = stored(Store(tmp_path), live, EVERYTHING)
    answer = teacher(batch([1, 2]), Request.hidden([2], pool="mean"))
    assert len(answer.values) == 1 and answer.logits is None


def test_logits_of_every_token_are_stored_by_length(tmp_path):
    torch.manual_seed(0)
    live = Teacher(BertForTokenClassification(config()))
    teacher = stored(Store(tmp_path), live, Request.of_logits())
    asked = batch([2, 0], extra=2)
    found = teacher(asked, Request.of_logits()).logits
    expected = live(asked, Request.of_logits()).logits * asked["attention_mask"][:, :, None]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_pages_let_go_of_are_read_again(live, tmp_path):
    teacher = stored(Store(tmp_path), live, EVERYTHING)
    answers = [teacher(batch([0, 1]), EVERYTHING) for _ in range(5)]
    for seen in EVERYTHING.items:
        assert all(torch.equal(answer[seen], answers[0][seen]) for answer in answers)


def test_the_model_is_never_run(live, tmp_path):
    teacher = stored(Store(tmp_path), live, EVERYTHING)
    hook = live.model.bert.embeddings.register_forward_hook(lambda *_: pytest.fail("run"))
    try:
        teacher(batch([0, 1]), EVERYTHING)
    finally:
        hook.remove()


def test_the_size_is_known_before_anything_is_stored(live, tmp_path):
    lengths = {"main": np.array(LENGTHS)}
    estimate = measure(live, batch([0, 1]), Ask(EVERYTHING), lengths, precision="fp32")
    # By hand, an example of N tokens, width 16, two heads of 8, two bytes a number: three pooled
    # states, two of all tokens, three maps, query and value; three logits of four bytes.
    by_hand = sum(
        2 * (3 * 16 + 2 * 16 * n + 3 * 2 * n * n + 2 * 2 * n * 8) + 3 * 4 for n in LENGTHS
    )
    assert estimate.bytes == by_hand
    entry = store_all(Store(tmp_path), live, EVERYTHING)
    assert 0 <= entry.bytes - by_hand < 20_000  # the file's own frame


HALF = Mixture(torch.tensor([0]), 0.5, "word_embeddings")


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda teacher: teacher(batch([0]), Request.hidden([1])), "hidden of main layer 1"),
        (lambda teacher: teacher(batch([0]) | {"index": torch.tensor([7])}, PART), "example 7"),
        (lambda teacher: teacher(batch([0]) | {"index": torch.tensor([999])}, PART), "example 999"),
        (
            lambda teacher: teacher(StepInputs(batch([0]), Mixup(MixupSpec()), HALF), PART),
            r"transformed inputs are not stored \(mixup: the inputs are mixed again",
        ),
        (
            lambda teacher: teacher(batch([0]) | {"index": torch.tensor([FIRST + 1])}, WHOLE),
            "another length",
        ),
    ],
)
def test_what_is_not_stored_is_refused(live, tmp_path, ask, what):
    teacher = stored(Store(tmp_path), live, PART | WHOLE)
    with pytest.raises(LimbeckError, match=what):
        ask(teacher)


PART, WHOLE = Request.hidden([1], pool="cls"), Request.hidden([2])


@pytest.mark.parametrize(("value", "places"), [(1e6, slice(None)), (float("nan"), 5)])
def test_a_value_beyond_float16_is_refused_and_leaves_nothing(tmp_path, value, places):
    torch.manual_seed(0)
    large = Teacher(BertForSequenceClassification(config()))
    with torch.no_grad():
        large.model.bert.encoder.layer[2].output.LayerNorm.weight[places] = value
    with pytest.raises(LimbeckError, match="float16"):
        store_all(Store(tmp_path), large, Request.hidden([3]))
    assert Store(tmp_path).entries() == [] and Store(tmp_path).find("key") is None


def test_what_padding_holds_is_nobodys_business(tmp_path):
    torch.manual_seed(0)
    live = Teacher(BertForSequenceClassification(config()))
    with torch.no_grad():  # the padding token alone is beyond float16
        live.model.bert.embeddings.word_embeddings.weight[0] = 1e6
        live.model.bert.embeddings.LayerNorm.weight.fill_(1.0)
    stored(Store(tmp_path), live, Request.hidden([3]) | Request.attention([2], "scores"))


def test_an_entry_says_of_what_it_is_and_how_large(live, tmp_path):
    entry = store_all(Store(tmp_path), live, EVERYTHING, task="mrpc")
    manifest = json.loads((entry.path / "manifest.json").read_text())
    assert manifest["task"] == "mrpc" and manifest["shards"][0]["bytes"] == entry.bytes
    assert manifest["rows"]["count"] == len(LENGTHS)


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": [[9, *row[1:]] for row in tokens()]},
        {"attention_mask": [[0] + [1] * (n - 1) for n in LENGTHS]},
        {"index": [FIRST + 1 + row for row in range(len(LENGTHS))]},
        # The same numbers, cut into examples elsewhere.
        {"input_ids": [tokens()[0][:-1], [tokens()[0][-1], *tokens()[1]], *tokens()[2:]]},
    ],
)
def test_the_key_follows_the_rows(live, change):
    model = live.model
    assert fingerprint(model, dataset(), Ask(EVERYTHING), "fp32") != fingerprint(
        model, dataset(**change), Ask(EVERYTHING), "fp32"
    )


def test_the_key_follows_weights_request_and_precision_but_no_label(live):
    key = fingerprint(live.model, dataset(), Ask(EVERYTHING), "fp32")
    assert key == fingerprint(live.model, dataset(), Ask(EVERYTHING), "fp32")
    assert key == fingerprint(live.model, dataset(labels=[1] * 6), Ask(EVERYTHING), "fp32")
    assert key != fingerprint(live.model, dataset(), Ask(EVERYTHING), "bf16")
    assert key != fingerprint(live.model, dataset(), Ask(PART), "fp32")
    other = BertForSequenceClassification(live.model.config)
    other.load_state_dict(live.model.state_dict())
    assert key == fingerprint(other, dataset(), Ask(EVERYTHING), "fp32")
    with torch.no_grad():
        other.bert.encoder.layer[1].output.dense.bias[3] += 1e-6
    assert key != fingerprint(other, dataset(), Ask(EVERYTHING), "fp32")


def test_rows_picked_from_a_larger_set_have_the_key_of_those_rows(live):
    twice = Dataset.from_dict({name: col[:] + col[:] for name, col in dataset().to_dict().items()})
    key = fingerprint(live.model, dataset(), Ask(PART), "fp32")
    assert fingerprint(live.model, twice.select(range(6, 12)), Ask(PART), "fp32") == key
