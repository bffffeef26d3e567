"""Weights of 4 and 8 bits: values stand within half a step of their block or channel; nodes can be left in float."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from limbeck.exporting import onnx_graph
from limbeck.exporting.export_model import export
from limbeck.exporting.onnx_graph import quantise, quiet_export
from limbeck.exporting.settings import ExportSettings, conversions
from limbeck.runtimes.predictor import OnnxPredictor
from limbeck.support.errors import LimbeckError

ROWS, WIDTH, OUT = 50, 64, 48
rng = np.random.default_rng(3)
TABLE = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
TABLE[7, :32] *= 100  # a block of its own scale
MATRIX = rng.normal(size=(WIDTH, OUT)).astype(np.float32)


@pytest.fixture
def graph(tmp_path):
    """Rows of a table, and their product with a matrix."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="look_up"),
        helper.make_node("MatMul", ["rows", "matrix"], ["logits"], name="multiply"),
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", WIDTH]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", OUT]),
        ],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(MATRIX, "matrix")],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=10), tmp_path / "float.onnx")
    return tmp_path / "float.onnx"


def written(graph, **settings):
    """The rows, their products and the operators of a graph that was converted."""
    (how, *_) = conversions(ExportSettings(**settings))
    return converted(graph, how)


def converted(graph, how, only=()):
    target = graph.with_name("small.onnx")
    quantise(graph, target, how, only)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    rows, logits = session.run(None, {"ids": np.arange(ROWS)})
    return rows, logits, {node.op_type for node in onnx.load(target).graph.node}


def half_steps(values: np.ndarray, block: int) -> np.ndarray:
    """Half of what two neighbors among the 16 values of each value's block lie apart."""
    found = np.empty_like(values)
    for row in range(values.shape[0]):
        for start in range(0, values.shape[1], block):
            some = values[row, start : start + block]
            # Zero is always one of the 16.
            spread = max(some.max(), 0.0) - min(some.min(), 0.0)
            found[row, start : start + block] = spread / 15 / 2
    return found


@pytest.mark.parametrize(
    "settings",
    [{"format": "onnx-int4"}, {"format": "onnx-int8", "embedding_bits": 4}],
    ids=["int4", "int8"],
)
def test_embedding_rows_stand_within_half_a_step_of_their_block(graph, settings):
    rows, _, operators = written(graph, **settings)
    assert "GatherBlockQuantized" in operators
    # Two blocks a row: 16 bytes of values and 2 of the scale each, and a byte of both zero points.
    parts = onnx.load(graph.with_name("small.onnx")).graph.initializer
    held = [len(one.raw_data) for one in parts if one.name.startswith("table")]
    assert sum(held) == 37 * ROWS
    # A zero point is a whole step as well, so a value may be rounded twice.
    assert (np.abs(rows - TABLE) <= 2.01 * half_steps(TABLE, 32)).all()
    assert not np.array_equal(rows, TABLE)


def test_matrices_of_int4_have_a_block_along_what_they_sum(graph):
    rows, logits, operators = written(graph, format="onnx-int4")
    assert "MatMulNBits" in operators
    assert "MatMul" not in operators
    worst = np.abs(rows) @ (2.01 * half_steps(MATRIX.T, 32).T)
    # Products of int8: the rows are rounded to 127 steps of their block's largest value as well.
    worst += np.abs(rows).max(1, keepdims=True) / 127 * np.abs(MATRIX).sum(0)
    assert (np.abs(logits - rows @ MATRIX) <= worst).all()


def test_matrices_stay_in_int8_beside_embeddings_of_int4(graph):
    _, _, operators = written(graph, format="onnx-int8", embedding_bits=4)
    assert "MatMulInteger" in operators
    assert "MatMulNBits" not in operators


def test_a_large_column_of_int8_costs_the_others_nothing(graph):
    model, large = onnx.load(graph), MATRIX.copy()
    large[:, 0] *= 1000
    for one, values in zip(model.graph.initializer, (TABLE.clip(-3, 3), large), strict=True):
        one.CopyFrom(numpy_helper.from_array(values, one.name))
    onnx.save(model, graph)
    (how, *_) = conversions(ExportSettings(format="onnx-int8"))
    rows, logits, _ = converted(graph, how, only=["multiply"])
    others = (rows @ large)[:, 1:]
    assert np.abs(logits[:, 1:] - others).mean() < 0.03 * np.abs(others).mean()


