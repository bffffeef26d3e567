"""Input of which a part is right: refused by name, not by whatever library meets the wrong part first."""

from __future__ import annotations

import json

import pytest
import torch

import tiny_runs as tiny
from limbeck.activations import Request, capture
from limbeck.activations.recorders import _call
from limbeck.data import load_task
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher


def batch(rows: list[int]) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 4 + row % 6, 6, 3] for row in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "index": torch.tensor(rows)}


# ---- files with some of the columns ----


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_file_with_one_of_two_text_columns(tmp_path, suffix, split):
    """Of a folder's files both must have both; a known task's columns count as named."""
    for name in ("train", "dev"):
        columns = ["sentence1", "label"] if name == split else ["sentence1", "sentence2", "label"]
        rows = [[f"text {i}"] * (len(columns) - 1) + [str(i % 2)] for i in range(20)]
        mark = "\t" if suffix == "tsv" else ","
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        if suffix != "jsonl":
            lines = [mark.join(row) for row in [columns, *rows]]
        (tmp_path / f"{name}.{suffix}").write_text("\n".join(lines) + "\n")
    for task, more in ((None, {"text_columns": ["sentence1", "sentence2"]}), ("mrpc", {})):
        with pytest.raises(LimbeckError) as caught:
            load_task(task, tmp_path, label_column="label", **more)
        assert f"{split}.{suffix} has no text column 'sentence2'" in str(caught.value)
        assert "columns that are there: sentence1, label" in str(caught.value)


# ---- a store with some of a batch ----


def test_a_batch_partly_missing_from_stored_outputs(tmp_path):
    teacher, request = Teacher(tiny.bert(2)), Request.of_logits() | Request.hidden([1])
    store = Store(tmp_path)
    with store.writing("key") as folder:
        build(folder, teacher, [batch([0, 1]), batch([4])], Ask(request), precision="fp32")
    known = CachedTeacher(teacher, store.find("key"))
    assert known(batch([4, 0]), request).logits.shape == (2, 2)
    # Between, behind and before what is stored; first, last and in the middle of the batch.
    for rows, missing in (([0, 2, 4], 2), ([0, 5], 5), ([3, 1], 3), ([1, -1], -1), ([99, 98], 99)):
        with pytest.raises(LimbeckError, match=f"no outputs for example {missing} are stored"):
            known(batch(rows), request)


# ---- masks that are none ----


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ([[1, 1, 1, 1]] * 2, "attention_mask is a list"),
        (torch.ones(2, 1, 4, 4), "attention_mask has 4 dimensions"),
    ],
)
def test_a_mask_that_is_no_tensor_of_tokens(mask, said):
    given = {"input_ids": batch([0, 1])["input_ids"], "attention_mask": mask}
    with pytest.raises(LimbeckError, match=said):
        capture(tiny.bert(2), given, Request.hidden([1], pool="mean"))


def test_an_attention_implementation_with_a_mask_of_its_own():
    query = torch.zeros(1, 2, 4, 8)
    with pytest.raises(LimbeckError, match="'flex_attention' hides its mask in a dict"):
        _call(torch.nn.Module(), query, query, query, {}, "flex_attention", {})


# ---- layers that one side has and the other lacks ----


@pytest.mark.parametrize(
    ("layers", "said"),
    [({1: 2, 3: 4}, r"layer.*3"), ({1: 2, 2: 9}, r"layer.*9")],
)
def test_layers_that_a_model_lacks(tmp_path, layers, said):
    """The student has two layers, the teacher four; one pair of the map is right."""
    tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    tiny.save(tiny.bert(2), tmp_path / "start")
    recipe = Recipe.load(
        "kd",
        task="reviews",
        data=str(tiny.write_csv(tmp_path / "d.csv", 40)),
        text_columns=["review"],
        label_column="verdict",
        teacher=str(tmp_path / "teacher"),
        max_length=24,
        **{
            "student.init": str(tmp_path / "start"),
            "objectives.hidden": {
                "compare": "hidden_mse",
                "weight": 1,
                "mapping": {"kind": "explicit", "layers": layers},
            },
        },
    )
    with pytest.raises(LimbeckError, match=said) as caught:
        distill(recipe, tmp_path / "run", report=False)
    assert "layer" in str(caught.value) and not (tmp_path / "run").exists()
