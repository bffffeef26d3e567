"""How one row is asked of an endpoint, in a form that this server understands: found out with a first request."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import openai
from openai import BaseModel

from limbeck.labelling.language_models.bound_prompt import BoundPrompt
from limbeck.labelling.language_models.endpoint_client import EndpointClient
from limbeck.labelling.language_models.endpoint_errors import (
    LabellingStoppedError,
    NoChoicesError,
    RowFailedError,
    explained,
    may_succeed_later,
)
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings, RequestForm
from limbeck.labelling.language_models.prompt import Row
from limbeck.support.errors import LimbeckError

log = logging.getLogger(__name__)

Answer = dict[str, list[float]]
"""Of one row: `logs` (C) and `coverage` (1), or `votes` (C) and `unparsable` (1)."""
Vote = int | None
"""The class that an answer names; None where it cannot be read."""
# Room for the braces, key and quotes of structured output, in tokens.
_AROUND_ANSWER = 24
# A server may list nothing behind a first token that is no whole character, or ends the answer.
_LISTED_TRIES = 5
# Repetitions of a request about nothing: a wrong URL should not take minutes to say.
_AT_FIRST = 2


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

    async def ask(
        self, row: Row, kept: Mapping[int, Vote], keep: Callable[[int, Vote], None]
    ) -> Answer:
        """The server's answer about a row.

        Args:
            kept: by their seeds the votes that were given before, where each is a request.
            keep: is told each new one at once.

        Raises:
            RowFailedError: it has none that names a class; or as `EndpointClient.send`.
        """
        if self.form.mode == "logprobs":
            return self._listed((await self._listing(row))[0])
        if self.form.many:
            said = [text_of(one) for one in await self._send(row)]
            return self._counted([self._read(text) for text in said], said)
        return await self._separate(row, kept, keep)

    async def _separate(
        self, row: Row, kept: Mapping[int, Vote], keep: Callable[[int, Vote], None]
    ) -> Answer:
        """A request for each vote; one that is refused gave no answer that can be read.

        All are awaited before anything is raised: what has been sent is paid for and must be counted.

        Raises:
            RowFailedError: all are refused, or the server failed for one, which is asked for when the row comes again;
                or as `EndpointClient.send` of what ends the work.
        """
        settings, said = self.settings, list[str]()
        first = settings.seed if self.form.seeded else 0
        seeds = range(first, first + settings.votes)
        if all(kept.get(seed, 0) is None for seed in seeds):
            kept = {}  # the row had no label for them, and comes again to get one

        async def vote(seed: int) -> Vote:
            if seed in kept:
                return kept[seed]
            said.append(text_of((await self._send(row, seed))[0]))
            read = self._read(said[-1])
            keep(seed, read)
            return read

        made = await asyncio.gather(*map(vote, seeds), return_exceptions=True)
        errors = [one for one in made if isinstance(one, BaseException)]
        final = [one for one in errors if not isinstance(one, RowFailedError) or one.server_failed]
        if final or len(errors) == len(made):
            # What ends the work comes before what may succeed later.
            raise min(final or errors, key=lambda error: isinstance(error, RowFailedError))
        return self._counted(
            [None if isinstance(one, BaseException) else one for one in made], said
        )

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

    def _counted(self, votes: Sequence[Vote], said: Sequence[str]) -> Answer:
        counts = np.bincount(
            [one for one in votes if one is not None], minlength=len(self.bound.classes)
        )
        if not counts.sum():
            example = f": {said[0]!r:.60}" if said else ""
            raise RowFailedError(f"none of {len(votes)} answers names a class{example}")
        return {"votes": counts.astype(float).tolist(), "unparsable": [float(votes.count(None))]}

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


# From what a server returns to classes: listed tokens with their probabilities, or sampled texts.


FIELD = "label"
"""The key of the answer in structured output."""
_LEAST = 1e-10
# Of what begins an answer; with more of it nobody knows which class is likelier.
_MOST_SHARED = 0.05
_AROUND = " \t\r\n\"'`*_.,:;!()[]"


@dataclass(frozen=True)
class ListedClasses:
    """What the most likely tokens say of the classes.

    Attributes:
        logs: log-probability of each class, (C,): of all listed tokens that begin its answer and no other's. Of a
            class without one it is the most that it can be: no more than the least likely listed token, and no more
            than all unlisted tokens have together.
        coverage: the probability of all tokens that were counted.
        shared: the probability of tokens that begin several answers, which count for none.
        undecided: the likeliest of these; empty where there is none.
    """

    logs: np.ndarray
    coverage: float
    shared: float = 0.0
    undecided: str = ""

    @property
    def telling(self) -> bool:
        """Whether nearly all that begins an answer begins one alone."""
        return self.shared <= _MOST_SHARED * (self.coverage + self.shared)


def listed_classes(
    tokens: Sequence[tuple[str, float]], answers: Sequence[str]
) -> ListedClasses | None:
    """The classes' probabilities from a list of tokens and their log-probabilities; None if none begins an answer.

    A token is all that is known of what the model goes on to say: one that begins several answers does not tell which.
    """
    folded = [answer.casefold() for answer in answers]
    mass = np.zeros(len(answers))
    shared: dict[str, float] = {}
    for text, log in tokens:
        begun = text.strip().casefold()
        fits = [
            number for number, answer in enumerate(folded) if begun and answer.startswith(begun)
        ]
        if len(fits) == 1:
            mass[fits[0]] += math.exp(log)
        elif fits:
            shared[text] = shared.get(text, 0.0) + math.exp(log)
    coverage = float(mass.sum())
    if coverage <= 0 and not shared:
        return None
    probabilities = [math.exp(log) for _, log in tokens]
    most = max(min(*probabilities, 1 - sum(probabilities)), _LEAST) if len(tokens) > 1 else _LEAST
    logs = np.log(np.where(mass > 0, np.maximum(mass, _LEAST), most))
    undecided = max(shared, key=lambda text: shared[text], default="")
    return ListedClasses(logs, min(coverage, 1.0), sum(shared.values()), undecided)


def nested_answers(answers: Sequence[str]) -> tuple[str, str] | None:
    """An answer and a longer one that begins with it, whose first token cannot tell them apart; None without."""
    pairs = ((one, other) for one in answers for other in answers if one != other)
    return next((p for p in pairs if p[1].casefold().startswith(p[0].casefold())), None)


def choices_of(answer: Any, settings: EndpointSettings) -> list[Any]:
    """The choices of a chat's or a completion's answer, at least one.

    The client takes whatever a server says for an answer: of a page it gives the text, of an object without choices
    one that has None there.

    Raises:
        NoChoicesError: there are none.
    """
    choices = getattr(answer, "choices", None)
    if isinstance(choices, list) and choices:
        return choices
    whole = isinstance(answer, BaseModel)
    said = answer.to_json(indent=None, warnings=False) if whole else str(answer)
    raise NoChoicesError(said, settings)


def text_of(choice: Any) -> str:
    """A chat's or a completion's text; a refusal has none, nor has what is no choice."""
    message = getattr(choice, "message", None)
    text = getattr(choice, "text", None) if message is None else _value(message, "content")
    return text if isinstance(text, str) else ""


def listed_tokens(choice: Any) -> list[tuple[str, float]]:
    """The most likely first tokens of a chat's or a completion's choice; none where the server gave none."""
    given = getattr(choice, "logprobs", None)
    content = getattr(given, "content", None)
    if content:
        first = content[0]
        top = _value(first, "top_logprobs") or []
        return [(_value(one, "token"), float(_value(one, "logprob"))) for one in top]
    top = getattr(given, "top_logprobs", None)
    if top and isinstance(top[0], Mapping):
        return [(text, float(log)) for text, log in top[0].items()]
    return []


def _value(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def answer_schema(answers: Sequence[str]) -> dict[str, Any]:
    """Structured output that holds one of the answers and nothing else."""
    schema = {
        "type": "object",
        "properties": {FIELD: {"type": "string", "enum": [*answers]}},
        "required": [FIELD],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": FIELD, "strict": True, "schema": schema},
    }


class AnswerReader:
    """Reads the class out of an answer; one that names no class, or more, is none."""

    def __init__(self, bound: BoundPrompt) -> None:
        names: dict[str, set[int]] = {}
        lettered = bound.prompt.answers == "letters"
        written = zip(bound.answers, bound.verbalizations, bound.classes, strict=True)
        for number, (answer, words, name) in enumerate(written):
            known = [answer, words, name]
            if lettered:
                known += [f"{answer}{mark} {words}" for mark in (".", ")", ":", "")]
            for text in known:
                names.setdefault(_plain(text), set()).add(number)
        # An answer comes before a class's name that reads like it.
        own = {_plain(answer): {number} for number, answer in enumerate(bound.answers)}
        self._names = {
            text: next(iter(ids)) for text, ids in (names | own).items() if len(ids) == 1
        }

    def __call__(self, text: str) -> int | None:
        """The class's number."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            value = value.get(FIELD)
            return self._names.get(_plain(value)) if isinstance(value, str) else None
        lines = [line for line in text.splitlines() if line.strip()]
        return self._names.get(_plain(lines[0])) if lines else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_AROUND)
