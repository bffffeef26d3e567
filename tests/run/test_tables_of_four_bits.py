"""Runs that train embedding tables in 4 bits: what ships is what was trained, and a killed run ends the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

import tiny_runs as tiny
from limbeck.exporting.export_model import export
from limbeck.exporting.shrink import shrink
from limbeck.run import distill
from limbeck.students import load_model
from limbeck.students.four_bits import in_four_bits, rounded
from limbeck.support.errors import LimbeckError

FOUR = {"student.embedding_bits": 4, "student.layers": 2, "lr": 3e-3}


def tables(run) -> dict[str, torch.Tensor]:
    weights = load_file(run.path / "student" / "model.safetensors")
    return {name: weight for name, weight in weights.items() if "_embeddings" in name}


def test_the_file_holds_the_tables_that_were_trained(recipe, tmp_path):
    plain = distill(recipe("kd", **FOUR | {"student.embedding_bits": None}), out=tmp_path / "plain")
    wanted = recipe("kd", **FOUR)
    run = distill(wanted, out=tmp_path / "run")
    found = tables(run)
    assert len(found) == 3
    for name, table in found.items():
        torch.testing.assert_close(table, rounded(table), rtol=1e-5, atol=1e-9)
        assert not torch.allclose(tables(plain)[name], rounded(tables(plain)[name]), atol=1e-6)
    made = export(run.path, format="onnx-int8", max_drop=100.0)
    assert made.manifest.conversion.name.endswith("embeddings int4")  # asked by the run
    graph = onnx.load(made.path / "model.onnx").graph
    (node, *_) = [one for one in graph.node if one.op_type == "GatherBlockQuantized"]
    parts = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    (cast, *_) = [one for one in graph.node if one.output[0] == node.input[2]]
    names = [node.input[0], cast.input[0], node.input[3]]
    steps, scale, zero = (parts[name] for name in names)
    assert scale.dtype == np.float16
    words = found["bert.embeddings.word_embeddings.weight"].numpy()
    by_hand = (steps.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
    np.testing.assert_array_equal(by_hand, words)
    # So does a student without its run, and one with fewer layers.
    shrink(run.path, tmp_path / "small", layers=1)
    assert in_four_bits(load_model(str(tmp_path / "small")))
    assert not in_four_bits(load_model(str(plain.path / "student")))


def test_a_killed_run_ends_as_an_unbroken_one(recipe, tmp_path, watch_training):
    wanted = recipe("kd", **FOUR, checkpoint_steps=2)
    unbroken = distill(wanted, out=tmp_path / "unbroken")
    killed = []

    def kill(trainer, inputs):
        if trainer.state.global_step == 3 and not killed:
            killed.append(True)
            raise tiny.KilledError

    watch_training(kill)
    with pytest.raises(tiny.KilledError):
        distill(wanted, out=tmp_path / "run")
    again = distill(wanted, out=tmp_path / "run")
    found, expected = (
        load_file(run.path / "student" / "model.safetensors") for run in (again, unbroken)
    )
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


def test_what_has_no_table_is_refused(recipe):
    with pytest.raises(LimbeckError, match=r"student\.embedding_bits: a static student's table"):
        recipe("logit-mse", **{"student.embedding_bits": 4, "student.static": True})
