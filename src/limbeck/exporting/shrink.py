"""A smaller model without training: fewer layers, narrower ones, and the tokens that a text needs.

Part of `limbeck.exporting`.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from pydantic import Field
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck import students
from limbeck.data import text_rows
from limbeck.data.text_rows import TextRows
from limbeck.evaluation.measuring import vocabulary_facts
from limbeck.exporting.folder import folder_in_work, refuse_occupied
from limbeck.exporting.settings import SIZES, ShrinkSettings
from limbeck.preflight import refuse_unfit
from limbeck.recipe import StudentSpec
from limbeck.records.facts import RecordPart, VocabularyFacts
from limbeck.scoring.scored_model import longest_of
from limbeck.students.build import default_pick, picked_layers
from limbeck.students.vocabulary import shrink_vocabulary
from limbeck.support import files
from limbeck.support.cells import magnitude
from limbeck.support.errors import LimbeckError, check_choice
from limbeck.tasks import TASKS, kind_of_config, task_type_of

SHRUNK_NAME = "shrunk-model.json"
"""What stayed, in the folder of a shrunk model."""
_BATCH, _WEIGHED = 10_000, 256


class ShrunkFacts(RecordPart):
    """What stayed of a model."""

    parameters: tuple[int, int]
    """Before and after."""
    layers: dict[str, list[int]] = Field(default_factory=dict)
    """By stack the layers that stayed, counted from 1; empty if all did."""
    units: dict[str, int] = Field(default_factory=dict)
    """Features, heads and feed-forward units, where some of them left."""
    vocabulary: VocabularyFacts | None = None

    @property
    def said(self) -> str:
        """What stayed, in words."""
        before, after = self.parameters
        parts = [f"{magnitude(after)} of {magnitude(before)} parameters"]
        for stack, kept in self.layers.items():
            of = "" if stack == "main" else f" of the {stack}"
            parts.append(f"kept layer{'s' * (len(kept) > 1)} {', '.join(map(str, kept))}{of}")
        parts += [f"{name} {number}" for name, number in self.units.items()]
        return "; ".join(parts)


def shrink(
    model: str | Path, out: str | Path, *, overwrite: bool = False, **settings: Any
) -> ShrunkFacts:
    """Write a model and its tokenizer with fewer layers, units or tokens, without training.

    Args:
        model: a run's folder, or any checkpoint's folder or Hub name.
        out: the folder to write. Weights keep their precision.
        overwrite: replace a shrunk model in the folder.
        settings: layers, pick, hidden, heads, ffn, vocabulary, as a recipe's `student` has them; and the fields of
            `ShrinkSettings`: data, also, task, text_columns.

    Returns:
        What stayed, and how `data` and each of `also` are read.

    Raises:
        LimbeckError: settings, model or text that cannot be used, or a folder that is not free.
    """
    try:
        return _shrunk(str(model), out, overwrite, settings)
    except LimbeckError as error:  # recipes have the sizes under `student`
        raise LimbeckError(
            [
                replace(
                    one,
                    message=one.message.replace("student.", ""),
                    fix=one.fix.replace("student.", ""),
                )
                for one in error.problems
            ]
        ) from None


def _shrunk(model: str, out: str | Path, overwrite: bool, settings: dict[str, Any]) -> ShrunkFacts:
    sizes = {name: settings.pop(name) for name in SIZES if settings.get(name) is not None}
    spec, asked = StudentSpec.checked(sizes), ShrinkSettings.checked(settings)
    if not sizes.keys() - {"pick"}:
        known = ", ".join(name for name in SIZES if name != "pick")
        raise LimbeckError("nothing to shrink", f"give at least one of {known}")
    if spec.pick is not None and not isinstance(spec.layers, int | dict):
        raise LimbeckError(
            f"pick {spec.pick}: it chooses layers, and layers is no number",
            "set layers to how many to keep, or leave pick out",
        )
    weighs = bool(spec.narrower) or spec.ranks_layers
    cuts = spec.vocabulary is not None
    if (weighs or cuts) and not asked.data:
        raise LimbeckError("data is missing", "name files of the text that the model is to read")
    readers = {"data": weighs or cuts, "also": cuts}
    if unread := [name for name, reads in readers.items() if getattr(asked, name) and not reads]:
        raise LimbeckError(
            f"{' and '.join(unread)}: these sizes do not depend on text",
            "leave it out, or add --vocabulary; layers depend on it with --pick importance",
        )
    check_choice("task", asked.task, TASKS)
    config = students.read_config(model)
    reads = kind_of_config(config).reads
    if not reads.in_columns and (weighs or cuts):
        raise LimbeckError(
            f"model {model} reads {reads.name}, and only layers leave it without text",
            "give --layers, with --pick first, last, skip or upper",
        )
    place = files.at_home(out)
    refuse_occupied(place, overwrite=overwrite, name=SHRUNK_NAME)
    rows = {
        one: text_rows.read_text_rows(one, task=asked.task, text_columns=asked.text_columns)
        for one in (*asked.data, *asked.also)
    }
    training = [rows[one] for one in asked.data]
    precision = getattr(config, "dtype", None)
    tokenizer = students.read_processor(model, reads)
    loaded = students.load_model(model, auto=_own_class(config))
    refuse_unfit(model, loaded, tokenizer)
    before = loaded.num_parameters()
    loaded, layers = _cut(loaded, spec, [*_weighed(training, loaded, tokenizer)] if weighs else [])
    vocabulary = None
    if precision is not None:
        loaded.to(precision)
    if spec.vocabulary is not None:
        found = shrink_vocabulary(loaded, tokenizer, _texts(training), spec.vocabulary)
        texts = {", ".join(Path(one).name for one in asked.data): _texts(training)}
        for one in asked.also:
            name = Path(one).name
            texts[one if name in texts else name] = _texts([rows[one]])
        loaded, tokenizer, vocabulary = found.model, found.tokenizer, vocabulary_facts(found, texts)
    facts = ShrunkFacts(
        parameters=(before, loaded.num_parameters()),
        layers=layers,
        units=spec.narrower,
        vocabulary=vocabulary,
    )
    with folder_in_work(place) as part:
        loaded.save_pretrained(part)
        tokenizer.save_pretrained(part)
        said = {"model": model, "asked": sizes, **facts.model_dump()}
        files.write_whole(part / SHRUNK_NAME, json.dumps(said, indent=1))
        files.put_in_place(part, place)
    return facts


def _own_class(config: PretrainedConfig) -> Any:
    """The class of a model whose head, if any, is of no task type; None where a task type has its head."""
    name, kind = next(iter(config.architectures or ()), ""), kind_of_config(config)
    ending = kind.auto.__name__.removeprefix("AutoModel")
    of_kind = kind.claims(config) or name in kind.heads or name.endswith(ending)
    return None if of_kind else getattr(transformers, name, None)


def _cut(
    model: PreTrainedModel, spec: StudentSpec, batches: list[dict[str, Tensor]]
) -> tuple[PreTrainedModel, dict[str, list[int]]]:
    """The model with fewer layers and units, and the layers that it has."""
    layers: dict[str, list[int]] = {}
    if spec.ranks_layers:
        layers = students.important_layers(model, spec.layers, batches)
    elif spec.layers is not None:
        pick = spec.pick or default_pick(task_type_of(model))
        layers = picked_layers(model.config, spec.layers, pick)
    if layers:
        model = students.build_student(model, layers=layers)
    if spec.narrower:
        model = students.narrowed(model, **spec.narrower, batches=batches)
    return model, layers


def _weighed(
    sources: Sequence[TextRows], model: PreTrainedModel, tokenizer: Any
) -> Iterator[dict[str, Tensor]]:
    """Rows from all over the text for `important_layers` and `narrowed`, in batches."""
    length, each = min(128, longest_of(model, tokenizer)), math.ceil(_WEIGHED / len(sources))
    for rows in sources:
        places = np.unique(np.linspace(0, len(rows) - 1, each).astype(int))
        columns = [*rows.take(places).values()][:2]
        for start in range(0, len(places), 16):
            few = (column[start : start + 16] for column in columns)
            batch = dict(
                tokenizer(
                    *few,
                    padding=True,
                    truncation=True,
                    max_length=length,
                    return_tensors="pt",
                )
            )
            if model.config.is_encoder_decoder and model.can_generate():
                batch["decoder_input_ids"] = batch["input_ids"]
            yield batch


def _texts(sources: Sequence[TextRows]) -> Iterator[list[str]]:
    """The texts of some sources, in batches."""
    for rows in sources:
        for start in range(0, len(rows), _BATCH):
            yield from rows.take(np.arange(start, min(start + _BATCH, len(rows)))).values()
