"""What models and data are called where everybody can look them up. Part of `limbeck.reporting.cards`.

A card goes to others: it names no folder of the machine it was written on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache
from huggingface_hub.utils import HFValidationError, validate_repo_id

from limbeck.recipe.catalog import HEADER
from limbeck.records import Record
from limbeck.support.files import at_home
from limbeck.support.given import PREFIX
from limbeck.tasks import TASKS, HubSource

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
