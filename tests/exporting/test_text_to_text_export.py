"""Text to text as an encoder's and a decoder's graph: generated, scored and refused as by transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from export_rows import SENTENCES
from said_alone import said_alone
from writing_model import answered_rows, tokenizer, writing_model, written_by_torch

from limbeck.exporting import export
from limbeck.exporting.int8 import quantisable, quantise, ranked
from limbeck.latency.contenders import contenders, inputs_of
from limbeck.runtimes.manifest import Conversion, Generation, read_export
from limbeck.runtimes.predictor import OnnxPredictor
from limbeck.runtimes.sessions import open_export, open_files, shifted_right
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError

PAIRS = [(SENTENCES[2], "ann"), (SENTENCES[0], SENTENCES[1]), ("lee", "who ?"), SENTENCES[3:5]]


@pytest.mark.slow
def test_answers_are_those_of_transformers(exported):
    """Of batches and lengths that the graphs were not traced with; some end early, some at the limit."""
    predictor = OnnxPredictor.load(exported["text"].path)
    firsts, seconds = zip(*PAIRS, strict=True)
    expected = [text.strip() for text in written_by_torch([*PAIRS])]
    assert len(set(expected)) >= 3
    assert predictor.generate(firsts, seconds) == expected
    one_by_one = [text for pair in PAIRS for text in written_by_torch([pair])]
    assert predictor.generate(firsts, seconds, batch_size=1) == one_by_one
    with pytest.raises(LimbeckError, match="call generate"):
        predictor.logits(firsts, seconds)
    with pytest.raises(LimbeckError, match="call logits"):
        OnnxPredictor.load(exported["sentence"].path).generate(firsts)


@pytest.mark.slow
def test_logits_are_those_of_torch(exported):
    model = writing_model()
    batch = {
        "input_ids": torch.tensor([[2, 5, 9, 3, 0], [2, 8, 9, 10, 3], [2, 3, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [1] * 5, [1, 1, 0, 0, 0]]),
        "labels": torch.tensor([[5, 3, -100], [7, 8, 3], [3, -100, -100]]),
    }
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    found = open_export(exported["text"].manifest).logits(batch)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_what_the_decoder_reads_begins_with_the_start_token():
    how = Generation(start=9, ends=[3], pad=0)
    found = shifted_right(np.array([[5, 3, -100], [6, 7, 3]]), how)
    assert found.tolist() == [[9, 5, 3], [9, 6, 7]]


@pytest.mark.slow
def test_the_gate_scores_what_is_written(exported):
    """The model is right on the rows whose answers come to an end."""
    manifest = exported["text"].manifest
    rows = answered_rows()
    right = [row for row in rows if row["answer"] != "saw"]
    assert 0 < len(right) < len(rows)
    expected = 100 * len(right) / len(rows)
    assert manifest.measured.scores["accuracy"] == pytest.approx(expected)
    assert manifest.measured.agreement == 1.0
    assert manifest.measured.logits.largest_difference < 1e-3
    assert evaluate(exported["text"].path) == manifest.measured.scores
    assert manifest.bytes == sum(path.stat().st_size for path in manifest.files)


@pytest.mark.slow
def test_the_snippet_writes_what_transformers_writes(exported):
    pair = PAIRS[0]
    assert said_alone(exported["text"].path, *pair) == written_by_torch([pair])


@pytest.mark.slow
def test_both_graphs_are_quantised(places, tmp_path):
    model, data, settings = places["text"]
    out = tmp_path / "int8"
    result = export(model, data=data, out=out, format="onnx-int8", max_drop=100.0, **settings)
    for path in result.manifest.files:
        assert "MatMulInteger" in {node.op_type for node in onnx.load(path).graph.node}
    assert 0 < result.manifest.measured.logits.mean_difference < 3


@pytest.mark.slow
def test_the_layers_that_int8_hurts_are_found_in_both_graphs(exported, tmp_path):
    manifest = exported["text"].manifest
    session = open_export(manifest)
    feed = session.feed({
        "input_ids": np.array([[2, 5, 9, 3]]), "attention_mask": np.ones((1, 4), np.int64),
        "labels": np.array([[9, 16, 3]]),
    })  # fmt: skip
    how = Conversion(name="int8", precision="int8")

    def opened(files):
        return open_files(files, generation=manifest.generation)

    groups = ranked(manifest.files, tmp_path, how, [feed], opened, lambda done: None)
    nodes = [node for group in groups for node in group]
    encoder, decoder = map(quantisable, manifest.files)
    assert sorted(nodes) == sorted([*encoder, *decoder])
    assert not {*encoder} & {*decoder}  # or a layer of one could not be kept in float alone
    errors = []
    for group in (groups[0], groups[-1]):
        at = int(group[0] in decoder)
        files = [*manifest.files]
        files[at] = tmp_path / "alone.onnx"
        quantise(manifest.files[at], files[at], how, group)
        errors.append(np.abs(opened(files).logits(feed) - session.logits(feed)).mean())
    assert errors[0] > errors[1]


@pytest.mark.slow
def test_openvino_writes_the_same(places, tmp_path):
    pytest.importorskip("openvino")
    model, data, settings = places["text"]
    result = export(model, data=data, out=tmp_path / "ov", format="openvino", **settings)
    assert result.manifest.measured.drop == 0.0
    assert said_alone(result.path, *PAIRS[0]) == written_by_torch([PAIRS[0]])


def test_what_is_not_greedy_is_refused(places, tmp_path):
    _, data, settings = places["text"]
    model = writing_model()
    model.generation_config.no_repeat_ngram_size = 3
    model.generation_config.forced_bos_token_id = 5
    model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    with pytest.raises(LimbeckError) as refused:
        export(tmp_path / "model", data=data, out=tmp_path / "out", **settings)
    for said in ("no_repeat_ngram_size 3", "forced_bos_token_id 5", "generation_config.json"):
        assert said in str(refused.value)


@pytest.mark.slow
def test_damage_to_the_decoder_is_found(exported, tmp_path):
    copied = Path(shutil.copytree(exported["text"].path, tmp_path / "copy"))
    (copied / "decoder_model.onnx").write_bytes(b"nothing")
    with pytest.raises(LimbeckError, match=r"damaged: decoder_model.onnx"):
        read_export(copied)
    told = json.loads((copied / "export.json").read_text())
    (copied / "export.json").write_text(json.dumps(told | {"decoder": "../decoder_model.onnx"}))
    with pytest.raises(LimbeckError, match="outside the folder"):
        read_export(copied)


@pytest.mark.slow
def test_a_bench_times_the_first_token(places, exported):
    model, _, _ = places["text"]
    for one in contenders([model, str(exported["text"].path)]):
        feed = inputs_of(one, batch=3, length=7)
        assert {name: value.shape for name, value in feed.items()} == {
            "input_ids": (3, 7), "attention_mask": (3, 7), "decoder_input_ids": (3, 1)
        }  # fmt: skip
        assert (feed["decoder_input_ids"] == 0).all()
    assert open_export(exported["text"].manifest).run(feed)[0].shape == (3, 1, 18)
