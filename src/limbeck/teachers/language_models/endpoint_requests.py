"""How one row is asked of an endpoint, in a form that this server understands: found out with a first request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import openai

from limbeck.errors import LimbeckError
from limbeck.teachers.language_models.bound_prompt import BoundPrompt
from limbeck.teachers.language_models.endpoint_answers import (
    AnswerReader,
    answer_schema,
    choices_of,
    listed_classes,
    listed_tokens,
    nested_answers,
    text_of,
)
from limbeck.teachers.language_models.endpoint_client import EndpointClient
from limbeck.teachers.language_models.endpoint_errors import (
    LabellingStoppedError,
    NoChoicesError,
    RowFailedError,
    explained,
    may_succeed_later,
)
from limbeck.teachers.language_models.endpoint_settings import EndpointSettings
from limbeck.teachers.language_models.few_shot import Row

log = logging.getLogger(__name__)

Answer = dict[str, list[float]]
"""Of one row: `logs` (C) and `coverage` (1), or `votes` (C) and `unparsable` (1)."""
# Most servers list at least so many tokens.
_FEW_TOKENS = 5
# Room for the braces, key and quotes of structured output, in tokens.
_AROUND_ANSWER = 24
# A server may list nothing behind a first token that is no whole character, or ends the answer.
_LISTED_TRIES = 5
# Repetitions of a request about nothing: a wrong URL should not take minutes to say.
_AT_FIRST = 2


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


class RowRequests:
    """Asks about rows.

    Attributes:
        form: what requests look like; `begin` finds it out.
    """

    def __init__(
        self, client: EndpointClient, bound: BoundPrompt, settings: EndpointSettings
    ) -> None:
        self.client, self.bound, self.settings = client, bound, settings
        self._read = AnswerReader(bound)
        chat = bound.prompt.chat is not False
        self.form = RequestForm(
            mode="votes" if settings.mode == "votes" else "logprobs",
            chat=chat,
            top=settings.top_logprobs,
            many=settings.votes > 1,
            structured=chat,
        )

    async def begin(self) -> None:
        """Find the form that the server takes, with a row that says nothing.

        Raises:
            LimbeckError: the server cannot be reached, or refuses the key, the model or every form.
        """
        if self.form.mode == "logprobs" and (pair := nested_answers(self.bound.answers)):
            self._vote_instead(f"the answer {pair[0]!r} begins the answer {pair[1]!r}")
        while True:
            try:
                choices = await self._listing(self._empty_row(), _AT_FIRST)
            except RowFailedError as error:
                cause = error.__cause__ or error
                refused = openai.BadRequestError | openai.UnprocessableEntityError
                may_vote = self.settings.mode == "auto"
                form = None
                if isinstance(cause, refused):
                    form = self.form.simpler(str(cause), may_vote=may_vote)
                if form is None:
                    raise explained(cause, self.settings, await self.client.models()) from None
                self.form = form
                continue
            if self._settled(choices):
                return

    async def check_running(self) -> None:
        """Ask about a row that says nothing, which the server has answered at first.

        Raises:
            LabellingStoppedError: it answers not even that.
        """
        try:
            await self._listing(self._empty_row(), _AT_FIRST)
        except RowFailedError as error:
            cause = error.__cause__ or error
            if may_succeed_later(cause):
                raise LabellingStoppedError(explained(cause, self.settings).problems) from None

    def _empty_row(self) -> Row:
        return dict.fromkeys(self.bound.columns, "N/A")

    def _settled(self, choices: list[Any]) -> bool:
        """Whether the server gave what was asked for; else the form is changed to what it gives."""
        spending, settings = self.client.spending, self.settings
        if settings.max_cost is not None and not spending.prompt_tokens:
            raise LimbeckError(
                f"max_cost: {settings.max_cost}, but endpoint {settings.url} does not say how many tokens it used",
                "leave --max-cost out",
            )
        if self.form.mode == "votes":
            if self.form.many and len(choices) < settings.votes:
                self.form = replace(self.form, many=False)
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
        self.form = replace(self.form, mode="votes")
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
        self.form = replace(self.form, mode="votes")

    async def ask(self, row: Row) -> Answer:
        """The server's answer about a row.

        Raises:
            RowFailedError: it has none that names a class; or as `EndpointClient.send`.
        """
        if self.form.mode == "logprobs":
            return self._listed((await self._listing(row))[0])
        if self.form.many:
            return self._counted([text_of(one) for one in await self._send(row)])
        return self._counted(await self._votes(row))

    async def _votes(self, row: Row) -> list[str]:
        """A request for each vote; one that fails gave no answer that can be read, like "".

        All are awaited before anything is raised: what has been sent is paid for and must be counted.

        Raises:
            RowFailedError: all failed; or as `EndpointClient.send` of what ends the work.
        """
        seeds = range(self.settings.seed, self.settings.seed + self.settings.votes)
        made = await asyncio.gather(
            *(self._send(row, seed) for seed in seeds), return_exceptions=True
        )
        errors = [one for one in made if isinstance(one, BaseException)]
        final = [one for one in errors if not isinstance(one, RowFailedError)]
        if final or len(errors) == len(made):
            raise (final or errors)[0]
        return ["" if isinstance(one, BaseException) else text_of(one[0]) for one in made]

    async def _listing(self, row: Row, retries: int | None = None) -> list[Any]:
        """The choices that the server returns; in mode `logprobs` asked again until tokens are listed."""
        for _ in range(_LISTED_TRIES):
            choices = await self._send(row, retries=retries)
            if self.form.mode == "votes" or listed_tokens(choices[0]):
                break
        return choices

    def _listed(self, choice: Any) -> Answer:
        tokens = listed_tokens(choice)
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

    def _counted(self, texts: list[str]) -> Answer:
        read = [self._read(text) for text in texts]
        votes = np.bincount(
            [one for one in read if one is not None], minlength=len(self.bound.classes)
        )
        if not votes.sum():
            raise RowFailedError(f"none of {len(texts)} answers names a class: {texts[0]!r:.60}")
        return {"votes": votes.astype(float).tolist(), "unparsable": [float(read.count(None))]}

    async def _send(
        self, row: Row, seed: int | None = None, retries: int | None = None
    ) -> list[Any]:
        """The choices of one answer.

        Raises:
            LimbeckError: a page answers; or as `EndpointClient.send`.
            RowFailedError: the answer has no choices; or as `EndpointClient.send`.
        """
        answer = await self._answer(row, seed, retries)
        try:
            return choices_of(answer, self.settings)
        except NoChoicesError as error:
            # An object without choices may be about this one row; a page, such as that of a login, answers to all.
            if isinstance(answer, str):
                raise explained(error, self.settings) from None
            raise

    async def _answer(self, row: Row, seed: int | None, retries: int | None) -> Any:
        form = self.form
        request: dict[str, Any] = self._mode_settings(form)
        if form.mode == "votes" and form.seeded:
            request["seed"] = self.settings.seed if seed is None else seed
        if form.chat:
            messages = self.bound.messages(row)
            return await self.client.chat(retries=retries, messages=messages, **request)
        prompt = self.bound.whole(row)
        return await self.client.complete(retries=retries, prompt=prompt, **request)

    def _mode_settings(self, form: RequestForm) -> dict[str, Any]:
        if form.mode == "logprobs":
            # At temperature 1 a server that tempers what it lists gives the model's own.
            listed = {"logprobs": True, "top_logprobs": form.top} if form.chat else {"logprobs": form.top}  # fmt: skip
            return {"temperature": 1.0, form.limit: 1, **listed}
        # A byte may be a token.
        longest = max(len(answer.encode()) for answer in self.bound.answers)
        request: dict[str, Any] = {
            "temperature": self.settings.temperature,
            form.limit: longest + _AROUND_ANSWER,
        }
        if form.many:
            request["n"] = self.settings.votes
        if form.structured:
            request["response_format"] = answer_schema(self.bound.answers)
        return request
