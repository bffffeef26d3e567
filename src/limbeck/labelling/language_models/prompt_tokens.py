"""From a row to token ids: the prompt, and each class's answer as it is tokenised behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError
from transformers import PretrainedConfig, PreTrainedTokenizerBase

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
