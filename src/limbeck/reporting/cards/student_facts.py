"""The shipped student as its own files describe it. Part of `limbeck.reporting.cards`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from limbeck.activations.compat import MODEL_TYPES
from limbeck.embedding import TextPrompts, modules_of
from limbeck.embedding.text_prompts import BARE
from limbeck.records import Record
from limbeck.runtimes import ExportManifest, exports_of_student
from limbeck.support.plain import read_json, read_text
from limbeck.tasks import TASKS, TaskType, kind_of_config

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
        has = self.kind.names_classes
        return found if has and len(found) > 1 else []

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
