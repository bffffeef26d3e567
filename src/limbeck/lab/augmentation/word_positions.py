"""Words in a text: where they are, which of them may change, and how a replacement is spelt.

Part of `limbeck.lab.augmentation`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

# A contraction is one word: "don't", "n't".
_WORD = re.compile(r"\w+(?:['’]\w+)*")

_BY_CLASS = {
    "articles and determiners": "a an the this that these those each every either neither some any "
    "no all both such same other own few more most",
    "personal pronouns": "i you he she it we they me him her us them my your his its our their mine "
    "yours hers ours theirs myself yourself himself herself itself ourselves yourselves themselves",
    "pronouns that ask or relate": "who whom whose which what when where why how",
    "auxiliaries": "am is are was were be been being have has had having do does did doing done "
    "can could will would shall should may might must ought cannot",
    "prepositions": "of in on at by for with about against between into through during before after "
    "above below to from up down out off over under upon within without",
    "conjunctions": "and but or nor if because as until while than so though although unless",
    "negation and degree": "not only too very just",
    "place and time": "here there now then once again further",
    "pieces that tokenisers cut off contractions": "s t d m o y ll re ve don ain aren couldn didn "
    "doesn hadn hasn haven isn shouldn wasn weren won wouldn",
}
FUNCTION_WORDS = frozenset(word for words in _BY_CLASS.values() for word in words.split())
"""English words that carry grammar rather than meaning, in lower case."""


class Word(NamedTuple):
    """One word of a text: characters `start` to `end`."""

    start: int
    end: int
    text: str


def words_of(text: str, which: Literal["content", "all"]) -> list[Word]:
    """The words that may be replaced: of letters alone, and no function words unless all may."""
    found = (Word(*match.span(), match.group()) for match in _WORD.finditer(text))
    return [word for word in found if word.text.isalpha() and (which == "all" or _content(word))]


def _content(word: Word) -> bool:
    return word.text.lower() not in FUNCTION_WORDS


def spelt_like(word: str, replacement: str) -> str:
    """The replacement with the capitals of the word in whose place it stands."""
    if word.istitle():
        return replacement[:1].upper() + replacement[1:]
    return replacement.upper() if word.isupper() else replacement
