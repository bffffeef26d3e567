"""What a teacher said of images is found again: by another run, by another process, and by no other images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification

from limbeck.activations import Request
from limbeck.input_transforms.input_transform import as_inputs
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.key import fingerprint
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.teachers.teacher import Teacher

ASK = Ask(Request.of_logits())
PIXELS = [b"\x00\x01\x02", b"", b"\x03\x04\x05\xff"]
TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view()]


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return BertForSequenceClassification(
        BertConfig(vocab_size=10, intermediate_size=8, max_position_embeddings=8, **sizes)
    )


def pictures(values: list[bytes], kind: pa.DataType) -> Dataset:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = [value.decode("latin-1") for value in values]
    table = pa.table({"pixel_values": pa.array(values, kind), "index": [0, 1, 2]})
    return Dataset(table)


def key(values: list[bytes], kind: pa.DataType = TYPES[0]) -> str:
    return fingerprint(model(), pictures(values, kind), ASK, "fp32")


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_equal_pictures_have_one_key_wherever_they_lie_in_memory(kind):
    first = key(PIXELS, kind)
    # Others in memory at once, so that equal values lie at other places.
    kept = [bytes([*value]) for value in PIXELS]
    assert key(kept, kind) == first


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize(
    "others",
    [
        [b"\x00\x01\x03", b"", b"\x03\x04\x05\xff"],
        # The same bytes, cut into images elsewhere.
        [b"\x00\x01", b"\x02", b"\x03\x04\x05\xff"],
        [PIXELS[2], b"", PIXELS[0]],
    ],
    ids=["another pixel", "cut elsewhere", "another order"],
)
def test_other_pictures_have_another_key(kind, others):
    assert key(others, kind) != key(PIXELS, kind)


def test_rows_in_several_pieces_have_the_key_of_the_whole():
    whole = pictures(PIXELS, pa.binary())
    parts = pa.concat_tables([whole.data.table.slice(0, 1), whole.data.table.slice(1)])
    assert parts.column(0).num_chunks == 2
    assert fingerprint(model(), Dataset(parts), ASK, "fp32") == key(PIXELS)


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:]
from test_stored_images import PIXELS, TYPES, key
print(*(key(PIXELS, kind) for kind in TYPES))
"""


@pytest.mark.slow
def test_another_process_has_the_same_key():
    folder = str(Path(__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, folder, *sys.path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [key(PIXELS, kind) for kind in TYPES]


@pytest.mark.slow
def test_a_second_run_on_pictures_asks_the_teacher_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    settings = {"data": "digits", "train_rows": 64, "images.crop": 0, "images.flip": False}
    settings |= {"student.init": "resnet-8", "epochs": 1, "seed": 1}
    teacher = distill(Recipe.load("finetune", **settings), tmp_path / "teacher", report=False)
    asked: list[int] = []
    live = Teacher.__call__

    def counting(self, inputs, request):
        asked.append(len(as_inputs(inputs).batch["index"]))
        return live(self, inputs, request)

    monkeypatch.setattr(Teacher, "__call__", counting)
    sums = []
    for seed in (2, 3):
        given = settings | {"teacher": str(teacher.path), "cache": "always", "seed": seed}
        distill(Recipe.load("kd", **given), tmp_path / f"run{seed}", report=False)
        sums.append(sum(asked))
        asked.clear()
    assert len(Store(tmp_path / "store").entries()) == 1
    assert sums[0] >= 64 > sums[1]
