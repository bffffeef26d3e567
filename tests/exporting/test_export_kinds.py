"""Every task type as an ONNX file: ONNX Runtime against torch, and the snippet where nothing else is installed."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from export_rows import KINDS, SENTENCES
from said_alone import said_alone
from transformers import (
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from limbeck.predicting.predict_rows import predict
from limbeck.runtimes.manifest import read_export
from limbeck.runtimes.predictor import OnnxPredictor
from quick_cases import quick

AUTO = {
    "sentence": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
    "spans": AutoModelForQuestionAnswering,
    "masked": AutoModelForMaskedLM,
    "image": AutoModelForImageClassification,
}

# Each is exported once, which takes seconds; what other kinds have of their own is in these.
on_every_kind = pytest.mark.parametrize(
    "kind",
    quick("sentence", of=KINDS),
)


def torch_model(places, kind: str):
    return AUTO[kind].from_pretrained(places[kind][0]).eval()


@on_every_kind
def test_onnx_runtime_returns_what_torch_returns(kind, places, exported):
    """On other batch sizes and lengths than the graph was traced with."""
    folder = exported[kind].path
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    model = torch_model(places, kind)
    for rows, length in ((1, 3), (3, 17), (5, 8)):
        inputs = {name: torch.zeros(rows, length, dtype=torch.int64) for name in ("input_ids",)}
        if kind == "image":
            inputs = {"pixel_values": torch.randn(rows, 3, 8, 8)}
        else:
            inputs = {
                "input_ids": torch.randint(4, 14, (rows, length)),
                "attention_mask": torch.ones(rows, length, dtype=torch.int64),
                "token_type_ids": torch.randint(0, 2, (rows, length)),
            }
            inputs["attention_mask"][-1, length // 2 + 1 :] = 0
        names = [one.name for one in session.get_inputs()]
        feed = {name: inputs[name].numpy() for name in names}
        found = dict(
            zip([one.name for one in session.get_outputs()], session.run(None, feed), strict=True)
        )
        with torch.no_grad():
            expected = model(**{name: inputs[name] for name in names})
        assert found.keys() <= {"logits", "start_logits", "end_logits"}
        real = inputs["attention_mask"].bool().numpy() if kind != "image" else slice(None)
        for name, logits in found.items():
            ours, theirs = logits, expected[name].numpy()
            if ours.shape[:2] == (rows, length) and kind not in ("sentence", "regression"):
                ours, theirs = ours[real], theirs[real]
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


@on_every_kind
def test_the_folder_is_whole(kind, exported):
    result = exported[kind]
    onnx.checker.check_model(str(result.path / "model.onnx"))
    graph = onnx.load(result.path / "model.onnx").graph
    shapes = {
        one.name: [d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim]
        for one in graph.input
    }
    wanted = ["batch", 3, 8, 8] if kind == "image" else ["batch", "length"]
    assert all(shape == wanted for shape in shapes.values())
    assert not any(node.doc_string or node.metadata_props for node in graph.node)
    manifest = result.manifest
    assert manifest.kind == ("sentence" if kind == "regression" else kind)
    assert manifest.measured.drop == pytest.approx(0, abs=0.01)  # two rows in other order
    assert manifest.measured.logits.largest_difference < 1e-4
    of_numbers = kind in ("regression", "masked")
    assert manifest.measured.agreement == (None if of_numbers else 1.0)
    assert manifest.bytes == (result.path / "model.onnx").stat().st_size
    assert [one.passed for one in manifest.tried] == [True]


def test_the_snippet_says_what_torch_says_of_classes(places, exported):
    texts = ["good film", "the bad plot very slow", "bad good long"]
    predictor = OnnxPredictor.load(exported["sentence"].path)
    tokenizer = AutoTokenizer.from_pretrained(places["sentence"][0])
    model = torch_model(places, "sentence")
    expected, logits = [], []
    for text in texts:
        with torch.no_grad():
            one = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))
        logits.append(one.logits[0].numpy())
        expected.append(model.config.id2label[int(one.logits.argmax())])
    assert said_alone(exported["sentence"].path, *texts) == expected
    np.testing.assert_allclose(predictor.logits(texts, batch_size=2), logits, atol=1e-5)


@pytest.mark.slow
def test_the_snippet_says_what_torch_says_of_a_pair(places, exported):
    tokenizer = AutoTokenizer.from_pretrained(places["regression"][0])
    with torch.no_grad():
        encoded = tokenizer(*SENTENCES[1:3], return_tensors="pt")
        expected = torch_model(places, "regression")(**encoded).logits[0, 0].item()
    assert encoded["token_type_ids"].any()
    assert said_alone(exported["regression"].path, *SENTENCES[1:3]) == [
        pytest.approx(expected, abs=1e-4)
    ]


@pytest.mark.slow
def test_the_snippet_says_what_torch_says_of_words(places, exported):
    tokenizer = AutoTokenizer.from_pretrained(places["tokens"][0])
    model, expected = torch_model(places, "tokens"), []
    for text in SENTENCES:
        encoded = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            tags = model(**encoded).logits[0].argmax(-1).tolist()
        firsts = [encoded.word_ids().index(word) for word in range(len(text.split()))]
        expected.append([model.config.id2label[tags[first]] for first in firsts])
    assert said_alone(exported["tokens"].path, *SENTENCES) == expected


@pytest.mark.slow
def test_the_snippet_says_what_torch_says_of_a_span(places, exported):
    question, context = "who ?", SENTENCES[1]
    tokenizer = AutoTokenizer.from_pretrained(places["spans"][0])
    encoded = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        found = torch_model(places, "spans")(**encoded)
    best, expected = -np.inf, ""
    inside = [at for at, side in enumerate(encoded.sequence_ids(0)) if side == 1]
    for first in inside:
        for last in [at for at in inside if at >= first]:
            score = float(found.start_logits[0, first] + found.end_logits[0, last])
            if score > best:
                best, expected = score, context[offsets[first][0] : offsets[last][1]]
    assert said_alone(exported["spans"].path, question, context) == [expected]


@pytest.mark.slow
def test_the_snippet_finds_nothing_in_an_empty_context(exported):
    shipped = runpy.run_path(str(exported["spans"].path / "predict.py"))
    empty, whole = ("who ?", ""), ("who ?", SENTENCES[1])
    found = shipped["predict"]([empty, whole])
    assert found == ["", *shipped["predict"]([whole])] and found[1]


def test_the_snippet_cuts_the_questions_that_limbeck_cuts(exported):
    """The longest question that leaves room for its context is read whole, a longer one as that one."""
    folder = exported["spans"].path
    room = read_export(folder).max_length
    shipped = runpy.run_path(str(folder / "predict.py"))["predict"]
    longest = room - room // 3 - 4  # of the context a token, and three special ones
    answers = []
    for words, cut in ((longest, 0), (longest + 1, 1), (2 * room, 1)):
        question = " ".join(["who"] * words)
        found = predict(folder, [{"question": question, "context": SENTENCES[1]}])
        answers += [*shipped([(question, SENTENCES[1])]), found.rows[0]["prediction"]]
        assert found.cut == cut
    assert len({*answers}) == 1


@pytest.mark.slow
def test_the_snippet_says_what_torch_says_of_a_mask(places, exported):
    text = "ann saw [MASK] in rome ."
    tokenizer = AutoTokenizer.from_pretrained(places["masked"][0])
    encoded = tokenizer(text, return_tensors="pt")
    place = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        token = torch_model(places, "masked")(**encoded).logits[0, place].argmax().item()
    assert said_alone(exported["masked"].path, text) == [tokenizer.convert_ids_to_tokens(token)]


@pytest.mark.slow
def test_the_snippet_says_what_torch_says_of_an_image(places, exported):
    from PIL import Image
    from transformers import AutoImageProcessor

    model_folder, rows, _ = places["image"]
    files = sorted(map(str, Path(rows).glob("dev/*/*")))[:3]
    processor = AutoImageProcessor.from_pretrained(model_folder, backend="pil")
    model = torch_model(places, "image")
    images = [Image.open(file).convert("RGB") for file in files]
    with torch.no_grad():
        logits = model(**processor(images, return_tensors="pt")).logits
    expected = [model.config.id2label[number] for number in logits.argmax(-1).tolist()]
    assert said_alone(exported["image"].path, *files) == expected
