"""Requests to an endpoint through OpenAI's client: paced, repeated where that can help, counted, explained."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from limbeck.labelling.language_models.endpoint_settings import (
    KEY_VARIABLE,
    EndpointSettings,
    LabellingStoppedError,
    Spending,
    Tokens,
    size_of,
)
from limbeck.support.errors import LimbeckError

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 600.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_STATUS_TO_REPEAT = (408, 409, 425, 429)
_MESSAGE = 300
_MOST_TOKENS = 10**12  # what is no answer at all may say infinity
# Of what is no answer: enough to recognise a page by.
_BEGINNING = 120


class RowFailedError(Exception):
    """One row has no label, for a reason that need not concern the others."""

    @property
    def server_failed(self) -> bool:
        """Whether the server gave no answer at all: it is too slow, too busy, broken or out of reach."""
        return self.__cause__ is not None and may_succeed_later(self.__cause__)


class NoChoicesError(Exception):
    """What came back says nothing where OpenAI's protocol has an answer's choices.

    Args:
        said: what came back.
        page: whether it is no object at all, such as the page of a login, which answers to everything.
    """

    def __init__(self, said: str, *, page: bool) -> None:
        self.said, self.page = said, page
        super().__init__(f"no answer as OpenAI's protocol has it, but {said!r}")


# Not every ValueError: a key that no header can hold is one too.
_NO_PROTOCOL = (
    NoChoicesError,
    openai.APIResponseValidationError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class EndpointClient:
    """Sends requests, from any thread.

    Attributes:
        spending: what they took.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.spending = Spending(settings)
        self._client = openai.OpenAI(
            base_url=settings.url,
            api_key=settings.api_key(),
            timeout=settings.timeout,
            max_retries=0,  # ours, which the limits know of
        )
        self._pace = Pace(settings.requests_per_minute)

    def send(self, request: dict[str, Any], retries: int | None = None) -> list[Any]:
        """The choices of the server's answer, at least one, after as many attempts as it takes.

        Args:
            request: a chat's, or with `prompt` a completion's.
            retries: other than the settings say.

        Raises:
            LimbeckError: the key, the model or the account is refused, or a page answers.
            LabellingStoppedError: the limit on the cost is reached, or the server asks for a long pause.
            RowFailedError: all attempts failed, or the server refuses this one request.
        """
        attempts = 1 + (self.settings.retries if retries is None else retries)
        for attempt in range(attempts):
            try:
                return self._counted(request)
            except (openai.OpenAIError, ValueError, NoChoicesError) as error:
                again = may_succeed_later(error)
                if again and attempt + 1 < attempts:
                    log.info("repeating a request: %s", said_by(error, self.settings))
                    self.spending.retries += 1
                    if seconds_to_wait(error) is None:
                        time.sleep(back_off(attempt))
                    continue
                if ends_everything(error):
                    raise explained(error, self.settings, self.models()) from error
                tried = f" ({attempts} attempts)" if again else ""
                raise RowFailedError(said_by(error, self.settings) + tried) from error
        raise AssertionError("the last attempt returns or raises")

    def models(self) -> list[str]:
        """The names of the models that it serves; none where it does not say."""
        try:
            return [model.id for model in self._client.models.list()]
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return []

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _counted(self, request: dict[str, Any]) -> list[Any]:
        size = size_of(request)
        most, used = self.spending.begin(size), None
        try:
            self._pace.wait()
            answer = self._asked(request)
            used = _used(answer)
        finally:
            self.spending.end(most, size, used)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if isinstance(choices, list) and choices:
            return choices
        # Of a page the client gives the text.
        page = isinstance(answer, str)
        said = answer if page else json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
        raise NoChoicesError(_beginning(said, self.settings), page=page)

    def _asked(self, request: dict[str, Any]) -> Any:
        """The answer; a server that asks for a pause gets it from all requests, whatever becomes of this one."""
        path = "/chat/completions" if "messages" in request else "/completions"
        body = {"model": self.settings.model, **request}
        try:
            return self._client.post(path, cast_to=object, body=body)
        except openai.APIStatusError as error:
            pause = seconds_to_wait(error) if may_succeed_later(error) else None
            if pause is not None and pause > _LONGEST_PAUSE:
                raise LabellingStoppedError(
                    f"endpoint {self.settings.url} asks for a pause of {pause:.0f} seconds",
                    "run the same command again after it, which continues",
                ) from error
            self._pace.pause(pause or 0.0)
            raise


