"""The door for models, tokenizers and rows that are given as objects: each becomes a reference, and a way to write it.

Part of `limbeck.run`. Behind it a run reads folders and files, whatever was given (`limbeck.support.given`).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Image, Value
from datasets.table import InMemoryTable
from pyarrow import parquet
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.data.table import USUAL_LABELS
from limbeck.functional.labels import NO_LABEL
from limbeck.outputs.key import add_weights
from limbeck.outputs.store import OutputStore
from limbeck.recipe import Recipe
from limbeck.recipe.load import read_raw
from limbeck.students import read_processor
from limbeck.support.errors import LimbeckError
from limbeck.support.given import PREFIX, Write
from limbeck.tasks import IMAGE, TASKS, TEXT_READING, Processor

# The parts of a configuration that record a model's origin or execution, not what its outputs depend on.
_NO_ANSWER = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


def settings_of(
    recipe: Recipe | str | Path | None, given: Mapping[str, Any], tokenizer: Any
) -> tuple[dict[str, Any], dict[str, Write]]:
    """Recipe settings with a reference instead of every object, and the function that writes each object.

    Models are given as `teacher`, `teachers` (a list as `teacher` is the same) and `student`, each alone or in a pair
    with its tokenizer; rows as `data` and `unlabelled`; stores that `label` returned as `outputs`.

    Raises:
        LimbeckError: unsupported objects, a model without a tokenizer, settings in addition to a Recipe.
    """
    if isinstance(recipe, Recipe):
        keys = [*given, *(["tokenizer"] if tokenizer is not None else [])]
        if keys:
            raise LimbeckError(
                f"{', '.join(keys)}: next to a Recipe, which is checked already, settings have no effect",
                "give them to Recipe.load; objects to distill, with the method's name or a file instead of the Recipe",
            )
        return {}, {}
    settings = _spelt_out(given)
    writers: dict[str, Write] = {}
    for key in ("teacher", "teachers", "student.init"):
        if key in settings:
            settings[key] = _reference(key, settings[key], tokenizer, writers)
    if tokenizer is not None and not writers:
        raise LimbeckError(
            "tokenizer: it belongs to model objects, and none is given",
            "leave it out; student.tokenizer=FOLDER names another one for the student",
        )
    if settings.get("unlabelled") is not None:
        task = settings.get("task")
        settings["unlabelled"] = unlabelled_places(settings["unlabelled"], task, writers)
    if settings.get("outputs") is not None:
        settings["outputs"] = _places_of_outputs(settings["outputs"])
    data = settings.get("data")
    for key in ("dev", "test"):
        if not isinstance(settings.get(key), str | Path | None):
            raise LimbeckError(
                f"{key}: a {type(settings[key]).__name__}, and {key} names a file",
                f'give rows that are objects together: data={{"train": …, "{key}": …}}',
            )
    if data is not None and not isinstance(data, str | Path):
        raw = read_raw(recipe, {key: value for key, value in settings.items() if key != "data"})
        rows = read_rows(data, raw.get("task"))
        settings |= {"data": rows.reference} | ({} if raw.get("task") else {"task": rows.name})
        writers[rows.reference] = rows.write
    return settings, writers


def unlabelled_places(given: Any, task: str | None, writers: dict[str, Write]) -> list[str]:
    """Names of the files of unlabeled rows, and references for the rows that are objects.

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
        read = GivenRows({"rows": _dataset("unlabelled", one)}, f"{task or 'rows'}-unlabelled")
        writers[read.reference] = read.write
        found.append(read.reference)
    return found


def _places_of_outputs(given: Any) -> Any:
    """The locations of stores given as `label` returns them; anything else unchanged."""
    if isinstance(given, list | tuple):
        return [_places_of_outputs(one) for one in given]
    return str(given.files.url) if isinstance(given, OutputStore) else given


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


