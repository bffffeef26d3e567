"""How likely a language model finds each class's answer behind a prompt.

Of a causal model two ways lead to the same numbers. The plain one runs every prompt with each answer, padded on the
right, which no earlier token of a causal model can see: right for any architecture. The other runs what all prompts
begin with once, the rest of each prompt once, and then only the answers, on copies of the keys and values: for long
prompts and many classes a fraction of the work. It is taken where it gives the plain way's numbers: by what the model's
configuration says of its windows, and by a check on rows as long as any scored.
"""

import copy
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel

from limbeck.labelling.language_models.prompt_tokens import PromptTokens

log = logging.getLogger(__name__)

# The largest difference of two log-probabilities that rounding explains, per token of an answer.
_ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
_TRIED = 4


@dataclass
class _Past:
    """Keys and values of what sequences begin with, and which of them are no padding, (B, N)."""

    cache: DynamicCache
    mask: Tensor

    def times(self, count: int) -> "_Past":
        """A copy for so many sequences in the place of each."""
        cache = copy.deepcopy(self.cache)
        if cache.get_seq_length():
            cache.batch_repeat_interleave(count)
        return _Past(cache, self.mask.repeat_interleave(count, 0))


class CausalScorer:
    """Sums of token log-probabilities, (B, C), in float32, that do not depend on the other rows.

    An answer's last token is predicted and never read: what counts as a sequence's length ends before it.

    Args:
        model: in eval mode, any causal model of transformers.
        shared: ids that all prompts begin with, if any.
        reuse: whether keys and values may be used again; None: where they give the plain way's numbers, which is
            checked again for longer rows than before. A pass that is wider than the model's attention window never
            does.
        sequences: sequences in a forward pass.

    Attributes:
        reuse: as found last, where None was given.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        shared: Sequence[int] = (),
        *,
        reuse: bool | None = None,
        sequences: int = 32,
    ) -> None:
        self.model, self.shared, self.reuse = model, list(shared), reuse
        self.sequences, self.width = sequences, reusable_width(model.config)
        # Tokens of the longest row that both ways were compared on; None where they are not.
        self._checked = 0 if reuse is None else None
        takes = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in takes
        # As transformers calls it since 5.24, and before.
        self._cache_name = "cache" if "cache" in takes else "past_key_values"
        self._begun: _Past | None = None

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        short = [row for row in rows if _width([row]) <= self.width]
        found = self.reuse is not False and self._checked is not None
        if found and short and _width(short) > (self._checked or 0):
            # The longest rows and the shortest: both ways differ in where the padding stands.
            by_length = sorted(short, key=lambda row: len(row.prefix))
            self.reuse = self._agrees([*by_length[:1], *by_length[1:][1 - _TRIED :]])
            self._checked = _width(short) if self.reuse else None
        if not self.reuse:
            return self.plain(rows).cpu()
        parts = [
            self._continued(part) if _width(part) <= self.width else self.plain(part)
            for part in _parts(rows, self.sequences)
        ]
        return torch.cat(parts).cpu()

    def _agrees(self, rows: Sequence[PromptTokens]) -> bool:
        """Whether both ways give the same numbers here: not every architecture keeps keys and values alike."""
        longest = max(row.longest for row in rows)
        if longest == 1 and not self.shared:
            return False  # there is nothing to use again
        # One by one: logits are kept from the end of a pass's shortest prompt on.
        plain = torch.cat([self.plain([row]) for row in rows])
        try:
            reused = torch.cat([self._continued(part) for part in _parts(rows, self.sequences)])
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            log.info("%s: prompts are not shared (%s)", type(self.model).__name__, error)
            return False
        bound = _ROUNDING.get(self.model.dtype, 1e-3) * longest
        return bool((plain - reused).abs().max() <= bound)

    @torch.no_grad()
    def plain(self, rows: Sequence[PromptTokens]) -> Tensor:
        """Each prompt with each answer but its last token; answers that differ in that alone are one sequence."""
        stems = [
            (at, stem)
            for at, row in enumerate(rows)
            for stem in dict.fromkeys(answer[:-1] for answer in row.answers)
        ]
        scores = torch.empty(len(rows), len(rows[0].answers), device=self.model.device)
        for part in _parts(stems, self.sequences):
            first = min(len(rows[at].prefix) for at, _ in part) - 1
            logits = self._logits([[*rows[at].prefix, *stem] for at, stem in part], first)
            for values, (at, stem) in zip(logits, part, strict=True):
                begin = len(rows[at].prefix) - 1 - first
                logs = values[begin : begin + len(stem) + 1].float().log_softmax(-1)
                own = [number for number, one in enumerate(rows[at].answers) if one[:-1] == stem]
                ids = torch.tensor([rows[at].answers[number] for number in own])
                scores[at, own] = logs.gather(-1, ids.T.to(logs.device)).sum(0)
        return scores

    def _continued(self, rows: Sequence[PromptTokens]) -> Tensor:
        """The rests of the prompts behind what is shared, then the answers behind both, a few classes at a time."""
        common, classes = len(self.shared), len(rows[0].answers)
        if any(row.prefix[:common] != self.shared or len(row.prefix) == common for row in rows):
            common = 0
        past = self._shared_past(common).times(len(rows))
        rests = [row.prefix[common:] for row in rows]
        first = min(map(len, rests)) - 1
        logits = self._logits(rests, first, past)
        ends = torch.tensor([len(rest) - 1 - first for rest in rests], device=logits.device)
        last = logits[torch.arange(len(rows), device=logits.device), ends]
        begins = torch.tensor([[answer[0] for answer in row.answers] for row in rows])
        scores = last.float().log_softmax(-1).gather(-1, begins.to(last.device))
        width = max(1, self.sequences // len(rows))
        for begin in range(0, classes, width):
            answers = [answer for row in rows for answer in row.answers[begin : begin + width]]
            if max(map(len, answers)) > 1:
                each = len(answers) // len(rows)
                logits = self._logits([[*one[:-1]] for one in answers], 0, past.times(each))
                later = _spoken(logits, [one[1:] for one in answers])
                scores[:, begin : begin + width] += later.view(-1, each)
        return scores

    def _shared_past(self, common: int) -> _Past:
        """What so many ids that all prompts begin with leave behind, for a batch of one."""
        none = torch.ones(1, 0, dtype=torch.long, device=self.model.device)
        if not common:
            return _Past(DynamicCache(config=self.model.config), none)
        if self._begun is None:
            self._begun = _Past(DynamicCache(config=self.model.config), none)
            self._logits([self.shared], common - 1, self._begun)
        return self._begun

    def _logits(self, sequences: list[list[int]], first: int, past: _Past | None = None) -> Tensor:
        """Logits of sequences from position `first` on; they stand behind their past, which then holds them too."""
        ids, mask = _padded(sequences, self.model.device)
        given: dict[str, Any] = {"use_cache": past is not None}
        if self._keeps:
            given["logits_to_keep"] = ids.shape[1] - first
        if past is not None:
            places = torch.arange(ids.shape[1], device=ids.device)
            given["position_ids"] = past.mask.sum(1, keepdim=True) + places
            mask = past.mask = torch.cat([past.mask, mask], dim=1)
            given[self._cache_name] = past.cache
        logits = self.model(input_ids=ids, attention_mask=mask, **given).logits
        found: Tensor = logits if self._keeps else logits[:, first:]
        return found


def _spoken(logits: Tensor, wanted: Sequence[Sequence[int]]) -> Tensor:
    """The sum of the log-probabilities of each sequence's tokens, (B,), from logits (B, N, V)."""
    ids, there = _padded(wanted, logits.device)
    logs = logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    return (logs * there).sum(1)


def _padded(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask (B, N), padded on the right; the id under the mask's zeros is never seen."""
    ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, one in enumerate(sequences):
        ids[number, : len(one)] = torch.tensor(one, dtype=torch.long)
        mask[number, : len(one)] = 1
    return ids.to(device), mask.to(device)


def _parts(items: Sequence[Any], size: int) -> list[Any]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _width(rows: Sequence[PromptTokens]) -> int:
    """Tokens of the widest sequence of a pass, padding counted."""
    return max(len(row.prefix) for row in rows) + max(row.longest for row in rows) - 1


# As transformers' configurations call how far a token sees.
_WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_chunk_size",
    "attention_window_size",
    "window_size",
)


def reusable_width(config: PreTrainedConfig) -> float:
    """The widest pass, padding counted, in which keys and values may be used again.

    A token's number in a cache is its place in the sequence only where no padding stands between: an attention window
    counts the padding too.
    """
    text = config.get_text_config()
    if not getattr(text, "use_sliding_window", True):
        return inf
    # Layers may have sizes of their own.
    layers = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text]
    named = [getattr(layer, name, None) for layer in layers for name in _WINDOWS]
    return min((size for size in named if isinstance(size, int) and size > 0), default=inf)
