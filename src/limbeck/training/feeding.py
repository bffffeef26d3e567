"""Which examples a step is made of, in which order, and how much each part of a step weighs.

Part of `limbeck.training`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset as Rows
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler, Subset
from transformers import Trainer
from transformers.trainer_utils import has_length

from limbeck.data import EpochSampler
from limbeck.data.row_facts import facts_of
from limbeck.data.samplers import MixedSampler, QuerySampler, together
from limbeck.functional.labels import has_label
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import RepeatedExamples, SentBatch, on_host, send
from limbeck.tasks import TaskType
from limbeck.tasks.abstract_type import labelled_rows

Count = int | Tensor
"""A number; a tensor where only the device knows it, which no step waits for."""


class BatchCounts(NamedTuple):
    """How many examples a batch, or a step, holds, and how many of them have a label."""

    examples: Count
    labelled: Count

    @classmethod
    def of(cls, batch: Any, label_column: str) -> "BatchCounts":
        """Those of a batch; where it has no such column, all examples are taken as labelled."""
        if isinstance(on_host(batch), RepeatedExamples):
            return cls(0, 0)
        examples, labels = examples_in(batch), on_host(batch).get(label_column)
        if not isinstance(labels, Tensor):
            return cls(examples, examples)
        known = has_label(labels)
        if known.dim() > 1:  # by token: an example counts that has any
            known = known.flatten(1).any(1)
        found = known.sum()
        return cls(examples, int(found) if found.device.type == "cpu" else found)

    @classmethod
    def together(cls, counts: "Iterable[BatchCounts]") -> "BatchCounts":
        """Those of several batches together."""
        each = list(counts)
        return cls(sum(one.examples for one in each), sum(one.labelled for one in each))

    def on(self, device: torch.device) -> Tensor:
        """Both on a device, float32 (1, 2), without waiting for it."""
        return torch.stack([torch.ones((), device=device) * count for count in self])[None]


class BatchWeights(NamedTuple):
    """The weight of a micro-batch relative to the mean of its step's, by the examples that a term averages over."""

    examples: float | Tensor = 1.0
    labelled: float | Tensor = 1.0

    @property
    def even(self) -> bool:
        """Whether it weighs as much as the others in every term, as far as the host knows."""
        return all(isinstance(weight, float) and weight == 1.0 for weight in self)

    def weighed(
        self, terms: Mapping[str, Tensor], of_labelled: frozenset[str]
    ) -> dict[str, Tensor]:
        """The weighted sum of the terms; `of_labelled` names the terms that are means over labeled examples."""
        return {
            name: value * (self.labelled if name in of_labelled else self.examples)
            for name, value in terms.items()
        }


@dataclass(frozen=True)
class StepCounts:
    """The number of examples in an optimization step.

    Attributes:
        parts: micro-batches, of all processes.
        total: examples of all of them.
    """

    parts: int
    total: BatchCounts

    def weights_of(self, own: BatchCounts) -> BatchWeights:
        """The weights of a micro-batch of the step: 1 where all hold as much."""
        pairs = zip(own, self.total, strict=True)
        return BatchWeights(*(part * self.parts / _at_least_one(whole) for part, whole in pairs))


def _at_least_one(count: Count) -> Count:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def first_examples(batch: Any, count: int) -> dict[str, Any]:
    """So many of a batch's examples."""
    size = examples_in(batch)
    return {
        name: value[:count]
        if isinstance(value, Tensor) and value.dim() and len(value) == size
        else value
        for name, value in batch.items()
    }


def examples_in(batch: Any) -> int:
    """How many examples a batch holds."""
    sizes = (len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim())
    return next(sizes, 0)


# The weight of a micro-batch in its step. A term is a mean over the examples of a micro-batch, or over
# its labeled examples. The Trainer averages over micro-batches, and processes over each other: weighted by its share
# of the step's examples of either sort, every micro-batch contributes as it would to the mean over one large batch.

# When a batch goes to the device: in the step, and not when it is loaded.


class SendsBatches(Trainer):
    """A Trainer whose training steps read properties of a batch on the host, without waiting."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Keep batches on the host until a step, which reads the values that it needs there."""
        placed = self.accelerator.device_placement
        self.accelerator.device_placement = False
        try:
            return super().get_train_dataloader()
        finally:
            self.accelerator.device_placement = placed

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        # Evaluation's loader has sent them already, and their host copies are not needed.
        return SentBatch(super()._prepare_inputs(inputs), host=inputs)

    def _prepare_input(self, data: Any) -> Any:
        if isinstance(data, Tensor):
            return send(data, self.args.device)
        return super()._prepare_input(data)


GROUPED, SEQUENTIAL, REBALANCED = "group_by_length", "sequential", "batch_rebalance"
"""Values of `args.train_sampling_strategy`; the others are a random order."""

_LABELS = ("label", "label_ids", "labels", "index")


