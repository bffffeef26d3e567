"""A smaller model without training: its vocabulary loses the tokens that a text does not need.

Part of `limbeck.exporting`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from limbeck import students
from limbeck.data import text_rows
from limbeck.evaluation.measuring import vocabulary_facts
from limbeck.exporting.folder import folder_in_work, refuse_occupied
from limbeck.exporting.settings import ShrinkSettings
from limbeck.records.facts import VocabularyFacts
from limbeck.students.vocabulary import shrink_vocabulary
from limbeck.support import files

SHRUNK_NAME = "shrunk-model.json"
"""What stayed, in the folder of a shrunk model."""
_BATCH = 10_000


def shrink(
    model: str | Path, out: str | Path, *, overwrite: bool = False, **settings: Any
) -> VocabularyFacts:
    """Write a model and its tokenizer with the tokens that a text needs.

    Args:
        model: a run's folder, or any checkpoint's folder or Hub name.
        out: the folder to write. Weights keep their precision.
        overwrite: replace a shrunk model that lies there.
        settings: those of `ShrinkSettings`: vocabulary, data, also, task, text_columns.

    Returns:
        What stayed, and how `data` and each of `also` are read.

    Raises:
        LimbeckError: settings, model or text that cannot be used, or a folder that is not free.
    """
    asked = ShrinkSettings.checked(settings)
    place = files.at_home(out)
    refuse_occupied(place, overwrite=overwrite, name=SHRUNK_NAME)
    precision = getattr(students.read_config(model), "dtype", None)
    tokenizer, loaded = students.read_tokenizer(model), students.load_model(model)
    if precision is not None:
        loaded.to(precision)
    found = shrink_vocabulary(loaded, tokenizer, _texts(asked, asked.data), asked.vocabulary)
    read = {", ".join(Path(one).name for one in asked.data): asked.data}
    read |= {Path(one).name: (one,) for one in asked.also}
    facts = vocabulary_facts(found, {name: _texts(asked, one) for name, one in read.items()})
    with folder_in_work(place) as part:
        found.model.save_pretrained(part)
        found.tokenizer.save_pretrained(part)
        said = {"model": str(model), "vocabulary": asked.vocabulary, **facts.model_dump()}
        files.write_whole(part / SHRUNK_NAME, json.dumps(said, indent=1))
        files.put_in_place(part, place)
    return facts


def _texts(asked: ShrinkSettings, sources: tuple[str, ...]) -> Iterator[list[str]]:
    """The texts of some sources, in batches."""
    for source in sources:
        rows = text_rows.read_text_rows(source, task=asked.task, text_columns=asked.text_columns)
        for start in range(0, len(rows), _BATCH):
            yield from rows.take(np.arange(start, min(start + _BATCH, len(rows)))).values()
