"""Answers that were given, kept line by line: what was paid for is not asked again."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path

from limbeck.labelling.language_models.endpoint_requests import Answer, Vote
from limbeck.labelling.language_models.endpoint_spending import Spending, Tokens
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import loads

JOURNALS = "answers"
"""The folder of the cache where journals are kept."""
_SUFFIX = ".jsonl"
_ABOUT = "about"
_VOTE = "vote"
_OF_ONE_PROMPT = ("model", "endpoint", "prompt")
"""What a journal says about whose answers they are: those that share it share a limit on the cost."""
_PLACES = ("logs", "votes", "coverage", "unparsable")


class AnswerJournal:
    """Answers by key, in memory and, with a path, in a file of JSON lines.

    A line is written when its answer arrives; an answer that is made of several requests has a line for each vote, and
    its own when all are there. A kill may leave half of the last line, which is not read.

    Args:
        path: the file.
        about: whose answers they are, in words, which a new file says in its first line.

    Attributes:
        about: what the file said, else what is given.
        tokens: read and written for all lines that were there, answers or not.
    """

    def __init__(self, path: Path | None = None, about: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.about = dict(about or {})
        self.tokens = (0, 0)
        self._answers: dict[str, dict[str, list[float]]] = {}
        self._votes: dict[str, dict[int, int | None]] = {}
        self._stat: os.stat_result | None = None
        if path is not None and path.exists():
            self._stat = path.stat()
            for line in path.read_bytes().splitlines():
                self._take(line)

    @classmethod
    def named(cls, folder: Path, key: str, about: Mapping[str, str] | None = None) -> AnswerJournal:
        """The journal of a folder with that key."""
        return cls(folder / f"{key}{_SUFFIX}", about)

    @property
    def key(self) -> str:
        """What its file is found by; empty in memory."""
        return "" if self.path is None else self.path.stem

    @property
    def size(self) -> int:
        """Of the file, when it was read."""
        return 0 if self._stat is None else self._stat.st_size

    @property
    def used(self) -> float:
        """When the file was last written before it was read, in seconds since 1970."""
        return 0.0 if self._stat is None else self._stat.st_mtime

    def remove(self) -> None:
        """Delete the file; one that writes it begins another."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> dict[str, list[float]]:
        return self._answers[key]

    def add(
        self, key: str | None, answer: dict[str, list[float]], tokens: tuple[int, int] = (0, 0)
    ) -> None:
        """Keep an answer, or with the key None only that tokens were spent.

        Args:
            tokens: read and written since the last line.

        Raises:
            LimbeckError: the file cannot be written.
        """
        if key is not None:
            self._answers[key] = answer
            self._votes.pop(key, None)
        self._write({"key": key, "tokens": [*tokens], **answer})

    def votes(self, key: str) -> dict[int, int | None]:
        """By their seeds the votes of an answer that is not whole: classes, None for what could not be read."""
        return dict(self._votes.get(key, {}))

    def add_vote(
        self, key: str, seed: int, vote: int | None, tokens: tuple[int, int] = (0, 0)
    ) -> None:
        """Keep one vote of an answer that is not whole; as `add`."""
        self._votes.setdefault(key, {})[seed] = vote
        self._write({"key": key, "tokens": [*tokens], "seed": seed, _VOTE: vote})

    def is_of_one_prompt(self, about: Mapping[str, str]) -> bool:
        """Whether its answers are of the endpoint, model and prompt that another says it has."""
        return all(self.about.get(name) == about[name] for name in _OF_ONE_PROMPT)

    def _write(self, content: Mapping[str, object]) -> None:
        if self.path is None:
            return
        line = json.dumps(content) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as stream:
                if not stream.tell():
                    line = json.dumps({_ABOUT: self.about}) + "\n" + line
                # Behind what a kill left of a line a new one begins.
                elif _last_byte(self.path) != b"\n":
                    line = "\n" + line
                stream.write(line.encode())
        except OSError as error:
            raise LimbeckError(
                f"cannot write {self.path}: {error.strerror or error}", "make room, or allow it"
            ) from None

    def _take(self, line: bytes) -> None:
        try:
            found = loads(line)
            if _ABOUT in found:
                self.about = {str(name): str(value) for name, value in found[_ABOUT].items()}
                return
            key, (read, written) = found["key"], found["tokens"]
            values = {
                name: [float(one) for one in found[name]] for name in _PLACES if name in found
            }
            self.tokens = self.tokens[0] + int(read), self.tokens[1] + int(written)
            if isinstance(key, str) and _VOTE in found:
                vote = found[_VOTE]
                self._votes.setdefault(key, {})[int(found["seed"])] = (
                    None if vote is None else int(vote)
                )
        except (ValueError, TypeError, AttributeError, KeyError):
            return
        numbers = [number for group in values.values() for number in group]
        if isinstance(key, str) and numbers and all(map(math.isfinite, numbers)):
            self._answers[key] = values
            self._votes.pop(key, None)


