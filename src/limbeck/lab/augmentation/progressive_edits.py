"""Augmented examples that are edited word by word, the model reading the text edited so far.

Part of `limbeck.lab.augmentation`. Jiao et al. 2020, Algorithm 1, lines 5 to 18: an augmented example's words are gone
through from left to right; each that is to be replaced is masked in the current text.
"""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.lab.augmentation.candidates import (
    Candidates,
    Vocabulary,
    Word,
    best_words,
    distinct,
    random_numbers_of,
    spelt_like,
)
from limbeck.recipe.augment_spec import AugmentSpec


class Draft:
    """One text of one augmented example while it is edited.

    Args:
        words: the words that may change, from left to right.
        draw: (words, 2): whether each is replaced, and by which candidate.
    """

    def __init__(self, text: str, words: Sequence[Word], draw: np.ndarray) -> None:
        self.original = text
        self.words = words
        self.draw = draw.tolist()
        self._edited = ""
        self._end = 0

    @property
    def text(self) -> str:
        """The text as edited so far."""
        return self._edited + self.original[self._end :]

    def word(self, number: int) -> Word:
        """The position, in the current text, of a word that has not been edited."""
        word = self.words[number]
        moved = len(self._edited) - self._end
        return Word(word.start + moved, word.end + moved, word.text)

    def replace(self, number: int, choices: Sequence[str]) -> None:
        """Put the candidate that was sampled in a word's place; without candidates it stays."""
        if not choices:
            return
        word = self.words[number]
        choice = choices[int(self.draw[number][1] * len(choices))]
        self._edited += self.original[self._end : word.start] + spelt_like(word.text, choice)
        self._end = word.end


class Editor:
    """Makes augmented examples of rows: the words that are one token are read in the edited text.

    Args:
        longest: tokens of a text that the model reads.
        precision: fp32 or bf16: the autocast type of its passes.
    """

    def __init__(
        self,
        spec: AugmentSpec,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        longest: int,
        precision: str,
    ) -> None:
        self.spec = spec
        self.model = model
        self.vocabulary = Vocabulary(tokenizer)
        self.longest = longest
        self.precision = precision

    def examples(
        self,
        rows: Sequence[tuple[int, Sequence[str]]],
        candidates: Candidates,
    ) -> list[list[tuple[str, ...]]]:
        """The augmented examples of each row that differ from it and from each other.

        The random numbers are the same as in `augmented_examples_of`: functions of (seed, row, example).

        Args:
            rows: each row's number and its text columns.
            candidates: which words of the texts were one token, and the others' nearest words.
        """
        drafts = [self._drafts(number, texts, candidates) for number, texts in rows]
        self._edit([draft for row in drafts for example in row for draft in example], candidates)
        return [
            distinct(tuple(texts), [tuple(draft.text for draft in example) for example in row])
            for (_, texts), row in zip(rows, drafts, strict=True)
        ]

    def _drafts(
        self, number: int, texts: Sequence[str], candidates: Candidates
    ) -> list[list[Draft]]:
        words = [candidates.words(text) for text in texts]
        counts = [len(own) for own in words]
        draws = random_numbers_of(number, self.spec.examples, sum(counts), self.spec.seed)
        return [
            [
                Draft(text, own, part)
                for text, own, part in zip(
                    texts, words, np.split(draw, np.cumsum(counts)[:-1]), strict=True
                )
            ]
            for draw in draws
        ]

    def _edit(self, drafts: Sequence[Draft], candidates: Candidates) -> None:
        for number in range(max((len(draft.words) for draft in drafts), default=0)):
            asked = []
            for draft in drafts:
                if number >= len(draft.words):
                    continue
                if draft.draw[number][0] >= self.spec.probability:
                    continue
                if candidates.is_one_token(draft.original, number):
                    asked.append(draft)
                else:
                    draft.replace(number, candidates.nearest_to(draft.words[number].text))
            self._ask(asked, number)

    def _ask(self, drafts: Sequence[Draft], number: int) -> None:
        """Replace one word of each draft by the model's prediction there."""
        if not drafts:
            return
        encodings = self.vocabulary.encode([draft.text for draft in drafts], self.longest)
        hidden, reached = [], []
        for draft, encoding in zip(drafts, encodings, strict=True):
            (one,) = self.vocabulary.hidden(encoding, [draft.word(number)])
            # Longer words before it may have moved it out of the model's reach: then it stays.
            if one is not None:
                hidden.append(one)
                reached.append(draft)
        best = best_words(
            self.model, self.vocabulary, hidden, self.spec.candidates, precision=self.precision
        )
        for draft, tokens in zip(reached, best.tolist(), strict=True):
            draft.replace(number, [self.vocabulary.words[token] for token in tokens])
