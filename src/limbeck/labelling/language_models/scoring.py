"""From a row to token ids of prompt and answers, and how likely a language model finds each answer.

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
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import (
    DynamicCache,
    PreTrainedConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from limbeck.labelling.language_models.prompt import BoundPrompt, Row
from limbeck.support.errors import LimbeckError, Problem

_STANDS_FOR_ANSWER = "xqLimbeckAnswerqx"
Answers = tuple[tuple[int, ...], ...]
"""By class, the token ids of its answer."""


@dataclass(frozen=True)
class PromptTokens:
    """A row for a model.

    Attributes:
        prefix: ids that all answers have before them.
        answers: by class, the ids that follow.
        truncated: whether the row's longest text lost its end.
    """

    prefix: list[int]
    answers: Answers
    truncated: bool = False

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return max(map(len, self.answers))

    @property
    def size(self) -> int:
        """What has to fit into the model."""
        return len(self.prefix) + self.longest


class PromptTokenizer:
    """Tokenises prompts for a causal model.

    A prompt's last token and an answer's first can be one token, so both are tokenised together, with what stands
    between them; what all answers begin with before their own letters is the prefix (the score is then of exactly what
    the model would read, and an answer's length of its own tokens). What ends a text is left out: no answer is asked
    to end.

    Args:
        limit: tokens that a prompt and its longest answer may have; longer ones lose the end of their longest
            text among those that stand in the prompt, never any of the question. None: no limit.
        chat: whether to put the prompt into the chat template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        bound: BoundPrompt,
        *,
        limit: int | None = None,
        chat: bool = False,
    ) -> None:
        self.tokenizer, self.bound, self.limit, self.chat = tokenizer, bound, limit, chat
        self._empty = dict.fromkeys(bound.columns, "")
        self._leading = [] if chat else _leading_ids(tokenizer)
        self._between = self._chat_separator() if chat else None
        self._check()

    def __call__(self, row: Row) -> PromptTokens:
        """The tokens of a row that fits, or of one whose longest text has lost its end.

        Raises:
            LimbeckError: not one token of its texts fits: an answer would be to the template alone.
        """
        fitting, tokens = row, self._tokens(row)
        while (over := tokens.size - (self.limit or tokens.size)) > 0:
            fitting = self._shortened(fitting, over)
            tokens = self._tokens(fitting)
        if fitting is not row and not any(fitting[name] for name in self.bound.uses):
            raise LimbeckError(
                f"the prompt leaves no room for a text: the model reads {self.limit} tokens",
                "shorten the template, or take fewer examples",
            )
        return replace(tokens, truncated=fitting is not row)

    def shared(self) -> list[int]:
        """The ids that every prompt begins with, whatever the row: instruction and examples."""
        first, second = (
            self._ids([self._written(dict.fromkeys(self.bound.columns, text))])[0] for text in "1x"
        )
        # The last of them could be cut otherwise before another text.
        return first[: max(0, min(_common(first, second), len(first) - 1) - 1)]

    def _tokens(self, row: Row) -> PromptTokens:
        prompt = self._written(row)
        # A tokenizer sees space before a word otherwise than at a text's end.
        stem = prompt.rstrip()
        before = (
            stem + (prompt[len(stem) :] or " ") if self._between is None else prompt + self._between
        )
        wholes = self._ids([before + answer for answer in self.bound.answers])
        shared = min(self._common_start(before, wholes), *(len(whole) - 1 for whole in wholes))
        return PromptTokens(wholes[0][:shared], tuple(tuple(whole[shared:]) for whole in wholes))

    def _common_start(self, before: str, wholes: Sequence[list[int]]) -> int:
        """How many ids all answers begin with that hold nothing of the answers' own letters."""
        alike = min(_common(wholes[0], whole) for whole in wholes[1:])
        if not self.tokenizer.is_fast:
            return min(alike, _common(wholes[0], self._ids([before])[0]))
        text = before + self.bound.answers[0]
        encoded = self.tokenizer(
            text, add_special_tokens=False, verbose=False, return_offsets_mapping=True
        )
        ends = [0] * len(self._leading) + [end for _, end in encoded["offset_mapping"]]
        return next((at for at in range(alike) if ends[at] > len(before)), alike)

    def _written(self, row: Row) -> str:
        return (
            self._rendered(row, add_generation_prompt=True) if self.chat else self.bound.whole(row)
        )

    def _rendered(self, row: Row, answer: str | None = None, **settings: Any) -> str:
        messages = self.bound.messages(row)
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **settings))
        except (
            TemplateError
        ) as error:  # raised by templates themselves, as for a role they have not
            raise LimbeckError(
                f"the tokenizer's chat template refuses the prompt: {error}",
                "leave system out if it has no such role, or set chat: false",
            ) from None

    def _ids(self, texts: list[str]) -> list[list[int]]:
        found = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [self._leading + list(ids) for ids in found]

    def _chat_separator(self) -> str:
        """What the template puts between its mark of the assistant's turn and the answer."""
        before = self._rendered(self._empty, add_generation_prompt=True)
        # A word of a class may stand in the template too, as "end" in <|im_end|>.
        after = self._rendered(self._empty, answer=_STANDS_FOR_ANSWER)
        at = after.find(_STANDS_FOR_ANSWER, len(before))
        return after[len(before) : at] if after.startswith(before) and at >= 0 else ""

    def _shortened(self, row: Row, over: int) -> Row:
        """The row whose longest text has lost so many tokens, or what it has; at least a character."""
        used = [name for name in self.bound.columns if name in self.bound.uses and row[name]]
        ends = {name: self._token_ends(row[name]) for name in used}
        if not ends:
            raise LimbeckError(
                f"the prompt alone is longer than the {self.limit} tokens that the model reads",
                "shorten the template, or take fewer examples",
            )
        name = max(ends, key=lambda column: (len(ends[column]), len(row[column])))
        # Half of it at most: what stands in the prompt twice frees two tokens with each that it loses.
        count = len(ends[name])
        keep = max(count // 2, count - over)
        end = ends[name][keep - 1] if keep else 0
        return {**row, name: row[name][: min(end, len(row[name]) - 1)]}

    def _token_ends(self, text: str) -> list[int]:
        """Where in a text its tokens end; without offsets about there."""
        fast = self.tokenizer.is_fast
        encoded = self.tokenizer(
            text, add_special_tokens=False, verbose=False, return_offsets_mapping=fast
        )
        if fast:
            return [end for _, end in encoded["offset_mapping"]]
        count = len(encoded["input_ids"])
        return [len(text) * number // count for number in range(1, count + 1)]

    def _check(self) -> None:
        """Raise LimbeckError for a prompt that this tokenizer, or the limit, leaves no answers to."""
        tokens = self._tokens(self._empty)
        problems = []
        if not tokens.prefix:
            problems.append(
                Problem(
                    "template: an empty row's prompt has no token, and the tokenizer puts none before it",
                    "write a question into the template",
                )
            )
        seen: dict[tuple[int, ...], str] = {}
        for name, ids in zip(self.bound.classes, tokens.answers, strict=True):
            if ids in seen:
                problems.append(
                    Problem(
                        f"verbalizations: {seen[ids]!r} and {name!r} are the same tokens for this tokenizer",
                        "give each class words that are in its vocabulary",
                    )
                )
            seen.setdefault(ids, name)
        if problems:
            raise LimbeckError(problems)


def token_limit(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, given: int | None
) -> int | None:
    """The smallest of what the model, the tokenizer and the user say; None where nobody says anything."""
    text: Any = config.get_text_config()
    ropes = getattr(text, "rope_parameters", None) or {}
    # One for all layers, or one for each type of layer.
    each = [one for one in ropes.values() if isinstance(one, dict)] or [ropes]
    # Beyond it a whole pass has other frequencies, those of shorter rows beside it too.
    original = [
        rope.get("original_max_position_embeddings")
        for rope in each
        if rope.get("rope_type") == "longrope"
    ]
    own = getattr(text, "max_position_embeddings", None)
    # Hugging Face writes "no limit" as 10^30.
    said = (own, *original, tokenizer.model_max_length, given)
    return min((size for size in said if size and size < 10**9), default=None)


def _leading_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What a tokenizer puts before a text; what it puts behind ends a text, and here none ends."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    marked = list(tokenizer("a")["input_ids"])
    for at in range(len(marked) - len(plain) + 1):
        if plain and marked[at : at + len(plain)] == plain:
            return marked[:at]
    return []


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two begin with alike."""
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    return min(len(first), len(second))


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
