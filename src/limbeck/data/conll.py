"""Reading words and tags in columns, as the CoNLL shared tasks write them.

Below `own_kinds`. A line holds a word, whatever else, and last its tag, with tabs or spaces between;
a blank line ends a sentence.
"""

from __future__ import annotations

from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.plain import regular

_DOCUMENT = "-DOCSTART-"


def read_conll(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """The words of each sentence, and their tags (the last column).

    A first line that says "word" or "token" is a header. Raises LimbeckError naming the line for a
    line without a tag, and for a file without sentences.
    """
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    try:
        lines = regular(path).read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LimbeckError(f"cannot read {path}: {error}", "save the file as UTF-8") from error
    for number, line in enumerate(lines, start=1):
        stripped = line.rstrip("\r")
        if not stripped.strip() or stripped.startswith(_DOCUMENT):
            if words[-1]:
                words.append([])
                tags.append([])
            continue
        fields = stripped.split("\t") if "\t" in stripped else stripped.split(" ")
        if number == 1 and fields[0].lower() in ("word", "token", "words", "tokens"):
            continue
        if len(fields) < 2 or not fields[0] or not fields[-1].strip():
            raise LimbeckError(
                f"{path}, line {number}: expected a word and its tag, found {stripped[:60]!r}",
                "write word TAB tag, one word a line, and a blank line after each sentence",
            )
        words[-1].append(fields[0])
        tags[-1].append(fields[-1].strip())
    if not words[-1]:
        words.pop()
        tags.pop()
    if not words:
        raise LimbeckError(f"{path} holds no sentences", "check that the right file is named")
    return words, tags
