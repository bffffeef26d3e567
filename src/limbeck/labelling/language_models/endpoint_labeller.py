"""A model behind an OpenAI-compatible endpoint as a labeller."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai

from limbeck.labelling.language_models.answers import (
    Answer,
    AnswerReader,
    KeptAnswers,
    answer_schema,
    key_of,
    listed_classes,
    listed_tokens,
    nested_answers,
    text_of,
)
from limbeck.labelling.language_models.causal_labeller import calibrated, content_free_prior
from limbeck.labelling.language_models.endpoint_client import (
    EndpointClient,
    RowFailedError,
    explained,
    may_succeed_later,
)
from limbeck.labelling.language_models.endpoint_settings import (
    EndpointSettings,
    LabellingStoppedError,
)
from limbeck.labelling.language_models.prompt import BoundPrompt, Row, prompt_digest
from limbeck.support.errors import LimbeckError
from limbeck.tasks import SENTENCE
from limbeck.teachers.labeller import RowsMissingError

log = logging.getLogger(__name__)

# Rows at a time, for each request at a time: the last rows of a batch leave some of them idle.
_DEPTH = 16
_LOW_COVERAGE = 0.5
# Room for the braces, key and quotes of structured output, in tokens.
_AROUND_ANSWER = 24
# A server may list nothing behind a first token that is no whole character, or ends the answer.
_LISTED_TRIES = 5
# Most servers list at least so many tokens.
_FEW_TOKENS = 5
# Repetitions of a request about nothing: a wrong URL should not take minutes to say.
_AT_FIRST = 2


class EndpointLabeller(AbstractContextManager["EndpointLabeller"]):
    """Asks a server about each row; made, it has been asked once, and its key, model and form of request are right.

    Outputs: in mode `logprobs` the classes' `logits` and `probabilities` (B, C) and `coverage` (B,), the probability
    of the tokens that they were read from; in mode `votes` the `votes` and `probabilities` (B, C), and how many
    answers were `unparsable` (B,).

    Args:
        settings: the endpoint.
        bound: the prompt.
        journals: a folder where answers are kept, so that none is asked or paid for twice, and what they cost, which
            counts towards `max_cost` whichever rows they are about; None: in memory.

    Attributes:
        mode: `logprobs` or `votes`, as the server allowed.
        refused: parameters that the server does not take, or not as they are asked for.
        prior: log-probabilities of the classes for inputs without content, (C,), or None.

    Raises:
        LimbeckError: the settings are wrong, or the server cannot be reached or refuses the key or the model.
    """

    kind = SENTENCE.name

    def __init__(
        self, settings: EndpointSettings, bound: BoundPrompt, *, journals: Path | None = None
    ) -> None:
        if problems := settings.problems():
            raise LimbeckError(problems)
        self.settings, self.bound, self.classes = settings, bound, bound.classes
        self.name = f"{settings.model} at {urlsplit(settings.url).netloc}"
        self.batch_size = _DEPTH * settings.concurrency
        self.client = EndpointClient(settings)
        self.mode = "votes" if settings.mode == "votes" else "logprobs"
        self.refused: set[str] = set()
        self._chat = bound.prompt.chat is not False
        self.prior: np.ndarray | None = None
        self._read = AnswerReader(bound)
        # Whose answers they are, whatever the mode and its settings.
        prompt = key_of(prompt_digest(bound.prompt), self._examples())
        about = {"model": self.name, "endpoint": settings.url, "prompt": prompt}
        spending = self.client.spending
        self._kept = KeptAnswers(journals, about, spending)
        if settings.max_cost is not None and spending.before:
            log.warning(
                "%s: max_cost: %.4g of %.4g were spent before, on this prompt about any rows",
                self.name,
                spending.before,
                settings.max_cost,
            )
        self._unread = ""  # an answer that names no class, as an example
        self._unanswered = 0
        self._warned = False
        try:
            try:
                self._begin()
            finally:
                # Also a server that is of no use was paid.
                self._kept.name(key_of(self.fingerprint()), self.mode)
            self._calibrate()
        except BaseException:
            self.close()
            raise

    @property
    def outputs(self) -> tuple[str, ...]:
        """What `score` returns."""
        if self.mode == "votes":
            return ("votes", "probabilities", "unparsable")
        return ("logits", "probabilities", "coverage")

    def fingerprint(self) -> dict[str, Any]:
        """The endpoint, the model's name and all that is asked; not the model itself, which nobody tells."""
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
                only these are asked when they come again.
            LabellingStoppedError: the limit on the cost is reached, or the server is down; answers until then are
                kept.
            LimbeckError: the server refuses all requests.
        """
        answers = self._answers(rows)
        if self.mode == "votes":
            votes = np.array([one["votes"] for one in answers])
            shares = votes / votes.sum(axis=1, keepdims=True)
            failed = np.array([one["unparsable"][0] for one in answers])
            found = {"votes": votes, "probabilities": shares, "unparsable": failed}
        else:
            logs = calibrated(np.array([one["logs"] for one in answers]), self.prior)
            coverage = np.array([one["coverage"][0] for one in answers])
            self._warn(coverage)
            found = {"logits": logs, "probabilities": np.exp(logs), "coverage": coverage}
        return {name: values.astype(np.float32) for name, values in found.items()}

    def costs(self) -> dict[str, float]:
        """Requests, retries and tokens of this object so far, and their cost where prices are known."""
        return self.client.spending.written()

    def close(self) -> None:
        """End its connections."""
        self._kept.note()
        self.client.close()

    def __exit__(self, *raised: object) -> None:
        self.close()

    # ---- asking about rows ----

    def _answers(self, rows: Sequence[Row]) -> list[Answer]:
        """An answer for each row, whole; what is kept is not asked for.

        Raises:
            RowsMissingError: rows that have none now.
        """
        asked = [self._requests(row) for row in rows]
        wanted: dict[str, tuple[Row, int]] = {}
        for row, requests in zip(rows, asked, strict=True):
            lacking = [key for key in requests if self._kept.journal.get(key) is None]
            if not lacking and self._whole(requests) is None:
                # Votes of which none can be read are no label: the row has come again to get one.
                lacking = [*requests]
            wanted |= {key: (row, requests[key]) for key in lacking}
        reasons = self._ask_all(wanted)
        found = [self._whole(requests) for requests in asked]
        missing = {
            at: next((reasons[key] for key in requests if key in reasons), "")
            or f"none of {self.settings.votes} answers names a class (such as {self._unread!r:.60})"
            for at, requests in enumerate(asked)
            if found[at] is None
        }
        if missing:
            raise RowsMissingError(missing)
        return [one for one in found if one is not None]

    def _requests(self, row: Row) -> dict[str, int]:
        """The requests about a row by the keys of their answers, each with its seed."""
        said, seed = self.bound.messages(row), self.settings.seed
        if self.mode == "logprobs" or self._many:
            return {key_of(said): seed}
        return {key_of(said, one): one for one in range(seed, seed + self.settings.votes)}

    def _whole(self, requests: Mapping[str, int]) -> Answer | None:
        """What the kept answers to these requests come to: all votes; None where one is lacking, or none was read."""
        kept = [self._kept.journal.get(key) for key in requests]
        answers = [one for one in kept if one is not None]
        if len(answers) < len(kept):
            return None
        if self.mode == "logprobs":
            return answers[0]
        sums = {
            name: np.sum([one[name] for one in answers], axis=0).tolist()
            for name in ("votes", "unparsable")
        }
        return sums if any(sums["votes"]) else None

    def _ask_all(self, wanted: Mapping[str, tuple[Row, int]]) -> dict[str, str]:
        """Ask, so many at a time, and keep each answer at once; returns the reasons of those that have none."""
        reasons: dict[str, str] = {}
        ends: list[BaseException] = []

        def ask(key: str) -> None:
            try:
                if not ends:
                    self._kept.note(key, self._ask(*wanted[key]))
                    self._unanswered = 0
            except RowFailedError as error:
                reasons[key] = str(error)
                self._kept.note()
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
        """After as many failures in succession as are asked at a time: is it the rows, or is the server down?

        Raises:
            LabellingStoppedError: it answers nothing about an empty row either, so no row is to blame.
        """
        self._unanswered = self._unanswered + 1 if error.server_failed else 0
        if self._unanswered < self.settings.concurrency:
            return
        self._unanswered = 0
        try:
            self._choices(self._empty_row(), self.settings.seed, _AT_FIRST)
        except RowFailedError as failed:
            cause = failed.__cause__ or failed
            if may_succeed_later(cause):
                raise LabellingStoppedError(explained(cause, self.settings).problems) from None

    def _ask(self, row: Row, seed: int) -> Answer:
        """The answer to one request about a row; votes that cannot be read are an answer too.

        Raises:
            RowFailedError: as `EndpointClient.send`, or the listed tokens name no class.
        """
        choices = self._choices(row, seed)
        if self.mode == "votes":
            read = [self._read(text_of(one)) for one in choices]
            known = [one for one in read if one is not None]
            if not known:
                self._unread = text_of(choices[0])
            votes = np.bincount(known, minlength=len(self.classes)).astype(float)
            return {"votes": votes.tolist(), "unparsable": [float(len(read) - len(known))]}
        tokens = listed_tokens(choices[0])
        found = listed_classes(tokens, self.bound.answers)
        if not tokens:
            raise RowFailedError("the server listed no tokens with their probabilities")
        if found is None:
            most = ", ".join(repr(text) for text, _ in tokens[:3])
            raise RowFailedError(
                f"none of the {len(tokens)} most likely tokens begins an answer: {most}"
            )
        if not found.telling:
            raise RowFailedError(
                f"the likely token {found.undecided!r} begins several answers: set answers: letters"
            )
        return {"logs": found.logs.tolist(), "coverage": [found.coverage]}

    def _choices(self, row: Row, seed: int, retries: int | None = None) -> list[Any]:
        """The choices that the server returns; in mode `logprobs` asked again until tokens are listed."""
        for _ in range(_LISTED_TRIES):
            choices = self.client.send(self._request(row, seed), retries)
            if self.mode == "votes" or listed_tokens(choices[0]):
                break
        return choices

    def _request(self, row: Row, seed: int) -> dict[str, Any]:
        settings, bound = self.settings, self.bound
        request: dict[str, Any] = (
            {"messages": bound.messages(row)} if self._chat else {"prompt": bound.whole(row)}
        )
        if self.mode == "logprobs":
            # At temperature 1 a server that tempers what it lists gives the model's own.
            request |= {"temperature": 1.0, "max_tokens": 1, "logprobs": self._top}
            if self._chat:
                request |= {"logprobs": True, "top_logprobs": self._top}
        else:
            # A byte may be a token.
            longest = max(len(answer.encode()) for answer in bound.answers) + _AROUND_ANSWER
            request |= {"temperature": settings.temperature, "max_tokens": longest, "seed": seed}
            request |= {"n": settings.votes} if self._many else {}
            request |= {"response_format": answer_schema(bound.answers)} if self._chat else {}
        if "max_tokens" in self.refused:
            request["max_completion_tokens"] = request["max_tokens"]
        return {
            name: value
            for name, value in request.items()
            if name not in self.refused or name == "top_logprobs"
        }

    @property
    def _top(self) -> int:
        """The most likely tokens asked for."""
        top = self.settings.top_logprobs
        return min(top, _FEW_TOKENS) if "top_logprobs" in self.refused else top

    @property
    def _many(self) -> bool:
        """Whether all votes are asked for in one request."""
        return self.settings.votes > 1 and "n" not in self.refused

    def _empty_row(self) -> Row:
        return dict.fromkeys(self.bound.columns, "N/A")

    def _examples(self) -> str:
        empty = dict.fromkeys(self.bound.columns, "")
        return key_of(self.bound.messages(empty), self.bound.answers)

    # ---- finding out what the server takes ----

    def _begin(self) -> None:
        """Find the form that the server takes, with a row that says nothing.

        Raises:
            LimbeckError: the server cannot be reached, or refuses the key, the model or every form.
        """
        if self.mode == "logprobs" and (pair := nested_answers(self.bound.answers)):
            self._vote_instead(f"the answer {pair[0]!r} begins the answer {pair[1]!r}")
        while True:
            try:
                choices = self._choices(self._empty_row(), self.settings.seed, _AT_FIRST)
            except RowFailedError as error:
                cause = error.__cause__ or error
                refusal = openai.BadRequestError | openai.UnprocessableEntityError
                if isinstance(cause, refusal) and self._simplified(str(cause)):
                    continue
                raise explained(cause, self.settings, self.client.models()) from None
            if self._settled(choices):
                return

    def _simplified(self, message: str) -> bool:
        """Leave out what a server's message refuses, or the next thing that servers may lack; False at the end."""
        ways = ["top_logprobs"] if self.mode == "logprobs" and self._top > _FEW_TOKENS else []
        if self.mode == "votes":
            ways = ["n", "response_format", "seed"] if self._chat else ["n", "seed"]
        elif self.settings.mode == "auto":
            ways.append("logprobs")
        ways += ["max_tokens"] if self._chat else []
        ways = [name for name in ways if name not in self.refused]
        if not ways:
            return False
        # The longest first: `logprobs` is in `top_logprobs` too.
        name = max((one for one in ways if one in message), key=len, default=ways[0])
        if name == "logprobs":
            self.mode = "votes"
        else:
            self.refused.add(name)
        return True

    def _settled(self, choices: list[Any]) -> bool:
        """Whether the server gave what was asked for; else the form is changed to what it gives."""
        settings = self.settings
        if settings.max_cost is not None and not self.client.spending.prompt_tokens:
            raise LimbeckError(
                f"max_cost: {settings.max_cost}, but endpoint {settings.url} does not say how many tokens it used",
                "leave --max-cost out",
            )
        if self.mode == "votes":
            if len(choices) < settings.votes:
                self.refused.add("n")
            return True
        if tokens := listed_tokens(choices[0]):
            found = listed_classes(tokens, self.bound.answers)
            if found is None or found.telling:
                return True
            self._vote_instead(f"the likely token {found.undecided!r} begins several answers")
            return False
        if settings.mode == "logprobs":
            raise LimbeckError(
                f"mode: logprobs, but endpoint {settings.url} gives no log-probabilities of tokens",
                "set --mode votes",
            )
        self.mode = "votes"
        return False

    def _vote_instead(self, reason: str) -> None:
        """Sample answers where first tokens do not tell which answer they begin.

        Raises:
            LimbeckError: the user asked for log-probabilities.
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
        if self.mode == "votes" or wanted is False:
            return
        try:
            answers = self._answers(self.bound.content_free())
        except RowsMissingError as error:
            raise LimbeckError(
                f"calibrate: an input without content has no label: {next(iter(error.reasons.values()))}",
                "set calibrate: false, or answers: letters, or --mode votes",
            ) from None
        self.prior = content_free_prior(np.array([one["logs"] for one in answers]))

    def _warn(self, coverage: np.ndarray) -> None:
        if not self._warned and np.median(coverage) < _LOW_COVERAGE:
            self._warned = True
            log.warning(
                "%s: answers that name no class have more than half of the probability (median of %d rows: %.2f); "
                "say in the prompt how to answer, or set answers: letters",
                self.name,
                len(coverage),
                1 - np.median(coverage),
            )
