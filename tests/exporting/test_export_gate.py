"""What loses its score is refused, with everything that was tried; what is written is whole."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from datasets import Dataset
from export_rows import tokenizer
from transformers import T5Config, T5ForConditionalGeneration
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.data.splits import halved
from limbeck.exporting import export_model, gate
from limbeck.exporting.export_model import _times_faster, _try, export
from limbeck.exporting.gate import cross_fitted
from limbeck.exporting.onnx_graph import write_onnx
from limbeck.runtimes.manifest import Conversion, read_export
from limbeck.runtimes.predictor import OnnxPredictor
from limbeck.runtimes.sessions import open_file
from limbeck.scoring import evaluate
from limbeck.scoring.scored_model import EncodedSplit, LoadedSplit, ScoredModel
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES


def rows_read(model, **settings) -> EncodedSplit:
    """A model's rows as it reads them, cut to 24 tokens."""
    opened = ScoredModel.open(model)
    return opened.read(opened.rows(RowsAsked(**{"max_length": 24, **settings})))


def of(places, **settings) -> dict:
    _, data, own = places["sentence"]
    return {"data": data, **own, **settings}


def test_what_loses_too_much_is_refused_with_all_that_was_tried(outlier, places, tmp_path):
    with pytest.raises(LimbeckError) as refused:
        export(
            outlier,
            out=tmp_path / "int8",
            format="onnx-int8",
            keep_sensitive=False,
            **of(places),
        )
    said = str(refused.value)
    assert "more than max_drop 0.5" in said
    assert "torch 100.00" in said
    count = int(re.search(r"on (\d+) rows of dev", said).group(1))
    assert f"one of {count} rows alone is about {100 / count:.1f} points" in said
    for tried in ("dynamic, per channel", "7-bit"):
        assert tried in said
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_layers_that_int8_hurts_stay_in_float(outlier, places, tmp_path):
    result = export(outlier, out=tmp_path / "int8", format="onnx-int8", **of(places))
    shipped = result.manifest.tried[-1]
    assert [one.passed for one in result.manifest.tried[:-1]] == [False] * (
        len(result.manifest.tried) - 1
    )
    graph = onnx.load(result.path / "model.onnx").graph
    kept = {node.name for node in graph.node} & {*shipped.conversion.kept_in_float}
    # The table that holds the outlier is still one of floats.
    assert kept
    floats = [
        one
        for one in graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT and [*one.dims] == [14, 16]
    ]
    assert len(floats) == 1
    assert result.manifest.measured.drop <= 0.5
    assert result.manifest.unchosen is not None
    assert "rows that did not choose the file" in (result.path / "README.md").read_text()
    assert any(node.op_type == "MatMulInteger" for node in graph.node)


@pytest.mark.slow
def test_smaller_files_keep_the_score(places, tmp_path):
    model, data, own = places["sentence"]
    result = export(model, data=data, out=tmp_path / "out", format="onnx-int8", max_drop=5.0, **own)
    graph = onnx.load(result.path / "model.onnx").graph
    assert "MatMulInteger" in {node.op_type for node in graph.node}
    measured = result.manifest.measured
    assert measured.scores["primary"] == pytest.approx(measured.torch_scores["primary"], abs=5)
    assert 0 < measured.logits.largest_difference < max(0.5, measured.logits.scale)
    assert any(one.data_type == onnx.TensorProto.INT8 for one in graph.initializer)


@pytest.mark.slow
def test_what_was_measured_is_what_another_session_computes(places, tmp_path):
    """The gate's numbers against a loop over the rows, one by one, by ONNX Runtime alone."""
    result = export(
        places["sentence"][0], out=tmp_path / "out", **of(places, format="onnx-int8", batch_size=1)
    )
    session = onnxruntime.InferenceSession(result.path / "model.onnx")
    rows = rows_read(places["sentence"][0], **of(places))
    right, differences = 0, []
    model = tiny.BertForSequenceClassification.from_pretrained(places["sentence"][0]).eval()
    for row in rows.encoded:
        ids = np.array([row["input_ids"]])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        logits = session.run(["logits"], feed)[0]
        right += int(logits.argmax() == row["labels"])
        with torch.no_grad():
            expected = model(input_ids=torch.tensor(ids)).logits.numpy()
        differences.append(np.abs(logits - expected).max())
    measured = result.manifest.measured
    assert measured.scores["accuracy"] == 100 * right / len(rows.encoded)
    assert measured.logits.largest_difference == pytest.approx(max(differences), abs=1e-5)


def test_each_half_is_scored_by_the_file_that_the_other_half_would_have_shipped(places):
    """Worked by hand: the first file is right on one half alone, the second on all rows but one of that half."""
    rows = rows_read(places["sentence"][0], **of(places))
    right = np.eye(2)[rows.encoded["labels"]]
    one, other = rows.halves()
    assert sorted([*one, *other]) == [*range(len(right))]
    first, second = right.copy(), right.copy()
    first[other] = 1 - right[other]
    second[one[0]] = 1 - right[one[0]]
    reference = SimpleNamespace(compact_outputs=right)
    # One half refuses the second file and would ship the first, which is wrong on all of the other half; that
    # half refuses the first and would ship the second, which is wrong on one row of the one half.
    found = cross_fitted(rows, reference, [first, second], 0.5)
    assert found["accuracy"] == pytest.approx(100 * (len(one) - 1) / len(right))
    alone = cross_fitted(rows, reference, [second], 0.5)
    assert alone["accuracy"] == pytest.approx(100 * (len(right) - 1) / len(right))


