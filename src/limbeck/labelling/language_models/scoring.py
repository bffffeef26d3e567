"""How likely a causal model finds each class's answer behind a prompt.

Two ways to the same numbers. The plain one runs every prompt once with each answer, padded on the right, which no
earlier token of a causal model can see: right for any architecture. The other runs what all prompts begin with once,
the rest of each prompt once, and then only the answers, on copies of the keys and values: for long prompts and many
classes a fraction of the work. It is taken where it gives the plain way's numbers: by what the model's configuration
says of its windows and frequencies, and by a check on rows as long as any scored.
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
        self._prepared: DynamicCache | None = None

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        if self.reuse is None or (self.reuse and self._checked):
            self._check(rows)
        return (self._reused(rows) if self.reuse else self.plain(rows)).cpu()

    def _check(self, rows: Sequence[PromptTokens]) -> None:
        """Set `reuse` by the longest of the rows that may use keys and values again, if longer than any before."""
        room = self.limits.reusable + 1 - _longest_answer(rows)
        usable = sorted(
            (row for row in rows if len(row.prefix) <= room), key=lambda row: len(row.prefix)
        )
        if usable and _width(usable) > self._checked:
            # And the shortest among them: both ways differ in where the padding stands.
            self.reuse = self._agrees([*usable[:1], *usable[1:][1 - _TRIED :]])
            self._checked = _width(usable)

    def _agrees(self, rows: Sequence[PromptTokens]) -> bool:
        """Whether both ways give the same numbers here: not every architecture keeps keys and values alike."""
        longest = _longest_answer(rows)
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

    # ---- the plain way ----

    @torch.no_grad()
    def plain(self, rows: Sequence[PromptTokens]) -> Tensor:
        """Each prompt with each answer as a sequence of its own; with answers of one token, once in all."""
        if all(len(answer) == 1 for row in rows for answer in row.answers):
            scores = torch.empty(len(rows), len(rows[0].answers), device=self.model.device)
            for places in self._passes([len(row.prefix) for row in rows]):
                scores[places] = self._first_tokens([rows[at] for at in places])
            return scores
        pairs = [(row.prefix, answer) for row in rows for answer in row.answers]
        sums = torch.empty(len(pairs), device=self.model.device)
        for places in self._passes([len(prefix) + len(answer) - 1 for prefix, answer in pairs]):
            sums[places] = self._sequences([pairs[at] for at in places])
        return sums.view(len(rows), -1)

    def _passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The places of the sequences of each pass: all with the same frequencies, as each has them alone."""
        groups: dict[Hashable, list[int]] = {}
        for place, length in enumerate(lengths):
            groups.setdefault(self.limits.frequencies(length), []).append(place)
        for places in groups.values():
            for part in _parts(places, self.sequences):
                yield list(part)

    def _first_tokens(self, rows: Sequence[PromptTokens]) -> Tensor:
        logits, start = self._right_padded([row.prefix for row in rows], None)
        at = torch.tensor([len(row.prefix) - 1 - start for row in rows], device=logits.device)
        last = logits[torch.arange(len(rows), device=logits.device), at]
        return _picked(last, rows)

    def _sequences(self, pairs: Sequence[tuple[list[int], tuple[int, ...]]]) -> Tensor:
        first = min(len(prefix) for prefix, _ in pairs) - 1
        logits, start = self._right_padded(
            [[*prefix, *answer[:-1]] for prefix, answer in pairs], first
        )
        scores = []
        for values, (prefix, answer) in zip(logits, pairs, strict=True):
            begin = len(prefix) - 1 - start
            spoken = values[begin : begin + len(answer)].float().log_softmax(-1)
            ids = torch.tensor(answer, device=spoken.device)
            scores.append(spoken.gather(-1, ids[:, None]).sum())
        return torch.stack(scores)

    def _right_padded(self, sequences: list[list[int]], first: int | None) -> tuple[Tensor, int]:
        """Logits from position `first` on (None: from the shortest sequence's last), and that position."""
        first = min(map(len, sequences)) - 1 if first is None else first
        ids, mask = _padded(sequences, left=False)
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        self._forget_frequencies(ids)
        kept = {"logits_to_keep": ids.shape[1] - first} if self._keeps else {}
        logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False, **kept).logits
        return (logits, first) if self._keeps else (logits[:, first:], first)

    def _forget_frequencies(self, ids: Tensor) -> None:
        """A dynamic model keeps those of the longest pass so far until one that is shorter than its original length."""
        if any(ids.shape[1] >= original for original in self.limits.dynamic):
            self.model(input_ids=ids[:1, :1], use_cache=False)

    # ---- with keys and values used again ----

    def _reused(self, rows: Sequence[PromptTokens]) -> Tensor:
        parts = _parts(rows, self.sequences)
        return torch.cat(
            [
                self._continued(part) if _width(part) <= self.limits.reusable else self.plain(part)
                for part in parts
            ]
        )

    def _continued(self, rows: Sequence[PromptTokens]) -> Tensor:
        """The rests of the prompts behind what is shared, then the answers behind both."""
        shared = self.shared
        if any(
            row.prefix[: len(shared)] != shared or len(row.prefix) == len(shared) for row in rows
        ):
            shared = []
        rests, mask = _padded([row.prefix[len(shared) :] for row in rows], left=True)
        rests, mask = rests.to(self.model.device), mask.to(self.model.device)
        before = mask.new_ones(len(rows), len(shared))
        mask = torch.cat([before, mask], dim=1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, len(shared) :]
        cache = self._begun(shared)
        if shared:
            cache.batch_repeat_interleave(len(rows))
        last = self._pass(rests, mask, positions, cache, keep=1)[:, -1]
        scores = _picked(last, rows)
        if any(len(answer) > 1 for row in rows for answer in row.answers):
            scores = scores + self._behind(rows, cache, mask)
        return scores

    def _behind(self, rows: Sequence[PromptTokens], cache: DynamicCache, mask: Tensor) -> Tensor:
        """log P of the answers' tokens after their first, (B, C); a few classes at a time."""
        classes = len(rows[0].answers)
        width = max(1, self.sequences // len(rows))
        parts = []
        for begin in range(0, classes, width):
            chosen = [row.answers[begin : begin + width] for row in rows]
            each = len(chosen[0])
            own = copy.deepcopy(cache)
            own.batch_repeat_interleave(each)
            flat = [answer for answers in chosen for answer in answers]
            parts.append(self._later(flat, own, mask.repeat_interleave(each, 0)).view(-1, each))
        return torch.cat(parts, dim=1)

    def _later(self, answers: list[tuple[int, ...]], cache: DynamicCache, mask: Tensor) -> Tensor:
        given, here = _padded([list(answer[:-1]) for answer in answers], left=False)
        if not given.shape[1]:
            return torch.zeros(len(answers), device=self.model.device)
        wanted, _ = _padded([list(answer[1:]) for answer in answers], left=False)
        given, here, wanted = (one.to(self.model.device) for one in (given, here, wanted))
        positions = mask.sum(1, keepdim=True) + torch.arange(given.shape[1], device=mask.device)
        whole = torch.cat([mask, here], dim=1)
        logits = self._pass(given, whole, positions, cache, keep=given.shape[1])
        spoken = logits.float().log_softmax(-1).gather(-1, wanted[..., None]).squeeze(-1)
        return (spoken * here).sum(1)

    def _begun(self, shared: list[int]) -> DynamicCache:
        """A copy of the keys and values of what all prompts begin with, for a batch of one."""
        if not shared:
            return DynamicCache(config=self.model.config)
        if self._prepared is None:
            ids = torch.tensor([shared], device=self.model.device)
            positions = torch.arange(len(shared), device=ids.device)[None]
            cache = DynamicCache(config=self.model.config)
            self._pass(ids, torch.ones_like(ids), positions, cache, keep=1)
            self._prepared = cache
        return copy.deepcopy(self._prepared)

    def _pass(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache, *, keep: int
    ) -> Tensor:
        kept = {"logits_to_keep": keep} if self._keeps else {}
        made = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: cache},
            **kept,
        )
        return made.logits


