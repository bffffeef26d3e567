"""A run whose training rows have augmented examples behind them. Part of `limbeck.run`."""

from __future__ import annotations

from dataclasses import replace

from limbeck.data.row_facts import facts_of
from limbeck.run.augmenting import augmented
from limbeck.run.prepared import Prepared
from limbeck.run.rows import EncodedRows


def with_augmented_examples(prepared: Prepared, *, show: bool = False) -> Prepared:
    """The run with augmented rows in the place of its training rows, if its recipe asks for them.

    Every stage that trains on these rows has them. What a first stage has for itself, another
    task's text or fewer rows, and the dev splits stay as they are.
    """
    augmenter, recipe, train = prepared.augmenter, prepared.recipe, prepared.train
    if augmenter is None:
        return prepared
    numbers, trained = train.raw["index"][:], facts_of(train.encoded).numbers
    assert trained is not None  # every encoded row has one
    kept = {*trained.tolist()}
    # Some rows may have been held out of training: nothing is made of them, or has their numbers.
    rows = train.raw.select([place for place, number in enumerate(numbers) if number in kept])
    more = augmented(recipe, augmenter, prepared.task, rows, first=max(numbers) + 1, show=show)
    encoded = EncodedRows.of(
        more, prepared.task, prepared.tokenizer, recipe.max_length, progress=show
    )
    return replace(prepared, augmenter=None).on(encoded, progress=show)