def test_candidates_of_one_query_stay_in_one_half():
    queries = ["a", "b", "a", "c", "b", "a"]
    table = Dataset.from_dict(
        {"query": queries, "passage": [*"uvwxyz"], "label": [1, 0, 0, 1, 1, 0]}
    )
    task = SimpleNamespace(kind=TASK_TYPES.get("pair-score"), text_columns=("query", "passage"))
    loaded = LoadedSplit(task=task, data="own", name="dev", rows=table)
    rows = EncodedSplit(loaded, task, table, None, 8)
    halves = rows.halves()
    assert halves is not None
    held = [{queries[place] for place in half} for half in halves]
    assert held[0] and held[1] and not held[0] & held[1]
    assert sorted(np.concatenate(halves).tolist()) == [*range(6)]


def test_equal_texts_stay_in_one_half():
    """Other rows fall into the halves that they had without any copy."""
    tokens = [[place % 10] for place in range(40)]
    table = Dataset.from_dict({"text": [str(one[0]) for one in tokens], "input_ids": tokens})
    task = SimpleNamespace(kind=TASK_TYPES.get("sentence"), text_columns=("text",))
    halves = {}
    for name, rows in (("copies", table), ("once", table.select(range(10)))):
        loaded = LoadedSplit(task=task, data="own", name="dev", rows=rows)
        halves[name] = EncodedSplit(loaded, task, rows, None, 8).halves()
    for copies, once in zip(halves["copies"], halves["once"], strict=True):
        assert len(copies) == 20 and {place % 10 for place in copies} == set(once)
    assert [one.tolist() for one in halves["once"]] == [one.tolist() for one in halved(10, None)]


@pytest.mark.slow
def test_a_stopped_export_leaves_nothing_and_what_was_there(
    places, exported, tmp_path, monkeypatch
):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    copied = Path(shutil.copytree(exported["sentence"].path, tmp_path / "there"))
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    (tmp_path / ".there.part").mkdir()  # of one that was killed
    monkeypatch.setattr(export_model.folder, "finish_folder", stop)
    for out in (copied, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            export(places["sentence"][0], out=out, overwrite=True, **of(places))
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.slow
def test_a_folder_that_is_taken_is_left_alone(places, exported, tmp_path):
    model = places["sentence"][0]
    with pytest.raises(LimbeckError, match="--overwrite"):
        export(model, out=exported["sentence"].path, **of(places))
    (tmp_path / "own.txt").write_text("mine")
    with pytest.raises(LimbeckError, match="holds no exported model"):
        export(model, out=tmp_path, overwrite=True, **of(places))


def test_all_wrong_settings_are_said_at_once(places):
    with pytest.raises(LimbeckError) as wrong:
        export(
            places["sentence"][0],
            **of(places, format="onx", max_drop=-1.0, batch_size=0),
        )
    assert len(wrong.value.problems) == 3
    assert "did you mean 'onnx'" in str(wrong.value)


def test_more_threads_than_cores_are_refused_before_a_model_is_read(tmp_path):
    with pytest.raises(LimbeckError, match="threads 100000: there are fewer cores"):
        export(tmp_path / "model", threads=100_000)


def test_a_model_that_writes_is_left_to_optimum(places, tmp_path):
    shape = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1}
    T5ForConditionalGeneration(T5Config(vocab_size=20, **shape)).save_pretrained(tmp_path / "t5")
    tokenizer().save_pretrained(tmp_path / "t5")
    with pytest.raises(LimbeckError, match="writes its answers token by token") as refused:
        export(tmp_path / "t5", data=places["sentence"][1])
    assert "optimum-cli" in str(refused.value)


def test_a_checkpoint_needs_rows_to_be_measured_on(places):
    with pytest.raises(LimbeckError, match="add --task and --data"):
        export(places["sentence"][0])


