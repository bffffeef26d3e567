"""All augmented examples of a split: made once, written as they are made, and put behind the rows.

Part of `limbeck.lab.augmentation`. Only texts are stored, with the place of the row they come from: labels
are the row's own, whatever they are when the augmented examples are read.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetInfo, Features, Value
from datasets.arrow_writer import ArrowWriter
from datasets.fingerprint import Hasher
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.lab.augmentation.candidates import (
    Candidates,
    Watch,
    augmented_examples_of,
    find_candidates,
    unwatched,
)
from limbeck.lab.augmentation.progressive_edits import Editor
from limbeck.outputs.cache import SHARD, StoredEntry, describe
from limbeck.outputs.key import add_model, library_versions
from limbeck.outputs.manifest import ExamplesManifest
from limbeck.recipe.augment_spec import AugmentSpec
from limbeck.support.files import at_home
from limbeck.tasks import TEXT_READING

_FORMAT = 2
_ROW, _INDEX = "row", "index"
# Rows whose augmented examples are written at once.
_CHUNK = 1000
# Rows whose augmented examples are edited side by side: their words of one place are read at once.
_EDITED = 200


@dataclass(frozen=True)
class Augmenter:
    """What makes augmented examples: the settings, and the model with its tokenizer.

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
        """What the augmented examples of these rows are found by: everything that they follow from."""
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
            with at_home(self.spec.embeddings).open("rb") as file:
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
        task: what the entry says of whose rows they are.
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
