"""Which rows a training's stored outputs are of, by what they say: so that they serve elsewhere too.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from limbeck.data.output_keys import output_keys
from limbeck.data.text_rows import TARGET
from limbeck.outputs import EntryRows, digest_of_tokenizer
from limbeck.recipe import Recipe
from limbeck.run.output_groups import OutputGroup
from limbeck.run.stage_rows import EncodedRows
from limbeck.support.given import is_reference
from limbeck.tasks.known_types import labelled_rows


def entry_rows(group: OutputGroup) -> Callable[[], EntryRows] | None:
    """What gives the rows of a pass; None where its examples are not rows that `limbeck label` could name."""
    if not _are_rows(group.loaded):
        return None
    return lambda: _rows(group)


def _are_rows(rows: EncodedRows) -> bool:
    """Whether each example is one row of texts, with the target that a decoder writes."""
    kind = rows.kind
    if not (kind.labels_examples and kind.stored_as is kind and kind.reads.in_columns):
        return False
    if not kind.classes_as_text:
        return True
    name = rows.task.label_column
    if name not in rows.raw.column_names:
        return False
    return bool(labelled_rows(rows.raw.with_format("numpy")[name][:]).all())


def _rows(group: OutputGroup) -> EntryRows:
    rows, recipe = group.loaded, group.places[-1].stage.recipe
    keys = output_keys(rows.task, rows.raw)
    ids = np.full(int(keys.examples.max()) + 1, -1, dtype=np.int64)
    ids[keys.examples] = keys.ids
    written = rows.kind.classes_as_text
    return EntryRows(
        ids,
        _columns(rows, recipe),
        _sources(recipe),
        target=written,
        classes=rows.task.labels,
        read_by={
            "tokenizer": digest_of_tokenizer(group.collator.tokenizer),
            "max_length": rows.max_length,
        }
        # Its prompts begin with it.
        | ({"task": rows.task.name} if written else {}),
    )


def _columns(rows: EncodedRows, recipe: Recipe) -> tuple[str, ...]:
    """As a user's own file calls them, or as the task does."""
    named, own = tuple(recipe.text_columns or ()), rows.task.text_columns
    texts = named if len(named) == len(own) else own
    return (*texts, TARGET) if rows.kind.classes_as_text else texts


def _sources(recipe: Recipe) -> tuple[str, ...]:
    """What can be read again."""
    places = [str(recipe.data), *map(str, recipe.unlabelled)]
    return tuple(place for place in places if not is_reference(place))