class FeedsExamples(SendsBatches):
    """A Trainer whose orders are functions of seed and epoch, and whose steps weigh examples alike."""

    kind: TaskType
    group_by_length: bool | None = False
    """None: where `may_group` and lengths are known."""
    may_group: bool = False
    labelled_share: float | None = None
    candidates: int | None = None
    _order: EpochSampler | MixedSampler | QuerySampler | None = None
    _in_step: StepCounts | None = None

    @property
    def sharing(self) -> int:
        """Among how many processes the examples of a forward pass are divided."""
        return getattr(self.args, "sharing", 0) or self.args.world_size

    # ---- columns ----

    def columns_read(self) -> Sequence[str]:
        """The fields that a reader of a batch takes from an example; each reader takes the ones that it names."""
        raise NotImplementedError

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            columns = dict.fromkeys([*self.columns_read(), *_LABELS, *self.kind.extra_columns])
            self._signature_columns = list(columns)  # type: ignore[assignment]  # declared as None there

    def readable(self, rows: Any) -> tuple[Any, Any]:
        """Rows without unused columns, and the collator that makes batches of them."""
        if isinstance(rows, Rows):
            return self._remove_unused_columns(rows), self.data_collator
        return rows, self._get_collator_with_removed_columns(self.data_collator)

    # ---- order ----

    @property
    def training_rows(self) -> int | None:
        """The number of training examples in an epoch; None if unknown."""
        if self._order is not None:
            return len(self._order)
        rows: Any = self.train_dataset
        return len(rows) if rows is not None and has_length(rows) else None

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[Any] | None:
        dataset: Any = train_dataset if train_dataset is not None else self.train_dataset
        strategy = getattr(self.args, "train_sampling_strategy", "random")
        share, alone = self.labelled_share, self.kind.group_column is None
        known = strategy not in (SEQUENTIAL, REBALANCED) and has_length(dataset)
        if share is not None and not (known and alone):
            why = f"train_sampling_strategy={strategy}: batches have a fixed order, or the number of rows is unknown"
            raise LimbeckError(
                f"labelled_share={share:g}, "
                + (why if alone else "and the candidates of a query belong into one batch"),
                "leave one of them out",
            )
        if not known:
            return super()._get_train_sampler(train_dataset)
        found = self._lengths(dataset, strategy)
        lengths = None if found is None else np.asarray(found)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        size = self._train_batch_size * self.sharing
        if share is not None:
            labelled = labelled_examples(dataset)
            self._order = MixedSampler(
                labelled, seed, share=share, batch_size=size, lengths=lengths
            )
            return self._order
        self._order = self._together(dataset, seed, lengths)
        if self._order is None:
            size *= self.args.gradient_accumulation_steps * self.args.world_size // self.sharing
            self._order = EpochSampler(dataset, seed, lengths=found, batch_size=size)
        return self._order

    def _together(self, dataset: Any, seed: int, lengths: np.ndarray | None) -> QuerySampler | None:
        """The order of rows that belong together; None if rows are independent.

        Raises:
            LimbeckError: some candidates of each query are requested, but the rows do not identify their query.
        """
        found = together(
            self.kind,
            facts_of(dataset),
            seed,
            batch_size=self._train_batch_size * self.sharing,
            candidates=self.candidates,
            lengths=lengths,
        )
        if found is None and self.candidates is not None:
            column = self.kind.group_column
            raise LimbeckError(
                f"candidates={self.candidates}: the training examples are no candidates of queries",
                f"give them a column {column}" if column else "leave it out",
            )
        return found

    def _lengths(self, dataset: Any, strategy: str) -> Sequence[int] | np.ndarray | None:
        """Lengths by which batches hold similar examples; None where they are not to, or all are alike.

        Raises:
            LimbeckError: they are requested, but unknown.
        """
        asked = self.group_by_length or strategy == GROUPED
        if not asked and not (self.group_by_length is None and self.may_group):
            return None
        name = getattr(self.args, "length_column_name", "length")
        try:
            found: Sequence[int] | np.ndarray | None = facts_of(dataset).lengths_of(
                self.kind.reads, name
            )
            return found
        except LimbeckError:
            if asked:
                raise
            return None

    def _get_eval_sampler(self, eval_dataset: Dataset[Any]) -> Sampler[Any] | None:
        if not has_length(eval_dataset):
            return None
        return SequentialSampler(cast(Any, eval_dataset)) if self.args.world_size <= 1 else None

    def start_epoch(self, epoch: int) -> None:
        """Pass an epoch, counted from 0, to the sampler and the examples.

        The Trainer sets it on the sampler too, but does not reach it behind the wrappers of a run that
        is continued in several processes.
        """
        if self._order is not None:
            self._order.set_epoch(epoch)

    # ---- weight ----

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> Any:
        """As the Trainer's; also counts the step's examples, on the host if they are there."""
        samples = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._drop_repeated(samples[0])
        own = [self.counts_of(batch) for batch in samples[0]]
        parts, total = len(own), BatchCounts.together(own)
        if self.args.world_size > 1 and self.args.average_tokens_across_devices:
            # Stays on the device: no step waits for it.
            everywhere = self.accelerator.gather(total.on(device)).sum(0)
            parts, total = parts * self.args.world_size, BatchCounts(*everywhere)
        self._in_step = StepCounts(parts, total)
        return samples

    def _drop_repeated(self, batches: list[Any]) -> None:
        """Leave out what fills up an epoch's last batches in several processes: examples from its beginning.

        So that a step holds the same examples whatever the number of processes. A process of which nothing is left
        keeps one that counts for nothing, as every process takes part in every step.
        """
        if self._order is None or not batches or self.args.dataloader_drop_last:
            return
        own = self._not_repeated(batches[-1], len(self._order), self._train_batch_size)
        if own < examples_in(batches[-1]):
            kept = first_examples(batches[-1], max(own, 1))
            batches[-1] = kept if own else RepeatedExamples(kept)

    def _not_repeated(self, batch: Any, total: int, size: int) -> int:
        """How many examples of the loader's current batch are no repetition of its first ones.

        The loader deals `total` examples out to the processes, `size` to each in turn, and fills up the last round.
        """
        count = examples_in(batch)
        over = total % (size * self.args.world_size)
        last = self.accelerator.gradient_state.end_of_dataloader
        if self.args.world_size <= 1 or not over or not last:
            return count
        found: int = min(max(over - self.args.process_index * size, 0), count)
        return found

    def counts_of(self, batch: Any) -> BatchCounts:
        """How many examples a batch of this task type holds, and how many of them have a label."""
        return BatchCounts.of(batch, self.kind.label_names[0])

    def weights_of(self, counts: BatchCounts) -> BatchWeights:
        """The weight of a micro-batch with this number of examples in the current step.

        Weighed so, every example counts alike in a step, and every labelled one in the terms of labels, whichever
        micro-batch or process it is in.
        """
        return BatchWeights() if self._in_step is None else self._in_step.weights_of(counts)


