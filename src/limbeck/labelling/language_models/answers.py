"""An endpoint's answers: parsed as classes, and stored line by line, so that nothing is paid for twice."""

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from limbeck.labelling.language_models.prompt import BoundPrompt
from limbeck.support.errors import LimbeckError

Answer = dict[str, list[float]]
"""To one request: `logs` (C) and `coverage` (1), or `votes` (C) and `unparsable` (1)."""
Tokens = tuple[int, int]
"""Read and written."""
FIELD = "label"
"""The key of the answer in structured output."""
_LEAST = 1e-10
# Limit on the share of tokens that begin several answers; above it, the likelier class is unknown.
_MOST_SHARED = 0.05
_AROUND = " \t\r\n\"'`*_.,:;!()[]"


class ListedClasses(NamedTuple):
    """The classes' log-probabilities from the most likely tokens.

    Attributes:
        logs: log-probability of each class, (C,): of all listed tokens that begin only its answer. For a
            class without one it is the most that it can be: no more than the least likely listed token, and no more
            than all unlisted tokens have together.
        coverage: the probability of all tokens that were counted.
        undecided: the likeliest token that begins several answers, and so counts for none; empty where such tokens
            hardly matter.
    """

    logs: np.ndarray
    coverage: float
    undecided: str = ""


def listed_classes(
    tokens: Sequence[tuple[str, float]], answers: Sequence[str]
) -> ListedClasses | None:
    """The classes' probabilities from a list of tokens and their log-probabilities; None if none begins an answer.

    A token is the only known part of the model's answer: one that begins several answers does not identify one.
    """
    mass = np.zeros(len(answers))
    shared: dict[str, float] = {}
    for text, log in tokens:
        begun = text.strip().casefold()
        fits = [at for at, one in enumerate(answers) if begun and one.casefold().startswith(begun)]
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
    total = sum(shared.values())
    likeliest = max(shared, key=lambda text: shared[text], default="")
    undecided = likeliest if total > _MOST_SHARED * (coverage + total) else ""
    return ListedClasses(logs, min(coverage, 1.0), undecided)


def nested_answers(answers: Sequence[str]) -> tuple[str, str] | None:
    """An answer and a longer one that begins with it, whose first token cannot distinguish them; None without such."""
    pairs = ((one, other) for one in answers for other in answers if one != other)
    return next((p for p in pairs if p[1].casefold().startswith(p[0].casefold())), None)


def listed_tokens(choice: Any) -> list[tuple[str, float]]:
    """The most likely first tokens of a chat's or a completion's choice; none where the server gave none."""
    given = part_of(choice, "logprobs")
    content = given.get("content")
    if content and isinstance(content[0], dict):
        top = content[0].get("top_logprobs") or []
        return [(one["token"], float(one["logprob"])) for one in top]
    top = given.get("top_logprobs") or [None]
    return [(text, float(log)) for text, log in (top[0] or {}).items()]


def text_of(choice: Any) -> str:
    """A chat's or a completion's text; "" for a refusal, or for an invalid choice."""
    whole = choice if isinstance(choice, dict) else {}
    said = part_of(whole, "message").get("content") or whole.get("text")
    return said if isinstance(said, str) else ""


def part_of(thing: Any, name: str) -> dict[str, Any]:
    """An object in an object of JSON; empty if it is missing."""
    found = thing.get(name) if isinstance(thing, dict) else None
    return found if isinstance(found, dict) else {}


def answer_schema(answers: Sequence[str]) -> dict[str, Any]:
    """Structured output that holds one of the answers and nothing else."""
    schema = {
        "type": "object",
        "properties": {FIELD: {"type": "string", "enum": [*answers]}},
        "required": [FIELD],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": FIELD, "strict": True, "schema": schema}}


class AnswerReader:
    """Parses the class out of a text; None if the text names no class or several.

    Raises:
        LimbeckError: the label is a logit, which no text has.
    """

    def __init__(self, bound: BoundPrompt) -> None:
        if bound.reads_logit:
            raise LimbeckError(
                f"score: the logit of {bound.answers[0]} is read of a model on this machine alone",
                "write score: [NO, YES], or name a --teacher",
            )
        self._classes = len(bound.classes)
        names: dict[str, set[int]] = {}
        written = zip(bound.answers, bound.verbalizations, bound.classes, strict=True)
        for number, (answer, words, name) in enumerate(written):
            known = [answer, words, name]
            if bound.prompt.answers == "letters":
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

    def counted(self, choices: Sequence[Any]) -> Answer:
        """The votes of an answer's choices, and how many of them name no class."""
        read = [self(text_of(one)) for one in choices]
        known = [one for one in read if one is not None]
        votes = np.bincount(known, minlength=self._classes).astype(float)
        return {"votes": votes.tolist(), "unparsable": [float(len(read) - len(known))]}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_AROUND)


