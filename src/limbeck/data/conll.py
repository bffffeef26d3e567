"""Reading words and tags in columns, as the CoNLL shared tasks write them.

Below `own_kinds`. A line holds a word, whatever else, and last its tag, with tabs or spaces between;
a blank line ends a sentence. Comments (`# sent_id = 3`) and `-DOCSTART-` lines are no words.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from limbeck.data.endings import lines_of
from limbeck.data.tables import readable
from limbeck.support.errors import LimbeckError

_DOCUMENT = "-DOCSTART-"
_COMMENT = "#"
_HEADINGS = ("word", "token", "words", "tokens")
_TAG = re.compile(r"[Oo]|[BILUESbilues]([-_].+)?")


def read_conll(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Read the words of each sentence, and their tags (the last column).

    A first line that says "word" or "token" is a header.

    Raises:
        LimbeckError: a line without a tag, a column of numbers in place of words, a file without sentences.
    """
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    with readable(path):
        lines = list(lines_of(path))
    comments = _comments(lines)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(_DOCUMENT):
            if words[-1]:
                words.append([])
                tags.append([])
            continue
        fields = _fields(line)
        heading = number == 1 and fields[0].lower() in _HEADINGS
        if heading or number in comments:
            continue
        if len(fields) < 2 or not fields[0] or not fields[-1].strip():
            raise LimbeckError(
                f"{path}, line {number}: expected a word and its tag, found {line[:60]!r}",
                "write word TAB tag, one word a line, and a blank line after each sentence",
            )
        words[-1].append(fields[0])
        tags[-1].append(fields[-1].strip())
    if not words[-1]:
        words.pop()
        tags.pop()
    if not words:
        raise LimbeckError(f"{path} holds no sentences", "check that the right file is named")
    _check_words(path, words)
    return words, tags


def _fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split(" ")


def _comments(lines: list[str]) -> set[int]:
    """Numbers of the lines that are comments, and no words that begin with "#".

    A word has as many columns as others have, and, where spaces separate these, the tag of another word or one that
    marks an entity. "# newdoc" in a file of two columns has neither.
    """
    others = [_fields(line) for line in lines if line.strip() and not line.startswith(_COMMENT)]
    width = Counter(map(len, others)).most_common(1)
    tags = {fields[-1].strip() for fields in others}
    found = set()
    for number, line in enumerate(lines, start=1):
        if not line.startswith(_COMMENT):
            continue
        fields = _fields(line)
        last = fields[-1].strip()
        of_width = not width or len(fields) == width[0][0]
        if "\t" in line:
            is_word = of_width and " " not in fields[0]
        else:
            is_word = of_width and (last in tags or _TAG.fullmatch(last) is not None)
        if not is_word:
            found.add(number)
    return found


def _check_words(path: Path, words: list[list[str]]) -> None:
    """Raise LimbeckError where the first column counts the words, as in CoNLL-U."""
    counted = all(row == list(map(str, range(1, len(row) + 1))) for row in words)
    if counted and any(len(row) > 1 for row in words):
        raise LimbeckError(
            f"{path}: the first column numbers the words (1, 2, …), and is no column of words",
            "write word TAB tag, one word a line; of CoNLL-U leave the first column out",
        )
