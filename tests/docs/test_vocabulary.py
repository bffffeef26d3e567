"""Pages, help, messages and docstrings use the field's words, where one of them can only mean the other."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, ROOT, name_of, prose

INSTEAD = {
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix",
    r"(stored|teachers?'s?|teachers') answers?": "(stored) teacher outputs",
    r"what (the|its|a) teachers? (says|said)": "teacher outputs",
    r"on a processor": "on CPU",
    r"processor (time|cores)": "CPU time, CPU cores",
    r"told from": "significantly different from; distinguished from",
    r"re-?drawn": "re-sampled",
    r"hidden words?": "masked tokens",
    r"data sets?": "dataset",
    r"kinds? of task": "task type",
    r"pictures?": "image",
    r"nets": "CNNs",
    r"(named|image) net": "CNN",
    r"chances": "probabilities",
    r"(copies with|of) other words": "augmented examples",
    r"way of a training step": "say what it does, not where it stands",
}
UNWANTED = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)
# Names in code are another matter: `inline code`, what an f-string puts in, arguments and keys.
CODE = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}|^\s*\w+:")
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".yaml", ".j2")]


def said(path: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a module, by line; names, keys and file names are not prose."""
    with path.open(encoding="utf-8") as stream:
        tokens = list(tokenize.generate_tokens(io.StringIO(stream.read()).readline))
    for token in tokens:
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and " " in token.string
        ):
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def unwanted(lines: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{number}: {match[0]}"
        for number, line in lines
        for match in UNWANTED.finditer(CODE.sub("", line))
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages(page) -> None:
    assert unwanted(enumerate(prose(page).splitlines(), 1)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_speak_of_sampling(page) -> None:
    """A drawing is a figure; rows, layers and teachers are sampled."""
    text = CODE.sub("", prose(page))
    assert re.findall(r"\b(?:drawn|draws|drew)\b", text) == []


def test_modules() -> None:
    found = {str(path.relative_to(ROOT)): unwanted(said(path)) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_recipes_and_templates() -> None:
    found = {
        str(path.relative_to(ROOT)): unwanted(
            enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        )
        for path in OTHERS
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text", ["begin anew", "its answers; two pictures", "the teacher's answers"]
)
def test_what_is_refused(text) -> None:
    assert unwanted(iter([(1, text)]))


@pytest.mark.parametrize("text", ["`nets`: by name", "{kind.redrawn} change", "an amendment"])
def test_what_is_allowed(text) -> None:
    assert not unwanted(iter([(1, text)]))