# Answers that were given, kept in the cache.


JOURNALS = "answers"
"""The folder of the cache where journals are kept."""
_SUFFIX = ".jsonl"


class _Line(BaseModel):
    """A line of a journal: whose answers they are, or an answer and the tokens it took."""

    model_config = ConfigDict(allow_inf_nan=False)

    about: dict[str, str] | None = None
    key: str | None = None
    tokens: Tokens = (0, 0)
    answer: Answer = {}


class AnswerJournal:
    """Answers by key, in memory and, with a path, in a file of JSON lines.

    A line is written when its answer arrives. A kill may leave half of the last line, which is not read. Threads share
    it.

    Args:
        path: the file.
        about: a description of their source, which a new file has in its first line.

    Attributes:
        about: the file's description, otherwise the given one.
        tokens: read and written for all lines, answers or not.
        size: bytes of the file, when it was read.
        used: when the file was last written before, in seconds since 1970.
    """

    def __init__(self, path: Path | None = None, about: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.about = dict(about or {})
        self.tokens: Tokens = (0, 0)
        self.size, self.used = 0, 0.0
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()
        if path is not None and path.exists():
            stat = path.stat()
            self.size, self.used = stat.st_size, stat.st_mtime
            for written in path.read_bytes().splitlines():
                try:
                    line = _Line.model_validate_json(written)
                except ValidationError:
                    continue
                self.about = line.about or self.about
                self._note(line)

    @classmethod
    def of(cls, folder: Path | None, about: Mapping[str, str]) -> "AnswerJournal":
        """The journal of some words in a folder; without a folder one in memory."""
        return cls(None if folder is None else folder / f"{key_of(about)}{_SUFFIX}", about)

    @property
    def key(self) -> str:
        """What its file is found by; empty in memory."""
        return "" if self.path is None else self.path.stem

    def remove(self) -> None:
        """Delete the file; one that writes it begins another."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> Answer | None:
        """The answer under a key, if there is one."""
        return self._answers.get(key)

    def add(self, key: str | None, answer: Answer, tokens: Tokens = (0, 0)) -> None:
        """Keep an answer, or with the key None only that tokens were spent.

        Args:
            tokens: read and written.

        Raises:
            LimbeckError: the file cannot be written.
        """
        made = _Line(key=key, answer=answer, tokens=tokens)
        with self._lock:
            self._note(made)
            if self.path is not None:
                self._write(self.path, made.model_dump_json(exclude={"about"}).encode() + b"\n")

    def _write(self, path: Path, line: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as stream:
                if not stream.tell():
                    line = json.dumps({"about": self.about}).encode() + b"\n" + line
                else:
                    stream.seek(-1, os.SEEK_END)
                    # After the rest of a line that a kill left, a new line begins.
                    line = line if stream.read(1) == b"\n" else b"\n" + line
                stream.write(line)
        except OSError as error:
            raise LimbeckError(
                f"cannot write {path}: {error.strerror or error}", "make room, or allow it"
            ) from None

    def _note(self, line: _Line) -> None:
        self.tokens = self.tokens[0] + line.tokens[0], self.tokens[1] + line.tokens[1]
        if line.key is not None and line.answer:
            self._answers[line.key] = line.answer


def journals_in(folder: Path) -> list[AnswerJournal]:
    """All journals of a folder, the last written first."""
    found = [AnswerJournal(path) for path in folder.glob(f"*{_SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda journal: journal.used, reverse=True)


def key_of(*parts: object) -> str:
    """The digest of a request."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
