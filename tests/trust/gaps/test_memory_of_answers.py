"""What reading a teacher's outputs holds in memory: each example once, and no page of the file between batches."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from limbeck.activations import Request
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.teachers.teacher import Teacher

MAPS = Path("/proc/self/smaps")
POOLED = Request.hidden([1], pool="mean") | Request.of_logits()


@pytest.fixture
def live() -> Teacher:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_labels": 3}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    return Teacher(BertForSequenceClassification(BertConfig(**sizes)))


def batch(rows: list[int], tokens: int = 5) -> dict[str, torch.Tensor]:
    ids = torch.stack([torch.arange(tokens) % 30 + 5 + row % 5 for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "index": torch.tensor(rows),
    }


def change(live: Teacher) -> None:
    """From now on the model answers otherwise, so that every answer tells when it was given."""
    with torch.no_grad():
        live.model.classifier.bias += 1.0
        live.model.bert.encoder.layer[0].output.LayerNorm.bias += 1.0


def test_an_example_that_is_known_keeps_its_first_answer(live):
    remembering = RememberingTeacher(live)
    first = remembering(batch([0, 1]), POOLED)
    change(live)
    seen = next(iter(POOLED.items))
    second = remembering(batch([1, 2]), POOLED)
    assert torch.equal(second.logits[0], first.logits[1])
    assert torch.equal(second[seen][0], first[seen][1])
    expected = live(batch([1, 2]), POOLED)
    assert torch.equal(second.logits[1], expected.logits[1])
    assert not torch.equal(second.logits[0], expected.logits[0])
    again = remembering(batch([0, 1, 2]), POOLED)
    assert torch.equal(again.logits, torch.stack([*first.logits, second.logits[1]]))


def test_memory_holds_every_example_once(live):
    remembering = RememberingTeacher(live)
    for rows in ([0, 1], [1, 2], [2, 2, 0, 3], [3, 1]):
        remembering(batch(rows), POOLED)
    assert len(remembering._logits) == 4
    assert {len(values) for values in remembering._values.values()} == {4}


def resident(path: Path) -> int:
    """Bytes of a mapped file that count as this process's."""
    found, inside = 0, False
    for line in MAPS.read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not tell whose pages are whose")
def test_pages_of_stored_answers_are_let_go_of_after_each_batch(live, tmp_path):
    wanted = Request.hidden([0, 1, 2])
    store, count, tokens = Store(tmp_path), 256, 60
    groups = [list(range(start, start + 32)) for start in range(0, count, 32)]
    with store.writing("key") as folder:
        batches = (batch(rows, tokens) for rows in groups)
        build(folder, live, batches, Ask(wanted), precision="fp32")
    teacher = CachedTeacher(live, store.find("key"))
    size = teacher.entry.bytes
    assert size > 2**21
    for rows in groups:
        teacher(batch(rows, tokens), wanted)
        # What is mapped again for the next batch, but for a few pages, is gone with it.
        assert resident(teacher.entry.table) <= 16 * mmap.PAGESIZE
