"""Augmented examples of the training rows: what makes them, and the rows with them.

Part of `limbeck.lab.augmentation`. What cannot be augmented is refused while a run is prepared; the examples are
made, or found where an earlier run stored them, when everything else has been checked.
"""

import logging
from dataclasses import replace

from datasets import Dataset
from rich.console import Console
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from limbeck import preflight
from limbeck.data.row_facts import facts_of
from limbeck.lab.augmentation import augmented_rows
from limbeck.lab.augmentation.candidates import check_file
from limbeck.outputs.cache import SHARD, Store, StoredEntry, default_store
from limbeck.recipe import Recipe
from limbeck.recipe.augment_spec import FROM_TEACHER
from limbeck.run.prepared import Prepared
from limbeck.run.rows import EncodedRows
from limbeck.students import load_model, resolve_checkpoint
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.machine import device
from limbeck.support.terminal import bars
from limbeck.support.words import human_size
from limbeck.tasks import Task

logger = logging.getLogger(__name__)

_GIB = 2**30


def load_augmenter(recipe: Recipe, task: Task, rows: Dataset) -> augmented_rows.Augmenter:
    """What makes augmented examples of these training rows.

    Raises:
        LimbeckError: rows that are not text with one label, no teacher where one is to propose words, or a
            checkpoint that is no trained masked language model or has no tokenizer for it.
    """
    spec = recipe.augment
    assert spec is not None  # asked for
    if spec.model == FROM_TEACHER and recipe.lead is None:
        raise LimbeckError(
            "augment.model: teacher, and none is given",
            "add --teacher FOLDER, or name an encoder; stored outputs have no word vectors"
            if recipe.outputs
            else "add --teacher FOLDER, or name an encoder",
        )
    types = [getattr(rows.features[column], "dtype", None) for column in task.text_columns]
    text = all(dtype in ("string", "large_string") for dtype in types)
    if not (text and (task.regression or task.kind.row_classes(task))):
        raise LimbeckError(
            f"augment: task {task.name!r} is of kind {task.kind.name}, and only texts with one "
            "class or number each keep their label when words change",
            "leave augment out",
        )
    if spec.embeddings is not None:
        check_file(spec.embeddings)
    name = recipe.lead if spec.model == FROM_TEACHER else spec.model
    spec = spec.model_copy(update={"model": name})
    if name is None:  # a file has the vectors of all words
        return augmented_rows.Augmenter(spec, None, None, recipe.max_length)
    masked = spec.replace_by == "masked"
    model = _masked_language_model(name) if masked else load_model(name, auto=AutoModel)
    tokenizer = AutoTokenizer.from_pretrained(resolve_checkpoint(name), trust_remote_code=False)
    problems = preflight.check_vocabulary("augment.model", model, tokenizer)
    if masked and (not tokenizer.is_fast or tokenizer.mask_token_id is None):
        problems.append(
            Problem(
                f"augment.model: {type(tokenizer).__name__} "
                + ("has no mask token" if tokenizer.is_fast else "is not a fast tokenizer"),
                "use a masked language model that was saved with its tokenizer.json",
            )
        )
    if preflight.errors_of(problems):
        raise LimbeckError(problems)
    # Words behind it are rarely read by the student either.
    longest = min(recipe.max_length, preflight.positions_of(model) or recipe.max_length)
    return augmented_rows.Augmenter(spec, model, tokenizer, longest)


def _masked_language_model(name: str) -> PreTrainedModel:
    try:
        return load_model(name, head="required", auto=AutoModelForMaskedLM)
    except LimbeckError as error:
        raise LimbeckError(
            Problem(
                f"augment.model: {problem.message}",
                f"{problem.fix}; a masked language model is needed here, and "
                "`limbeck finetune --kind masked --data TEXT.txt` trains one; "
                "augment.replace_by=nearest needs none",
            )
            for problem in error.problems
        ) from error


def with_augmented_examples(prepared: Prepared, *, show: bool = False) -> Prepared:
    """The run with augmented rows in the place of its training rows.

    Every stage that trains on these rows has them. What a first stage has for itself, another
    task's text or fewer rows, and the dev splits stay as they are.
    """
    recipe, train = prepared.recipe, prepared.train
    numbers, trained = train.raw["index"][:], facts_of(train.encoded).numbers
    assert trained is not None  # every encoded row has one
    kept = {*trained.tolist()}
    # Some rows may have been held out of training: nothing is made of them, or has their numbers.
    rows = train.raw.select([place for place, number in enumerate(numbers) if number in kept])
    more = augmented(
        recipe, prepared.augmenter, prepared.task, rows, first=max(numbers) + 1, show=show
    )
    encoded = EncodedRows.of(
        more, prepared.task, prepared.tokenizer, recipe.max_length, progress=show
    )
    return replace(prepared, augmenter=None).on(encoded, progress=show)


def augmented(
    recipe: Recipe,
    augmenter: augmented_rows.Augmenter,
    task: Task,
    rows: Dataset,
    *,
    first: int,
    show: bool,
) -> Dataset:
    """The training rows and their augmented examples, from the store, or made and stored there.

    Args:
        first: the number (`index`) of the first augmented example.

    Raises:
        LimbeckError: the folder of stored teacher outputs and augmented examples cannot be written.
    """
    console = Console(stderr=True, quiet=not show, markup=False, emoji=False)
    augmenter = replace(augmenter, precision=recipe.precision)
    store, key = default_store(), augmenter.key(rows, task.text_columns)
    entry = store.find(key)
    if entry is None:
        with store.lock(key):
            # Another process may have made them while this one waited.
            entry = store.find(key) or _made(recipe, augmenter, task, rows, store, key, console)
    augmented = augmented_rows.read_augmented_examples(entry)
    if not len(augmented):
        raise LimbeckError(
            f"augment: none of the {len(rows)} training rows has a word that anything could replace",
            "check that the words of augment.model or augment.embeddings are of the rows' language, or leave it out",
        )
    console.print(
        f"augmentation: {len(augmented)} augmented examples of {len(rows)} rows, {human_size(entry.bytes)}",
        highlight=False,
    )
    return augmented_rows.rows_and_examples(rows, augmented, first, key)


def _made(
    recipe: Recipe,
    augmenter: augmented_rows.Augmenter,
    task: Task,
    rows: Dataset,
    store: Store,
    key: str,
    console: Console,
) -> StoredEntry:
    store.sweep()
    model: nn.Module | None = augmenter.model
    if model is not None:
        model.to(device())
    with store.writing(key) as folder:
        with bars(console) as watch:
            augmented_rows.build_augmented_examples(
                folder, augmenter, rows, task.text_columns, task=recipe.task, watch=watch
            )
        limit = int(recipe.cache_limit * _GIB)
        for entry in store.make_room((folder / SHARD).stat().st_size, limit):
            logger.info("cache: removed %s (%s)", entry.key, human_size(entry.bytes))
    found = store.find(key, just_written=True)
    assert found is not None  # just renamed into its place
    return found
