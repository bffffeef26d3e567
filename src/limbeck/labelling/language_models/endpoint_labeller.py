"""A model behind an OpenAI-compatible endpoint as a labeller."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from limbeck.labelling.language_models.answer_journal import KeptAnswers, key_of
from limbeck.labelling.language_models.bound_prompt import BoundPrompt
from limbeck.labelling.language_models.causal_labeller import calibrated, content_free_prior
from limbeck.labelling.language_models.endpoint_client import EndpointClient, LoopThread
from limbeck.labelling.language_models.endpoint_errors import RowFailedError
from limbeck.labelling.language_models.endpoint_requests import Answer, RowRequests, Vote
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Row, prompt_digest
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import SENTENCE
from limbeck.teachers.labeller import RowsMissingError

log = logging.getLogger(__name__)

# Rows at a time, for each request at a time: the last rows of a batch leave some of them idle.
_DEPTH = 16
_LOW_COVERAGE = 0.5


class EndpointLabeller:
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
        prior: log-probabilities of the classes for inputs without content, (C,), or None.

    Raises:
        LimbeckError: the settings are wrong, or the server cannot be reached or refuses the key or the model.
    """

    kind = SENTENCE.name

    def __init__(
        self, settings: EndpointSettings, bound: BoundPrompt, *, journals: Path | None = None
    ) -> None:
        settings.check()
        if "normalize_length" in bound.prompt.model_fields_set:
            raise LimbeckError(
                "normalize_length: nothing that an endpoint reads; it scores no answer token by token",
                "leave it out of the prompt",
            )
        self.settings, self.bound, self.classes = settings, bound, bound.classes
        self.name = f"{settings.model} at {urlsplit(settings.url).netloc}"
        self.batch_size = _DEPTH * settings.concurrency
        self.client = EndpointClient(settings)
        self.requests = RowRequests(self.client, bound, settings)
        self.prior: np.ndarray | None = None
        self._kept = KeptAnswers(journals, self._about(), self.client.spending)
        self._unanswered = 0
        self._warned = False
        self._loop = LoopThread()
        try:
            try:
                self._loop.run(self.requests.begin())
            finally:
                # Also a server that is of no use was paid.
                self._kept.name(key_of(self.fingerprint()), self.mode)
            self._calibrate()
        except BaseException:
            self.close()
            raise

    @property
    def mode(self) -> str:
        """`logprobs` or `votes`, as the server allowed."""
        return self.requests.form.mode

    @property
    def outputs(self) -> tuple[str, ...]:
        """What `score` returns."""
        if self.mode == "votes":
            return ("votes", "probabilities", "unparsable")
        return ("logits", "probabilities", "coverage")

    def fingerprint(self) -> dict[str, Any]:
        """The endpoint, the model's name and all that is asked; not the model itself, which nobody tells."""
        form = self.requests.form
        about: dict[str, Any] = {
            "endpoint": self.settings.url,
            "model": self.settings.model,
            "prompt": prompt_digest(self.bound.prompt),
            "examples": self._examples(),
            "mode": form.mode,
            "chat": form.chat,
        }
        if form.mode == "logprobs":
            return about | {"top_logprobs": form.top}
        sampled = {name: getattr(self.settings, name) for name in ("votes", "temperature")}
        seed = self.settings.seed if form.seeded else None
        return about | sampled | {"structured": form.structured, "seed": seed}

    def score(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Its outputs for some rows, float32.

        Raises:
            RowsMissingError: rows without a label, with the reason of each; the other rows' answers are kept, and
                only these are asked when they come again.
            LabellingStoppedError: the limit on the cost is reached, or the server is down; answers until then are
                kept.
            LimbeckError: the server refuses all requests.
        """
        keys = self._answered(rows)
        answers = [self._kept[key] for key in keys]
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
        return dict(self.client.spending.written())

    def close(self) -> None:
        """End its connections and its thread."""
        self._loop.close(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- asking ----

    def _key(self, row: Row) -> str:
        return key_of(self.bound.messages(row))

    def _answered(self, rows: Sequence[Row]) -> list[str]:
        """The keys of rows that all have an answer now."""
        keys = [self._key(row) for row in rows]
        wanted = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._kept}
        reasons = self._loop.run(self._ask_all(wanted.items()))
        if reasons:
            raise RowsMissingError(
                {at: reasons[key] for at, key in enumerate(keys) if key in reasons}
            )
        return keys

    async def _ask_all(self, wanted: Iterable[tuple[str, Row]]) -> dict[str, str]:
        """Ask about all of them; returns the reasons of those that have no label."""
        waiting = deque(wanted)
        reasons: dict[str, str] = {}
        ends: list[LimbeckError] = []

        async def ask(key: str, row: Row) -> None:
            try:
                self._kept.note(key, await self._ask(key, row))
                self._unanswered = 0
            except RowFailedError as error:
                reasons[key] = str(error)
                self._kept.note()
                await self._check_running(error)

        async def work() -> None:
            while waiting and not ends:
                key, row = waiting.popleft()
                try:
                    await ask(key, row)
                except LimbeckError as error:
                    # Requests on their way are paid for: their answers are awaited and kept.
                    ends.append(error)

        await asyncio.gather(*(work() for _ in range(min(self.settings.concurrency, len(waiting)))))
        if ends:
            raise ends[0]
        return reasons

    async def _check_running(self, error: RowFailedError) -> None:
        """After as many rows in succession as are asked at a time: is it the rows, or is the server down?

        Raises:
            LabellingStoppedError: the server is down: no row is to blame, and none is to be left out for it.
        """
        self._unanswered = self._unanswered + 1 if error.server_failed else 0
        if self._unanswered >= self.settings.concurrency:
            self._unanswered = 0
            await self.requests.check_running()

    async def _ask(self, key: str, row: Row) -> Answer:
        def keep(seed: int, vote: Vote) -> None:
            self._kept.note_vote(key, seed, vote)

        return await self.requests.ask(row, self._kept.votes(key), keep)

    async def _end(self) -> None:
        try:
            self._kept.note()
        finally:
            await self.client.close()

    def _about(self) -> dict[str, str]:
        """Whose answers they are, whatever the mode and its settings."""
        prompt = key_of(prompt_digest(self.bound.prompt), self._examples())
        return {"model": self.name, "endpoint": self.settings.url, "prompt": prompt}

    def _examples(self) -> str:
        empty = dict.fromkeys(self.bound.columns, "")
        return key_of(self.bound.messages(empty), self.bound.answers)

    def _calibrate(self) -> None:
        wanted = self.bound.prompt.calibrate
        if self.mode == "votes":
            if wanted:
                raise LimbeckError(
                    "calibrate: true, but sampled votes hold no probabilities to divide",
                    "leave it out, or use a server and --mode that give log-probabilities",
                )
            return
        if wanted is False:
            return
        try:
            keys = self._answered(self.bound.content_free())
        except RowsMissingError as error:
            raise LimbeckError(
                [
                    Problem(
                        f"calibrate: an input without content has no label: {problem.message}",
                        "set calibrate: false, or answers: letters, or --mode votes",
                    )
                    for problem in error.problems
                ]
            ) from None
        self.prior = content_free_prior(np.array([self._kept[key]["logs"] for key in keys]))

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
