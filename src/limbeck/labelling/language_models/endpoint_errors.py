"""What can go wrong at an endpoint: what a repetition may fix, what concerns one row, and what ends the work."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Sequence

import openai

from limbeck.labelling.language_models.endpoint_settings import KEY_VARIABLE, EndpointSettings
from limbeck.support.errors import LimbeckError, Problem

_STATUS_TO_REPEAT = (408, 409, 425, 429)
_MESSAGE = 300
# Of what is no answer: enough to recognise a page by.
_BEGINNING = 120


class RowFailedError(Exception):
    """One row has no label, for a reason that need not concern the others."""

    @property
    def server_failed(self) -> bool:
        """Whether the server gave no answer at all: it is too slow, too busy, broken or out of reach."""
        return self.__cause__ is not None and may_succeed_later(self.__cause__)


class NoChoicesError(RowFailedError):
    """What came back says nothing where OpenAI's protocol has an answer's choices.

    Args:
        said: what came back.
        settings: with the key, which a server may repeat.
    """

    def __init__(self, said: str, settings: EndpointSettings) -> None:
        # Before it is shortened: half a key would not be found.
        line = _without_key(" ".join(said.split()), settings)
        self.said = line if len(line) <= _BEGINNING else line[:_BEGINNING] + "…"
        super().__init__(f"no answer as OpenAI's protocol has it, but {self.said!r}")


# Not every ValueError: a key that no header can hold is one too.
_NO_PROTOCOL = (
    NoChoicesError,
    openai.APIResponseValidationError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class LabellingStoppedError(LimbeckError):
    """No further request may be sent; what was answered is kept."""


def may_succeed_later(error: BaseException) -> bool:
    """Whether repeating a request can help: too many, too slow, a broken connection or server."""
    if isinstance(error, openai.APIStatusError):
        if getattr(error, "code", None) == "insufficient_quota":
            return False
        return error.status_code in _STATUS_TO_REPEAT or error.status_code >= 500
    # A connection that ends within an answer leaves half of one.
    return isinstance(
        error, openai.APIConnectionError | openai.APIResponseValidationError | ValueError
    )


def ends_everything(error: BaseException) -> bool:
    """Whether every other request would fail alike: the key, the model, the account."""
    if getattr(error, "code", None) == "insufficient_quota":
        return True
    refused = openai.AuthenticationError | openai.PermissionDeniedError | openai.NotFoundError
    return isinstance(error, refused)


def seconds_to_wait(error: BaseException | None) -> float | None:
    """What a `Retry-After` header says, in seconds from now; None without one."""
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if value is None else max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value or "")
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


def said_by(error: BaseException, settings: EndpointSettings) -> str:
    """An error in one line, without the key if a server repeats it."""
    status = f"HTTP {error.status_code}: " if isinstance(error, openai.APIStatusError) else ""
    body = getattr(error, "body", None)
    text = body.get("message") or body.get("detail") if isinstance(body, dict) else None
    if isinstance(error, openai.APITimeoutError):
        text = f"no answer within {settings.timeout:g} s (--timeout)"
    elif text is None:
        text = str(error) or type(error).__name__
        cause = error.__cause__
        if isinstance(error, openai.APIConnectionError) and cause is not None:
            text = f"{text.rstrip('.')}: {cause}" if str(cause) else text
    line = " ".join(str(text).split())[:_MESSAGE]
    return status + _without_key(line, settings)


def _without_key(line: str, settings: EndpointSettings) -> str:
    """What a server said, where it may have repeated the key."""
    key = settings.api_key()
    return line.replace(key, "…") if len(key) > 4 else line


def explained(
    error: BaseException, settings: EndpointSettings, models: Sequence[str] = ()
) -> LimbeckError:
    """An error that ends the work, with what to do."""
    if isinstance(error, _NO_PROTOCOL):
        return _no_protocol(error, settings)
    text = f"endpoint {settings.url}: {said_by(error, settings)}"
    there = f"; it serves {', '.join(models[:8])}" if models else ""
    variable = settings.api_key_env or KEY_VARIABLE
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        fix = f"put a key that may use model {settings.model!r} into {variable}, or name another variable with --api-key-env"  # noqa: E501
    elif getattr(error, "code", None) == "insufficient_quota":
        fix = "the account has no credit left: add some, and run the same command again"
    elif isinstance(error, openai.NotFoundError):
        fix = f"check the URL (most end in /v1) and --model {settings.model}{there}"
    elif isinstance(error, openai.APITimeoutError):
        fix = "give it longer with --timeout; or check the URL and that the server runs"
    elif isinstance(error, openai.APIConnectionError):
        fix = "check the URL and that the server runs; then run the same command again"
    elif isinstance(error, openai.RateLimitError):
        fix = "the server takes no more requests now: run the same command again later"
    elif isinstance(error, openai.APIStatusError) and may_succeed_later(error):
        text = f"endpoint {settings.url}: the server failed: {said_by(error, settings)}"
        fix = "look at the server's log, or run the same command again later"
    else:
        fix = f"check --model {settings.model} and the prompt{there}"
    return LimbeckError(Problem(text, fix))


def _no_protocol(error: BaseException, settings: EndpointSettings) -> LimbeckError:
    """Of a URL behind which something else answers, such as a web page."""
    if isinstance(error, json.JSONDecodeError):
        # Which says where it is no JSON, but not what it is.
        error = NoChoicesError(error.doc, settings)
    said = repr(error.said) if isinstance(error, NoChoicesError) else said_by(error, settings)
    return LimbeckError(
        f"endpoint {settings.url} does not answer as OpenAI's protocol says: {said}",
        "most URLs end in /v1; check --endpoint",
    )