class Looking(torch.nn.Module):
    """No more than a table, as a model of several layers takes seconds to trace."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace()
        self.table = torch.nn.Embedding(14, 32)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.table(input_ids).sum(1)}


@pytest.mark.slow
def test_weights_beyond_one_file_lie_beside_it(tmp_path):
    model, path = Looking().eval(), tmp_path / "model.onnx"
    batch = {"input_ids": torch.tensor([[2, 4, 6, 3], [2, 5, 7, 3]])}
    write_onnx(model, batch, path, fused=True, largest_file=1000)
    assert (tmp_path / "model.onnx.data").stat().st_size > 1000
    with torch.no_grad():
        expected = model(**batch)["logits"].numpy()
    np.testing.assert_allclose(open_file(path).logits(batch), expected, atol=1e-5)


def test_evaluate_scores_an_exported_folder(places, exported):
    folder = exported["sentence"].path
    manifest = exported["sentence"].manifest
    assert evaluate(folder) == manifest.measured.scores
    assert evaluate(folder, backend="onnxruntime", split="dev") == manifest.measured.scores
    with pytest.raises(LimbeckError, match="unknown backend 'onnxrutime'"):
        evaluate(folder, backend="onnxrutime")
    with pytest.raises(LimbeckError, match="holds an exported model, not torch's"):
        evaluate(folder, backend="torch")
    with pytest.raises(LimbeckError, match="holds no exported model"):
        evaluate(places["sentence"][0], backend="onnxruntime")


def test_damage_is_found(exported, tmp_path):
    copied = Path(shutil.copytree(exported["sentence"].path, tmp_path / "copy"))
    with (copied / "model.onnx").open("r+b") as stream:
        stream.seek(500)
        stream.write(b"\0\1\2")
    with pytest.raises(LimbeckError, match=r"damaged: model.onnx"):
        OnnxPredictor.load(copied)
    told = json.loads((copied / "export.json").read_text())
    (copied / "export.json").write_text(json.dumps(told | {"file": "../model.onnx"}))
    with pytest.raises(LimbeckError, match="outside the folder"):
        read_export(copied)
    for gone in ({"decoder": "decoder_model.onnx"}, {"format": "executorch"}):
        (copied / "export.json").write_text(json.dumps(told | gone))
        with pytest.raises(LimbeckError, match=rf"export.json: {next(iter(gone))}: "):
            read_export(copied)


def test_the_command_prints_what_was_measured_and_where_the_files_are(
    places, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    model, data, _ = places["sentence"]
    line = f"export {model} --data {data} --label-column verdict --text-columns review --out {tmp_path / 'out'}"
    ended = CliRunner().invoke(app, line.split())
    assert ended.exit_code == 0, ended.output
    for said in ("torch", "100.00", "shipped", "predict.py", str(tmp_path / "out")):
        assert said in ended.output
    scored = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "out"), "--backend", "onnxruntime"]
    )
    assert "accuracy 100.0" in scored.output


@pytest.mark.slow
@pytest.mark.skipif(
    "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="OpenVINO chooses kernels by the processor itself, and fails where only oneDNN's are held back",
)
def test_openvinos_own_files_are_scored_by_openvino(places, tmp_path):
    openvino = pytest.importorskip("openvino")
    result = export(
        places["sentence"][0], out=tmp_path / "out", **of(places, format="openvino", threads=1)
    )
    assert {"model.xml", "model.bin"} <= {path.name for path in result.path.iterdir()}
    assert result.manifest.bytes > (result.path / "model.bin").stat().st_size
    assert evaluate(result.path) == result.manifest.measured.scores
    ids = np.array([[2, 4, 6, 3]])
    compiled = openvino.Core().compile_model(str(result.path / "model.xml"), "CPU")
    found = compiled({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
    model = tiny.BertForSequenceClassification.from_pretrained(places["sentence"][0]).eval()
    with torch.no_grad():
        expected = model(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(found, expected, atol=0.02)  # its default may be bf16
    with pytest.raises(LimbeckError, match="ONNX Runtime does not read"):
        OnnxPredictor.load(result.path, runtime="onnxruntime")


def test_a_full_disk_ends_the_export_and_no_other_conversion_is_tried():
    """A conversion that does not work is no reason not to try the next one; a full disk is."""

    class Full:
        settings = SimpleNamespace(format="onnx", max_drop=0.5)

        def write(self, how):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        _try(Full(), Conversion(name="fp32"))


def test_logits_are_kept_of_the_first_batches_alone(places, monkeypatch):
    """A shorter last batch that would fit again is not compared with another batch's rows."""
    model, data, own = places["sentence"]
    rows = rows_read(model, data=data, **own)
    loaded = ScoredModel.open(model).load(rows.task.kind)
    count = len(rows.encoded)
    size = count // 2 - 1  # two whole batches, then a short one
    monkeypatch.setattr(gate, "_KEPT_NUMBERS", 2 * size + 2 * (count - 2 * size))
    kept = gate.torch_reference(loaded, rows, size, lambda done: None).logits
    assert [len(batch) for batch in kept] == [size]


@pytest.mark.parametrize(("seconds", "rounds"), [(0.01, 8), (2.0, 3)])
def test_the_speed_of_slow_models_is_measured_in_fewer_rounds(monkeypatch, seconds, rounds):
    """A session that takes `seconds` for a batch, by a clock of its own; the shipped file takes half of it."""
    clock, passes = [0.0], []

    class Session:
        def __init__(self, share: float) -> None:
            self.share = share

        def feed(self, batch):
            return batch

        def logits(self, feed):
            clock[0] += seconds * self.share
            passes.append(feed)

    workshop = SimpleNamespace(
        source=1.0,
        shipped=0.5,
        open=Session,
        settings=SimpleNamespace(batch_size=4),
        rows=SimpleNamespace(batches=lambda size: iter("abc")),
    )
    monkeypatch.setattr(export_model, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    assert _times_faster(workshop) == pytest.approx(2)
    assert passes == ["a", "b"] * 2 * rounds
