"""Where a model is served and how it may be asked: settings of an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Count, Seed, Settings

KEY_VARIABLE = "OPENAI_API_KEY"
_NO_KEY = "none"  # the client insists on one, and servers without keys read none

_UNREAD = {"logprobs": ("votes", "temperature", "seed"), "votes": ("top_logprobs",)}

Price = Annotated[float, Field(ge=0)]
"""Of a million tokens, in whatever currency."""
Positive = Annotated[float, Field(gt=0)]


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
        requests_per_minute, tokens_per_minute: never more than this; None: no limit of ours.
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
    tokens_per_minute: Positive | None = None
    price_in: Price | None = None
    price_out: Price | None = None
    max_cost: Positive | None = None
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0, le=100)] = 6

    def problems(self) -> list[Problem]:
        """What cannot work, before anything is sent."""
        found = [
            Problem(
                f"{name}: nothing that mode {self.mode} reads", "leave it out, or set --mode auto"
            )
            for name in _UNREAD.get(self.mode, ())
            if name in self.model_fields_set
        ]
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

    def check(self) -> None:
        """Raise LimbeckError with all of `problems`."""
        problems = self.problems()
        if problems:
            raise LimbeckError(problems)


# What a request to an endpoint may hold, and what can be left out where a server refuses it.


# Most servers list at least so many tokens.
_FEW_TOKENS = 5


@dataclass(frozen=True)
class RequestForm:
    """What a request may hold.

    Attributes:
        mode: see `EndpointSettings`.
        chat: messages, or plain text.
        top: the most likely tokens asked for.
        many: several answers in one request.
        structured: a JSON schema for the answer.
        seeded: a seed.
        limit: what the length of an answer is called.
    """

    mode: Literal["logprobs", "votes"]
    chat: bool
    top: int
    many: bool
    structured: bool
    seeded: bool = True
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    def simpler(self, message: str, *, may_vote: bool) -> RequestForm | None:
        """Without what a server's message refuses, or without the next thing that servers may lack; None at the end."""
        ways = dict(self._ways(may_vote))
        # The longest first: `logprobs` is in `top_logprobs` too.
        for name in sorted(ways, key=len, reverse=True):
            if name in message:
                return ways[name]
        return next(iter(ways.values()), None)

    def _ways(self, may_vote: bool) -> Iterator[tuple[str, RequestForm]]:
        """What can be left out, by the parameter that a server would name."""
        if self.mode == "logprobs":
            if self.top > _FEW_TOKENS:
                yield "top_logprobs", replace(self, top=_FEW_TOKENS)
            if may_vote:
                yield "logprobs", replace(self, mode="votes")
        else:
            if self.many:
                yield "n", replace(self, many=False)
            if self.structured:
                yield "response_format", replace(self, structured=False)
            if self.seeded:
                yield "seed", replace(self, seeded=False)
        if self.chat and self.limit == "max_tokens":
            yield "max_tokens", replace(self, limit="max_completion_tokens")