def _parts(items: Sequence, size: int) -> list[Sequence]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _width(rows: Sequence[PromptTokens]) -> int:
    """Tokens of a pass over prompts and answers."""
    return max(len(row.prefix) for row in rows) + _longest_answer(rows) - 1


def _longest_answer(rows: Sequence[PromptTokens]) -> int:
    return max(len(answer) for row in rows for answer in row.answers)


def _picked(last: Tensor, rows: Sequence[PromptTokens]) -> Tensor:
    """log P of each answer's first token, (B, C), from logits (B, V) at the prompt's end."""
    ids = torch.tensor([[answer[0] for answer in row.answers] for row in rows], device=last.device)
    return last.float().log_softmax(-1).gather(-1, ids)


def _padded(sequences: list[list[int]], *, left: bool) -> tuple[Tensor, Tensor]:
    """Ids and mask (B, N); the id under the mask's zeros is never seen."""
    length = max(map(len, sequences))
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, one in enumerate(sequences):
        place = slice(length - len(one), length) if left else slice(0, len(one))
        ids[number, place] = torch.tensor(one, dtype=torch.long)
        mask[number, place] = 1
    return ids, mask


# How likely an encoder-decoder finds each class's answer to a prompt.


class Seq2SeqScorer:
    """Sums of token log-probabilities, (B, C), in float32: the encoder reads a prompt once for all classes.

    Args:
        model: in eval mode, with a decoder that a labels argument teaches.
        sequences: sequences in a pass of the decoder.
    """

    def __init__(self, model: PreTrainedModel, *, sequences: int = 32) -> None:
        self.model, self.sequences = model, sequences

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        each = len(rows[0].answers)
        size = max(1, self.sequences // each)
        parts = [self._scores(rows[at : at + size]) for at in range(0, len(rows), size)]
        return torch.cat(parts).cpu()

    def _scores(self, rows: Sequence[PromptTokens]) -> Tensor:
        each, device = len(rows[0].answers), self.model.device
        ids = _filled([row.prefix for row in rows], 0).to(device)
        lengths = torch.tensor([len(row.prefix) for row in rows], device=device)
        mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        read = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        wanted = [row.begun + answer for row in rows for answer in row.answers]
        labels = _filled(wanted, -100).to(device)
        made = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=read.repeat_interleave(each, 0)),
            attention_mask=mask.repeat_interleave(each, 0),
            labels=labels,
            use_cache=False,
        )
        there = labels != -100
        there[:, : len(rows[0].begun)] = False  # read by the decoder, and no part of an answer
        spoken = made.logits.float().log_softmax(-1)
        spoken = spoken.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        return (spoken * there).sum(1).view(len(rows), each)


