"""Where a corpus comes from: documents, each a list of sentences in their order.

Part of the data stage, below `corpus`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import load_dataset

from limbeck.data.encoding import progress_bars
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.plain import regular

Document = tuple[str, ...]

WIKIPEDIA = "wikimedia/wikipedia"
_CONFIG_OF = {WIKIPEDIA: "20231101.en"}
_TEXT = "text"
# Documents of a stream that are shuffled among each other; its files are shuffled too.
_BUFFER = 1_000

# A stop, with closing quotes or brackets, before a space and a sign that may begin a sentence.
_END = re.compile(r"(?<=[.!?])[\"')\]”’]*\s+(?=[\"'(\[“‘]*[A-Z0-9])")
_SHORT = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|cf|al|No|Nos|Vol|pp|Fig|Gen|Col|Lt|Capt|Sgt|Rev"
    r"|Gov|Sen|Rep|e\.g|i\.e|approx|ca|c|born|b|d))\.$"
)


def sentences_of(paragraph: str) -> list[str]:
    """A paragraph's sentences: cut after a full stop, and not after initials and abbreviations."""
    found: list[str] = []
    begin = 0
    for match in _END.finditer(paragraph):
        sentence = paragraph[begin : match.end()].strip()
        if _SHORT.search(sentence):
            continue
        found.append(sentence)
        begin = match.end()
    rest = paragraph[begin:].strip()
    return [*found, rest] if rest else found


def documents_of(lines: Iterable[str]) -> Iterator[Document]:
    """Documents from lines: a blank line ends one, a line is cut into its sentences."""
    document: list[str] = []
    for line in lines:
        if line.strip():
            document += sentences_of(line.strip())
        elif document:
            yield tuple(document)
            document = []
    if document:
        yield tuple(document)


def file_documents(path: Path) -> list[Document]:
    """A text file's documents.

    Raises:
        LimbeckError: no such file, or it is not UTF-8.
    """
    try:
        with regular(path).open(encoding="utf-8-sig") as file:
            return list(documents_of(file))
    except UnicodeDecodeError as error:
        raise LimbeckError(
            f"corpus {path} is not UTF-8: {error.reason}", "save it as UTF-8"
        ) from error
    except OSError as error:
        raise LimbeckError(
            f"corpus {str(path)!r}: {error.strerror or error}",
            "choices: a text file, hub, hub:DATASET[/CONFIG], hub:DIR, pocket",
        ) from error


def hub_documents(source: str, seed: int, *, progress: bool = False) -> Iterator[Document]:
    """Documents streamed from a dataset of the Hub, or from a copy of its repository, shuffled.

    Each row's `text` is a document, its lines are paragraphs. Only what is read is downloaded.

    Raises:
        LimbeckError: the dataset cannot be had or has no text.
    """
    place, config = _place_and_config(source)
    try:
        with progress_bars(progress):
            stream: Any = load_dataset(place, config, split="train", streaming=True)
        for row in stream.shuffle(seed=seed, buffer_size=_BUFFER):
            if not isinstance(row.get(_TEXT), str):
                raise LimbeckError(
                    f"corpus {source!r}: its rows have no column {_TEXT!r} of text "
                    f"(there: {', '.join(row)})",
                    "name a dataset of documents, such as hub:wikimedia/wikipedia",
                )
            yield from documents_of(line for line in row[_TEXT].split("\n") if line.strip())
    except LimbeckError:
        raise
    # The Hub's client and the readers behind it raise kinds of four libraries, which share no base class and change
    # between releases; all mean that the rows were not had, and the kind is part of the message.
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise LimbeckError(
            f"corpus {source!r}: cannot load {place}{f' ({config})' if config else ''}: "
            f"{type(error).__name__}: {reason}",
            "check the network, the name and that HF_HUB_OFFLINE is not set; or use a text file, "
            "hub:DIR with a copy of the repository, or pocket, which needs no download",
        ) from error


def _place_and_config(source: str) -> tuple[str, str | None]:
    """`hub`, `hub:owner/name[/config]` or `hub:DIR[/CONFIG]` as arguments of `load_dataset`."""
    named = source.removeprefix("hub").removeprefix(":") or WIKIPEDIA
    path = at_home(named)
    # A dataset's repository always has a card, which lists its configurations.
    if (path / "README.md").is_file():
        return str(path), None
    if path.is_dir() and (path.parent / "README.md").is_file():
        return str(path.parent), path.name
    if path.is_absolute() or named.startswith("."):
        raise LimbeckError(
            f"corpus {source!r}: there is no copy of a Hub repository (a folder with README.md)",
            "fetch the whole repository, card included, or name a text file",
        )
    parts = named.split("/")
    repository = "/".join(parts[:2])
    config = "/".join(parts[2:]) or _CONFIG_OF.get(repository)
    return repository, config
