"""The door for models, tokenizers and rows that are given as objects: each becomes a reference, and a way to write it.

Part of `limbeck.run`. Behind it a run reads folders and files, whatever was given (`limbeck.support.given`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.outputs import OutputStore
from limbeck.outputs.key import add_weights
from limbeck.recipe import Recipe
from limbeck.recipe.load import read_raw
from limbeck.run.given_rows import read_rows, read_unlabelled_rows
from limbeck.students import read_processor
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.given import PREFIX, Write
from limbeck.tasks import IMAGE, TEXT_READING, Processor

# Of a configuration what says where a model came from or how it is run, not what its outputs depend on.
_NO_ANSWER = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


@dataclass(frozen=True)
class GivenSettings:
    """Recipe settings, a reference in the place of each object, and what writes the object behind each."""

    settings: dict[str, Any]
    writers: dict[str, Write]


def settings_of(
    recipe: Recipe | str | Path | None, given: Mapping[str, Any], tokenizer: Any
) -> GivenSettings:
    """Put a reference in the place of every object among the settings.

    Models are given as `teacher`, `teachers` (a list as `teacher` is the same) and `student`, each alone or in a pair
    with its tokenizer; rows as `data` and `unlabelled`; stores that `label` returned as `outputs`.

    Raises:
        LimbeckError: objects that are none of these, a model without a tokenizer, rows whose columns are not found.
    """
    if isinstance(recipe, Recipe):
        _refuse_beside_recipe(given, tokenizer)
        return GivenSettings({}, {})
    settings = _spelt_out(given)
    found = _Models(tokenizer)
    for key in ("teacher", "teachers", "student.init"):
        if key in settings:
            settings[key] = found.reference(key, settings[key])
    if tokenizer is not None and not found.writers:
        found.problems.append(
            Problem(
                "tokenizer: it belongs to model objects, and none is given",
                "leave it out; student.tokenizer=FOLDER names another one for the student",
            )
        )
    if found.problems:
        raise LimbeckError(found.problems)
    writers = dict(found.writers)
    if settings.get("unlabelled") is not None:
        settings["unlabelled"] = unlabelled_places(
            settings["unlabelled"], settings.get("task"), writers
        )
    if settings.get("outputs") is not None:
        settings["outputs"] = _places_of_outputs(settings["outputs"])
    data = settings.get("data")
    if data is None or isinstance(data, str | Path):
        return GivenSettings(settings, writers)
    raw = read_raw(recipe, {key: value for key, value in settings.items() if key != "data"})
    rows = read_rows(data, raw)
    settings |= {"data": rows.reference, **rows.settings}
    return GivenSettings(settings, {**writers, rows.reference: rows.write})


def unlabelled_places(given: Any, task: str | None, writers: dict[str, Write]) -> list[str]:
    """Rows without labels by the names of their files, and by references of those that are objects.

    Args:
        given: one of these, or several.
        task: the task's name, after which objects are called.
        writers: gets what writes the object behind each reference.

    Raises:
        LimbeckError: an object that holds no rows.
    """
    rows = isinstance(given, list) and bool(given) and isinstance(given[0], Mapping)
    several = given if isinstance(given, list | tuple) and not rows else [given]
    found = []
    for one in several:
        if isinstance(one, str | Path):
            found.append(str(one))
            continue
        read = read_unlabelled_rows(one, task)
        writers[read.reference] = read.write
        found.append(read.reference)
    return found


def _places_of_outputs(given: Any) -> Any:
    """Where stores lie that are given as `label` returns them; anything else as it is."""
    if isinstance(given, list | tuple):
        return [_places_of_outputs(one) for one in given]
    return str(given.files.url) if isinstance(given, OutputStore) else given


def _refuse_beside_recipe(given: Mapping[str, Any], tokenizer: Any) -> None:
    keys = [*given, *(["tokenizer"] if tokenizer is not None else [])]
    if keys:
        raise LimbeckError(
            f"{', '.join(keys)}: beside a Recipe, which is checked already, settings have no effect",
            "give them to Recipe.load; objects to distill, with the method's name or a file in place of the Recipe",
        )


def _spelt_out(given: Mapping[str, Any]) -> dict[str, Any]:
    """A student that is no mapping is where it starts from; a list of teachers is a team."""
    settings: dict[str, Any] = {}
    for key, value in given.items():
        if key == "student" and not isinstance(value, Mapping) and value is not None:
            key = "student.init"
        elif key == "teacher" and isinstance(value, list | tuple) and not _is_pair(value):
            key = "teachers"
        if key in settings:
            raise LimbeckError(f"{key} is given twice", "give it once")
        settings[key] = value
    return settings


class _Models:
    """References of the models of one run, the same for the same object."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.writers: dict[str, Write] = {}
        self.problems: list[Problem] = []
        self._known: dict[tuple[int, int], str] = {}

    def reference(self, key: str, value: Any) -> Any:
        """What stands in the recipe for a path, a model, or several of them."""
        if isinstance(value, list | tuple) and not _is_pair(value):
            return [self.reference(key, one) for one in value]
        if value is None or isinstance(value, str | Path):
            return value
        model, processor = value if isinstance(value, tuple) else (value, self.tokenizer)
        setting = "student" if key == "student.init" else key
        if not isinstance(model, PreTrainedModel):
            self.problems.append(
                Problem(
                    f"{setting}: a {type(model).__name__} is not a transformers model",
                    "give a PreTrainedModel (of an adapter the merged one, merge_and_unload()), a folder or a Hub name",
                )
            )
            return PREFIX
        try:
            processor = _processor_of(model, processor, setting)
        except LimbeckError as error:
            self.problems += error.problems
            return PREFIX
        known = (id(model), id(processor))
        if known not in self._known:
            digest = model_fingerprint(model, processor)
            reference = f"{PREFIX}{_name_of(model)}@{digest}"
            self._known[known] = reference
            self.writers[reference] = lambda folder: _write(model, processor, folder)
        return self._known[known]


