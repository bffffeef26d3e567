"""The few lines that run an exported folder by its runtime, tokenizers and NumPy alone.

They are printed, written into the folder as `predict.py` and into its README; a test runs them where
neither torch, transformers nor limbeck can be imported.
"""

from __future__ import annotations

from typing import Any

from limbeck.runtimes.manifest import ExportManifest
from limbeck.tasks import get_task_type

SNIPPET_FILE = "predict.py"

_OPEN = {
    "onnxruntime": """\
import json, sys
from pathlib import Path
import numpy as np, onnxruntime
{imports}
here = Path(__file__).parent
model = onnxruntime.InferenceSession(here / "{file}", providers=["CPUExecutionProvider"])
inputs = [one.name for one in model.get_inputs()]
def run(feed): return model.run(None, feed)
""",
    "openvino": """\
import json, sys
from pathlib import Path
import numpy as np, openvino
{imports}
here = Path(__file__).parent
model = openvino.compile_model(here / "{file}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
inputs = [one.get_any_name() for one in model.inputs]
def run(feed): return list(model(feed).values())
""",
    "executorch": """\
import json, sys
from pathlib import Path
import numpy as np, torch
from executorch.runtime import Runtime
{imports}
here, inputs = Path(__file__).parent, {inputs}
model = Runtime.get().load_program(here / "{file}").load_method("forward")
def run(feed): return [out.numpy() for out in model.execute([torch.from_numpy(feed[name]) for name in inputs])]
""",
}
_OPEN_TWO = {
    "onnxruntime": """\
import sys
from pathlib import Path
import numpy as np, onnxruntime
{imports}
here = Path(__file__).parent
encoder, decoder = (
    onnxruntime.InferenceSession(here / file, providers=["CPUExecutionProvider"]) for file in {files}
)
def run(model, feed): return model.run(None, feed)[0]
""",
    "openvino": """\
import sys
from pathlib import Path
import numpy as np, openvino
{imports}
here = Path(__file__).parent
encoder, decoder = (
    openvino.compile_model(here / file, "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}}) for file in {files}
)
def run(model, feed): return model(feed)[0]
""",
}
_TOKENIZER = """\
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
tokenizer.enable_truncation({max_length}{truncation})
"""
_FEED = """\
    columns = {{"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}}
    feed = {{name: np.array([getattr(e, columns[name]) for e in {rows}]) for name in inputs}}
"""

_SENTENCE = """{prompts}
def predict({given}):  # {texts}
    tokenizer.enable_padding(pad_id={pad_id}, pad_token={pad_token!r}, direction={side!r})
    rows = tokenizer.encode_batch({prompted})
{feed}    logits = run(feed)[0]
{answer}"""
_CLASSES = """\
    labels = json.loads((here / "config.json").read_text())["id2label"]
    return [labels[str(row.argmax())] for row in logits]
"""
_SEVERAL_CLASSES = """\
    config = json.loads((here / "config.json").read_text())
    labels, least = config["id2label"], np.array(config.get("label_thresholds", 0.5))
    chosen = 0.5 * (1 + np.tanh(logits / 2)) >= least  # a sigmoid
    return [[labels[str(place)] for place in np.flatnonzero(row)] for row in chosen]
"""
_NUMBER = """\
    return logits[:, 0].tolist()
"""
_VECTORS = """\
    return logits.tolist()
"""
_TOKENS = """
def predict(sentences):  # lists of words, as [["Ada", "lives", "in", "London"]]
    labels, found = json.loads((here / "config.json").read_text())["id2label"], []
    for words in sentences:
        row = tokenizer.encode(words, is_pretokenized=True)
{feed}        tags = run(feed)[0][0].argmax(-1)
        first = {{word: place for place, word in reversed(list(enumerate(row.word_ids))) if word is not None}}
        found.append([labels[str(tags[first[word]])] if word in first else "O" for word in range(len(words))])
    return found
"""
_SPANS = """
def predict(pairs):  # (question, context)
    found = []
    for question, context in pairs:
        row, best = tokenizer.encode(question, context), (-np.inf, "")
        for window in (row, *row.overflowing):
{feed}            start, end = (side[0] for side in run(feed))
            inside = [place for place, text in enumerate(window.sequence_ids) if text == 1]
            spans = [(start[a] + end[b], a, b) for a in inside for b in inside if a <= b < a + 30]
            for score, a, b in sorted(spans)[-1:]:  # none of an empty context
                best = max(best, (score, context[window.offsets[a][0] : window.offsets[b][1]].strip()))
        found.append(best[1])
    return found
"""
_MASKED = """
def predict(texts):  # each with one {mask}
    found = []
    for text in texts:
        row = tokenizer.encode(text)
{feed}        logits = run(feed)[0][0]
        found.append(tokenizer.id_to_token(int(logits[row.ids.index({mask_id})].argmax())))
    return found
"""
_WRITTEN = """
def predict(rows):  # {texts}
    tokenizer.enable_padding(pad_id={pad_id}, pad_token={pad_token!r}, direction={side!r})
    rows = tokenizer.encode_batch([{prompt!r}.format(*row) for row in rows])
    ids, mask = np.array([row.ids for row in rows]), np.array([row.attention_mask for row in rows])
    hidden = run(encoder, {{"input_ids": ids, "attention_mask": mask}})
    known = {{"encoder_hidden_states": hidden, "encoder_attention_mask": mask}}
    answer, ended = np.full((len(rows), 1), {start}), np.zeros(len(rows), bool)
    for _ in range({longest}):
        new = run(decoder, {{"input_ids": answer, **known}})[:, -1].argmax(-1)
        answer = np.concatenate([answer, np.where(ended, {pad}, new)[:, None]], axis=1)
        ended |= np.isin(new, {ends})
        if ended.all():
            break
    return [text.strip() for text in tokenizer.decode_batch(answer.tolist())]
"""
_IMAGE = """
def predict(paths):  # of image files
    settings = json.loads((here / "preprocessor_config.json").read_text())
    labels = json.loads((here / "config.json").read_text())["id2label"]
    size, mean, std = settings["size"], np.array(settings["image_mean"]), np.array(settings["image_std"])
    found = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        image = image.resize((size["width"], size["height"]), settings.get("resample", 2))
        pixels = (np.asarray(image) * settings["rescale_factor"] - mean) / std
        logits = run({{"pixel_values": pixels.transpose(2, 0, 1)[None].astype("float32")}})[0]
        found.append(labels[str(logits[0].argmax())])
    return found
"""
_MAIN = """
if __name__ == "__main__":
    print(predict({given}))
"""


