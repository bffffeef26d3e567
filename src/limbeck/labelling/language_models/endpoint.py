"""A model behind an OpenAI-compatible endpoint as a labeller; OpenAI's client sends and repeats the requests."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai

from limbeck.labelling.language_models import answers, causal
from limbeck.labelling.language_models.endpoint_settings import KEY_VARIABLE, EndpointSettings
from limbeck.labelling.language_models.prompt import BoundPrompt, Row, prompt_digest
from limbeck.support.errors import LimbeckError, raise_problems
from limbeck.teachers.labeller import RowsMissingError

log = logging.getLogger(__name__)

# Rows at a time, for each request at a time: the last rows of a batch leave some of them idle.
_DEPTH = 16
_LOW_COVERAGE = 0.5
# Room for the braces, key and quotes of structured output, in tokens.
_AROUND_ANSWER = 24
# A server may list nothing after a first token that is an incomplete character, or ends the answer.
_LISTED_TRIES = 5
# Most servers list at least this number of tokens.
_FEW_TOKENS = 5
# Retries of a request with an empty text: a wrong URL should fail quickly, not after minutes.
_AT_FIRST = 2
_MESSAGE, _BEGINNING = 300, 120
# The server gave no answer: it is too slow, too busy, broken or out of reach.
_NO_ANSWER = (
    openai.APIConnectionError,
    openai.InternalServerError,
    openai.RateLimitError,
    json.JSONDecodeError,
)
# Every other request would fail alike.
_REFUSED = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)


class LabellingStoppedError(LimbeckError):
    """No further request may be sent; answers so far are kept."""


class RowFailedError(Exception):
    """One row has no label, for a reason that need not concern the others."""


class EndpointLabeller(AbstractContextManager["EndpointLabeller"]):
    """Sends each row to a server; made, it has sent one request, and its key, model and form of request are right.

    Outputs: in mode `logprobs` the classes' `logits` and `probabilities` (B, C) and `coverage` (B,), the probability
    of the tokens that they were read from; in mode `votes` the `votes` and `probabilities` (B, C), and how many
    answers were `unparsable` (B,). For a score `logits` (B, 1), with `coverage` or `unparsable`.

    Args:
        settings: the endpoint.
        bound: the prompt.
        journals: a folder where answers are stored, so that none is requested or paid for twice, and their cost, which
            counts towards `max_cost` whichever rows they are about; None: in memory.

    Attributes:
        mode: `logprobs` or `votes`, as the server allowed.
        refused: parameters that the server does not accept, or only in another form.
        prior: log-probabilities of the classes for inputs without content, (C,), or None.
        journal: answers by the digests of their requests, of this endpoint, model and prompt.
        spent_before: the cost of the journal's answers in earlier starts.

    Raises:
        LimbeckError: the settings are wrong, or the server cannot be reached or rejects the key or the model.
    """

    def __init__(
        self, settings: EndpointSettings, bound: BoundPrompt, *, journals: Path | None = None
    ) -> None:
        raise_problems(settings.problems())
        self.settings, self.bound, self.classes = settings, bound, bound.labels
        self.kind, self._asked_of = causal.kind_of(bound), len(bound.prompt.questions) or 1
        self.name = f"{settings.model} at {urlsplit(settings.url).netloc}"
        self.batch_size = _DEPTH * settings.concurrency
        self.mode = "votes" if settings.mode == "votes" else "logprobs"
        self.refused: set[str] = set()
        self.prior: np.ndarray | None = None
        self._chat = bound.prompt.chat is not False
        self._read = answers.AnswerReader(bound)
        prompt = answers.key_of(prompt_digest(bound.prompt), self._examples())
        about = {"model": self.name, "endpoint": settings.url, "prompt": prompt}
        self.journal = answers.AnswerJournal.of(journals, about)
        self.spent_before = settings.price(*self.journal.tokens)
        if settings.max_cost is not None and self.spent_before:
            log.warning(
                "%s: max_cost: %.4g of %.4g were spent before, on this prompt about any rows",
                self.name,
                self.spent_before,
                settings.max_cost,
            )
        self._requests, self._tokens_before = 0, self.journal.tokens
        self._lock, self._free = threading.Lock(), 0.0
        self._unread = ""  # an answer that names no class, as an example
        self._unanswered = 0
        self._warned = False
        self.client = openai.OpenAI(
            base_url=settings.url,
            api_key=settings.api_key(),
            timeout=settings.timeout,
            max_retries=settings.retries,
        )
        try:
            self._begin()
            if self.mode == "votes" and isinstance(bound.prompt.score, list):
                raise LimbeckError(
                    "score: log-odds are of log-probabilities, and answers would be sampled and counted (votes)",
                    "use a server that gives log-probabilities, or write score: {no: 0, yes: 1}: the share of yes",
                )
            self._calibrate()
        except BaseException:
            self.close()
            raise

    @property
    def outputs(self) -> tuple[str, ...]:
        """What `score` returns."""
        votes = self.mode == "votes"
        return (*causal.outputs_of(self.bound, votes=votes), *([] if votes else ["coverage"]))

    def fingerprint(self) -> dict[str, Any]:
        """The endpoint, the model's name and the request; not the model itself, which no server identifies."""
        settings = self.settings
        about: dict[str, Any] = {
            "endpoint": settings.url,
            "model": settings.model,
            "prompt": prompt_digest(self.bound.prompt),
            "examples": self._examples(),
            "mode": self.mode,
            "chat": self._chat,
        }
        if self.mode == "logprobs":
            return about | {"top_logprobs": self._top}
        return about | {
            "votes": settings.votes,
            "temperature": settings.temperature,
            "structured": self._chat and "response_format" not in self.refused,
            "seed": None if "seed" in self.refused else settings.seed,
        }

    def score(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Its outputs for some rows, float32.

        Raises:
            RowsMissingError: rows without a label, with the reason of each; the other rows' answers are kept, and
                only these are requested when they come again.
            LabellingStoppedError: the limit on the cost is reached, or the server is down; answers until then are
                kept.
            LimbeckError: the server rejects all requests.
        """
        found = causal.labels_of_answers(
            self.bound, self._answers(self.bound.asked(rows)), self.prior
        )
        if not self._warned and np.median(found.get("coverage", 1.0)) < _LOW_COVERAGE:
            self._warned = True
            log.warning(
                "%s: answers that name no class have more than half of the probability: describe in the prompt how to "
                "answer, or set answers: letters",
                self.name,
            )
        return found

    def costs(self) -> dict[str, float]:
        """Requests and tokens of this object so far, and their cost where prices are known."""
        read, written = (
            now - then for now, then in zip(self.journal.tokens, self._tokens_before, strict=True)
        )
        counted = {"requests": self._requests, "prompt_tokens": read, "completion_tokens": written}
        found = {name: float(count) for name, count in counted.items()}
        if self.settings.price_in is not None or self.settings.price_out is not None:
            found["cost"] = self.settings.price(read, written)
        return found

    def close(self) -> None:
        """End its connections."""
        self.client.close()

    def __exit__(self, *raised: object) -> None:
        self.close()

    # ---- asking about rows ----

    def _answers(self, rows: Sequence[Row]) -> list[answers.Answer]:
        """An answer for each row, complete; answers in the journal are not requested again.

        Raises:
            RowsMissingError: rows that have no answer now.
        """
        asked = [self._requests_about(row) for row in rows]
        wanted: dict[str, dict[str, Any]] = {}
        for requests in asked:
            lacking = [key for key in requests if self.journal.get(key) is None]
            if not lacking and self._whole(requests) is None:
                # Votes of which none can be read are no label: the row has come again to get one.
                lacking = [*requests]
            wanted |= {key: requests[key] for key in lacking}
        reasons = self._ask_all(wanted)
        found = [self._whole(requests) for requests in asked]
        missing = {
            at // self._asked_of: next((reasons[key] for key in requests if key in reasons), "")
            or f"none of {self.settings.votes} answers names a class (such as {self._unread!r:.60})"
            for at, requests in enumerate(asked)
            if found[at] is None
        }
        if missing:
            raise RowsMissingError(missing)
        return [one for one in found if one is not None]

    def _requests_about(self, row: Row) -> dict[str, dict[str, Any]]:
        """The requests about a row by their digests; separate votes have seeds of their own."""
        if self.mode == "logprobs":
            request = self._request(row, self.settings.seed)
            return {answers.key_of(request): request}
        count = self.settings.votes if "n" in self.refused else 1
        seeds = range(self.settings.seed, self.settings.seed + count)
        # Also of a server that takes no seed.
        return {
            answers.key_of(one, seed): one for seed in seeds if (one := self._request(row, seed))
        }

    def _whole(self, requests: Mapping[str, Any]) -> answers.Answer | None:
        """The votes in the journal's answers to these requests; None if an answer is missing, or no vote was parsed."""
        answers = [one for key in requests if (one := self.journal.get(key)) is not None]
        if len(answers) < len(requests):
            return None
        if self.mode == "logprobs":
            return answers[0]
        sums = {
            name: np.sum([one[name] for one in answers], axis=0).tolist()
            for name in ("votes", "unparsable")
        }
        return sums if any(sums["votes"]) else None

    def _ask_all(self, wanted: Mapping[str, dict[str, Any]]) -> dict[str, str]:
        """Send requests concurrently, and store each answer at once; returns the reasons of the failed ones."""
        reasons: dict[str, str] = {}
        ends: list[BaseException] = []

        def ask(key: str) -> None:
            if ends:
                return
            try:
                self.journal.add(key, self._answer(wanted[key]))
                self._unanswered = 0
            except RowFailedError as error:
                reasons[key] = str(error)
                self._check_running(error)

        def guarded(key: str) -> None:
            try:
                ask(key)
            except BaseException as error:
                # Requests on their way are paid for: their answers are awaited and kept.
                ends.append(error)

        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            try:
                deque(pool.map(guarded, wanted), maxlen=0)
            except BaseException as error:  # Ctrl-C
                ends.append(error)
        if ends:
            raise ends[0]
        return reasons

    def _check_running(self, error: RowFailedError) -> None:
        """After as many failures in succession as concurrent requests: is it the rows, or is the server down?

        Raises:
            LabellingStoppedError: it answers nothing about an empty row either, so no row is to blame.
        """
        no_answer = isinstance(error.__cause__, _NO_ANSWER)
        self._unanswered = self._unanswered + 1 if no_answer else 0
        if self._unanswered < self.settings.concurrency:
            return
        self._unanswered = 0
        try:
            self._choices(self._request(self._empty_row(), self.settings.seed), _AT_FIRST)
        except RowFailedError as failed:
            if isinstance(failed.__cause__, _NO_ANSWER):
                raise LabellingStoppedError(self._explained(failed.__cause__).problems) from None

    def _answer(self, request: dict[str, Any]) -> answers.Answer:
        """The answer to one request; votes that cannot be read are an answer too.

        Raises:
            RowFailedError: as `_send`, or the listed tokens name no class.
        """
        choices = self._choices(request)
        if self.mode == "votes":
            answer = self._read.counted(choices)
            if not any(answer["votes"]):
                self._unread = answers.text_of(choices[0])
            return answer
        tokens = answers.listed_tokens(choices[0])
        found = answers.listed_classes(tokens, self.bound.answers)
        if not tokens:
            raise RowFailedError("the server listed no tokens with their probabilities")
        if found is None:
            most = ", ".join(repr(text) for text, _ in tokens[:3])
            raise RowFailedError(
                f"none of the {len(tokens)} most likely tokens begins an answer: {most}"
            )
        if found.undecided:
            raise RowFailedError(
                f"the likely token {found.undecided!r} begins several answers: set answers: letters"
            )
        return {"logs": found.logs.tolist(), "coverage": [found.coverage]}

    # ---- one request ----

    def _choices(self, request: dict[str, Any], retries: int | None = None) -> list[Any]:
        """The choices that the server returns; in mode `logprobs` requested again until tokens are listed."""
        for _ in range(_LISTED_TRIES):
            choices = self._send(request, retries)
            if self.mode == "votes" or answers.listed_tokens(choices[0]):
                break
        return choices

    def _send(self, request: dict[str, Any], retries: int | None) -> list[Any]:
        """The choices of the server's answer, at least one.

        Raises:
            LimbeckError: the server rejects the key, the model or the account, or returns a web page.
            LabellingStoppedError: the limit on the cost is reached.
            RowFailedError: all attempts failed, or the server rejects this one request.
        """
        self._wait()
        client = self.client if retries is None else self.client.with_options(max_retries=retries)
        path = "/chat/completions" if "messages" in request else "/completions"
        body = {"model": self.settings.model, **request}
        answer: Any = None
        try:
            answer = client.post(path, cast_to=object, body=body)
            choices = self._counted(answer)
            if not isinstance(choices, list) or not choices:
                said = json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
                raise ValueError(answer if isinstance(answer, str) else said)
        except (openai.OpenAIError, ValueError) as error:
            # For a web page, such as a login, the client returns the text.
            if isinstance(answer, str) or isinstance(error, _REFUSED) or _no_credit(error):
                raise self._explained(error) from error
            raise RowFailedError(self._said_by(error)) from error
        return choices

    def _wait(self) -> None:
        """Sleep until the next request may be sent.

        Raises:
            LabellingStoppedError: the cost has reached the limit.
        """
        settings = self.settings
        spent = settings.price(*self.journal.tokens)
        if settings.max_cost is not None and spent >= settings.max_cost:
            raise LabellingStoppedError(
                f"max_cost: {settings.max_cost} is reached ({spent:.4g} spent)",
                "run the same command again with a higher --max-cost, which continues it",
            )
        with self._lock:
            self._requests += 1
            begin = max(time.monotonic(), self._free)
            self._free = begin + 60 / (settings.requests_per_minute or float("inf"))
        time.sleep(max(0.0, begin - time.monotonic()))

    def _counted(self, answer: Any) -> Any:
        """An answer's raw choices, once its tokens are counted."""
        usage = answers.part_of(answer, "usage")
        given = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        read, written = (one if isinstance(one, int) else 0 for one in given)
        self.journal.add(None, {}, (read, written))
        return answer.get("choices") if isinstance(answer, dict) else None

    def _request(self, row: Row, seed: int) -> dict[str, Any]:
        settings, bound = self.settings, self.bound
        request: dict[str, Any] = (
            {"messages": bound.messages(row)} if self._chat else {"prompt": bound.whole(row)}
        )
        if self.mode == "logprobs":
            # At temperature 1 a server that applies the temperature to listed log-probabilities gives the model's own.
            request |= {"temperature": 1.0, "max_tokens": 1, "logprobs": self._top}
            if self._chat:
                request |= {"logprobs": True, "top_logprobs": self._top}
        else:
            # A byte may be a token.
            longest = max(len(answer.encode()) for answer in bound.answers) + _AROUND_ANSWER
            request |= {"temperature": settings.temperature, "max_tokens": longest, "seed": seed}
            request |= {"n": settings.votes} if settings.votes > 1 else {}
            request |= (
                {"response_format": answers.answer_schema(bound.answers)} if self._chat else {}
            )
        if "max_tokens" in self.refused:
            request["max_completion_tokens"] = request["max_tokens"]
        return {
            name: value
            for name, value in request.items()
            if name not in self.refused or name == "top_logprobs"
        }

    @property
    def _top(self) -> int:
        """The requested number of most likely tokens."""
        top = self.settings.top_logprobs
        return min(top, _FEW_TOKENS) if "top_logprobs" in self.refused else top

    def _empty_row(self) -> Row:
        return dict.fromkeys(self.bound.columns, "N/A")

    def _examples(self) -> str:
        empty = dict.fromkeys(self.bound.columns, "")
        return answers.key_of(self.bound.messages(empty), self.bound.answers)

    # ---- detecting the server's parameters ----

    def _begin(self) -> None:
        """Find the form that the server accepts, with an empty row.

        Raises:
            LimbeckError: the server cannot be reached, or rejects the key, the model or every form.
        """
        if self.mode == "logprobs" and (pair := answers.nested_answers(self.bound.answers)):
            self._vote_instead(f"the answer {pair[0]!r} begins the answer {pair[1]!r}")
        while True:
            request = self._request(self._empty_row(), self.settings.seed)
            try:
                choices = self._choices(request, min(_AT_FIRST, self.settings.retries))
            except RowFailedError as error:
                cause = error.__cause__ or error
                refusal = openai.BadRequestError | openai.UnprocessableEntityError
                if not isinstance(cause, refusal) or not self._simplified(str(cause)):
                    raise self._explained(cause) from None
                continue
            if self.settings.max_cost is not None and not self.costs()["prompt_tokens"]:
                raise LimbeckError(
                    f"max_cost: {self.settings.max_cost}, but endpoint {self.settings.url} does not report how many "
                    "tokens it used",
                    "leave --max-cost out",
                )
            if self.mode == "votes":
                self.refused |= {"n"} if len(choices) < self.settings.votes else set()
                return
            tokens = answers.listed_tokens(choices[0])
            found = answers.listed_classes(tokens, self.bound.answers)
            if not tokens:
                self._vote_instead(f"endpoint {self.settings.url} gives no log-probabilities")
            elif found is not None and found.undecided:
                self._vote_instead(f"the likely token {found.undecided!r} begins several answers")
            else:
                return

    def _simplified(self, message: str) -> bool:
        """Leave out the parameter that a server rejects, or the next one that servers may lack; False at the end."""
        ways = ["n", "response_format", "seed"] if self.mode == "votes" else []
        if self.mode == "logprobs":
            ways += ["top_logprobs"] if self._top > _FEW_TOKENS else []
            ways += ["logprobs"] if self.settings.mode == "auto" else []
        ways = [name for name in [*ways, "max_tokens"] if name not in self.refused]
        if not ways:
            return False
        # The longest first: `logprobs` is in `top_logprobs` too.
        name = max((one for one in ways if one in message), key=len, default=ways[0])
        if name == "logprobs":
            self.mode = "votes"
        else:
            self.refused.add(name)
        return True

    def _vote_instead(self, reason: str) -> None:
        """Sample answers if first tokens do not identify the answer that they begin.

        Raises:
            LimbeckError: the user requested log-probabilities.
        """
        said = f"mode logprobs reads the first token of an answer, and {reason}"
        if self.settings.mode == "logprobs":
            raise LimbeckError(
                said,
                "set answers: letters in the prompt, write other verbalizations, or --mode votes",
            )
        log.warning("%s: answers are sampled and counted (--mode votes)", said)
        self.mode = "votes"

    def _calibrate(self) -> None:
        wanted = self.bound.prompt.calibrate
        if self.mode == "votes" and wanted:
            raise LimbeckError(
                "calibrate: true, but sampled votes hold no probabilities to divide",
                "leave it out, or use a server and --mode that give log-probabilities",
            )
        if self.mode == "votes" or wanted is False or self.bound.prompt.score is not None:
            return
        try:
            answers = self._answers(self.bound.content_free())
        except RowsMissingError as error:
            raise LimbeckError(
                f"calibrate: an input without content has no label: {next(iter(error.reasons.values()))}",
                "set calibrate: false, or answers: letters, or --mode votes",
            ) from None
        self.prior = causal.content_free_prior(np.array([one["logs"] for one in answers]))

    # ---- what went wrong ----

    def _said_by(self, error: BaseException) -> str:
        """An error in one line, without the key if a server repeats it."""
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.settings.timeout:g} s (--timeout)"
        status = f"HTTP {error.status_code}: " if isinstance(error, openai.APIStatusError) else ""
        body = getattr(error, "body", None)
        text = body.get("message") or body.get("detail") if isinstance(body, dict) else None
        if text is None and isinstance(error, json.JSONDecodeError):
            text = error.doc
        if text is None:
            text = f"{error} {error.__cause__ or ''}"
        key, line = self.settings.api_key(), " ".join(str(text).split())
        # The key first: half of one would not be found.
        line = line.replace(key, "…") if len(key) > 4 else line
        most = _BEGINNING if isinstance(error, ValueError) else _MESSAGE
        return status + (line if len(line) <= most else line[:most] + "…")

    def _explained(self, error: BaseException) -> LimbeckError:
        """An error that ends the work, with what to do."""
        said, settings = self._said_by(error), self.settings
        if isinstance(error, ValueError | openai.APIResponseValidationError):
            # A URL behind which something else answers.
            return LimbeckError(
                f"endpoint {settings.url} does not answer in OpenAI's format: {said!r}",
                "most URLs end in /v1; check --endpoint",
            )
        variable = settings.api_key_env or KEY_VARIABLE
        fix = f"check --model {settings.model} and the prompt, or run the same command again later"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            fix = f"put a key that may use the model into {variable}, or name another with --api-key-env"
        elif isinstance(error, openai.NotFoundError):
            fix = f"check the URL (most end in /v1) and --model {settings.model}"
        elif isinstance(error, openai.APIConnectionError):
            fix = "check the URL and that the server runs (--timeout); then run the same command again"
        elif _no_credit(error):
            fix = "the account has no credit left: add some, and run the same command again"
        return LimbeckError(f"endpoint {settings.url}: {said}", fix)


def _no_credit(error: BaseException) -> bool:
    return getattr(error, "code", None) == "insufficient_quota"
