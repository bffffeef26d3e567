"""Graphs of models that use weights twice or have a decoder: each weight once, the logits torch's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    T5Config,
    T5ForSequenceClassification,
)

from limbeck.exporting.onnx_graph import (
    groups_of_nodes,
    quantise,
    without_stale_shapes,
    write_onnx,
)
from limbeck.exporting.settings import ExportSettings, conversions
from limbeck.runtimes.sessions import open_file

SIZES = {"vocab_size": 40, "pad_token_id": 0, "num_labels": 3}


def random_weights(model):
    """Larger ones than a new model has, so that logits differ from row to row."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for weight in model.parameters():
            weight.normal_(0, weight.shape[-1] ** -0.5)
    return model.eval()


def written(model, path):
    """The file of a graph, which was traced with two rows; its logits for three others; torch's."""
    rows = torch.randint(4, 40, (5, 9), generator=torch.Generator().manual_seed(5))
    rows[:, -1] = 3
    batch = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    write_onnx(model, {name: value[:2] for name, value in batch.items()}, path, fused=True)
    without_stale_shapes(path)
    others = {name: value[2:] for name, value in batch.items()}
    with torch.no_grad():
        expected = model(**others).logits.numpy()
    return open_file(path).logits(others), expected


@pytest.mark.slow
def test_layers_that_share_their_weights_are_stored_once(tmp_path):
    model = random_weights(
        AlbertForSequenceClassification(
            AlbertConfig(
                **SIZES, embedding_size=64, hidden_size=64, num_attention_heads=4,
                intermediate_size=128, num_hidden_layers=5, max_position_embeddings=24,
            )
        )
    )  # fmt: skip
    path = tmp_path / "float.onnx"
    logits, expected = written(model, path)
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    weights = 4 * sum(one.numel() for one in model.parameters())
    assert path.stat().st_size < 1.3 * weights
    for form in ("onnx-int8", "onnx-int4"):
        (how, *_) = conversions(ExportSettings(format=form))
        quantise(path, tmp_path / f"{form}.onnx", how)
        assert (tmp_path / f"{form}.onnx").stat().st_size < 0.8 * weights


@pytest.mark.slow
def test_a_decoder_with_a_configuration_of_its_own_attends_to_all_tokens(tmp_path):
    model = random_weights(
        T5ForSequenceClassification(
            T5Config(
                **SIZES, d_model=32, d_kv=8, num_heads=4, d_ff=48, num_layers=2,
                eos_token_id=3, decoder_start_token_id=0,
            )
        )
    )  # fmt: skip
    logits, expected = written(model, tmp_path / "float.onnx")
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    assert all(module.config.use_cache for module in (model, model.transformer.decoder))


@pytest.fixture
def twice(tmp_path):
    """Two products with one matrix, and it in float."""
    matrix = np.random.default_rng(7).normal(size=(32, 32)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["given", "matrix"], ["middle"], name="first"),
        helper.make_node("MatMul", ["middle", "matrix"], ["logits"], name="second"),
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    opset = [helper.make_opsetid("", 18)]
    path = tmp_path / "float.onnx"
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=10), path)
    return path, matrix


@pytest.mark.parametrize("form", ["onnx-int8", "onnx-int4"])
def test_nodes_that_share_their_weights_stay_in_float_together(twice, form):
    path, matrix = twice
    (how, *_) = conversions(ExportSettings(format=form))
    (group,) = groups_of_nodes(path)
    target = path.with_name("small.onnx")
    given = {"given": np.eye(32, dtype=np.float32)}
    exact = matrix @ matrix
    quantise(path, target, how)
    assert np.abs(open_file(target).logits(given) - exact).max() > 0.01
    quantise(path, target, how.model_copy(update={"kept_in_float": group}))
    np.testing.assert_allclose(open_file(target).logits(given), exact, atol=1e-4)
