"""Masked language modelling: tokens that were masked in a text. Part of `limbeck.tasks`.

Which tokens are masked changes every epoch, as a pure function of (seed, epoch, index): a run that
is killed and continued hides the same words, and teacher and student read the same text. Evaluation
always hides the same ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Value
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.activations.compat import MASKED_LANGUAGE_MODELS
from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.tasks.abstract_type import TASK_TYPES, task_type
from limbeck.tasks.long_texts import encode_cut
from limbeck.tasks.positions import LabelledPositions
from limbeck.tasks.rules import CUT, need_labels, need_rows, truncated
from limbeck.tasks.task_like import Batch, Labels, Results, Rows, TaskLike

# Devlin et al. 2019, §3.1: 15 % of the tokens, of which 80 % are masked, 10 % another word and 10 %
# left as they are.
_SHARE, _HIDDEN, _REPLACED = 0.15, 0.8, 0.1


@task_type("masked")
class Masked(LabelledPositions):
    """Masked-language modelling."""

    summary = "tokens masked from a text; scored by the share found, and perplexity"
    auto = AutoModelForMaskedLM
    heads = MASKED_LANGUAGE_MODELS
    over_vocabulary = True
    rows_without_labels = True

    @property
    def resampled(self) -> str:
        """The masked tokens."""
        return f"the tokens masked from a text ({self.name})"

    def features(self, task: TaskLike) -> dict[str, Any]:
        """Text alone: it is its own label."""
        return {column: Value("string") for column in task.text_columns}

    def encode(
        self, task: TaskLike, tokenizer: PreTrainedTokenizerBase, max_length: int, rows: Rows
    ) -> Rows:
        """The whole text; tokens are masked batch by batch."""
        encoded = encode_cut(tokenizer, *self.texts(task, rows), max_length=max_length)
        return {**encoded, "index": rows["index"], CUT: truncated(encoded)}

    def draw(
        self, batch: dict[str, Tensor], tokenizer: PreTrainedTokenizerBase, seed: int, epoch: int
    ) -> dict[str, Tensor]:
        """Hide other words than before; at least one of each text that has any.

        Raises LimbeckError for a tokenizer without a mask token, or a batch without `index`.
        """
        if tokenizer.mask_token_id is None:
            raise LimbeckError(
                f"{type(tokenizer).__name__} has no mask token",
                "use a model that was pretrained by masked-language modelling",
            )
        if "index" not in batch:
            raise LimbeckError(
                "the batch has no index column to choose masked tokens by",
                "give every example a number in a column named index",
            )
        device, known = batch["input_ids"].device, on_host(batch)
        ids = known["input_ids"].cpu().numpy()
        if "labels" in known:
            labels = known["labels"].cpu().numpy()
            ids = np.where(labels == NO_LABEL, ids, labels)
        usable = (known["attention_mask"].cpu().numpy() > 0) & ~np.isin(
            ids, tokenizer.all_special_ids
        )
        hidden, labels = ids.copy(), np.full_like(ids, NO_LABEL)
        for row, index in enumerate(known["index"].tolist()):
            places = np.flatnonzero(usable[row])
            random = np.random.default_rng([seed, epoch, index])
            chosen = random.permutation(places)[: max(1, round(_SHARE * len(places)))]
            fate = random.random(len(chosen))
            others = random.integers(len(tokenizer), size=len(chosen))
            replaced = np.where(fate < _HIDDEN + _REPLACED, others, ids[row, chosen])
            hidden[row, chosen] = np.where(fate < _HIDDEN, tokenizer.mask_token_id, replaced)
            labels[row, chosen] = ids[row, chosen]
        masked = {"input_ids": hidden, "labels": labels}
        return batch | {name: send(torch.from_numpy(new), device) for name, new in masked.items()}

    def compact_outputs(self, model: PreTrainedModel, batch: Batch, logits: Tensor) -> Tensor:
        """By example: sum of negative log likelihoods, number of masked tokens, how many found."""
        need_labels(batch, self.label_names)
        labels = batch["labels"]
        valid = labels != NO_LABEL
        rows = valid.nonzero()[:, 0]
        # In full precision on every device: counts are exact up to 2^24 in float32.
        losses = nn.functional.cross_entropy(logits[valid].float(), labels[valid], reduction="none")
        found = (logits[valid].argmax(-1) == labels[valid]).float()
        sums = torch.zeros(len(labels), 3, device=logits.device)
        for column, values in enumerate((losses, torch.ones_like(losses), found)):
            sums[:, column].index_add_(0, rows, values)
        return sums

    def results(
        self,
        task: TaskLike,
        outputs: np.ndarray,
        encoded: Dataset,
        rows: Dataset,
        tokenizer: PreTrainedTokenizerBase,
    ) -> Results:
        """Share of masked tokens found, 0 to 100, and perplexity over all of them, unscaled.

        `prediction` counts the tokens found, `label` those that were masked.
        """
        loss, hidden, found = outputs.astype(np.float64).sum(axis=0)
        scores = {
            "accuracy": 100 * found / hidden,
            # A diverged model's is beyond what a float holds.
            "perplexity": math.exp(min(loss / hidden, 700.0)),
        }
        kept = {
            "index": encoded["index"][:],
            "prediction": outputs[:, 2].astype(int).tolist(),
            "label": outputs[:, 1].astype(int).tolist(),
        }
        return Results(scores | {"primary": scores[task.primary]}, kept)

    def row_parts(
        self, task: TaskLike, metric: str, given: Sequence[Any], right: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Masked tokens found over those that were masked."""
        return (np.asarray(given), np.asarray(right)) if metric == "accuracy" else None

    def predicts_numbers(self, task: TaskLike) -> bool:
        """How many tokens were found."""
        return True

    def baseline(self, task: TaskLike, labels: Labels) -> tuple[float, str]:
        """The commonest word, as often as it stands in the texts."""
        need_rows(task, labels)
        counts = Counter(word for text in labels for word in text.split())
        (word, count), *_ = counts.most_common(1) or [("", 0)]
        return 100 * count / max(counts.total(), 1), word


MASKED = TASK_TYPES.get("masked")
