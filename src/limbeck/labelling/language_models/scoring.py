"""How likely a language model finds each class's answer behind a prompt.

Of a causal model two ways lead to the same numbers. The plain one runs every prompt with each answer, padded on the
right, which no earlier token of a causal model can see: right for any architecture. The other runs what all prompts
begin with once, the rest of each prompt once, and then only the answers, on copies of the keys and values: for long
prompts and many classes a fraction of the work. It is taken where it gives the plain way's numbers: by what the model's
configuration says of its windows and frequencies, and by a check on rows as long as any scored.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

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

    def times(self, count: int) -> _Past:
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
            checked again for longer rows than before. A pass that is wider than the model's attention window, or
            than its frequencies stay the same for, never does.
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
        self.sequences, self.limits = sequences, pass_limits(model.config)
        self._checked = 0  # tokens of the longest row that both ways were compared on
        takes = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in takes
        # As transformers calls it since 5.24, and before.
        self._cache_name = "cache" if "cache" in takes else "past_key_values"
        self._begun: _Past | None = None

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        if self.reuse is None or (self.reuse and self._checked):
            self._check(rows)
        if not self.reuse:
            return self.plain(rows).cpu()
        parts = [
            self._continued(part) if _width(part) <= self.limits.reusable else self.plain(part)
            for part in _parts(rows, self.sequences)
        ]
        return torch.cat(parts).cpu()

    def _check(self, rows: Sequence[PromptTokens]) -> None:
        """Set `reuse` by the longest of the rows that may use keys and values again, if longer than any before."""
        room = self.limits.reusable + 1 - max(row.longest for row in rows)
        usable = sorted(
            (row for row in rows if len(row.prefix) <= room), key=lambda row: len(row.prefix)
        )
        if usable and _width(usable) > self._checked:
            # And the shortest among them: both ways differ in where the padding stands.
            self.reuse = self._agrees([*usable[:1], *usable[1:][1 - _TRIED :]])
            self._checked = _width(usable)

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
        for places in self._passes([len(rows[at].prefix) + len(stem) for at, stem in stems]):
            part = [stems[place] for place in places]
            first = min(len(rows[at].prefix) for at, _ in part) - 1
            logits = self._logits([[*rows[at].prefix, *stem] for at, stem in part], first)
            for values, (at, stem) in zip(logits, part, strict=True):
                begin = len(rows[at].prefix) - 1 - first
                logs = values[begin : begin + len(stem) + 1].float().log_softmax(-1)
                own = [number for number, one in enumerate(rows[at].answers) if one[:-1] == stem]
                ids = torch.tensor([rows[at].answers[number] for number in own])
                scores[at, own] = logs.gather(-1, ids.T.to(logs.device)).sum(0)
        return scores

    def _passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The places of the sequences of each pass: all with the same frequencies, as each has them alone."""
        groups: dict[Hashable, list[int]] = {}
        for place, length in enumerate(lengths):
            groups.setdefault(self.limits.frequencies(length), []).append(place)
        for places in groups.values():
            yield from _parts(places, self.sequences)

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
        if past is None:
            self._forget_frequencies(ids)
        else:
            places = torch.arange(ids.shape[1], device=ids.device)
            given["position_ids"] = past.mask.sum(1, keepdim=True) + places
            mask = past.mask = torch.cat([past.mask, mask], dim=1)
            given[self._cache_name] = past.cache
        logits = self.model(input_ids=ids, attention_mask=mask, **given).logits
        found: Tensor = logits if self._keeps else logits[:, first:]
        return found

    def _forget_frequencies(self, ids: Tensor) -> None:
        """A dynamic model keeps those of the longest pass so far until one that is shorter than its original length."""
        if any(ids.shape[1] >= original for original in self.limits.dynamic):
            self.model(input_ids=ids[:1, :1], use_cache=False)


class Seq2SeqScorer:
    """The same of an encoder-decoder: the encoder reads a prompt once for all classes.

    Args:
        model: in eval mode, with a decoder that a labels argument teaches.
        sequences: sequences in a pass of the decoder.
    """

    def __init__(self, model: PreTrainedModel, *, sequences: int = 32) -> None:
        self.model, self.sequences = model, sequences

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        size = max(1, self.sequences // len(rows[0].answers))
        return torch.cat([self._scores(part) for part in _parts(rows, size)]).cpu()

    def _scores(self, rows: Sequence[PromptTokens]) -> Tensor:
        each, begun = len(rows[0].answers), len(rows[0].begun)
        ids, mask = _padded([row.prefix for row in rows], self.model.device)
        read = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        wanted = [[*row.begun, *answer] for row in rows for answer in row.answers]
        labels, there = _padded(wanted, self.model.device)
        made = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=read.repeat_interleave(each, 0)),
            attention_mask=mask.repeat_interleave(each, 0),
            labels=labels.masked_fill(there == 0, -100),
            use_cache=False,
        )
        # What the decoder has before every answer is read, and no part of one.
        logits = made.logits[:, begun:]
        return _spoken(logits, [one[begun:] for one in wanted]).view(len(rows), each)


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


# What a causal model's configuration says about which sequences may stand in one pass. A token's
# number in a cache is its place in the sequence only where no padding stands between: an attention
# window counts the padding too. And frequencies of rotary positions that grow with the length are
# chosen once for a whole pass, by its longest sequence.


# As transformers' configurations call how far a token sees.
_WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_chunk_size",
    "attention_window_size",
    "window_size",
)


@dataclass(frozen=True)
class PassLimits:
    """Limits of a pass, in tokens.

    Attributes:
        window: the fewest tokens that a layer sees, or infinity.
        longrope: lengths up to which frequencies are the short ones.
        dynamic: lengths up to which frequencies are the original ones; from there each length has its own.
    """

    window: float = inf
    longrope: tuple[int, ...] = ()
    dynamic: tuple[int, ...] = ()

    @property
    def reusable(self) -> float:
        """The widest pass, shared beginning, padding and answers together, that may use keys and values again."""
        # At a dynamic model's original length itself the frequencies of the pass before it stay.
        return min(self.window, *self.longrope, *(length - 1 for length in self.dynamic), inf)

    def frequencies(self, length: int) -> Hashable:
        """Equal for lengths that have the same frequencies."""
        grown = length if any(length >= one for one in self.dynamic) else 0
        return (grown, *(length > one for one in self.longrope))


def pass_limits(config: PreTrainedConfig) -> PassLimits:
    """Of a model's configuration, the text part's if it has several."""
    text = config.get_text_config()
    given = getattr(text, "rope_parameters", None) or {}
    # One for all layers, or one for each type of layer.
    ropes: list[dict[str, Any]] = [one for one in given.values() if isinstance(one, dict)] or [
        given
    ]
    positions: Any = getattr(text, "max_position_embeddings", None)
    longrope = tuple(
        rope.get("original_max_position_embeddings", positions)
        for rope in ropes
        if rope.get("rope_type") == "longrope"
    )
    # As transformers has it: whatever the parameters say of an original length.
    dynamic = tuple(positions for rope in ropes if "dynamic" in str(rope.get("rope_type")))
    return PassLimits(_window(text), longrope, dynamic)


def _window(config: PreTrainedConfig) -> float:
    if not getattr(config, "use_sliding_window", True):
        return inf
    # Layers may have sizes of their own.
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    named = [getattr(layer, name, None) for layer in layers for name in _WINDOWS]
    return min((size for size in named if isinstance(size, int) and size > 0), default=inf)
