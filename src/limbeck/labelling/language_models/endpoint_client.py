"""Requests to an endpoint through the official client: paced, repeated where that can help, counted."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential, wait_random

from limbeck.labelling.language_models.endpoint_errors import (
    LabellingStoppedError,
    RowFailedError,
    ends_everything,
    explained,
    may_succeed_later,
    said_by,
    seconds_to_wait,
)
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.endpoint_spending import RequestSize, Spending, Tokens

log = logging.getLogger(__name__)

_LONGEST_WAIT = 600.0
_BACK_OFF = wait_exponential(multiplier=0.5, max=60) + wait_random(0, 0.5)


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
        size = RequestSize.of((one["content"] for one in request["messages"]), request)
        create = self._client.chat.completions.create
        return await self.send(lambda: create(model=self.settings.model, **request), size, retries)

    async def complete(self, *, retries: int | None = None, **request: Any) -> Any:
        """A completion of plain text; as `send`."""
        create = self._client.completions.create
        size = RequestSize.of((request["prompt"],), request)
        return await self.send(lambda: create(model=self.settings.model, **request), size, retries)

    async def send(
        self, ask: Callable[[], Awaitable[Any]], size: RequestSize, retries: int | None = None
    ) -> Any:
        """The server's answer, after as many attempts as it takes.

        Args:
            ask: sends the request once.
            size: of the request, from which its tokens are reckoned before they are known.
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
            return await again(self._in_turn, ask, size)
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

    async def _in_turn(self, ask: Callable[[], Awaitable[Any]], size: RequestSize) -> Any:
        """Whatever asks, rows or the votes of one: no more requests at the same time than are allowed."""
        async with self._places:
            most = await self.spending.begin(size)
            used = None
            try:
                guessed = await self._moment(size)
                answer = await self._asked(ask)
                used = _used(answer)
                self._tokens.correct(0 if used is None else sum(used) - guessed)
                return answer
            finally:
                self.spending.end(most, size, used)

    async def _moment(self, size: RequestSize) -> float:
        """Wait for a moment that is free; returns the tokens that it was booked for."""
        while True:
            guessed = self.spending.guess(size)
            # Both at once: a moment that is free of the one need not be of the other.
            await asyncio.sleep(max(self._requests.book(), self._tokens.book(guessed)))
            # A pause that the server asked for meanwhile is everybody's.
            if not self._requests.paused:
                return guessed

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer; a server that asks for a pause gets it from all requests, whatever becomes of this one.

        Raises:
            LabellingStoppedError: it asks for a long pause.
        """
        try:
            return await ask()
        except openai.APIStatusError as error:
            wait = seconds_to_wait(error) if may_succeed_later(error) else None
            if wait is None:
                raise
            if wait > _LONGEST_WAIT:
                raise LabellingStoppedError(
                    f"endpoint {self.settings.url} asks for a pause of {wait:.0f} seconds",
                    "run the same command again after it, which continues",
                ) from error
            self._requests.pause(wait)
            self._tokens.pause(wait)
            raise

    def _repeating(self, state: RetryCallState) -> None:
        """Before an attempt is repeated."""
        self.spending.retries += 1
        if state.outcome and (error := state.outcome.exception()):
            log.info("repeating a request: %s", said_by(error, self.settings))


def _used(answer: Any) -> Tokens | None:
    """The tokens that an answer says it took; None where it does not."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    # What is no answer at all may call anything so.
    names = ("prompt_tokens", "completion_tokens")
    read, written = (_count(getattr(usage, name, None)) for name in names)
    return read, written


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < math.inf else 0


def _pause_before(state: RetryCallState) -> float:
    """What the server says, else exponential back-off with jitter."""
    said = seconds_to_wait(state.outcome.exception() if state.outcome else None)
    return _BACK_OFF(state) if said is None else said


# How fast: requests evenly spaced in time, and none while a server asks for a pause.


class Pace:
    """So much in a minute, without bursts: who comes gets the next free moment.

    Args:
        per_minute: None for no limit.
        clock: seconds, from any beginning.
    """

    def __init__(
        self, per_minute: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.each = 60 / per_minute if per_minute else 0.0
        self.clock = clock
        self._free = 0.0
        self._paused_until = 0.0

    @property
    def paused(self) -> bool:
        """Whether nobody may begin now, not even who has booked this moment: it is to book another."""
        return self.clock() < self._paused_until

    def book(self, amount: float = 1.0) -> float:
        """Take the next moment for so much; returns the seconds until then."""
        now = self.clock()
        begin = max(now, self._free, self._paused_until)
        self._free = begin + amount * self.each
        return begin - now

    def correct(self, amount: float) -> None:
        """So much more (or less) was used than was booked."""
        self._free += amount * self.each

    def pause(self, seconds: float) -> None:
        """Nobody begins before so many seconds are over."""
        self._paused_until = max(self._paused_until, self.clock() + seconds)


# An event loop in a thread of its own, for work that callers wait for.


Made = TypeVar("Made")


class LoopThread:
    """An event loop of its own: connections stay open between calls, and callers may have a loop running."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Made]) -> Made:
        """Its result; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """End what still runs, do one last thing, and end the thread; once closed, nothing."""
        if self._loop.is_closed():
            last.close()
            return
        try:
            self.run(self._finish(last))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        # Of what was interrupted, requests may still be open.
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await last
