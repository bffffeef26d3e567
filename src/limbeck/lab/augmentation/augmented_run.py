"""Augmented examples of the training rows: the augmenter, and the rows with them.

Part of `limbeck.lab.augmentation`. Unsuitable rows raise an error while a run is prepared; the examples are
made, or found where an earlier run stored them, when everything else has been checked.
"""

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetInfo, Features, Value
from datasets.arrow_writer import ArrowWriter
from datasets.fingerprint import Hasher
from rich.console import Console
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from limbeck import preflight
from limbeck.data.row_facts import facts_of
from limbeck.lab.augmentation.candidates import (
    Candidates,
    Watch,
    augmented_examples_of,
    check_file,
    find_candidates,
    unwatched,
)
from limbeck.lab.augmentation.progressive_edits import Editor
from limbeck.outputs.cache import SHARD, Store, StoredEntry, default_store, describe
from limbeck.outputs.key import add_model, library_versions
from limbeck.outputs.manifest import ExamplesManifest
from limbeck.recipe import Recipe
from limbeck.recipe.augment_spec import FROM_TEACHER, AugmentSpec
from limbeck.run.prepared import Prepared
from limbeck.run.rows import EncodedRows
from limbeck.students import load_model, resolve_checkpoint
from limbeck.support import files, machine, terminal, words
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.positions import positions_of
from limbeck.tasks import TEXT_READING, Task

_FORMAT = 2
_ROW, _INDEX = "row", "index"
# Rows whose augmented examples are written at once.
_CHUNK = 1000
# Rows whose augmented examples are edited side by side: their words of one place are read at once.
_EDITED = 200


@dataclass(frozen=True)
class Augmenter:
    """An augmenter: the settings, and the model with its tokenizer.

    Attributes:
        model, tokenizer: the masked language model, or whose word vectors are taken; None where a file has them all.
        longest: tokens of a text that the model reads.
        precision: fp32 or bf16: the autocast type of its passes.
    """

    spec: AugmentSpec
    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase | None
    longest: int
    precision: str = "fp32"

    def key(self, rows: Dataset, columns: Sequence[str]) -> str:
        """The key of these rows' augmented examples: everything that they follow from."""
        digest = hashlib.blake2b(digest_size=16)
        settings = self.spec.model_dump(mode="json", exclude={"model", "embeddings"})
        how = [_FORMAT, "copies", settings, self.longest, self.precision, library_versions()]
        digest.update(json.dumps(how).encode())
        if self.tokenizer is not None:
            digest.update(TEXT_READING.describe(self.tokenizer).encode())
        if self.model is not None:
            add_model(digest, self.model)
        for column in (_INDEX, *columns):
            digest.update(json.dumps([column, rows[column][:]]).encode())
        if self.spec.embeddings is not None:
            with files.at_home(self.spec.embeddings).open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        return digest.hexdigest()


def build_augmented_examples(
    folder: Path,
    augmenter: Augmenter,
    rows: Dataset,
    columns: Sequence[str],
    *,
    task: str | None = None,
    watch: Watch = unwatched,
) -> None:
    """Write the augmented examples of `rows` into `folder`: the text columns, and `row`, a place in `rows`.

    Args:
        columns: the text columns; each of them is changed in every augmented example.
        task: the task of the rows, for the entry's description.
        watch: as for `find_candidates`.
    """
    began = time.perf_counter()
    texts = [rows[column][:] for column in columns]
    candidates = find_candidates(
        (text for column in texts for text in column),
        augmenter.spec,
        augmenter.model,
        augmenter.tokenizer,
        longest=augmenter.longest,
        precision=augmenter.precision,
        watch=watch,
    )
    advance = watch("rows augmented", len(rows))

    def augmented() -> Iterator[tuple[int, tuple[str, ...]]]:
        numbered = ((number, own) for number, *own in zip(rows[_INDEX][:], *texts, strict=True))
        for place, examples in enumerate(_examples(numbered, augmenter, candidates)):
            yield from ((place, example) for example in examples)
            advance(1)

    count = _write(folder / SHARD, columns, augmented())
    manifest = ExamplesManifest(
        complete=False,
        model=str(augmenter.spec.model or augmenter.spec.embeddings),
        task=task,
        rows=count,
        settings={"precision": augmenter.precision},
        costs={"seconds": time.perf_counter() - began},
    )
    describe(folder, manifest, count)


def _examples(
    rows: Iterator[tuple[int, list[str]]], augmenter: Augmenter, candidates: Candidates
) -> Iterator[list[tuple[str, ...]]]:
    """The augmented examples of each of the rows: their numbers and text columns."""
    spec = augmenter.spec
    if spec.context == "edited":
        assert augmenter.model is not None and augmenter.tokenizer is not None
        editor = Editor(
            spec,
            augmenter.model,
            augmenter.tokenizer,
            longest=augmenter.longest,
            precision=augmenter.precision,
        )
        while chunk := list(islice(rows, _EDITED)):
            yield from editor.examples(chunk, candidates)
        return
    for number, texts in rows:
        yield augmented_examples_of(
            texts,
            [candidates[text] for text in texts],
            row=number,
            examples=spec.examples,
            probability=spec.probability,
            seed=spec.seed,
        )