def _is_pair(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and isinstance(value[1], PreTrainedTokenizerBase | BaseImageProcessor)


def _processor_of(model: PreTrainedModel, given: Any, setting: str) -> Processor:
    """What makes a model's input: given with it, or read from where the model was."""
    if isinstance(given, PreTrainedTokenizerBase | BaseImageProcessor):
        return given
    reads = IMAGE.reads if model.main_input_name == "pixel_values" else TEXT_READING
    if given is not None and not isinstance(given, str | Path):
        raise LimbeckError(
            f"tokenizer: a {type(given).__name__} is none",
            f"give the {reads.processor} of the models, or its folder or Hub name",
        )
    source = given or model.name_or_path
    if source:
        try:
            return read_processor(source, reads)
        except LimbeckError:
            if given is not None:
                raise
    name = reads.processor.replace(" ", "_")
    raise LimbeckError(
        f"{setting}: a {type(model).__name__} is given as an object, without its {reads.processor}",
        f"tokenizer=…, one for all models; or a pair for this one, {setting}=(model, {name})",
    )


def _name_of(model: PreTrainedModel) -> str:
    """Where it came from, without the folders of this machine; else its architecture."""
    path = str(model.name_or_path or "")
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..", "student")]
    local = path.startswith(("/", ".", "~")) or Path(path).exists()
    name = "/".join(parts[-1:] if local else parts) or model.config.model_type
    return re.sub(r"[^\w./-]", "-", name)


def model_fingerprint(model: PreTrainedModel, processor: Processor) -> str:
    """12 hexadecimal digits of what a model's outputs depend on: class, configuration, weights and tokenizer."""
    digest = hashlib.blake2b(digest_size=6)
    config = json.loads(model.config.to_json_string(use_diff=False))
    for key in _NO_ANSWER:
        config.pop(key, None)
    digest.update(json.dumps([type(model).__name__, config], sort_keys=True).encode())
    add_weights(digest, model)
    digest.update(json.dumps(_about(processor), sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _about(processor: Processor) -> Any:
    """All of a processor that decides what an example is encoded as; not the padding of its last call."""
    if not isinstance(processor, PreTrainedTokenizerBase):
        return processor.to_dict()
    about: list[Any] = [
        processor.special_tokens_map,
        processor.model_max_length,
        processor.padding_side,
        processor.truncation_side,
        list(processor.model_input_names),
        processor.get_vocab(),
    ]
    backend = getattr(processor, "backend_tokenizer", None)
    if backend is not None:
        settings = json.loads(backend.to_str())
        about.append({key: settings[key] for key in settings if key not in _OF_LAST_CALL})
    return about


_OF_LAST_CALL = ("truncation", "padding")


def _write(model: PreTrainedModel, processor: Processor, folder: Path) -> None:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
