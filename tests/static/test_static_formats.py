"""What a student ships as gives its outputs, loaded by what its users load."""

from __future__ import annotations

import ast
import copy
import json
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from static_models import TEXTS, batch, outputs, student
from transformers import AutoModelForSequenceClassification

import tiny_runs as tiny
from limbeck.exporting.folder import snippet
from limbeck.exporting.onnx_graph import write_onnx
from limbeck.static import StaticReader, train_tokenizer, write_model2vec, write_plain
from limbeck.static.formats import bare_tokenizer
from limbeck.support.errors import LimbeckError
from quick_cases import quick

CLASSES = {"num_labels": 3, "head_width": 5}
EMBEDS = {"embeds": True, "normalize": True}
ALONE = """
import runpy, sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "limbeck"):
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def read_by_numpy(folder) -> np.ndarray:
    """What `predict.py` of a folder prints where neither torch, transformers nor limbeck are."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder / "predict.py"), *TEXTS],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return np.array(ast.literal_eval(ran.stdout))


def near(found, expected) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{**CLASSES, "pairs": 30, "pair_power": 0.5}, {"num_labels": 1, "problem_type": "regression", "pairs": 30}, EMBEDS,
     {"embeds": True, "pairs": 30}],
)  # fmt: skip
@pytest.mark.parametrize("int8", [False, True])
def test_numpy_alone_reads_the_plain_folder(settings, int8, tmp_path) -> None:
    made = student(**settings)
    write_plain(made, tiny.tokenizer(), tmp_path, int8=int8)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    near(read_by_numpy(tmp_path), outputs(loaded))
    if not int8:
        near(outputs(loaded), outputs(made))