def test_what_is_kept_in_float_is_the_same_to_the_last_bit(graph):
    (how, *_) = conversions(ExportSettings(format="onnx-int4"))
    kept = how.model_copy(update={"kept_in_float": ["look_up"]})
    rows, _, operators = converted(graph, kept)
    assert np.array_equal(rows, TABLE)
    assert "MatMulNBits" in operators
    rows, _, operators = converted(graph, how, only=["multiply"])
    assert np.array_equal(rows, TABLE)
    assert "MatMulNBits" in operators


def test_a_linear_layer_of_rows_is_quantized_or_kept_as_any_matrix(graph):
    model = onnx.load(graph)
    bias = rng.normal(size=OUT).astype(np.float32)
    model.graph.node[1].CopyFrom(
        helper.make_node("Gemm", ["rows", "turned", "bias"], ["logits"], "multiply", transB=1)
    )
    del model.graph.initializer[1]
    model.graph.initializer.append(numpy_helper.from_array(MATRIX.T.copy(), "turned"))
    model.graph.initializer.append(numpy_helper.from_array(bias, "bias"))
    onnx.save(model, graph)
    for form, operator in (("onnx-int4", "MatMulNBits"), ("onnx-int8", "MatMulInteger")):
        (how, *_) = conversions(ExportSettings(format=form))
        _, logits, operators = converted(graph, how)
        assert operator in operators
        assert np.abs(logits - TABLE @ MATRIX - bias).max() > 0.1
        kept = how.model_copy(update={"kept_in_float": ["look_up", "multiply"]})
        _, logits, operators = converted(graph, kept)
        assert operator not in operators
        np.testing.assert_allclose(logits, TABLE @ MATRIX + bias, rtol=1e-4, atol=1e-3)
        _, _, operators = converted(graph, how, only=["multiply"])
        assert operator in operators
    assert graph.with_name("small.onnx").stat().st_size < TABLE.nbytes + MATRIX.nbytes


@pytest.mark.parametrize("form", ["onnx-int8", "onnx-int4"])
def test_weights_beside_the_file_are_written_once(form, graph, monkeypatch):
    (how, *_) = conversions(ExportSettings(format=form))
    _, inside, _ = converted(graph, how)
    monkeypatch.setattr(onnx_graph, "LARGEST_FILE", 1000)
    for _ in range(2):  # the search for sensitive layers writes one file again and again
        _, logits, _ = converted(graph, how)
        np.testing.assert_array_equal(logits, inside)
        beside = onnx.load(graph.with_name("small.onnx"), load_external_data=False)
        ends = [
            int(entry["offset"]) + int(entry["length"])
            for one in beside.graph.initializer
            if (entry := {pair.key: pair.value for pair in one.external_data})
        ]
        assert graph.with_name("small.onnx.data").stat().st_size == max(ends)
        assert min(ends) < 4096  # the first begins the file
    assert {path.name for path in graph.parent.iterdir()} == {
        "float.onnx", "small.onnx", "small.onnx.data",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "bits"), [("onnx", 4), ("openvino", 8), ("numpy-int8", 4), ("onnx-int4", 8)]
)
def test_bits_of_embeddings_are_refused_where_the_format_sets_them(form, bits, tmp_path):
    with pytest.raises(
        LimbeckError, match=f"belongs to format onnx-int8, and the format is {form}"
    ):
        export(tmp_path / "model", format=form, embedding_bits=bits)


def test_a_quantised_graph_leaves_the_root_logger_as_it_was(monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with quiet_export():
        logging.info("Python gives a root logger without handlers one")
    assert not logging.getLogger().handlers


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"format": "onnx-int4"}, {"format": "onnx-int8", "embedding_bits": 4}]
)
def test_an_exported_model_of_four_bits_is_opened_like_any(places, tmp_path, settings):
    model, data, own = places["sentence"]
    result = export(model, data=data, out=tmp_path / "small", max_drop=100, **own, **settings)
    assert result.manifest.runtime == "onnxruntime"
    opened = OnnxPredictor.load(result.path)
    assert np.shape(opened.logits(["a fine film"])) == (1, 2)
    named = {node.op_type for node in onnx.load(result.path / "model.onnx").graph.node}
    assert "GatherBlockQuantized" in named
