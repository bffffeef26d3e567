"""The shipped student as its own files describe it. Part of `limbeck.cards`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache
from huggingface_hub.utils import HFValidationError, validate_repo_id

from limbeck.activations.compat import MODEL_TYPES
from limbeck.embedding import TextPrompts, modules_of
from limbeck.embedding.folder import BARE
from limbeck.recipe.catalog import HEADER
from limbeck.records import Record
from limbeck.runtimes.manifest import ExportManifest, exports_of_student
from limbeck.support.files import at_home
from limbeck.support.given import PREFIX
from limbeck.support.plain import read_json, read_text
from limbeck.tasks import TASKS, HubSource, TaskType, kind_of_config
from limbeck.tasks.text import PROMPT

PIPELINES = {
    "sentence": "text-classification",
    "multi-label": "text-classification",
    "tokens": "token-classification",
    "spans": "question-answering",
    "masked": "fill-mask",
    "image": "image-classification",
    "text": "text2text-generation",
    "embedding": "sentence-similarity",
}
"""Task type → the Hub's pipeline tag."""


@dataclass(frozen=True)
class StudentFacts:
    """A finished run's student; what is read of its folder is no more than small JSON files."""

    run: Path
    record: Record

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`; empty where there is none."""
        file = self.run / "student" / "config.json"
        return read_json(read_text(file), str(file)) if file.is_file() else {}

    @cached_property
    def kind(self) -> TaskType:
        """Its task type, by its head."""
        named: Any = SimpleNamespace(**self.config)
        return kind_of_config(named)

    @property
    def architecture(self) -> str:
        """The model's class, without its head: `Bert`."""
        names = self.config.get("architectures") or ["Model"]
        return str(names[0]).split("For")[0]

    @property
    def pipeline(self) -> str | None:
        """The Hub's tag; None of a task type of one's own."""
        return PIPELINES.get(self.kind.name)

    @property
    def own_architecture(self) -> bool:
        """Whether transformers alone cannot load it."""
        known = self.config.get("model_type")
        return known is not None and known not in MODEL_TYPES

    @property
    def labels(self) -> list[str]:
        """Class names in id order; none of a regression."""
        names = self.config.get("id2label") or {}
        found = [str(names[key]) for key in sorted(names, key=int)]
        return [*self.kind.class_names(found)]

    @property
    def prompts(self) -> TextPrompts:
        """What an embedding model puts before texts."""
        named: Any = SimpleNamespace(**self.config)
        modules = modules_of(named)
        return BARE if modules is None else modules.text_prompts

    @property
    def texts(self) -> int:
        """How many texts an example holds."""
        own = self.record.recipe.get("text_columns")
        task = TASKS.get(self.record.task)
        return len(own or (task.text_columns if task is not None else ("text",)))

    @property
    def max_length(self) -> int:
        """Tokens that a text was cut to."""
        return int(self.record.recipe.get("max_length") or 128)

    @property
    def bytes(self) -> int:
        """Of its weights."""
        files = (self.run / "student").glob("*.safetensors")
        return sum(file.stat().st_size for file in files)

    @cached_property
    def exports(self) -> list[ExportManifest]:
        """What was exported of it, and of no student that the run held before."""
        return exports_of_student(self.run)[0]


# What models and data are called where everybody can look them up. A card goes to others: it names
# no folder of the machine it was written on.


# Folders whose name says less than that of the folder around them.
_INSIDE = frozenset({"student", "model", "exported", "onnx", "onnx-int8", "openvino"})
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def public_name(place: str) -> str:
    """The last part of a path that says something; a Hub name and a plain word as they are."""
    if place.startswith(PREFIX):
        return place.removeprefix(PREFIX).split("@")[0]
    if hub_name(place) == place:
        return place
    plain = PureWindowsPath(place) if _DRIVE.match(place) or "\\" in place else PurePosixPath(place)
    parts = [part for part in plain.parts if part not in ("/", "\\", plain.anchor, ".", "..", "~")]
    while len(parts) > 1 and parts[-1] in _INSIDE:
        parts.pop()
    return parts[-1] if parts else "model"


def without_paths(value: Any) -> Any:
    """The same recipe, every path in it shortened to its name; what a method says of itself stays."""
    if isinstance(value, Mapping):
        return {key: item if key in HEADER else without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    if isinstance(value, str) and (_is_path(value) or value.startswith(PREFIX)):
        return public_name(value)
    return value


def _is_path(text: str) -> bool:
    # Formulas and prompts hold slashes between spaces; paths as they stand in recipes do not.
    return (
        "/" in text or "\\" in text or text.startswith("~") or (text != "" and _exists(text))
    ) and "\n" not in text


def _exists(text: str) -> bool:
    try:
        return len(text) < 256 and at_home(text).is_absolute() and at_home(text).exists()
    except OSError:
        return False


def hub_name(place: str) -> str | None:
    """A model's name on the Hub: the place itself where it was loaded from there, else what its card names.

    None where nothing tells: a folder without a card.
    """
    folder = at_home(place)
    if folder.is_dir():
        return next((name for name in _in_card(folder) if name), None)
    try:
        validate_repo_id(place)
        known = try_to_load_from_cache(place, "config.json")
    except HFValidationError:
        return None
    return place if isinstance(known, str) else None


def _in_card(folder: Path) -> list[str]:
    for card in (folder / "README.md", folder / "student" / "README.md"):
        if card.is_file():
            try:
                named = ModelCard.load(card, ignore_metadata_errors=True).data.get("base_model")
            except (ValueError, OSError, UnicodeDecodeError):
                continue
            return [named] if isinstance(named, str) else [str(one) for one in named or []]
    return []


def base_models(record: Record) -> list[str]:
    """Hub names of what the student's weights come from, then of its teachers; those that are known."""
    student = record.recipe.get("student") or {}
    places = [student.get("init"), record.recipe.get("teacher")]
    places += record.recipe.get("teachers") or []
    found = [hub_name(str(place)) for place in places if place]
    return list(dict.fromkeys(name for name in found if name))


def dataset_of(record: Record) -> HubSource | None:
    """The Hub's dataset behind a task that limbeck knows; None of a user's own and generated rows."""
    task = TASKS.get(record.task)
    own = record.recipe.get("text_columns") or record.recipe.get("label_column")
    generated = record.data == "pocket" or record.data.startswith(PREFIX)
    return None if task is None or own or generated else task.hub


def teacher_names(record: Record) -> Sequence[str]:
    """What the teachers are called: Hub names, else folders' own names."""
    if record.kind == "finetune" and record.teacher is None and not record.outputs:
        return []
    if record.team is not None:
        return [member.name for member in record.team.members]
    if record.outputs:
        known = [(one.about.get("teacher") or one.about.get("file"), one) for one in record.outputs]
        return [str(name or public_name(one.name)) for name, one in known]
    place = record.recipe.get("teacher") or (record.teacher and record.teacher.path)
    return [public_name(str(place))] if place else []


# The few lines that load a student and ask it something, by task type.


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
    if kind.name == "embedding":
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
