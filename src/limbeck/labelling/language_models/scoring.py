"""From a row to token ids of prompt and answers, and how likely a language model finds each answer.

Prompts run with as few tokens as possible: their common beginning once, then the rest of each prompt, then only the
ends of the prompts with each answer, after copies of the keys and values. No padding comes before a token that is
read, so windows and positions are the same as for the row alone. A check compares this with running each prompt with
each answer, on rows as long as any scored.
"""

import copy
import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import Any

import torch
import transformers
from jinja2 import TemplateError
from torch import Tensor

from limbeck.labelling.language_models.prompt import BoundPrompt, Row
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.machine import device_of

log = logging.getLogger(__name__)

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
    def size(self) -> int:
        """Tokens of the prompt with its longest answer."""
        return len(self.prefix) + max(map(len, self.answers))


class PromptTokenizer:
    """Tokenises prompts for a causal model.

    A prompt's last token and an answer's first can be one token, so both are tokenised together. What all answers
    begin with is part of the prefix: it does not distinguish them. The end of a text is left out: no answer has to
    end.

    Args:
        limit: tokens that a prompt and its longest answer may have; longer ones lose the end of their longest
            text among the texts in the prompt, never any of the question. None: no limit.

    Attributes:
        empty: the tokens of a row without texts.

    Raises:
        LimbeckError: the prompt does not fit the tokenizer or the limit.
    """

    def __init__(
        self,
        tokenizer: transformers.PreTrainedTokenizerBase,
        bound: BoundPrompt,
        *,
        limit: int | None = None,
    ) -> None:
        self.tokenizer, self.bound, self.limit = tokenizer, bound, limit
        chat = bound.prompt.chat
        self._chat = tokenizer.chat_template is not None if chat is None else chat
        marked = tokenizer("a", return_special_tokens_mask=True)
        leading = marked["input_ids"][: marked["special_tokens_mask"].index(0)]
        # A chat template writes them itself.
        self._leading = [] if self._chat else list(leading)
        if bound.prompt.roles:
            self._check_roles()
        self.empty = self(dict.fromkeys(bound.columns, ""))
        raise_problems(self._problems())

    @problem_list
    def _problems(self) -> Iterator[Problem]:
        bound, empty = self.bound, self.empty
        classes = zip(bound.classes, empty.answers, strict=True)
        for (first, own), (second, other) in combinations(classes, 2):
            if own == other:
                yield Problem(
                    f"verbalizations: {first!r} and {second!r} are the same tokens for this tokenizer",
                    "give each class words that are in its vocabulary",
                )
        (answer, *_), (ids, *_) = bound.answers, empty.answers
        if bound.reads_logit and str(self.tokenizer.decode([*ids])).strip() != answer:
            yield Problem(
                f"score: one answer's logit is of one token, and this tokenizer cuts {answer!r} into several",
                "write score: [NO, YES] for log-odds",
            )
        if not empty.prefix:
            yield Problem(
                "template: an empty row's prompt has no token, and the tokenizer puts none before it",
                "write a question into the template",
            )

    def __call__(self, row: Row) -> PromptTokens:
        """The tokens of a row that fits, or of one whose longest text has lost its end.

        Raises:
            LimbeckError: not one letter of its texts fits: an answer would be to the template alone.
        """
        found = PromptTokens(*self._tokens(row))
        while self.limit is not None and found.size > self.limit:
            name = max(self.bound.uses, key=lambda column: len(row[column]))
            text = row[name]
            if len(text) < 2:
                raise LimbeckError(
                    f"the prompt leaves no room for a text: the model reads {self.limit} tokens",
                    "shorten the template, or take fewer examples",
                )
            count = max(1, len(self._ids([text])[0]))
            # Half of it at most: for a text that occurs twice in the prompt, each removed token frees two.
            share = max(0.5, 1 - (found.size - self.limit) / count)
            row = {**row, name: text[: min(int(len(text) * share), len(text) - 1)]}
            found = PromptTokens(*self._tokens(row), truncated=True)
        return found

    def _tokens(self, row: Row) -> tuple[list[int], Answers]:
        """What all answers have before them, and the rest of each."""
        prompt = self._written(row)
        wholes = [
            self._leading + ids for ids in self._ids([prompt + a for a in self.bound.answers])
        ]
        # Each answer keeps a token of its own.
        shared = len(_common([whole[:-1] for whole in wholes]))
        return wholes[0][:shared], tuple(tuple(whole[shared:]) for whole in wholes)

    def _written(self, row: Row) -> str:
        """The prompt up to the answer, with the text that a chat template puts before it."""
        if not self._chat:
            prompt = self.bound.whole(row)
            return prompt if prompt[-1:].isspace() else prompt + " "
        # Words of a class may occur in the template too, as "end" in <|im_end|>.
        messages, settings = self.bound.messages(row), self.bound.prompt.chat_template_kwargs
        if self.bound.prompt.roles:
            settings = {"add_generation_prompt": True, **settings}
        else:
            messages.append({"role": "assistant", "content": _STANDS_FOR_ANSWER})
            settings = {**settings, "continue_final_message": True}
        try:
            written = self.tokenizer.apply_chat_template(messages, tokenize=False, **settings)
        except (TemplateError, ValueError) as error:  # templates raise it, as for an unknown role
            raise LimbeckError(
                f"the tokenizer's chat template rejects the prompt: {error}",
                "set chat: false, or leave system out if the template has no such role",
            ) from None
        return str(written).removesuffix(_STANDS_FOR_ANSWER)

    def _check_roles(self) -> None:
        """Raise LimbeckError if a column's text would be missing from the prompt."""
        row = {name: f"xqLimbeck{name}qx" for name in self.bound.columns}
        written = self._written(row) if self._chat else ""
        pairs = zip(self.bound.prompt.roles, row.values(), strict=True)
        if lacking := [role for role, text in pairs if text not in written]:
            raise LimbeckError(
                f"roles: the tokenizer's chat template does not write {', '.join(lacking)}",
                "leave roles out and write a template, or put a chat_template.jinja into the folder that has them",
            )

    def _ids(self, texts: list[str]) -> list[list[int]]:
        found = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [list(ids) for ids in found]


