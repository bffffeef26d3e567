"""The README and the docs as tests read them: fenced blocks, headings, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)


@dataclass(frozen=True)
class Fence:
    """One fenced block: where it stands, its language, what follows the language, and its text."""

    place: str
    language: str
    info: str
    text: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(page: Path, *languages: str) -> list[Fence]:
    """The page's fenced blocks in these languages, or all of them, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, _, info = match[2].partition(" ")
        if not languages or language in languages:
            found.append(Fence(f"{name_of(page)}:{line}", language, info.strip(), match[3]))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks, every line at its place."""
    text = page.read_text(encoding="utf-8")
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors(page: Path) -> set[str]:
    """What links to the page may end in: its headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
