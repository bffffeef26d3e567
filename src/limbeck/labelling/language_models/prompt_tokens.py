"""From a row to token ids: the prompt, and each class's answer as it is tokenised behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jinja2 import TemplateError
from scipy.special import logsumexp
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from limbeck.labelling.language_models.bound_prompt import BoundPrompt
from limbeck.labelling.language_models.prompt import Row
from limbeck.support.errors import LimbeckError, Problem

# How a text's last tokens are cut does not depend on tokens further away than this.
_REACH = 16
_STANDS_FOR_ANSWER = "xqLimbeckAnswerqx"


@dataclass(frozen=True)
class PromptTokens:
    """A row for a model.

    Attributes:
        prefix: ids that all answers have before them; an encoder-decoder's encoder reads them.
        answers: by class, the ids that follow.
        begun: of an encoder-decoder, the ids that its decoder has before every answer.
        truncated: whether the row's longest text lost its end.
    """

    prefix: list[int]
    answers: tuple[tuple[int, ...], ...]
    truncated: bool = False
    begun: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Ending:
    """How answers go on from a prompt.

    Attributes:
        back: how many of the prompt's last ids are others before an answer.
        between: the ids that stand there before every answer instead.
        answers: by class, the ids behind them.
    """

    back: int
    between: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]


class PromptTokenizer:
    """Tokenises prompts for a causal model or an encoder-decoder.

    Of a causal model a prompt's last token and an answer's first can be one token, so both are tokenised
    together, with what stands between them; what all answers begin with before their own letters is the prefix
    (the score is then of exactly what the model would read, and an answer's length of its own tokens).

    An encoder-decoder reads the prompt as a text of its own and writes the answer as one, each with the special
    tokens that the tokenizer gives it, but for what ends an answer: no causal model's answer is asked to end either.

    Args:
        limit: tokens that a prompt and its longest answer may have; longer ones lose the end of their longest
            text among those that stand in the prompt, never any of the question. None: no limit.
        chat: whether to put the prompt into the chat template.
        decoder: whether the answers are an encoder-decoder's, whose encoder and decoder have a limit each.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        bound: BoundPrompt,
        *,
        limit: int | None = None,
        chat: bool = False,
        decoder: bool = False,
    ) -> None:
        self.tokenizer, self.bound, self.limit, self.chat = tokenizer, bound, limit, chat
        self._written_answers = self._targets() if decoder else None
        self._leading = [] if chat else _leading_ids(tokenizer)
        self._between = self._chat_separator() if chat else None
        self._endings: dict[tuple[tuple[int, ...], str], _Ending] = {}
        self._check()

    def __call__(self, row: Row) -> PromptTokens:
        """The tokens of a row that fits."""
        fitting = self._fitting(row)
        return replace(self._tokens(fitting), truncated=fitting is not row)

    def shared(self) -> list[int]:
        """The ids that every prompt begins with, whatever the row: instruction and examples."""
        first, second = (
            self._ids(self._written(dict.fromkeys(self.bound.columns, text))) for text in ("1", "x")
        )
        # The last of them could be cut otherwise before another text.
        return first[: max(0, min(_common(first, second), len(first) - 1) - 1)]

    def _tokens(self, row: Row) -> PromptTokens:
        prompt = self._written(row)
        if self._written_answers is not None:
            begun, answers = self._written_answers
            # A chat template writes the special tokens itself.
            read = self.tokenizer(prompt, add_special_tokens=not self.chat, verbose=False)
            return PromptTokens(list(read["input_ids"]), answers, begun=begun)
        stem = prompt if self.chat else prompt.rstrip()
        ids = self._ids(stem)
        end = self._ending(ids, stem, prompt[len(stem) :])
        return PromptTokens([*ids[: len(ids) - end.back], *end.between], end.answers)

    def _targets(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """What a decoder has before every answer, and by class the answer's ids without what ends it."""
        begun: tuple[int, ...] = ()
        answers = []
        for answer in self.bound.answers:
            encoded = self.tokenizer(
                text_target=answer, return_special_tokens_mask=True, verbose=False
            )
            ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
            own = [at for at, added in enumerate(special) if not added]
            first, last = (own[0], own[-1]) if own else (len(ids), len(ids))
            begun = tuple(ids[:first])
            answers.append(tuple(ids[first : last + 1]))
        return begun, tuple(answers)

    def _ending(self, ids: list[int], stem: str, space: str) -> _Ending:
        """How the answers go on from a prompt with these ids, and this space behind it."""
        key = tuple(ids[-_REACH:]), space
        known = self._endings.get(key)
        if known is not None:
            return known
        before = stem + (self._between if self._between is not None else space or " ")
        wholes = [self._ids(before + answer) for answer in self.bound.answers]
        shared = min(self._common_start(before, wholes), *(len(whole) - 1 for whole in wholes))
        kept = min(_common(ids, wholes[0]), shared)
        found = _Ending(
            len(ids) - kept,
            tuple(wholes[0][kept:shared]),
            tuple(tuple(whole[shared:]) for whole in wholes),
        )
        if len(self._endings) < 10_000:
            self._endings[key] = found
        return found

    def _common_start(self, before: str, wholes: Sequence[Sequence[int]]) -> int:
        """How many ids all answers begin with that hold nothing of the answers' own letters."""
        if not self.tokenizer.is_fast:
            # Two texts that begin with different letters share no token that holds a letter.
            wholes = [*wholes, self._ids(before + "1"), self._ids(before + "x")]
        alike = min(_common(wholes[0], whole) for whole in wholes[1:])
        if not self.tokenizer.is_fast:
            return alike
        encoded = self.tokenizer(
            before + self.bound.answers[0],
            add_special_tokens=False,
            verbose=False,
            return_offsets_mapping=True,
        )
        ends = [0] * len(self._leading) + [end for _, end in encoded["offset_mapping"]]
        return next((at for at in range(alike) if ends[at] > len(before)), alike)

    def _written(self, row: Row) -> str:
        if not self.chat:
            return self.bound.whole(row)
        return self._rendered(row, add_generation_prompt=True)

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

    def _ids(self, text: str) -> list[int]:
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return self._leading + list(ids)

    def _chat_separator(self) -> str:
        """What the template puts between its mark of the assistant's turn and the answer."""
        empty = dict.fromkeys(self.bound.columns, "")
        before = self._rendered(empty, add_generation_prompt=True)
        # A word of a class may stand in the template too, as "end" in <|im_end|>.
        after = self._rendered(empty, answer=_STANDS_FOR_ANSWER)
        at = after.find(_STANDS_FOR_ANSWER, len(before))
        return after[len(before) : at] if after.startswith(before) and at >= 0 else ""

    # ---- the limit ----

    def _fitting(self, row: Row) -> Row:
        """The row itself, or one whose longest text has lost its end.

        Raises:
            LimbeckError: not one token of its texts fits: an answer would be to the template alone.
        """
        fitting = row
        while (over := self._over(fitting)) > 0:
            fitting = self._shortened(fitting, over)
        if fitting is not row and not any(fitting[name] for name in self.bound.uses):
            raise LimbeckError(
                f"the prompt leaves no room for a text: the model reads {self.limit} tokens",
                "shorten the template, or take fewer examples",
            )
        return fitting

    def _over(self, row: Row) -> int:
        if self.limit is None:
            return 0
        return self._size(self._tokens(row)) - self.limit

    def _size(self, tokens: PromptTokens) -> int:
        """What has to fit into the model."""
        longest = max(map(len, tokens.answers))
        if self._written_answers is None:
            return len(tokens.prefix) + longest
        return max(len(tokens.prefix), len(tokens.begun) + longest)

    def _shortened(self, row: Row, over: int) -> Row:
        """The row whose longest text has lost so many tokens, or what it has; at least a character."""
        ends = {name: self._token_ends(row[name]) for name in self.bound.uses if row[name]}
        if not ends:
            raise LimbeckError(
                f"the prompt alone is longer than the {self.limit} tokens that the model reads",
                "shorten the template, or take fewer examples",
            )
        name = max(ends, key=lambda column: (len(ends[column]), len(row[column])))
        # What stands in the prompt twice frees two tokens with each that it loses.
        keep = max(0, len(ends[name]) - math.ceil(over / self.bound.uses[name]))
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

    # ---- what can be wrong ----

    def _check(self) -> None:
        empty = dict.fromkeys(self.bound.columns, "")
        tokens = self._tokens(empty)
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
        need = self._size(tokens)
        if self.limit is not None and need > self.limit:
            problems.append(
                Problem(
                    f"the prompt has {need} tokens before any text of a row, and the model reads {self.limit}",
                    "shorten the template, or take fewer examples",
                )
            )
        if problems:
            raise LimbeckError(problems)


def token_limit(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, given: int | None
) -> int | None:
    """The smallest of what the model, the tokenizer and the user say; None where nobody says anything."""
    text = config.get_text_config()
    own = getattr(text, "max_position_embeddings", None)
    # Hugging Face writes "no limit" as 10^30.
    said = [size for size in (own, tokenizer.model_max_length, given) if size and size < 10**9]
    return min(said, default=None)


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


# Answers that go on from one another: "positive" and "positively" as answers of two classes.


Answers = tuple[tuple[int, ...], ...]
"""By class, the token ids of its answer."""
# Differences of log-probabilities below it are rounding.
_ROUNDING = 1e-6


def exclusive_scores(scores: np.ndarray, answers: Sequence[Answers]) -> np.ndarray:
    """log P(the answer, and none that goes on from it), (B, C), from log P(the text begins with the answer).

    Whoever says "positively" has said "positive" on the way, so that P("positive") holds P("positively") too, and the
    shorter answer would win whatever a model says. With what goes on from it taken out classes exclude each other:
    P'(a) = P(a) − Σ_b P(b), over the answers b next longer than a. Answers that share tokens and part later exclude
    each other already.

    Args:
        scores: sums of token log-probabilities, (B, C).
        answers: of each row.
    """
    found = np.array(scores, dtype=np.float64)
    for row, own in enumerate(answers):
        for shorter, longer in _extensions(own):
            taken = logsumexp(scores[row, list(longer)]) - scores[row, shorter]
            found[row, shorter] += np.log(-np.expm1(min(taken, -_ROUNDING)))
    return found


@lru_cache(maxsize=1024)
def _extensions(answers: Answers) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """The classes whose answers others go on from, each with those next longer: not what goes on from these in turn."""
    found = []
    for number, own in enumerate(answers):
        after = [k for k, one in enumerate(answers) if len(one) > len(own) and _begins(own, one)]
        next_longer = [
            k for k in after if not any(_begins(answers[j], answers[k]) and j != k for j in after)
        ]
        if next_longer:
            found.append((number, tuple(next_longer)))
    return tuple(found)


def _begins(shorter: tuple[int, ...], longer: tuple[int, ...]) -> bool:
    return longer[: len(shorter)] == shorter