def snippet(manifest: ExportManifest, processor: Any) -> str:
    """A Python file with one function, `predict`; run as a script it takes its input as arguments."""
    if manifest.kind == "image":
        opened = _opened(manifest, "from PIL import Image")
        return opened + _IMAGE.format() + _MAIN.format(given="sys.argv[1:]")
    truncation = ""
    if manifest.kind == "spans":
        truncation = f', stride={manifest.max_length // 3}, strategy="only_second"'
    if processor.truncation_side != "right":
        truncation += f', direction="{processor.truncation_side}"'
    body, given = _function(manifest, processor)
    return (
        _opened(manifest, "from tokenizers import Tokenizer")
        + _TOKENIZER.format(max_length=manifest.max_length, truncation=truncation)
        + body
        + _MAIN.format(given=given)
    )


def modules_of(manifest: ExportManifest) -> list[str]:
    """What has to be installed to run it, as pip calls it."""
    reader = "pillow" if manifest.kind == "image" else "tokenizers"
    return [manifest.runtime, reader, "numpy"]


def _opened(manifest: ExportManifest, imports: str) -> str:
    if manifest.decoder is not None:
        files = (manifest.file, manifest.decoder)
        return _OPEN_TWO[manifest.runtime].format(imports=imports, files=files)
    return _OPEN[manifest.runtime].format(
        imports=imports, file=manifest.file, inputs=manifest.inputs
    )


def _function(manifest: ExportManifest, processor: Any) -> tuple[str, str]:
    """`predict` for a task type, and what it is given as a script."""
    if manifest.kind == "spans":
        return _SPANS.format(feed=_feed("(window,)", 12)), "[tuple(sys.argv[1:3])]"
    if manifest.kind == "tokens":
        return _TOKENS.format(feed=_feed("(row,)", 8)), "[text.split() for text in sys.argv[1:]]"
    if manifest.kind == "masked":
        mask, number = processor.mask_token, processor.mask_token_id
        return _MASKED.format(feed=_feed("(row,)", 8), mask=mask, mask_id=number), "sys.argv[1:]"
    padding = {
        "pad_id": processor.pad_token_id,
        "pad_token": processor.pad_token,
        "side": processor.padding_side,
    }
    several = 'pairs, as [("first text", "second text")]'
    given = f"[tuple(sys.argv[1:{1 + manifest.texts}])]"
    if manifest.generation is not None:
        body = _WRITTEN.format(
            texts=several if manifest.texts > 1 else 'rows, as [("a text",)]',
            prompt=manifest.prompt,
            **padding,
            **manifest.generation.model_dump(),
        )
        return body, given
    prompted = {"prompts": "", "given": "texts", "prompted": "texts"}
    if manifest.prompts:
        prompted = {
            "prompts": f"prompts = {manifest.prompts!r}\n",
            "given": 'texts, kind="sentence"',
            "prompted": "[prompts[kind] + text for text in texts]",
        }
    body = _SENTENCE.format(
        **prompted,
        texts=several if manifest.texts > 1 else "a list of texts",
        **padding,
        feed=_feed("rows", 4),
        answer=_answer(manifest),
    )
    return body, given if manifest.texts > 1 else "sys.argv[1:]"


def _answer(manifest: ExportManifest) -> str:
    """From logits to a class, any number of them, a number, or an embedding."""
    if get_task_type(manifest.kind).embeds:
        return _VECTORS
    if get_task_type(manifest.kind).several_classes:
        return _SEVERAL_CLASSES
    return _CLASSES if manifest.labels else _NUMBER


def _feed(rows: str, indent: int) -> str:
    lines = _FEED.format(rows=rows).splitlines()
    return "".join(f"{' ' * (indent - 4)}{line}\n" for line in lines)
