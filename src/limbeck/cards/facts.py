"""The shipped student as its own files describe it. Part of `limbeck.cards`."""

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
from limbeck.support import files, given, plain, templates
from limbeck.tasks import TASKS, HubSource, TaskType, kind_of_config
from limbeck.tasks.text import PROMPT

PIPELINES = {
    "sentence": "text-classification",
    "multi-label": "text-classification",
    "tokens": "token-classification",
    "spans": "question-answering",
    "masked": "fill-mask",
    "causal-lm": "text-generation",
    "image": "image-classification",
    "text": "text2text-generation",
    "embedding": "sentence-similarity",
}
"""Task type → the Hub's pipeline tag."""


@dataclass(frozen=True)
class StudentFacts:
    """A finished run's student; only small JSON files of its folder are read."""

    run: Path
    record: Record

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`; empty if the file is missing."""
        file = self.run / "student" / "config.json"
        return plain.read_json(plain.read_text(file), str(file)) if file.is_file() else {}

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
        """The prompts of an embedding model."""
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
    def chat(self) -> bool:
        """Whether its tokenizer has a chat template."""
        return (self.run / "student" / "chat_template.jinja").is_file()

    @property
    def max_length(self) -> int:
        """Tokens that a text was cut to."""
        return int(self.record.recipe.get("max_length") or 128)

    @property
    def bytes(self) -> int:
        """The bytes of its weights."""
        files = (self.run / "student").glob("*.safetensors")
        return sum(file.stat().st_size for file in files)

    @cached_property
    def exports(self) -> list[ExportManifest]:
        """Its exported models, without the models of earlier students of the run."""
        return exports_of_student(self.run)[0]


# What models and data are called where everybody can look them up. A card goes to others: it names
# no folder of the machine it was written on.


# Folders whose name is less informative than the name of the folder around them.
_INSIDE = frozenset({"student", "model", "exported", "onnx", "onnx-int8", "onnx-int4", "openvino"})
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def public_name(place: str) -> str:
    """The last informative part of a path; a Hub name and a plain word as they are."""
    if place.startswith(given.PREFIX):
        return place.removeprefix(given.PREFIX).split("@")[0]
    if hub_name(place) == place:
        return place
    plain = PureWindowsPath(place) if _DRIVE.match(place) or "\\" in place else PurePosixPath(place)
    parts = [part for part in plain.parts if part not in ("/", "\\", plain.anchor, ".", "..", "~")]
    while len(parts) > 1 and parts[-1] in _INSIDE:
        parts.pop()
    return parts[-1] if parts else "model"


def without_paths(value: Any) -> Any:
    """The same recipe, every path in it shortened to its name; a method's own fields stay."""
    if isinstance(value, Mapping):
        return {key: item if key in HEADER else without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    if isinstance(value, str) and (_is_path(value) or value.startswith(given.PREFIX)):
        return public_name(value)
    return value


def _is_path(text: str) -> bool:
    # Formulas and prompts contain slashes between spaces; paths in recipes do not.
    return (
        "/" in text or "\\" in text or text.startswith("~") or (text != "" and _exists(text))
    ) and "\n" not in text


def _exists(text: str) -> bool:
    try:
        return (
            len(text) < 256 and files.at_home(text).is_absolute() and files.at_home(text).exists()
        )
    except OSError:
        return False


def hub_name(place: str) -> str | None:
    """A model's name on the Hub: its place if it was loaded from there, otherwise the name in its card.

    None if it is unknown: a folder without a card.
    """
    folder = files.at_home(place)
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
    """Hub names of the model whose weights the student started from, then of its teachers, if known."""
    student = record.recipe.get("student") or {}
    places = [student.get("init"), record.recipe.get("teacher")]
    places += record.recipe.get("teachers") or []
    found = [hub_name(str(place)) for place in places if place]
    return list(dict.fromkeys(name for name in found if name))


def dataset_of(record: Record) -> HubSource | None:
    """The Hub's dataset behind a task that limbeck knows; None of a user's own and generated rows."""
    task = TASKS.get(record.task)
    own = record.recipe.get("text_columns") or record.recipe.get("label_column")
    generated = record.data == "pocket" or record.data.startswith(given.PREFIX)
    return None if task is None or own or generated else task.hub


def teacher_names(record: Record) -> Sequence[str]:
    """Names of the teachers: Hub names, otherwise folders' own names."""
    if record.kind == "finetune" and record.teacher is None and not record.outputs:
        return []
    if record.team is not None:
        return [member.name for member in record.team.members]
    if record.outputs and not record.recipe.get("parallel"):
        known = [(one.about.get("teacher") or one.about.get("file"), one) for one in record.outputs]
        return [str(name or public_name(one.name)) for name, one in known]
    place = record.recipe.get("teacher") or (record.teacher and record.teacher.path)
    return [public_name(str(place))] if place else []


# The few lines that load a student and call it, by task type, with the template's input.
_GIVEN = {
    "tokens": '["Ada", "lives", "in", "London"], is_split_into_words=True',
    "spans": '"A question?", "The context that answers it."',
    "masked": 'f"One {tokenizer.mask_token} is missing."',
}


def usage(student: StudentFacts, name: str, *, local: bool) -> str | None:
    """Python that runs as it is where transformers (of embeddings sentence-transformers) is.

    None of a task type of one's own.

    `local`: the name is a folder's, and the snippet runs from the folder that the card is in.
    """
    # A folder's name without its path would be looked for on the Hub.
    where = "  # this file's folder: run it there, or write its path" if local else ""
    kind = student.kind
    given = _GIVEN.get(kind.name, _texts(student) if kind.name in PIPELINES else "")
    template = templates.templates_of("limbeck.cards").get_template("usage.py.j2")
    said = template.render(
        place=f"name = {json.dumps('.' if local else name)}{where}",
        kind=kind.name,
        auto=kind.auto.__name__,
        given=given,
        student=student,
    )
    return said or None


def _texts(student: StudentFacts) -> str:
    """A row as a student reads it, a text-to-text one with the prompt that it was trained with."""
    texts = ["A text."] if student.texts == 1 else ["The first text.", "The second text."]
    prompt = student.config.get(PROMPT) if student.kind.name == "text" else None
    if prompt is not None:
        return json.dumps(prompt.format(*texts), ensure_ascii=False)
    return ", ".join(map(json.dumps, texts))
