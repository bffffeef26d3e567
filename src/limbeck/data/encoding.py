"""From rows to token ids or pixels: each split is encoded once, before the first epoch.

Between the loaded rows and the batches. Padding waits for the collator, so that a batch is only as
wide as its longest example.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset, Features, List, Value, concatenate_datasets
from datasets.fingerprint import Hasher
from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import Tensor

from limbeck import tasks
from limbeck.data.row_facts import RowFacts, facts_of
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.machine import accelerator
from limbeck.tasks.modality import encode_cut
from limbeck.tasks.rules import CUT, ROW, pad_column
from limbeck.tasks.task import Task
from limbeck.teachers.teacher import SPANS, TEACHER_COLUMN, ModelInputs


def encode(
    dataset: Dataset,
    task: Task,
    tokenizer: tasks.Processor,
    max_length: int,
    *,
    progress: bool = False,
) -> tuple[Dataset, int]:
    """Encode a loaded split; returns it with how many examples lost text to `max_length`.

    The result has the tokenizer's columns (of images `pixel_values`, as bytes), "index", and what
    the task's kind makes of its labels where the split has them: "labels" (int64, or float32 for
    regression) of a class, a list of them by token, or "start_positions" and "end_positions".
    `progress` shows a bar. The fingerprint depends on the rows, the task, the tokenizer and
    `max_length` alone, so a rerun finds its cache.

    Raises LimbeckError for missing columns, an empty split, a tokenizer that is not a fast one, or
    a `max_length` that leaves no room for text.
    """
    raise_problems(_problems(dataset, task, tokenizer, max_length))

    label = task.kind.label_feature(task)

    def tokenize(rows: dict[str, list[Any]]) -> dict[str, Any]:
        found: dict[str, Any] = dict(task.kind.encode(task, tokenizer, max_length, rows))
        if isinstance(label, Value) and "labels" in found:
            labels = np.asarray(found["labels"])
            # Values that do not fit are left to Arrow's own cast below, which raises an error.
            if np.can_cast(labels.dtype, label.dtype, "same_kind"):
                found["labels"] = labels.astype(label.dtype)
        return found

    how = (task.name, task.kind.name, task.text_columns, task.labels)
    recipe = (dataset._fingerprint, how, task.kind.reads.describe(tokenizer), max_length)
    with progress_bars(progress):
        encoded = dataset.map(
            tokenize,
            batched=True,
            remove_columns=dataset.column_names,
            new_fingerprint=Hasher.hash(recipe),
            desc="Encoding",
        )
        truncated = sum(encoded[CUT])
        encoded = encoded.remove_columns(CUT)
        if ROW in encoded.column_names:
            encoded = encoded.add_column("index", list(range(len(encoded))))
        if label is not None and encoded.features.get("labels", label) != label:
            encoded = encoded.cast_column("labels", label)
    return encoded, truncated


@problem_list
def _problems(
    dataset: Dataset, task: Task, tokenizer: tasks.Processor, max_length: int
) -> Iterator[Problem]:
    missing = [c for c in (*task.text_columns, "index") if c not in dataset.column_names]
    if missing:
        yield Problem(
            f"task {task.name!r}: the data lack the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            f"columns that are there: {', '.join(dataset.column_names)}",
        )
    if len(dataset) == 0:
        yield Problem(f"task {task.name!r}: the split is empty", "check the data")
    yield from task.kind.reads.problems(tokenizer, max_length, len(task.text_columns))


# The datasets library shows its progress bars only on request.


@contextmanager
def progress_bars(shown: bool) -> Iterator[None]:
    """Show or hide the bars inside the block, then leave the setting as it was."""
    were_hidden = are_progress_bars_disabled()
    (enable_progress_bars if shown else disable_progress_bars)()
    try:
        yield
    finally:
        (disable_progress_bars if were_hidden else enable_progress_bars)()


# Rows too many to encode before the first step: each batch is encoded when it is requested. The
# rows themselves are in mapped files. Facts that a sampler and pre-flight need about all of them
# comes from the rows: labels, numbers, and lengths in bytes of text, which put batches of similar
# length together as tokens would.


AT_ONCE = 1_000_000
"""Rows that are encoded before the first step; of more, each batch is when its turn comes."""
_SAMPLE = 2048
_FEW = 8


class LazyRows(torch.utils.data.Dataset[Any], RowFacts):
    """Loaded rows that look encoded.

    Args:
        raw: as they were loaded.
        task: whose rows they are.
        tokenizer: makes a model's input of them.
        max_length: the longest, in tokens.
        places: which of the rows, in this order; all of them by default.

    Raises:
        LimbeckError: as `encode`, which is tried on the first few.
    """

    def __init__(
        self,
        raw: Dataset,
        task: Task,
        tokenizer: tasks.Processor,
        max_length: int,
        places: np.ndarray | None = None,
    ) -> None:
        self.raw, self.task, self.tokenizer, self.max_length = raw, task, tokenizer, max_length
        self.places = places
        few, _ = encode(raw.select(range(min(_FEW, len(raw)))), task, tokenizer, max_length)
        self.column_names = few.column_names

    @property
    def encoded(self) -> bool:
        """No: each batch is in its turn."""
        return False

    def __len__(self) -> int:
        return len(self.raw if self.places is None else self.places)

    def __getitem__(self, place: int) -> dict[str, Any]:
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.__getitems__([int(place) % len(self)])[0]

    def __getitems__(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Examples at some places, as a DataLoader requests the ones of a batch."""
        chosen = places if self.places is None else self.places[np.asarray(places)].tolist()
        rows = self.raw[list(chosen)]
        found = dict(self.task.kind.encode(self.task, self.tokenizer, self.max_length, rows))
        found.pop(CUT)
        return [
            dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)
        ]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def select(self, places: Sequence[int] | np.ndarray) -> "LazyRows":
        """Some of the rows."""
        chosen = np.asarray(places, dtype=np.int64)
        chosen = chosen if self.places is None else self.places[chosen]
        return LazyRows(self.raw, self.task, self.tokenizer, self.max_length, chosen)

    def _column(self, name: str) -> np.ndarray:
        values = self.raw.with_format("numpy")[name][:]
        found: np.ndarray = values if self.places is None else values[self.places]
        return found

    @cached_property
    def labels(self) -> np.ndarray:
        """Class ids or numbers (n,)."""
        return self._column(self.task.label_column)

    @property
    def numbers(self) -> np.ndarray:
        """Each example's `index`, (n,)."""
        return self._column("index")

    def groups(self, column: str) -> np.ndarray | None:
        """By the texts of the rows."""
        names = [name for name in self.task.text_columns if name in self.raw.column_names]
        found = self.task.kind.groups_of(self.task, {name: self.raw[name][:] for name in names})
        return found if found is None or self.places is None else found[self.places]

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of text of each example, (n,)."""
        table: pa.Table = self.raw.with_format("arrow")[:]
        total = np.zeros(len(self.raw), dtype=np.int32)
        for name in self.task.text_columns:
            start = 0
            for chunk in table.column(name).chunks:
                total[start : start + len(chunk)] += pc.binary_length(chunk).to_numpy(False)
                start += len(chunk)
        return total if self.places is None else total[self.places]

    def lengths_of(self, reads: tasks.Reading, column: str) -> np.ndarray:
        """Bytes of text, as the tokens are not counted."""
        return self.lengths

    @cached_property
    def mean_tokens(self) -> float:
        """Mean length of an example, by a sample of them spread over all."""
        step = max(len(self) // _SAMPLE, 1)
        some = self.__getitems__(list(range(0, len(self), step)))
        return float(np.mean([len(row["input_ids"]) for row in some]))

    def add_to(self, digest: Any) -> None:
        """Add all that the examples depend on to a digest (`hashlib`)."""
        table: pa.Table = self.raw.with_format("arrow")[:]
        about = [
            str(table.schema),
            tasks.TEXT_READING.describe(self.tokenizer),
            str(self.max_length),
        ]
        digest.update("\n".join(about).encode())
        for batch in table.to_batches():
            digest.update(batch.serialize())
        if self.places is not None:
            digest.update(self.places.tobytes())


# Rows for two models at once: one's tokens, and whatever else the other's tokenizer makes of them.
# Part of the data stage, after `encoding`.


_TOKENS = "input_ids"
# Padding must stay hidden from every model, whatever its tokenizer makes.
_MASK = "attention_mask"


def add_inputs(
    encoded: Dataset | LazyRows,
    rows: Dataset,
    task: Task,
    own: tasks.Processor,
    other: tasks.Processor,
    max_length: int,
    *,
    progress: bool = False,
) -> tuple[Dataset | LazyRows, ModelInputs | None]:
    """Add the columns of the `other` model's tokenizer to encoded rows, next to the token ids.

    Args:
        encoded: `rows` (all of them, in their order), encoded by the tokenizer `own`.

    Returns:
        The rows, with columns of the other model's where its inputs are not there yet; and how it finds its
        inputs, None if its token ids are others.

    Raises:
        LimbeckError: as `encode`, of the other tokenizer.
    """
    describe = tasks.TEXT_READING.describe
    if task.kind.reads is not tasks.TEXT_READING:
        return encoded, ModelInputs()
    if not facts_of(encoded).encoded or (
        own.is_fast and other.is_fast and describe(own) == describe(other)
    ):
        return encoded, ModelInputs()
    theirs, _ = encode(rows, task, other, max_length, progress=progress)
    if not _equal(theirs, _TOKENS, encoded, _TOKENS):
        return encoded, None
    names = [n for n in other.model_input_names if n != _TOKENS and n in theirs.column_names]
    found = {}
    for name in names:
        column = _column_with(name, theirs, encoded)
        if column not in encoded.column_names:
            more = theirs.select_columns([name]).rename_column(name, column)
            encoded = concatenate_datasets([encoded, more], axis=1)
        if column != name:
            found[name] = column
    made = [name for name in own.model_input_names if name in encoded.column_names]
    return encoded, ModelInputs(found, frozenset(made) - {*names, _TOKENS, _MASK})


def spans_of(
    encoded: Dataset | LazyRows,
    rows: Dataset,
    task: Task,
    tokenizer: tasks.Processor,
    max_length: int,
    *,
    progress: bool = False,
) -> Dataset:
    """The characters of `rows` that each token of `encoded` covers: in one column, `SPANS`.

    Raises:
        LimbeckError: the task type's tokens do not come from its texts.
    """

    def found(batch: dict[str, list[Any]]) -> dict[str, Any]:
        texts = task.kind.texts(task, batch)
        made = encode_cut(tokenizer, *texts, max_length=max_length)
        return {SPANS: [_spans(one, tokenizer) for one in made.encodings]}

    features = Features({SPANS: List(Value("int32"))})
    with progress_bars(progress):
        made = rows.map(
            found,
            batched=True,
            remove_columns=rows.column_names,
            features=features,
            desc="Finding characters",
        ).with_format("numpy")
    tokens = [3 * length for length in tasks.TEXT_READING.lengths(encoded) or ()]
    if [len(spans) for spans in made[SPANS]] != tokens:
        raise LimbeckError(
            f"task type {task.kind.name}: its tokens do not come from its texts, so that tokens of two tokenizers "
            "cannot be aligned",
            "compare outputs or pooled states, or choose models of one vocabulary",
        )
    return made


def _spans(encoding: Any, tokenizer: tasks.Processor) -> list[int]:
    """(segment, start, end) of each token of one example.

    Segments 0 and 1 are its texts; 2 is the role of the token that opens it, 3 and 4 of the tokens that end the
    first and the second text. A special token has one place there.
    """
    opening = {tokenizer.cls_token_id, tokenizer.bos_token_id}
    found, ended = [], 3
    parts = zip(encoding.ids, encoding.sequence_ids, encoding.offsets, strict=True)
    for token, text, (start, end) in parts:
        if text is None:
            found += [2 if token in opening else ended, 0, 1]
        else:
            found += [text, start, end]
            ended = 3 + text
    return found


def _column_with(name: str, theirs: Dataset, encoded: Dataset) -> str:
    """The column that holds, or is to hold, an input of the other model."""
    if name in encoded.column_names and _equal(theirs, name, encoded, name):
        return name
    for number in count(1):
        column = f"{TEACHER_COLUMN}{name}" + (f"_{number}" if number > 1 else "")
        if column not in encoded.column_names or _equal(theirs, name, encoded, column):
            break
    return column


def _equal(left: Dataset, name: str, right: Dataset, column: str) -> bool:
    if len(left) != len(right):
        return False
    values, others = (
        rows.with_format("arrow")[:][own] for rows, own in ((left, name), (right, column))
    )
    return bool(values.cast(others.type).equals(others))


# ---- from encoded examples to one batch ----


# What evaluation draws with; in training epoch e (from 0) draws with e + 1.
_EVALUATION_SEED = 0
_TILE = 8


class Collator:
    """Stacks encoded rows, text padded: `Collator(tokenizer)(rows)` → tensors.

    "labels" come out as int64 class ids or float32 numbers, and only if the rows have them; "index"
    as int64. Other task types bring the labels of theirs: by token, padded with −100, or as
    positions. `pad_to_multiple_of` rounds the width of text up: by default to 8 where there is an
    accelerator, whose matrix units work in tiles, and not at all on CPU. `pad_to` gives every
    batch that very width instead, as releases have it whose losses count padding. `tokenizer` is an
    image processor where the kind reads images. Raises LimbeckError for a tokenizer without a
    padding token, and for `pad_to` where examples have no padding.
    """

    def __init__(
        self,
        tokenizer: tasks.Processor,
        pad_to_multiple_of: int | None = None,
        *,
        pad_to: int | None = None,
        kind: tasks.TaskType = tasks.SENTENCE,
    ) -> None:
        self.kind = kind
        self.pad_to = pad_to
        if pad_to is not None and not kind.reads.pads:
            raise LimbeckError(
                f"pad_to {pad_to}: {kind.reads.noun}s are of one size and have no padding",
                "leave pad_to out",
            )
        self.tokenizer = tokenizer
        self.step = pad_to_multiple_of or (_TILE if accelerator() else None)
        kind.reads.check(tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate the rows of an encoded split, as evaluation reads them.

        Raises LimbeckError for a row longer than `pad_to`.
        """
        kept = [
            {name: value for name, value in row.items() if name not in self.kind.scoring_columns}
            for row in rows
        ]
        width = self._width(kept)
        labels = self.kind.pad_labels(kept, self.tokenizer, width)
        others = self._inputs_of_others(kept, width)
        batch = self.kind.reads.stack(kept, self.tokenizer, width) | labels | others
        if "labels" in batch and batch["labels"].is_floating_point():
            batch["labels"] = batch["labels"].to(torch.float32)
        return self.kind.draw(batch, self.tokenizer, _EVALUATION_SEED, 0)

    def _inputs_of_others(self, rows: list[dict[str, Any]], width: int) -> dict[str, torch.Tensor]:
        """Inputs of teachers only, taken out of `rows`: a tokenizer pads only its own columns."""
        names = [name for name in rows[0] if name.startswith(TEACHER_COLUMN)]
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        return {
            name: pad_column([row.pop(name) for row in rows], width, 0, left=left) for name in names
        }

    def _width(self, rows: Sequence[Mapping[str, Any]]) -> int:
        if self.pad_to is None:
            return self.kind.reads.width(rows, self.step)
        longest = self.kind.reads.width(rows, None)
        if longest > self.pad_to:
            raise LimbeckError(
                f"pad_to {self.pad_to}: a row has {longest} tokens",
                "raise pad_to, or encode rows with a lower max_length",
            )
        return self.pad_to

    def for_epoch(self, batch: dict[str, Any], *, seed: int, epoch: int) -> dict[str, Any]:
        """The batch as training reads it in an epoch, counted from 0.

        Masked text hides other words each time, and images are cropped and mirrored again, as a
        function of (seed, epoch, index) alone.
        """
        return self.kind.draw(batch, self.tokenizer, seed, epoch + 1)


# Encoded rows in batches on a device: how a model is run over rows outside of training. Part of
# the data stage, after the collator.


Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]


def batches_of(
    rows: Any,
    collate: Collate,
    size: int,
    device: torch.device | str,
    *,
    order: Sequence[int] | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Walk over rows once.

    Args:
        rows: a `Dataset`, or anything with a length and examples by number.
        collate: makes a batch of examples.
        size: examples in a batch; the last one may have fewer.
        device: the device of the batches.
        order: places of the rows, all or some, in their order; by default their own.
    """
    places = range(len(rows)) if order is None else order
    for start in range(0, len(places), size):
        batch = collate(_examples(rows, [int(place) for place in places[start : start + size]]))
        yield {name: value.to(device) for name, value in batch.items()}


def _examples(rows: Any, places: list[int]) -> list[dict[str, Any]]:
    if not isinstance(rows, Dataset):
        return [rows[place] for place in places]
    # One read for all of them, where each alone is a read of the table.
    columns = rows[places]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