def _reference(key: str, value: Any, tokenizer: Any, writers: dict[str, Write]) -> Any:
    """The recipe's value for a path, a model, or several of them; `writers` gets the function that writes each."""
    if isinstance(value, list | tuple) and not _is_pair(value):
        return [_reference(key, one, tokenizer, writers) for one in value]
    if value is None or isinstance(value, str | Path):
        return value
    model, given = value if isinstance(value, tuple) else (value, tokenizer)
    setting = "student" if key == "student.init" else key
    if not isinstance(model, PreTrainedModel):
        raise LimbeckError(
            f"{setting}: a {type(model).__name__} is not a transformers model",
            "give a PreTrainedModel (of an adapter the merged one, merge_and_unload()), a folder or a Hub name",
        )
    processor = _processor_of(model, given, setting)
    reference = f"{PREFIX}{_name_of(model)}@{model_fingerprint(model, processor)}"
    writers[reference] = partial(_write, model, processor)
    return reference


def _is_pair(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and isinstance(value[1], PreTrainedTokenizerBase | BaseImageProcessor)


def _processor_of(model: PreTrainedModel, given: Any, setting: str) -> Processor:
    """A model's tokenizer or processor: given with it, or read from the model's origin."""
    if isinstance(given, PreTrainedTokenizerBase | BaseImageProcessor):
        return given
    reads = IMAGE.reads if model.main_input_name == "pixel_values" else TEXT_READING
    if given is not None and not isinstance(given, str | Path):
        raise LimbeckError(
            f"tokenizer: a {type(given).__name__} is no tokenizer",
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
    """The model's origin, without the folders of this machine; otherwise its architecture."""
    path = str(model.name_or_path or "")
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..", "student")]
    local = path.startswith(("/", ".", "~")) or Path(path).exists()
    name = "/".join(parts[-1:] if local else parts) or model.config.model_type
    return re.sub(r"[^\w./-]", "-", name)


def model_fingerprint(model: PreTrainedModel, processor: Processor) -> str:
    """12 hexadecimal digits from all that a model's outputs depend on: class, configuration, weights, tokenizer."""
    digest = hashlib.blake2b(digest_size=6)
    config = json.loads(model.config.to_json_string(use_diff=False))
    for key in _NO_ANSWER:
        config.pop(key, None)
    digest.update(json.dumps([type(model).__name__, config], sort_keys=True).encode())
    add_weights(digest, model)
    digest.update(json.dumps(_about(processor), sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _about(processor: Processor) -> Any:
    """All of a processor that affects how an example is encoded; not the padding of its last call."""
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


# Rows given as objects: their splits, their name, and the files that they become.

_SPLITS = {"train": "train", "test": "test"}
_SPLITS |= dict.fromkeys(("dev", "validation", "valid", "val"), "dev")
# Default names of the datasets library for files.
_NO_NAMES = frozenset({"csv", "json", "parquet", "arrow", "text", "pandas", "generator", "sql"})
_ROWS = 1000


@dataclass(frozen=True)
class GivenRows:
    """Rows by split, and their name."""

    splits: dict[str, Dataset]
    name: str

    @property
    def reference(self) -> str:
        """Their reference in a recipe: their name, and a fingerprint of their content."""
        name = re.sub(r"[^\w.-]", "-", self.name)
        return f"{PREFIX}{name}@{_fingerprint(self.splits)}"

    def write(self, folder: Path) -> None:
        """Write a file for each split, as a user would have them."""
        for split, rows in self.splits.items():
            table: pa.Table = rows.with_format("arrow")[:]
            parquet.write_table(table.cast(rows.features.arrow_schema), folder / f"{split}.parquet")


def read_rows(data: Any, task: str | None = None, *, training: bool = True) -> GivenRows:
    """Rows that were given as `data`, called as the task or as they call themselves; `training` needs a train split.

    Raises:
        LimbeckError: no rows, splits of other names.
    """
    splits = _splits(data, training=training)
    splits = {split: _as_files_hold(rows, split) for split, rows in splits.items()}
    return GivenRows(splits, str(task or _name_of_rows(next(iter(splits.values())))))


def _splits(data: Any, *, training: bool = True) -> dict[str, Dataset]:
    """Train, which `training` needs, and dev and test where there are some."""
    if not isinstance(data, Mapping):
        return {"train": _dataset("data", data)}
    strange = [str(name) for name in data if name not in _SPLITS]
    if strange or not data:
        raise LimbeckError(
            f"data: {', '.join(strange) or 'nothing'} is not one of the splits train, dev (validation) and test",
            "give the splits these names: data={'train': …, 'dev': …}",
        )
    found: dict[str, Dataset] = {}
    for name, rows in data.items():
        if _SPLITS[name] in found:
            raise LimbeckError(f"data: {', '.join(data)} name one split twice", "keep one of them")
        found[_SPLITS[name]] = _dataset(f"data[{name!r}]", rows)
    if training and "train" not in found:
        raise LimbeckError(f"data: there is no train split (there: {', '.join(data)})", "give one")
    return found


def _dataset(where: str, rows: Any) -> Dataset:
    if not isinstance(rows, Dataset):
        try:
            if isinstance(rows, list):
                rows = Dataset.from_list(
                    [{"text": row} if isinstance(row, str) else row for row in rows]
                )
            elif isinstance(rows, Mapping):
                rows = Dataset.from_dict(dict(rows))
            elif type(rows).__name__ == "DataFrame":
                rows = Dataset.from_pandas(rows, preserve_index=False)
        except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
            raise LimbeckError(f"{where}: these are no rows: {error}", _ROWS_FIX) from error
    if not isinstance(rows, Dataset):
        raise LimbeckError(f"{where}: a {type(rows).__name__} holds no rows to read", _ROWS_FIX)
    if not len(rows):
        raise LimbeckError(f"{where} holds no rows", "give some")
    images = [name for name, feature in rows.features.items() if isinstance(feature, Image)]
    if images:
        raise LimbeckError(
            f"{where}: column {images[0]!r} holds images, which are read from a folder alone",
            "write them to a folder for each class, data=FOLDER and kind=image; or remove_columns",
        )
    return rows


_ROWS_FIX = (
    "give a datasets.Dataset, a DatasetDict, a dict of them by split, a pandas DataFrame, a list of "
    "rows {'text': …, 'label': …}, or a list of texts"
)


def _as_files_hold(rows: Dataset, split: str) -> Dataset:
    """Rows without features that only the datasets library understands."""
    for name, feature in dict(rows.features).items():
        if split == "test" and isinstance(feature, ClassLabel) and set(rows[name]) == {-1}:
            rows = rows.remove_columns(name)  # as the Hub marks a test split without labels
        # −100 in a column of labels can only mean that a row has no label, as in transformers' losses.
        whole = isinstance(feature, Value) and feature.dtype.startswith("int")
        label = isinstance(feature, ClassLabel) or (name in USUAL_LABELS and whole)
        if split == "train" and label:
            rows = _with_gaps(rows, name)
    return rows


def _with_gaps(rows: Dataset, name: str) -> Dataset:
    """The rows with nothing where a label is −100, as a file has it."""
    table: pa.Table = rows.with_format("arrow")[:]
    labels = table.column(name)
    none = pc.equal(labels, pa.scalar(NO_LABEL, labels.type))
    if not pc.any(none).as_py():
        return rows
    known = pc.if_else(none, pa.scalar(None, labels.type), labels)
    table = table.set_column(table.schema.get_field_index(name), name, known)
    features = rows.features
    return Dataset(InMemoryTable(table.cast(features.arrow_schema)), info=rows.info)


def _name_of_rows(rows: Dataset) -> str:
    info = rows.info
    name = info.dataset_name or ""
    if not name or name in _NO_NAMES:
        return "rows"
    config = info.config_name if info.config_name not in (None, "default", name) else None
    name = name if config is None else f"{name}-{config}"
    return f"own-{name}" if name in TASKS else name


def _fingerprint(splits: Mapping[str, Dataset]) -> str:
    """12 hexadecimal digits of all that the rows hold, names of splits, columns and classes included."""
    digest = hashlib.blake2b(digest_size=6)
    for split, rows in sorted(splits.items()):
        each = {name: getattr(kind, "feature", kind) for name, kind in rows.features.items()}
        classes = {name: kind.names for name, kind in each.items() if isinstance(kind, ClassLabel)}
        digest.update(json.dumps([split, len(rows), classes], sort_keys=True).encode())
        read = rows.with_format("arrow")
        for start in range(0, len(rows), _ROWS):
            for row in read[start : start + _ROWS].to_pylist():
                digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()
