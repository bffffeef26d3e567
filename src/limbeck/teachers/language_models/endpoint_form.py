"""What a request to an endpoint may hold, and what can be left out where a server refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

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