def labelled_examples(rows: Any) -> np.ndarray:
    """Which training examples have a label, (n,) of bool.

    Raises:
        LimbeckError: they have no column `labels` of class ids or numbers.
    """
    labels = facts_of(rows).labels
    if labels is None:
        raise LimbeckError(
            "labelled_share: the training examples have no column labels to look at",
            "pass a tokenised datasets.Dataset with one class id or number a row, or leave it out",
        )
    return labelled_rows(labels)


def numbered(rows: Any) -> Any:
    """Rows with a column `index` that counts them; unchanged if they have one, or support none."""
    if not isinstance(rows, Rows) or "index" in rows.column_names:
        return rows
    return rows.add_column("index", list(range(len(rows))))


def padded(batch: Any, width: int, padding: int) -> Any:
    """A batch of text on whose right every example has `width` tokens, the new ones `padding`.

    Raises:
        LimbeckError: an example has more.
    """
    tokens = batch.get("input_ids")
    if tokens is None or tokens.shape[1] == width:
        return batch
    known = tokens.shape[1]
    if known > width:
        raise LimbeckError(
            f"pad_to {width}: a batch has {known} tokens",
            "truncate the rows to that length, or set another: Recipe.load(METHOD, pad_to=…)",
        )
    columns = {"attention_mask": torch.ones_like(tokens), **batch}
    fills = {"input_ids": padding, "labels": -100}
    return batch | {
        name: nn.functional.pad(value, (0, width - known), value=fills.get(name, 0))
        for name, value in columns.items()
        if isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == known
    }


# Rows held out of training to measure progress, used to learn which teacher to sample.

HELD_OUT = 128
"""The default number of training rows to hold out."""


def hold_out(rows: Any, count: int | None, seed: int) -> tuple[Any, Any]:
    """Rows to measure progress on, sampled from the labelled training rows, and the remaining training rows.

    Raises:
        LimbeckError: there are no more rows than are to be held out.
    """
    count, known = count or HELD_OUT, 0 if rows is None else len(rows)
    labelled = _labelled(rows, known)
    if count >= len(labelled):
        raise LimbeckError(
            f"team.holdout: {count} of {len(labelled)} training rows",
            "hold out fewer, train on more, or pass holdout=: rows that are not trained on",
        )
    order = labelled[np.random.default_rng([seed, count]).permutation(len(labelled))]
    held = np.sort(order[:count])
    places = held, np.setdiff1d(np.arange(known), held)
    take = getattr(rows, "select", None) or (lambda chosen: Subset(rows, chosen.tolist()))
    aside, left = (take(chosen) for chosen in places)
    return aside, left


def _labelled(rows: Any, known: int) -> np.ndarray:
    """Indices of the rows that can measure progress: in a table, the rows with a label for the entire example."""
    labels = facts_of(rows).labels
    return np.arange(known) if labels is None else np.flatnonzero(labelled_rows(labels))
