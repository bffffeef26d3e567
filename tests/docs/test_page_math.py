"""Formulas of the docs are typeset by the site and by GitHub alike."""

from __future__ import annotations

import re

import pytest
from pages import PAGES, name_of, prose

DISPLAYED = re.compile(r"^\$\$\n(.+)\n\$\$$", re.MULTILINE)
INLINE = re.compile(r"(?<![\w$\\])\$([^$\n]+)\$(?![\w$])")
# GitHub's Markdown reads these before its mathematics does: emphasis, escapes, HTML, cells of a table.
MISREAD = re.compile(r"[^A-Za-z0-9]_|\*|\\[^A-Za-z]|[<>|`]")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_formulas_are_read_as_such(page) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    formulas = DISPLAYED.findall(text)
    rest = DISPLAYED.sub("", text)
    formulas += INLINE.findall(rest)
    assert "$" not in INLINE.sub("", rest)
    wrong = [f for f in formulas if MISREAD.search(f) or f != f.strip() or f[0] in "+-"]
    assert wrong == []
