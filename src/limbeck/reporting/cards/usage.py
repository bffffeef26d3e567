"""The few lines that load a student and ask it something, by task type. Part of `limbeck.reporting.cards`."""

from __future__ import annotations

import json

from limbeck.reporting.cards.student_facts import StudentFacts
from limbeck.tasks.text import PROMPT

_TEXT = """\
import torch
from transformers import {auto}, AutoTokenizer

{name}
tokenizer = AutoTokenizer.from_pretrained(name)
model = {auto}.from_pretrained(name)
batch = tokenizer({given}, truncation=True, max_length={length}, return_tensors="pt")
"""
_CLASSES = """\
with torch.no_grad():
    probabilities = model(**batch).logits.softmax(-1)[0]
print(model.config.id2label[int(probabilities.argmax())], float(probabilities.max()))
"""
_SEVERAL = """\
least = torch.tensor(getattr(model.config, "label_thresholds", 0.5))
with torch.no_grad():
    probabilities = model(**batch).logits.sigmoid()[0]
for number in (probabilities >= least).nonzero().flatten().tolist():
    print(model.config.id2label[number], float(probabilities[number]))
"""
_NUMBER = """\
with torch.no_grad():
    print(float(model(**batch).logits[0, 0]))
"""
_TOKENS = """\
with torch.no_grad():
    tags = model(**batch).logits.argmax(-1)[0].tolist()
for piece, tag in zip(tokenizer.convert_ids_to_tokens(batch["input_ids"][0]), tags):
    print(piece, model.config.id2label[tag])
"""
_SPANS = """\
with torch.no_grad():
    out = model(**batch)
start, end = int(out.start_logits.argmax()), int(out.end_logits.argmax())
print(tokenizer.decode(batch["input_ids"][0, start : end + 1]))
"""
_MASKED = """\
masked = batch["input_ids"][0] == tokenizer.mask_token_id
with torch.no_grad():
    print(tokenizer.decode(model(**batch).logits[0, masked].argmax(-1)))
"""
_TO_TEXT = """\
print(tokenizer.decode(model.generate(**batch, max_new_tokens=32)[0], skip_special_tokens=True))
"""
_EMBEDDINGS = """\
from sentence_transformers import SentenceTransformer

{name}
model = SentenceTransformer(name)
embeddings = model.encode(["A text.", "Another text."])
print(model.similarity(embeddings[0], embeddings[1]))
"""
_RETRIEVAL = """\
from sentence_transformers import SentenceTransformer

{name}
model = SentenceTransformer(name)
queries = model.encode_query(["A question?"])  # each with its prompt
passages = model.encode_document(["A passage.", "Another passage."])
print(model.similarity(queries, passages))
"""
_IMAGE = """\
import torch
from PIL import Image
from transformers import AutoImageProcessor, {auto}
{extra}
{name}
processor = AutoImageProcessor.from_pretrained(name)
model = {auto}.from_pretrained(name)
batch = processor(Image.open("image.png").convert("RGB"), return_tensors="pt")
with torch.no_grad():
    print(model.config.id2label[int(model(**batch).logits.argmax())])
"""


def usage(student: StudentFacts, name: str, *, local: bool) -> str | None:
    """Python that runs as it is where transformers (of embeddings sentence-transformers) is.

    None of a task type of one's own.

    `local`: the name is a folder's, and the snippet runs from the folder that the card is in.
    """
    if local:
        name = "."  # a folder's name without its path would be looked for on the Hub
    name = f"name = {json.dumps(name)}" + (
        "  # this file's folder: run it there, or write its path" if local else ""
    )
    kind = student.kind
    auto = kind.auto.__name__
    if kind.name == "image":
        extra = "import limbeck.lab.cifar_nets  # makes its architecture known\n"
        return _IMAGE.format(auto=auto, name=name, extra=extra if student.own_architecture else "")
    if kind.embeds:
        sentence, query, passage = student.prompts
        same = sentence == query == passage
        return (_EMBEDDINGS if same else _RETRIEVAL).format(name=name)
    given, rest = {
        "sentence": (_texts(student), _CLASSES if student.labels else _NUMBER),
        "multi-label": (_texts(student), _SEVERAL),
        "tokens": ('["Ada", "lives", "in", "London"], is_split_into_words=True', _TOKENS),
        "spans": ('"A question?", "The context that answers it."', _SPANS),
        "masked": ('f"One {tokenizer.mask_token} is missing."', _MASKED),
        "text": (_prompted(student), _TO_TEXT),
    }.get(kind.name, ("", ""))
    if not rest:
        return None
    head = _TEXT.format(auto=auto, name=name, given=given, length=student.max_length)
    return head + rest


def _prompted(student: StudentFacts) -> str:
    """A row as a text-to-text student was trained to read it."""
    prompt = student.config.get(PROMPT)
    if prompt is None:
        return _texts(student)
    texts = ["A text."] if student.texts == 1 else ["The first text.", "The second text."]
    return json.dumps(prompt.format(*texts), ensure_ascii=False)


def _texts(student: StudentFacts) -> str:
    return '"A text."' if student.texts == 1 else '"The first text.", "The second text."'
