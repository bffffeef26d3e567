"""Settings of an OpenAI-compatible endpoint, and what is spent there. Needs no client."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Count, Seed, Settings

KEY_VARIABLE = "OPENAI_API_KEY"
_NO_KEY = "none"  # the client insists on one, and servers without keys read none
_MILLION = 1_000_000
# What a chat template puts around a prompt, in tokens, before an answer tells.
_AROUND_PROMPT = 32

Price = Annotated[float, Field(ge=0)]
"""Of a million tokens, in whatever currency."""
Positive = Annotated[float, Field(gt=0)]
Tokens = tuple[int, int]
"""Read and written."""


class LabellingStoppedError(LimbeckError):
    """No further request may be sent; what was answered is kept."""


class EndpointSettings(Settings):
    """How to reach and ask an endpoint.

    Attributes:
        url: its base URL, up to and with `/v1`.
        model: the name of a model that it serves.
        api_key_env: the environment variable that holds the key; the key itself is written nowhere. None:
            OPENAI_API_KEY where it is set, else no key.
        mode: `logprobs` reads the probabilities of the answers' first tokens out of one request, `votes` samples
            answers and counts them, `auto` takes log-probabilities where the server gives them.
        votes: answers for each row.
        temperature: at which they are sampled.
        top_logprobs: how many of the most likely tokens to ask for.
        seed: of the sampled answers, where the server takes one.
        concurrency: requests at the same time.
        requests_per_minute: never more than this; None: no limit of ours.
        price_in, price_out: of a million tokens read and written.
        max_cost: no request is sent that may exceed it, were its tokens bytes and its answers as long as it allows.
        timeout: seconds that one answer may take.
        retries: how often to repeat a request that failed and may yet succeed.
    """

    url: str
    model: Annotated[str, Field(min_length=1)]
    api_key_env: str | None = None
    mode: Literal["auto", "logprobs", "votes"] = "auto"
    votes: Annotated[int, Field(ge=1, le=1000)] = 5
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    top_logprobs: Annotated[int, Field(ge=2, le=1000)] = 20
    seed: Seed = 0
    concurrency: Count = 8
    requests_per_minute: Positive | None = None
    price_in: Price | None = None
    price_out: Price | None = None
    max_cost: Positive | None = None
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0, le=100)] = 6

    def problems(self) -> list[Problem]:
        """What cannot work, before anything is sent."""
        found = []
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            found.append(
                Problem(
                    f"endpoint {self.url!r} is no URL",
                    "write one like http://localhost:8000/v1 or https://api.openai.com/v1",
                )
            )
        if parts.username or parts.password or parts.query:
            found.append(
                Problem(
                    "endpoint: the URL holds a user, a password or a query, which would be recorded",
                    "put the key into an environment variable and name that with --api-key-env",
                )
            )
        if self.max_cost is not None and (self.price_in is None or self.price_out is None):
            found.append(
                Problem(
                    f"max_cost: {self.max_cost}, but what tokens cost is not known",
                    "give --price-in and --price-out, for a million tokens",
                )
            )
        if self.api_key_env is not None and not os.environ.get(self.api_key_env):
            found.append(
                Problem(
                    f"api_key_env: the environment variable {self.api_key_env} is not set",
                    f"export {self.api_key_env}=KEY",
                )
            )
        return found

    def api_key(self) -> str:
        """The key, for the client alone."""
        return os.environ.get(self.api_key_env or KEY_VARIABLE) or _NO_KEY


def size_of(request: Mapping[str, Any]) -> Tokens:
    """Bytes of a request's prompt, and tokens of its answers, were each as long as it allows."""
    messages = request.get("messages") or [{"content": request.get("prompt", "")}]
    longest = request.get("max_tokens") or request.get("max_completion_tokens") or 0
    read = sum(len(one["content"].encode(errors="replace")) for one in messages)
    return read, longest * request.get("n", 1)


class Spending:
    """What was sent and what it cost, and what open requests may yet cost. Threads share it.

    Attributes:
        before: cost of earlier starts, which counts towards the limit.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.requests = self.retries = self.prompt_tokens = self.completion_tokens = 0
        self.before = 0.0
        self._open: list[Tokens] = []
        self._changed = threading.Condition()
        # Tokens of the shortest prompt, which what stands around each of them cannot exceed.
        self._around: int | None = None
        # Servers may let a model write more than a request allows.
        self._longer = 1.0

    @property
    def cost(self) -> float:
        """Of this start, in the currency of the prices."""
        return self.price(self.prompt_tokens, self.completion_tokens)

    def price(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Of so many tokens."""
        read, written = self.settings.price_in or 0.0, self.settings.price_out or 0.0
        return (prompt_tokens * read + completion_tokens * written) / _MILLION

    def begin(self, size: Tokens) -> Tokens:
        """A request is on its way, once what it may take fits below the limit beside what the open ones may.

        Returns:
            The most that it may take, set aside until `end`.

        Raises:
            LabellingStoppedError: it does not fit, and no request is open any more that may take less than is set
                aside for it.
        """
        with self._changed:
            while not self._fits(most := self._most(size)):
                if not self._open:
                    raise LabellingStoppedError(
                        f"max_cost: {self.settings.max_cost} is reached ({self.before + self.cost:.4g} spent, and the "
                        f"next request may cost {self.price(*most):.4g})",
                        "run the same command again with a higher --max-cost, which continues it",
                    )
                self._changed.wait()
            self._open.append(most)
            self.requests += 1
            return most

    def end(self, most: Tokens, size: Tokens, used: Tokens | None) -> None:
        """It has come back with what it took, or failed.

        Args:
            most: what `begin` returned.
            used: None where nobody says.
        """
        with self._changed:
            self._open.remove(most)
            if used is not None:
                self.prompt_tokens += used[0]
                self.completion_tokens += used[1]
                if used[0]:  # no prompt takes nothing: such a server does not say it
                    self._around = min(used[0], used[0] if self._around is None else self._around)
                    self._longer = max(self._longer, used[1] / max(size[1], 1))
            self._changed.notify_all()

    def written(self) -> dict[str, float]:
        """Everything counted, by name."""
        names = ("requests", "retries", "prompt_tokens", "completion_tokens")
        counted = {name: float(getattr(self, name)) for name in names}
        priced = self.settings.price_in is not None or self.settings.price_out is not None
        return counted | ({"cost": self.cost} if priced else {})

    def _most(self, size: Tokens) -> Tokens:
        """No token is shorter than a byte, and no answer longer than allowed, or than those before it were."""
        around = _AROUND_PROMPT if self._around is None else self._around
        return size[0] + around, math.ceil(size[1] * self._longer)

    def _fits(self, most: Tokens) -> bool:
        limit = self.settings.max_cost
        read, written = map(sum, zip(most, *self._open, strict=True))
        return limit is None or self.before + self.cost + self.price(read, written) <= limit
