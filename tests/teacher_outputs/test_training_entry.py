"""A store that travels and an entry that training reads hold the same outputs, bit for bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

import limbeck
from limbeck.activations import Request, token_mask
from limbeck.activations.forward import text_mask
from limbeck.data.row_ids import row_ids
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.outputs.cache import Store
from limbeck.outputs.mapped import MappedOutputs, training_entry
from limbeck.outputs.shards import shaped_values
from limbeck.outputs.store import open_store
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from tiny_runs import knowing_teacher, sentences, tokenizer

LINES = list(dict.fromkeys(f"{text} {word}" for text in sentences(9) for word in ("end", "film")))
IDS = row_ids([LINES])
OUTPUTS = ["logits", "probabilities", "hidden:-1", "hidden:2:cls", "attention:1"]
LAYERS = Request.hidden([4]) | Request.hidden([2], pool="cls") | Request.attention([1])
ASKED = LAYERS | Request.of_logits()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "rows.txt").write_text("\n".join(LINES))
    teacher = ModelLabeller(knowing_teacher(), tokenizer(), name="t", outputs=OUTPUTS)
    return limbeck.label(teacher, folder / "rows.txt", out=folder / "store", shard_rows=5)


def bits(values: np.ndarray) -> list[tuple]:
    """Type, shape and bytes of every row."""
    return [(row.dtype.str, row.shape, row.tobytes()) for row in values]


def batch(rows: list[int], index: list[int]) -> dict[str, torch.Tensor]:
    found = tokenizer()(
        [LINES[row] for row in rows], padding=True, return_tensors="pt", return_token_type_ids=False
    )
    return {**found, "index": torch.tensor(index)}


def test_every_bit_is_the_same(store, tmp_path):
    entry = training_entry(store, IDS, cache=Store(tmp_path / "cache"))
    assert entry.outputs.keyed == "index" and entry.outputs.classes == store.classes
    table = pa.ipc.open_stream(pa.memory_map(str(entry.table))).read_all()
    before = store.take(IDS)
    place = np.argsort(table["index"].to_numpy())
    assert {str(before[column.name][0].dtype) for column in store.columns} == {"float16", "float32"}
    for column in store.columns:
        after = shaped_values(column, table[column.name])[place]
        assert bits(after) == bits(before[column.name]), column.name


def test_rows_are_found_by_their_place_in_training_and_may_repeat(store, tmp_path):
    order = [7, 3, 3, 0, 16, 7]
    mapped = MappedOutputs(training_entry(store, IDS[order], cache=Store(tmp_path)))
    found = mapped.trace(Request.of_logits(), torch.tensor([5, 1, 3, 2]), dict).logits
    assert bits(found.numpy()) == bits(store.take(IDS[[7, 3, 0, 3]])["logits"])


def test_without_a_model_layers_are_read_by_the_students_own_masks(store, tmp_path):
    """Where both split texts alike; what stands at padding is zero."""
    live = Teacher(knowing_teacher())
    mapped = MappedOutputs(training_entry(store, IDS, cache=Store(tmp_path)))
    one = batch([2, 11, 5], [2, 11, 5])
    mask = text_mask(one)
    found = mapped.trace(ASKED, one["index"], lambda: {"main": mask})
    right = live(one, ASKED)
    torch.testing.assert_close(found.logits, right.logits, atol=1e-5, rtol=0)
    for seen in LAYERS.items:
        value = right[seen]
        if seen.what == "hidden" and seen.pool is None:
            value = value * mask[..., None]
        elif seen.what != "hidden":
            value = value * mask[:, None, :, None] * mask[:, None, None, :]
        torch.testing.assert_close(found[seen].float(), value, atol=2e-3, rtol=0)
    assert torch.equal(mask, token_mask(live.model, one))


def test_other_tokens_than_those_that_were_stored_are_refused(store, tmp_path):
    mapped = MappedOutputs(training_entry(store, IDS, cache=Store(tmp_path)))
    one = batch([2, 0], [2, 8])  # another row's number
    with pytest.raises(LimbeckError, match="another length"):
        mapped.trace(Request.hidden([4]), one["index"], lambda: {"main": text_mask(one)})


def test_it_is_made_once_for_the_same_content_and_rows(store, tmp_path):
    cache = Store(tmp_path)
    first = training_entry(store, IDS, cache=cache)
    assert training_entry(open_store(store.files.url), IDS, cache=cache).key == first.key
    training_entry(store, IDS[::-1], cache=cache)
    training_entry(store, IDS, columns=["logits"], cache=cache)
    assert len(cache.entries()) == 3


def test_what_is_not_stored_is_said_before_anything_is_written(store, tmp_path):
    cache = Store(tmp_path / "cache")
    with pytest.raises(LimbeckError, match="2 of 3 rows are not stored"):
        training_entry(store, np.array([1, IDS[0], 2]), cache=cache)
    with pytest.raises(LimbeckError, match="votes is not stored"):
        training_entry(store, IDS, columns=["votes"], cache=cache)
    assert cache.entries() == []


def test_outputs_beyond_the_limit_are_refused_and_leave_nothing(store, tmp_path):
    cache = Store(tmp_path / "cache")
    logits = training_entry(store, IDS, columns=["logits"], cache=cache)
    # Each of 18 rows takes more than 16 bytes: its number, and two logits of four.
    with pytest.raises(LimbeckError, match="more than cache_limit, 400 B"):
        training_entry(store, IDS, cache=cache, limit=400)
    # Nor did what lay there have to go for it.
    assert [path.name for path in cache.folder.iterdir() if path.is_dir()] == [logits.key]


def test_the_longest_unused_entry_makes_room(store, tmp_path):
    cache = Store(tmp_path)
    first = training_entry(store, IDS, columns=["logits"], cache=cache)
    second = training_entry(store, IDS[::-1], columns=["logits"], cache=cache, limit=first.bytes)
    assert [entry.key for entry in cache.entries()] == [second.key]
