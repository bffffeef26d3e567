"""What was spent, and how far it may go: no request is sent that could exceed the limit on the cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from limbeck.labelling.language_models.endpoint_errors import LabellingStoppedError
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings

_MILLION = 1_000_000
# What a chat template puts around a prompt, in tokens, before an answer tells.
_AROUND_PROMPT = 32
# Of usual text in usual languages, before an answer tells.
_BYTES_PER_TOKEN = 4

Tokens = tuple[int, int]
"""Read and written."""


@dataclass(frozen=True)
class RequestSize:
    """What is known of a request before its answer.

    Attributes:
        prompt: bytes of all that the model is to read.
        answers: tokens of all its answers, were each as long as the request allows.
    """

    prompt: int
    answers: int

    @classmethod
    def of(cls, texts: Iterable[str], request: Mapping[str, Any]) -> Self:
        """Of a request's texts and settings."""
        longest = request.get("max_tokens") or request.get("max_completion_tokens") or 0
        return cls(
            sum(len(text.encode(errors="replace")) for text in texts), longest * request.get("n", 1)
        )


@dataclass
class _AnswersSeen:
    """What answers took, and what the next may take by that.

    Attributes:
        prompt_bytes: of all prompts with an answer.
        tokens: that these took, both ways.
        least: tokens of the shortest prompt, which what stands around each of them cannot exceed.
        beyond: the most tokens of a prompt beyond one for each byte.
        longer: the most tokens that were written for each that a request allows: servers may let a model write more.
    """

    prompt_bytes: int = 0
    tokens: int = 0
    least: int | None = None
    beyond: int = 0
    longer: float = 1.0

    def add(self, size: RequestSize, used: Tokens) -> None:
        """An answer took so much."""
        read, written = used
        if not read:  # which no prompt takes: the server does not say it
            return
        self.prompt_bytes += size.prompt
        self.tokens += read + written
        self.least = read if self.least is None else min(self.least, read)
        self.beyond = max(self.beyond, read - size.prompt)
        self.longer = max(self.longer, written / max(size.answers, 1))

    def most(self, size: RequestSize) -> Tokens:
        """No token is shorter than a byte, and no answer longer than allowed, or than those before it were."""
        least = _AROUND_PROMPT if self.least is None else self.least
        around = max(least, self.beyond)
        return size.prompt + around, math.ceil(size.answers * self.longer)

    def guess(self, size: RequestSize) -> float:
        """As those before it took for a byte of their prompts."""
        if not self.prompt_bytes:
            return size.prompt / _BYTES_PER_TOKEN
        return min(size.prompt * self.tokens / self.prompt_bytes, sum(self.most(size)))


@dataclass
class Spending:
    """What was sent, read and written, what it cost, and what open requests may yet cost.

    Attributes:
        before: cost of earlier starts, which counts towards the limit.
    """

    settings: EndpointSettings
    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    before: float = 0.0
    _open: list[Tokens] = field(default_factory=list)
    _seen: _AnswersSeen = field(default_factory=_AnswersSeen)
    _next_end: asyncio.Event = field(default_factory=asyncio.Event)
    _rates: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        self._rates = (self.settings.price_in or 0.0, self.settings.price_out or 0.0)

    @property
    def priced(self) -> bool:
        """Whether prices are known."""
        return self.settings.price_in is not None or self.settings.price_out is not None

    @property
    def cost(self) -> float:
        """Of this start, in the currency of the prices."""
        return self.price(self.prompt_tokens, self.completion_tokens)

    def price(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Of so many tokens."""
        read, written = self._rates
        return (prompt_tokens * read + completion_tokens * written) / _MILLION

    async def begin(self, size: RequestSize) -> Tokens:
        """A request is on its way, once what it may take fits below the limit beside what the open ones may.

        Returns:
            The most that it may take, set aside until `end`.

        Raises:
            LabellingStoppedError: it does not fit, and no request is open any more that may take less than is set
                aside for it.
        """
        while not self._fits(most := self._seen.most(size)):
            if not self._open:
                raise LabellingStoppedError(
                    f"max_cost: {self.settings.max_cost} is reached ({self.before + self.cost:.4g} spent, and the "
                    f"next request may cost {self.price(*most):.4g})",
                    "run the same command again with a higher --max-cost, which continues it",
                )
            await self._next_end.wait()
        self._open.append(most)
        self.requests += 1
        return most

    def end(self, most: Tokens, size: RequestSize, used: Tokens | None) -> None:
        """It has come back with what it took, or failed.

        Args:
            most: what `begin` returned.
            used: None where nobody says.
        """
        self._open.remove(most)
        if used is not None:
            self.prompt_tokens += used[0]
            self.completion_tokens += used[1]
            self._seen.add(size, used)
        self._next_end.set()
        self._next_end = asyncio.Event()

    def guess(self, size: RequestSize) -> float:
        """The tokens that a request is likely to take, both ways."""
        return self._seen.guess(size)

    def written(self) -> Mapping[str, float]:
        """Everything counted, by name."""
        counted = {
            "requests": float(self.requests),
            "retries": float(self.retries),
            "prompt_tokens": float(self.prompt_tokens),
            "completion_tokens": float(self.completion_tokens),
        }
        return counted | ({"cost": self.cost} if self.priced else {})

    def _fits(self, most: Tokens) -> bool:
        limit = self.settings.max_cost
        read, written = map(sum, zip(most, *self._open, strict=True))
        return limit is None or self.before + self.cost + self.price(read, written) <= limit
