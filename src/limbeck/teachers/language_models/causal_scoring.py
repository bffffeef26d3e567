"""How likely a causal model finds each class's answer behind a prompt.

Two ways to the same numbers. The plain one runs every prompt once with each answer, padded on the right, which no
earlier token of a causal model can see: right for any architecture. The other runs what all prompts begin with once,
the rest of each prompt once, and then only the answers, on copies of the keys and values: for long prompts and many
classes a fraction of the work. It is taken where it gives the plain way's numbers.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from limbeck.teachers.language_models.prompt_tokens import PromptTokens

log = logging.getLogger(__name__)

# The largest difference of two log-probabilities that rounding explains, per token of an answer.
_ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
_TRIED = 4


class CausalScorer:
    """Sums of token log-probabilities, (B, C), in float32.

    Args:
        model: in eval mode, any causal model of transformers.
        shared: ids that all prompts begin with, if any.
        reuse: whether keys and values may be used again; None: where they give the plain way's numbers on the
            first rows.
        sequences: sequences in a forward pass.
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
        self.sequences = sequences
        takes = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in takes
        # As transformers calls it since 5.24, and before.
        self._cache_name = "cache" if "cache" in takes else "past_key_values"
        self._prepared: DynamicCache | None = None

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        if self.reuse is None:
            self.reuse = self._agrees(rows[:_TRIED])
        return (self._reused(rows) if self.reuse else self.plain(rows)).cpu()

    def _agrees(self, rows: Sequence[PromptTokens]) -> bool:
        """Whether both ways give the same numbers here: not every architecture keeps keys and values alike."""
        longest = max(len(answer) for row in rows for answer in row.answers)
        if longest == 1 and not self.shared:
            return False  # there is nothing to use again
        plain = self.plain(rows)
        try:
            reused = self._reused(rows)
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
            return torch.cat([self._first_tokens(part) for part in _parts(rows, self.sequences)])
        pairs = [(row.prefix, answer) for row in rows for answer in row.answers]
        scores = [self._sequences(part) for part in _parts(pairs, self.sequences)]
        return torch.cat(scores).view(len(rows), -1)

    def _first_tokens(self, rows: Sequence[PromptTokens]) -> Tensor:
        logits, start = self._right_padded([row.prefix for row in rows], None)
        at = torch.tensor([len(row.prefix) - 1 - start for row in rows], device=logits.device)
        last = logits[torch.arange(len(rows), device=logits.device), at]
        return _picked(last, rows)

    def _sequences(self, pairs: Sequence[tuple[list[int], tuple[int, ...]]]) -> Tensor:
        first = min(len(prefix) for prefix, _ in pairs) - 1
        # An answer's last token is predicted and never read.
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
        kept = {"logits_to_keep": ids.shape[1] - first} if self._keeps else {}
        logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False, **kept).logits
        return (logits, first) if self._keeps else (logits[:, first:], first)

    # ---- with keys and values used again ----

    def _reused(self, rows: Sequence[PromptTokens]) -> Tensor:
        shared = self.shared
        if any(
            row.prefix[: len(shared)] != shared or len(row.prefix) == len(shared) for row in rows
        ):
            shared = []
        scores = [self._continued(part, shared) for part in _parts(rows, self.sequences)]
        return torch.cat(scores)

    def _continued(self, rows: Sequence[PromptTokens], shared: list[int]) -> Tensor:
        """The rests of the prompts behind what is shared, then the answers behind both."""
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
