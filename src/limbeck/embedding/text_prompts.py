"""What an embedding model puts before a text, by what the text is: a sentence, a query or a passage.

Part of `limbeck.embedding`. Kept under sentence-transformers' names, of which its `encode_query` and `encode_document`
take their prompts, and never the one of `encode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SENTENCE, QUERY, PASSAGE = "sentence", "query", "passage"
"""What a text is: by itself, what is looked for, or what answers it or does not."""
_QUERIES = ("query",)
_PASSAGES = ("document", "passage", "corpus")
_NEW = "default"


class TextPrompts(NamedTuple):
    """The text before each kind of text; "" for none.

    Attributes:
        sentence: before texts that are neither of the others, as sentence-transformers' `encode` puts it unasked.
        query: before queries.
        passage: before passages.
    """

    sentence: str = ""
    query: str = ""
    passage: str = ""

    def changed(
        self, sentence: str | None = None, query: str | None = None, passage: str | None = None
    ) -> TextPrompts:
        """The same with others, None for those that stay; one of sentences stands before the others too, unless they
        get their own."""
        found = self if sentence is None else TextPrompts(sentence, sentence, sentence)
        own = {QUERY: query, PASSAGE: passage}
        return found._replace(**{name: text for name, text in own.items() if text is not None})

    def before(self, kind: str) -> str:
        """The text before a sentence, a query or a passage."""
        found: str = getattr(self, kind)
        return found


BARE = TextPrompts()
"""No text before any."""


def prompts_of(named: Mapping[str, str], default: str | None) -> TextPrompts:
    """Prompts by their names in a folder of sentence-transformers.

    A folder that names none for queries, or for passages, has the one of sentences there. One that names an empty
    one (as release 5 and later do of themselves) has none there, as in sentence-transformers.

    Args:
        named: texts by name.
        default: the name of what is put before sentences.
    """
    sentence = "" if default is None else named.get(default, "")
    return TextPrompts(
        sentence, _first(named, _QUERIES, sentence), _first(named, _PASSAGES, sentence)
    )


def _first(named: Mapping[str, str], names: Sequence[str], otherwise: str) -> str:
    """The first text of some names that says something."""
    there = [named[name] for name in names if name in named]
    return next((text for text in there if text), "" if there else otherwise)


def named_prompts(
    prompts: TextPrompts, known: Mapping[str, str]
) -> tuple[dict[str, str], str | None]:
    """Prompts under names that sentence-transformers looks for, and the name of its default.

    Args:
        prompts: as `prompts_of` finds them in what is returned.
        known: others, by name, that stay.
    """
    passages = {name: prompts.passage for name in _PASSAGES if name in known}
    named = {**known, **passages, _QUERIES[0]: prompts.query, _PASSAGES[0]: prompts.passage}
    if not prompts.sentence:
        return named, None
    alike = [name for name, text in named.items() if text == prompts.sentence]
    return (named, alike[0]) if alike else ({**named, _NEW: prompts.sentence}, _NEW)
