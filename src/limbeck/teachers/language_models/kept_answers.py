"""What an endpoint answered and what that cost, kept so that nothing is paid for twice and a limit holds in all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from limbeck.teachers.language_models.answer_journal import AnswerJournal, tokens_of_one_prompt
from limbeck.teachers.language_models.endpoint_requests import Answer, Vote
from limbeck.teachers.language_models.endpoint_spending import Spending, Tokens

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