def test_int8_rows_are_a_quarter_and_as_near_as_their_steps(tmp_path) -> None:
    """Each number is at most half a step of its row away, a step being the row's largest by 127."""
    made = student(**EMBEDS)
    write_plain(made, tiny.tokenizer(), tmp_path, int8=True)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.vectors.weight.abs().max() == 127
    before = made.vectors.weight * made.weights.weight
    step = before.abs().max(1, keepdim=True).values / 127
    difference = loaded.vectors.weight * loaded.weights.weight - before
    assert (difference.abs() <= step / 2 * 1.001)[made.counted].all()
    again = tmp_path / "again"
    write_plain(loaded, tiny.tokenizer(), again, int8=True)
    torch.testing.assert_close(
        outputs(AutoModelForSequenceClassification.from_pretrained(again)), outputs(loaded)
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_texts_are_cut_where_the_tokenizer_says(side, tmp_path) -> None:
    """With both its special tokens a text has 5; whoever adds none reads 3."""
    tokenizer, made = tiny.tokenizer(), student(num_labels=2, pairs=20)
    tokenizer.model_max_length, tokenizer.truncation_side = 5, side
    write_plain(made, tokenizer, tmp_path)
    coded = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        cut = made(coded["input_ids"], coded["attention_mask"]).logits
    near(read_by_numpy(tmp_path), cut)
    assert not np.allclose(cut, outputs(made))


def test_no_texts_have_no_outputs(tmp_path) -> None:
    write_plain(student(num_labels=2), tiny.tokenizer(), tmp_path)
    assert len(StaticReader(tmp_path)([])) == 0


@pytest.mark.parametrize("int8", [False, True])
def test_model2vec_reads_embeddings(int8, tmp_path) -> None:
    model2vec = pytest.importorskip("model2vec")
    made = student(**EMBEDS)
    write_model2vec(made, tiny.tokenizer(), tmp_path / "m2v", int8=int8)
    expected = outputs(made)
    if int8:
        write_plain(made, tiny.tokenizer(), tmp_path / "plain", int8=True)
        expected = outputs(AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain"))
    near(model2vec.StaticModel.from_pretrained(tmp_path / "m2v").encode(TEXTS), expected)


@pytest.mark.parametrize(
    ("problem", "probable"),
    [
        ("single_label_classification", lambda logits: logits.softmax(-1)),
        ("multi_label_classification", torch.sigmoid),
        ("regression", lambda logits: logits),
    ],
)
@pytest.mark.parametrize("head_width", [0, 5])
def test_model2vec_reads_classifiers(problem, probable, head_width, tmp_path) -> None:
    inference = pytest.importorskip("model2vec.inference")
    made = student(
        id2label={0: "bad", 1: "good"}, head_width=head_width, problem_type=problem, pairs=0
    )
    write_model2vec(made, tiny.tokenizer(), tmp_path)
    pipeline = inference.StaticModelPipeline.from_pretrained(tmp_path)
    read = pipeline.predict if problem == "regression" else pipeline.predict_proba
    near(read(TEXTS), probable(outputs(made)))
    if problem == "single_label_classification":
        chosen = [("bad", "good")[place] for place in outputs(made).argmax(1)]
        assert pipeline.predict(TEXTS).tolist() == chosen
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_model2vecs_script_takes_the_thresholds_of_the_student(tmp_path) -> None:
    """It cut at ½, whatever had been tuned."""
    pytest.importorskip("model2vec.inference")
    problem = "multi_label_classification"
    made = student(id2label={0: "bad", 1: "good"}, problem_type=problem, pairs=0)
    likely = torch.sigmoid(outputs(made)).numpy()
    made.config.label_thresholds = [float(np.median(likely[:, 0])) - 1e-4, 0.0]
    write_model2vec(made, tiny.tokenizer(), tmp_path)
    script = snippet(SimpleNamespace(runtime="model2vec", kind="multi-label"), None)
    (tmp_path / "predict.py").write_text(script)
    found = runpy.run_path(str(tmp_path / "predict.py"))["predict"](TEXTS)
    expected = [
        ["bad"] * bool(row[0] > made.config.label_thresholds[0]) + ["good"] for row in likely
    ]
    assert [list(one) for one in found] == expected
    assert 0 < sum(len(one) == 1 for one in expected) < len(expected)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("int8", [False, True])
def test_sentence_transformers_reads_embeddings(int8, normalize, tmp_path) -> None:
    """Without normalization an unknown word counts there, as a vector of zeros."""
    library = pytest.importorskip("sentence_transformers")
    made = student(embeds=True, normalize=normalize)
    write_model2vec(made, tiny.tokenizer(), tmp_path, int8=int8)
    texts = TEXTS if normalize else [text for text in TEXTS if "unheard" not in text]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of its own parts
        loaded = library.SentenceTransformer(str(tmp_path), device="cpu")
    found, expected = loaded.encode(texts), outputs(made, texts).numpy()
    np.testing.assert_allclose(found, expected, atol=0.02 if int8 else 1e-5)
    assert type(loaded[0]).__name__ == "StaticEmbedding"


def test_word_pairs_are_left_out_only_where_asked(tmp_path) -> None:
    made = student(**CLASSES, pairs=30)
    with pytest.raises(
        LimbeckError, match=r"30 hashed word pairs.*no place(.|\n)*give the difference"
    ):
        write_model2vec(made, tiny.tokenizer(), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    write_model2vec(made, tiny.tokenizer(), tmp_path / "without", without_pairs=-0.8)
    told = json.loads((tmp_path / "without" / "config.json").read_text())
    assert told["score_change_without_word_pairs"] == -0.8
    inference = pytest.importorskip("model2vec.inference")
    bare = copy.deepcopy(made)
    torch.nn.init.zeros_(bare.pairs.weight)
    found = inference.StaticModelPipeline.from_pretrained(tmp_path / "without").predict_proba(TEXTS)
    near(found, outputs(bare).softmax(-1))


def test_a_vocabulary_with_unused_numbers_does_not_fit_model2vec(tmp_path) -> None:
    made = student(**EMBEDS)
    made.config.vocab_size += 1
    with pytest.raises(LimbeckError, match=r"15 token vectors: its tokenizer has 14 tokens"):
        write_model2vec(made, tiny.tokenizer(), tmp_path)


@pytest.mark.parametrize("settings", quick(EMBEDS, of=({**CLASSES, "pairs": 30}, EMBEDS)))
@pytest.mark.slow
def test_onnx_runtime_reads_what_exporting_writes(settings, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    made = student(**settings)
    write_onnx(made, batch(TEXTS), tmp_path / "model.onnx", fused=False)
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    for texts in (TEXTS, TEXTS[:1], ["a " * 40]):
        inputs = {name: value.numpy() for name, value in batch(texts).items()}
        near(session.run(None, inputs)[0], outputs(made, texts))


def test_a_graphs_script_reads_a_text_without_any_token(tmp_path, monkeypatch) -> None:
    """A tokenizer without special tokens gives an empty row, which NumPy alone would make a float one."""
    tokenizer = train_tokenizer(["good film"], 50)
    bare_tokenizer(tokenizer).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"id2label": {"0": "no", "1": "yes"}}')
    fed = []
    session = SimpleNamespace(
        get_inputs=lambda: [SimpleNamespace(name="input_ids")],
        run=lambda _, feed: fed.append(feed) or [np.array([[0.0, 1.0]])],
    )
    runtime = SimpleNamespace(InferenceSession=lambda *_, **__: session)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    manifest = SimpleNamespace(
        runtime="onnxruntime", file="model.onnx", kind="sentence", max_length=8, texts=1, prompts={},
        labels=["no", "yes"],
    )  # fmt: skip
    (tmp_path / "predict.py").write_text(snippet(manifest, tokenizer))
    assert runpy.run_path(str(tmp_path / "predict.py"))["predict"](["\u200b"]) == ["yes"]
    assert fed[0]["input_ids"].dtype == np.int64


def test_the_printed_reader_is_the_one_that_is_shipped(tmp_path) -> None:
    write_plain(student(**EMBEDS), tiny.tokenizer(), tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "static-students.md").read_text(encoding="utf-8")
    source = (tmp_path / "predict.py").read_text(encoding="utf-8")
    assert source[source.index("import json") : source.index("\n\nif __name__")].strip() in page