def _filled(sequences: Sequence[Sequence[int]], value: int) -> Tensor:
    length = max(map(len, sequences))
    filled = torch.full((len(sequences), length), value)
    for number, one in enumerate(sequences):
        filled[number, : len(one)] = torch.tensor(one)
    return filled


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
    ropes = _ropes(text)
    longrope = [
        rope.get("original_max_position_embeddings", text.max_position_embeddings)
        for rope in ropes
        if rope.get("rope_type") == "longrope"
    ]
    # As transformers has it: whatever the parameters say of an original length.
    dynamic = [
        text.max_position_embeddings for rope in ropes if "dynamic" in str(rope.get("rope_type"))
    ]
    return PassLimits(_window(text), tuple(longrope), tuple(dynamic))


def _window(config: PreTrainedConfig) -> float:
    if not getattr(config, "use_sliding_window", True):
        return inf
    # Layers may have sizes of their own.
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    named = [getattr(layer, name, None) for layer in layers for name in _WINDOWS]
    return min((size for size in named if isinstance(size, int) and size > 0), default=inf)


def _ropes(config: PreTrainedConfig) -> list[dict[str, Any]]:
    """One for all layers, or one for each type of layer."""
    given = getattr(config, "rope_parameters", None) or {}
    nested = [one for one in given.values() if isinstance(one, dict)]
    return nested or [given]