def token_limit(
    config: transformers.PreTrainedConfig,
    tokenizer: transformers.PreTrainedTokenizerBase,
    given: int | None,
) -> int | None:
    """The smallest limit of the model, the tokenizer and the user; None if there is no limit."""
    text: Any = config.get_text_config()
    ropes = getattr(text, "rope_parameters", None) or {}
    # Beyond it a complete pass has other frequencies, also for shorter rows in its batch. Layer types may differ.
    original = [
        rope.get("original_max_position_embeddings")
        for rope in (ropes, *ropes.values())
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope"
    ]
    own = getattr(text, "max_position_embeddings", None)
    # Hugging Face writes "no limit" as 10^30.
    said = (own, *original, tokenizer.model_max_length, given)
    return min((size for size in said if size and size < 10**9), default=None)


def _common(sequences: Sequence[Sequence[int]]) -> list[int]:
    """What all of them begin with."""
    alike = takewhile(lambda ids: len({*ids}) == 1, zip(*sequences, strict=False))
    return [ids[0] for ids in alike]


class CausalScorer:
    """Sums of token log-probabilities, (B, C), in float32, that do not depend on the other rows.

    An answer's last token is predicted and never read.

    Args:
        model: in eval mode, any causal model of transformers.
        sequences: sequences in a forward pass.
        normalized: whether they are log-probabilities; otherwise the logits unchanged.

    Attributes:
        reuse: whether keys and values are used again; turned off where they do not give the numbers of each prompt
            with each answer, which is checked again for longer rows than before.
    """

    def __init__(
        self, model: transformers.PreTrainedModel, *, sequences: int = 32, normalized: bool = True
    ) -> None:
        self.model, self.sequences, self.normalized = model, sequences, normalized
        self.reuse, self._checked = True, 0
        self._takes = inspect.signature(model.forward).parameters

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        order = sorted(range(len(rows)), key=lambda at: rows[at].size)
        shortest, longest = rows[order[0]], rows[order[-1]]
        shared = _common([row.prefix[:-1] for row in rows])
        if self.reuse and longest.size > self._checked:
            self.reuse = self._agrees([shortest, longest], shared[: len(shared) // 2])
            self._checked = longest.size
        past = self._begun(shared) if self.reuse else None
        # Rows of like length share a pass, and no more than have their answers in one.
        size = max(1, self.sequences // len(_stems(longest)))
        scores = torch.empty(len(rows), len(longest.answers))
        for part in (order[at : at + size] for at in range(0, len(order), size)):
            scores[part] = self._scores([rows[at] for at in part], past).cpu()
        return scores

    def _agrees(self, rows: Sequence[PromptTokens], shared: list[int]) -> bool:
        """Whether keys and values give each row's own numbers: not every architecture keeps them alike."""
        try:
            reused = self._scores(rows, self._begun(shared))
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            log.info("%s: prompts are not shared (%s)", type(self.model).__name__, error)
            return False
        plain = torch.cat([self._scores([row], None) for row in rows])
        # What rounding explains, per token of an answer.
        rounding = 0.25 if self.model.dtype == torch.bfloat16 else 1e-3
        most = rounding * max(len(answer) for row in rows for answer in row.answers)
        return bool((reused - plain).abs().max() <= most)

    def _scores(
        self, rows: Sequence[PromptTokens], past: transformers.DynamicCache | None
    ) -> Tensor:
        """For each row and class; answers that differ only in their last token are one sequence.

        Args:
            past: the rows' common beginning, for a batch of one; None: every prompt is run with each answer.
        """
        begin = 0
        if past is not None:
            shared, begin = past.get_seq_length(), min(len(row.prefix) for row in rows) - 1
            past = _picked(past, [0] * len(rows))
            if begin > shared:
                self._logits([row.prefix[shared:begin] for row in rows], past, begin - shared - 1)
        stems = [(at, stem) for at, row in enumerate(rows) for stem in _stems(row)]
        scores = torch.empty(len(rows), len(rows[0].answers), device=device_of(self.model))
        for start in range(0, len(stems), self.sequences):
            part = stems[start : start + self.sequences]
            sequences = [[*rows[at].prefix[begin:], *stem] for at, stem in part]
            copies = None if past is None else _picked(past, [at for at, _ in part])
            first = min(len(rows[at].prefix) for at, _ in part) - 1 - begin
            logits = self._logits(sequences, copies, first)
            for values, (at, stem) in zip(logits, part, strict=True):
                end = len(rows[at].prefix) - 1 - begin - first
                logs = values[end : end + len(stem) + 1].float()
                logs = logs.log_softmax(-1) if self.normalized else logs
                own = [number for number, one in enumerate(rows[at].answers) if one[:-1] == stem]
                ids = torch.tensor([rows[at].answers[number] for number in own])
                scores[at, own] = logs.gather(-1, ids.T.to(logs.device)).sum(0)
        return scores

    def _begun(self, ids: list[int]) -> transformers.DynamicCache:
        """The keys and values of some ids, for a batch of one."""
        past = transformers.DynamicCache(config=self.model.config)
        if ids:
            self._logits([ids], past, len(ids) - 1)
        return past

    def _logits(
        self, sequences: list[list[int]], past: transformers.DynamicCache | None, first: int
    ) -> Tensor:
        """Logits of sequences from position `first` on; they follow their past, which then holds them too."""
        size = max(map(len, sequences))
        # On the right, where no earlier token of a causal model sees it.
        padded = [[*one, *[0] * (size - len(one))] for one in sequences]
        ids = torch.tensor(padded, device=device_of(self.model))
        given: dict[str, Any] = {"use_cache": past is not None}
        if past is not None:
            # As transformers calls it since 5.24, and before.
            given["cache" if "cache" in self._takes else "past_key_values"] = past
        if "logits_to_keep" in self._takes:
            given["logits_to_keep"] = size - first
        found: Tensor = self.model(input_ids=ids, **given).logits
        return found[:, first - size :]


def _stems(row: PromptTokens) -> list[tuple[int, ...]]:
    """A row's different answers without their last tokens."""
    return [*dict.fromkeys(answer[:-1] for answer in row.answers)]


def _picked(past: transformers.DynamicCache, places: list[int]) -> transformers.DynamicCache:
    """A copy whose batch is the sequences at some places."""
    made = copy.deepcopy(past)
    made.batch_select_indices(torch.tensor(places))
    return made