def _used(answer: Any) -> Tokens | None:
    """The tokens that an answer says it took; None where it does not."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    given = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (
        int(one) if isinstance(one, int | float) and 0 < one < _MOST_TOKENS else 0 for one in given
    )
    return read, written


def back_off(attempt: int) -> float:
    """Seconds before a request is repeated: more each time, and not the same for all."""
    found: float = min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt) + random.uniform(0, _FIRST_WAIT)
    return found


class Pace:
    """Requests evenly spaced in time, and none while a server asks for a pause.

    Args:
        per_minute: None for no limit.
    """

    def __init__(self, per_minute: float | None) -> None:
        self._each = 60 / per_minute if per_minute else 0.0
        self._free = self._paused_until = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Sleep until the next free moment; where a pause was asked for meanwhile, until another."""
        begin = -1.0
        while begin < self._paused_until:
            with self._lock:
                begin = max(time.monotonic(), self._free, self._paused_until)
                self._free = begin + self._each
            time.sleep(max(0.0, begin - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Nobody begins before so many seconds are over."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)


# What can go wrong: what a repetition may fix, what concerns one row, and what ends the work.


def may_succeed_later(error: BaseException) -> bool:
    """Whether repeating a request can help: too many, too slow, a broken connection or server."""
    if isinstance(error, openai.APIStatusError):
        again = error.status_code in _STATUS_TO_REPEAT or error.status_code >= 500
        return again and not _no_credit(error)
    # A connection that ends within an answer leaves half of one.
    return isinstance(
        error, openai.APIConnectionError | openai.APIResponseValidationError | ValueError
    )


def ends_everything(error: BaseException) -> bool:
    """Whether every other request would fail alike: the key, the model, the account, the URL."""
    if isinstance(error, NoChoicesError):
        return error.page
    refused = openai.AuthenticationError | openai.PermissionDeniedError | openai.NotFoundError
    return isinstance(error, refused) or _no_credit(error)


def _no_credit(error: BaseException) -> bool:
    return getattr(error, "code", None) == "insufficient_quota"


def seconds_to_wait(error: BaseException) -> float | None:
    """What a `Retry-After` header says, in seconds from now; None without one."""
    headers = error.response.headers if isinstance(error, openai.APIStatusError) else {}
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def said_by(error: BaseException, settings: EndpointSettings) -> str:
    """An error in one line, without the key if a server repeats it."""
    status = f"HTTP {error.status_code}: " if isinstance(error, openai.APIStatusError) else ""
    body = getattr(error, "body", None)
    text = body.get("message") or body.get("detail") if isinstance(body, dict) else None
    if isinstance(error, openai.APITimeoutError):
        text = f"no answer within {settings.timeout:g} s (--timeout)"
    elif text is None:
        text = str(error) or type(error).__name__
        if isinstance(error, openai.APIConnectionError) and str(error.__cause__ or ""):
            text = f"{text.rstrip('.')}: {error.__cause__}"
    line = " ".join(str(text).split())[:_MESSAGE]
    return status + _without_key(line, settings)


def _without_key(line: str, settings: EndpointSettings) -> str:
    """What a server said, where it may have repeated the key."""
    key = settings.api_key()
    return line.replace(key, "…") if len(key) > 4 else line


def _beginning(said: str, settings: EndpointSettings) -> str:
    # The key first: half of one would not be found.
    line = _without_key(" ".join(said.split()), settings)
    return line if len(line) <= _BEGINNING else line[:_BEGINNING] + "…"


def explained(
    error: BaseException, settings: EndpointSettings, models: Sequence[str] = ()
) -> LimbeckError:
    """An error that ends the work, with what to do."""
    said = said_by(error, settings)
    if isinstance(error, _NO_PROTOCOL):
        # A URL behind which something else answers. The parser says where it is no JSON, but not what it is.
        if isinstance(error, NoChoicesError):
            said = repr(error.said)
        elif isinstance(error, json.JSONDecodeError):
            said = repr(_beginning(error.doc, settings))
        return LimbeckError(
            f"endpoint {settings.url} does not answer as OpenAI's protocol says: {said}",
            "most URLs end in /v1; check --endpoint",
        )
    variable = settings.api_key_env or KEY_VARIABLE
    key = f"put a key that may use model {settings.model!r} into {variable}, or name another with --api-key-env"
    there = f"; it serves {', '.join(models[:8])}" if models else ""
    # Of two that fit the first.
    fixes: dict[type, str] = {
        openai.AuthenticationError: key,
        openai.PermissionDeniedError: key,
        openai.NotFoundError: f"check the URL (most end in /v1) and --model {settings.model}{there}",
        openai.APITimeoutError: "give it longer with --timeout; or check the URL and that the server runs",
        openai.APIConnectionError: "check the URL and that the server runs; then run the same command again",
        openai.RateLimitError: "the server takes no more requests now: run the same command again later",
        openai.InternalServerError: "look at the server's log, or run the same command again later",
    }
    fix = next((fix for kind, fix in fixes.items() if isinstance(error, kind)), None)
    if _no_credit(error):
        fix = "the account has no credit left: add some, and run the same command again"
    if isinstance(error, openai.InternalServerError):
        said = f"the server failed: {said}"
    fix = fix or f"check --model {settings.model} and the prompt{there}"
    return LimbeckError(f"endpoint {settings.url}: {said}", fix)
