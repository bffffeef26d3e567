"""From what a server returns to classes: listed tokens with their probabilities, or sampled texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openai import BaseModel

from limbeck.teachers.language_models.bound_prompt import BoundPrompt
from limbeck.teachers.language_models.endpoint_errors import NoChoicesError
from limbeck.teachers.language_models.endpoint_settings import EndpointSettings

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