def _write(
    path: Path, columns: Sequence[str], examples: Iterator[tuple[int, tuple[str, ...]]]
) -> int:
    features = Features({_ROW: Value("int64")} | {column: Value("string") for column in columns})
    count = 0
    with ArrowWriter(features=features, path=str(path)) as writer:
        while chunk := list(islice(examples, _CHUNK)):
            count += len(chunk)
            values = zip(*(texts for _, texts in chunk), strict=True)
            parts = {_ROW: [place for place, _ in chunk], **dict(zip(columns, values, strict=True))}
            writer.write_table(pa.table(parts, schema=features.arrow_schema))
        writer.finalize()
    return count


def read_augmented_examples(entry: StoredEntry) -> pa.Table:
    """What `build_augmented_examples` wrote, mapped into memory."""
    return pa.ipc.open_stream(pa.memory_map(str(entry.table))).read_all()


def rows_and_examples(rows: Dataset, augmented: pa.Table, first: int, key: str) -> Dataset:
    """The rows, then their augmented examples: each with its row's label, and a number (`index`) of its own.

    Args:
        first: the number of the first augmented example, above all others.
        key: what identifies the augmented examples in the store, and their rows among others.
    """
    table: pa.Table = rows.with_format("arrow")[:]
    changed = {*augmented.column_names, _INDEX}
    inherited = table.drop_columns([name for name in table.column_names if name in changed])
    numbers = first + np.arange(len(augmented))
    made = inherited.take(augmented[_ROW])
    for name in changed & {*table.column_names}:
        made = made.append_column(name, pa.array(numbers) if name == _INDEX else augmented[name])
    made = made.select(table.column_names).cast(table.schema)
    return Dataset(
        pa.concat_tables([table, made]),
        info=DatasetInfo(features=rows.features),
        fingerprint=Hasher.hash([rows._fingerprint, first, key]),
    )


logger = logging.getLogger(__name__)

_GIB = 2**30


def load_augmenter(recipe: Recipe, task: Task, rows: Dataset) -> Augmenter:
    """The augmenter of these training rows.

    Raises:
        LimbeckError: rows that are not text with one label, no teacher where one is to propose words, or a
            checkpoint that is no trained masked language model or has no tokenizer for it.
    """
    spec = recipe.augment
    assert spec is not None  # requested
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
        return Augmenter(spec, None, None, recipe.max_length)
    masked = spec.replace_by == "masked"
    model = _masked_language_model(name) if masked else load_model(name, auto=AutoModel)
    tokenizer = AutoTokenizer.from_pretrained(resolve_checkpoint(name), trust_remote_code=False)
    problems = preflight.model_checks.check_vocabulary("augment.model", model, tokenizer)
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
    longest = min(recipe.max_length, positions_of(model) or recipe.max_length)
    return Augmenter(spec, model, tokenizer, longest)


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
    """The run with augmented rows instead of its training rows.

    Every stage that trains on these rows has them. A first stage's own rows, such as another
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
    augmenter: Augmenter,
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
    console = terminal.messages(shown=show)
    augmenter = replace(augmenter, precision=recipe.precision)
    store, key = default_store(), augmenter.key(rows, task.text_columns)
    entry = store.find(key)
    if entry is None:
        with store.lock(key):
            # Another process may have made them while this one waited.
            entry = store.find(key) or _made(recipe, augmenter, task, rows, store, key, console)
    augmented = read_augmented_examples(entry)
    if not len(augmented):
        raise LimbeckError(
            f"augment: none of the {len(rows)} training rows has a word that anything could replace",
            "check that the words of augment.model or augment.embeddings are of the rows' language, or leave it out",
        )
    console.print(
        f"augmentation: {len(augmented)} augmented examples of {len(rows)} rows, {words.human_size(entry.bytes)}",
        highlight=False,
    )
    return rows_and_examples(rows, augmented, first, key)


def _made(
    recipe: Recipe,
    augmenter: Augmenter,
    task: Task,
    rows: Dataset,
    store: Store,
    key: str,
    console: Console,
) -> StoredEntry:
    store.sweep()
    model: nn.Module | None = augmenter.model
    if model is not None:
        model.to(machine.device())
    with store.writing(key) as folder:
        with terminal.bars(console) as watch:
            build_augmented_examples(
                folder, augmenter, rows, task.text_columns, task=recipe.task, watch=watch
            )
        limit = int(recipe.cache_limit * _GIB)
        for entry in store.make_room((folder / SHARD).stat().st_size, limit):
            logger.info("cache: removed %s (%s)", entry.key, words.human_size(entry.bytes))
    found = store.find(key, just_written=True)
    assert found is not None  # just renamed into its place
    return found
