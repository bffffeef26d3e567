"""Requests to an endpoint through the official client: paced, repeated where that can help, counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential, wait_random

from limbeck.teachers.language_models.endpoint_errors import (
    LabellingStoppedError,
    RowFailedError,
    ends_everything,
    explained,
    may_succeed_later,
    said_by,
    seconds_to_wait,
)
from limbeck.teachers.language_models.endpoint_limits import Pace, Spending
from limbeck.teachers.language_models.endpoint_settings import EndpointSettings

log = logging.getLogger(__name__)

_LONGEST_WAIT = 600.0
_BACK_OFF = wait_exponential(multiplier=0.5, max=60) + wait_random(0, 0.5)
_CHARACTERS_PER_TOKEN = 4


class EndpointClient:
    """Sends requests.

    Attributes:
        spending: what they took.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.spending = Spending(settings)
        self._client = openai.AsyncOpenAI(
            base_url=settings.url,
            api_key=settings.api_key(),
            timeout=settings.timeout,
            max_retries=0,  # ours, which the limits know of
        )
        self._requests = Pace(settings.requests_per_minute)
        self._tokens = Pace(settings.tokens_per_minute)
        self._places = asyncio.Semaphore(settings.concurrency)

    async def chat(self, *, retries: int | None = None, **request: Any) -> Any:
        """A chat completion; as `send`."""
        size = sum(len(one["content"]) for one in request["messages"])
        create = self._client.chat.completions.create
        return await self.send(lambda: create(model=self.settings.model, **request), size, retries)

    async def complete(self, *, retries: int | None = None, **request: Any) -> Any:
        """A completion of plain text; as `send`."""
        create = self._client.completions.create
        size = len(request["prompt"])
        return await self.send(lambda: create(model=self.settings.model, **request), size, retries)

    async def send(
        self, ask: Callable[[], Awaitable[Any]], characters: int, retries: int | None = None
    ) -> Any:
        """The server's answer, after as many attempts as it takes.

        Args:
            ask: sends the request once.
            characters: of the prompt, from which its tokens are guessed before they are known.
            retries: other than the settings say.

        Raises:
            LimbeckError: the key, the model or the account is refused.
            LabellingStoppedError: the limit on the cost is reached, or the server asks for a long pause.
            RowFailedError: all attempts failed, or the server refuses this one request.
        """
        attempts = 1 + (self.settings.retries if retries is None else retries)
        again = AsyncRetrying(
            stop=stop_after_attempt(attempts),
            wait=_pause_before,
            retry=retry_if_exception(may_succeed_later),
            before_sleep=self._repeating,
            reraise=True,
        )
        try:
            return await again(self._in_turn, ask, characters)
        except LabellingStoppedError:
            raise
        except (openai.OpenAIError, ValueError) as error:
            if ends_everything(error):
                raise explained(error, self.settings, await self.models()) from error
            tried = f" ({attempts} attempts)" if may_succeed_later(error) else ""
            raise RowFailedError(said_by(error, self.settings) + tried) from error

    async def models(self) -> list[str]:
        """The names of the models that it serves; none where it does not say."""
        try:
            return [model.id async for model in self._client.models.list()]
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return []

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _in_turn(self, ask: Callable[[], Awaitable[Any]], characters: int) -> Any:
        """Whatever asks, rows or the votes of one: no more requests at the same time than are allowed."""
        async with self._places:
            return await self._once(ask, characters)

    async def _once(self, ask: Callable[[], Awaitable[Any]], characters: int) -> Any:
        spending = self.spending
        if not spending.allows():
            raise LabellingStoppedError(
                f"max_cost: {self.settings.max_cost} is reached ({spending.before + spending.cost:.4g} spent)",
                "run the same command again with a higher --max-cost, which continues it",
            )
        spending.begin()
        guessed = self._guess(characters)
        used = (0, 0)
        try:
            # Both at once: a moment that is free of the one need not be of the other.
            await asyncio.sleep(max(self._requests.book(), self._tokens.book(guessed)))
            answer = await ask()
            usage = getattr(answer, "usage", None)
            if usage is not None:
                # What is no answer at all may call anything so.
                names = ("prompt_tokens", "completion_tokens")
                read, written = (getattr(usage, name, None) or 0 for name in names)
                used = read, written
            self._tokens.correct(sum(used) - guessed if usage is not None else 0)
            return answer
        finally:
            spending.end(*used)

    def _guess(self, characters: int) -> float:
        """Tokens that a request will take: as those before it, else by its characters."""
        spending = self.spending
        counted = spending.prompt_tokens + spending.completion_tokens
        return counted / spending.requests if counted else characters / _CHARACTERS_PER_TOKEN

    def _repeating(self, state: RetryCallState) -> None:
        """Before an attempt is repeated: a server that asks for a pause gets it from all requests."""
        self.spending.retries += 1
        error = state.outcome.exception() if state.outcome else None
        wait = seconds_to_wait(error)
        if error is not None:
            log.info("repeating a request: %s", said_by(error, self.settings))
        if wait is None:
            return
        if wait > _LONGEST_WAIT:
            raise LabellingStoppedError(
                f"endpoint {self.settings.url} asks for a pause of {wait:.0f} seconds",
                "run the same command again after it, which continues",
            )
        self._requests.pause(wait)


def _pause_before(state: RetryCallState) -> float:
    """What the server says, else exponential back-off with jitter."""
    said = seconds_to_wait(state.outcome.exception() if state.outcome else None)
    return _BACK_OFF(state) if said is None else said