def tokens_of_one_prompt(folder: Path, about: Mapping[str, str]) -> tuple[int, int]:
    """Tokens read and written for all journals of a folder that say the same endpoint, model and prompt."""
    read = written = 0
    for path in folder.glob(f"*{_SUFFIX}"):
        # Of others no more than the first line is read.
        with path.open("rb") as stream:
            first = AnswerJournal()
            first._take(stream.readline())
        if first.about and first.is_of_one_prompt(about):
            tokens = AnswerJournal(path).tokens
            read, written = read + tokens[0], written + tokens[1]
    return read, written


def journals_in(folder: Path) -> list[AnswerJournal]:
    """All journals of a folder, the last written first."""
    found = [AnswerJournal(path) for path in folder.glob(f"*{_SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda journal: journal.used, reverse=True)


def key_of(*parts: object) -> str:
    """Of what was asked."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1)


# What an endpoint answered and what that cost, kept so that nothing is paid for twice and a limit
# holds in all.


log = logging.getLogger(__name__)


class KeptAnswers:
    """Answers by key, with a folder in the journal of what is asked there, which is named when this is known.

    Args:
        folder: of journals; None: in memory.
        about: the endpoint, model and prompt; what journals of the same ones cost before is counted at once.
        spending: what is spent now, which gets what was spent before.
    """

    def __init__(self, folder: Path | None, about: Mapping[str, str], spending: Spending) -> None:
        self._folder, self._about, self._spending = folder, dict(about), spending
        self._journal = AnswerJournal()
        self._noted = (0, 0)
        if folder is not None:
            self._count_earlier(tokens_of_one_prompt(folder, about))

    def name(self, key: str, mode: str) -> None:
        """Take what the journal of that key has, and keep all that follows in it."""
        if self._folder is not None:
            self._journal = AnswerJournal.named(self._folder, key, self._about | {"mode": mode})
            if not self._journal.is_of_one_prompt(self._about):
                # Of an earlier version, which does not say whose it is.
                self._count_earlier(self._journal.tokens)
        self.note()

    def __len__(self) -> int:
        return len(self._journal)

    def __contains__(self, key: str) -> bool:
        return key in self._journal

    def __getitem__(self, key: str) -> Answer:
        return self._journal[key]

    def votes(self, key: str) -> dict[int, Vote]:
        """Of an answer that is not whole, by their seeds."""
        return self._journal.votes(key)

    def note_vote(self, key: str, seed: int, vote: Vote) -> None:
        """Keep a vote of an answer that is not whole, and what was spent since the last line.

        Raises:
            LimbeckError: the file cannot be written.
        """
        self._journal.add_vote(key, seed, vote, self._spent())

    def note(self, key: str | None = None, answer: Answer | None = None) -> None:
        """Keep an answer if there is one, and what was spent since the last line; as `note_vote`."""
        spent = self._spent()
        if key is not None or any(spent):
            self._journal.add(key, answer or {}, spent)

    def _spent(self) -> Tokens:
        """Tokens since this was asked last."""
        spending, (read, written) = self._spending, self._noted
        self._noted = spending.prompt_tokens, spending.completion_tokens
        return self._noted[0] - read, self._noted[1] - written

    def _count_earlier(self, tokens: Tokens) -> None:
        """It counts towards the limit; a journal does not tell for which rows or store it was."""
        spending, limit = self._spending, self._spending.settings.max_cost
        spending.before += spending.price(*tokens)
        if limit is not None and any(tokens):
            log.warning(
                "%s: max_cost: %.4g of %.4g were spent before, on this prompt about any rows",
                self._about["model"],
                spending.before,
                limit,
            )
