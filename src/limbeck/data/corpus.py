"""Sentence pairs from a corpus: text for a first stage that needs no labels.

Part of the data stage. Two passages that follow each other in one document make a row, as in BERT's
pre-training input, or two sentences from anywhere; CR-ILD (§3.2.1, appendix B) draws rows from
Wikipedia, of a chosen number and length.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from datasets import Dataset, Features, Value, load_dataset
from pydantic import Field, model_validator
from transformers import PreTrainedTokenizerBase

from limbeck.data import encoding, files, load
from limbeck.data.reader import Document
from limbeck.support.errors import LimbeckError, first_line
from limbeck.support.files import at_home
from limbeck.support.settings import Count, Seed, Settings
from limbeck.tasks.task import Task

CORPUS = Task("corpus", "Corpus", ("sentence1", "sentence2"), (), (), "")
"""The rows: pairs of text without labels, which are never scored."""

# Rows that one document of a stream gives at most: variety for as little download as possible.
_ROWS_OF_A_STREAMED_DOCUMENT = 4
# Candidates measured at once.
_CHUNK = 512


class CorpusSpec(Settings):
    """Which sentence pairs to draw, and from where."""

    source: str = Field(
        "hub",
        description="a text file (a sentence or paragraph a line, a blank line between documents), "
        "hub (English Wikipedia), hub:DATASET[/CONFIG], hub:DIR (a copy of such a repository), or pocket (generated)",
    )
    pairs: Literal["adjacent", "random"] = Field(
        "adjacent",
        description="which sentences are paired: sentences that follow each other in a document, or any two "
        "of the corpus (as in CR-ILD's paper; its release pairs sentences of more than ten words "
        "that follow each other)",
    )
    size: Count = Field(description="number of rows")
    min_tokens: Count | None = Field(
        None, description="shortest row, in tokens, special ones included"
    )
    max_tokens: Count | None = Field(
        None, description="longest row; max_length if left out; longer ones are not sampled"
    )
    seed: Seed = Field(0, description="seed of the sampling")

    @model_validator(mode="after")
    def _a_range(self) -> "CorpusSpec":
        if self.min_tokens and self.max_tokens and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self


def load_corpus(
    spec: CorpusSpec, tokenizer: PreTrainedTokenizerBase, max_length: int, *, progress: bool = False
) -> Dataset:
    """`spec.size` rows of the columns sentence1, sentence2 and index; a function of `spec` alone.

    A row begins at a sentence sampled at random and holds the sentence and the one after it; while it
    is shorter than `min_tokens`, further sentences join it, and where the row is then divided in
    two is sampled as well. A row out of the range is not taken. Every starting sentence gives one row
    at most. With `pairs` "random" a row is two sentences sampled independently, of a file from all
    of it, of a stream from at most eight of a document.

    Raises:
        LimbeckError: the source cannot be read, or gives fewer rows than requested.
    """
    longest = spec.max_tokens or max_length
    shortest = spec.min_tokens or 0
    random = Random(f"corpus {spec.seed}")
    special = tokenizer.num_special_tokens_to_add(pair=True)
    cut = _Cut(tokenizer, shortest - special, longest - special, random)
    streamed: Iterable[Document] | None = None
    if spec.source == "hub" or spec.source.startswith("hub:"):
        streamed = hub_documents(spec.source, spec.seed, progress=progress)
    elif (reader := load.source_of(spec.source)) is not None:
        streamed = reader.documents(spec.seed, spec.size)
    if streamed is not None and spec.pairs == "random":
        sentences = sentences_of_stream(streamed, spec.size, random)
        candidates = random_pairs(sentences, spec.size, random)
    elif streamed is not None:
        candidates = cut.streamed(streamed)
    else:
        documents = file_documents(at_home(spec.source))
        if spec.pairs == "random":
            sentences = [sentence for document in documents for sentence in document]
            candidates = random_pairs(sentences, spec.size, random)
        else:
            candidates = cut.anywhere(documents)
    rows = list(islice(_fitting(candidates, tokenizer, shortest, longest), spec.size))
    if len(rows) < spec.size:
        raise LimbeckError(
            f"corpus {spec.source!r}: it gives {len(rows)} pairs of {shortest} to {longest} tokens, "
            f"{spec.size} are requested",
            "request fewer (size), widen min_tokens and max_tokens, or give more text",
        )
    columns = {
        "sentence1": [row.first for row in rows],
        "sentence2": [row.second for row in rows],
        "index": list(range(len(rows))),
    }
    text = {"sentence1": Value("string"), "sentence2": Value("string")}
    return Dataset.from_dict(columns, features=Features(text | {"index": Value("int64")}))


class _Pair(NamedTuple):
    first: str
    second: str


# Sentences that one document of a stream gives at most, where any two may meet.
_OF_A_STREAMED_DOCUMENT = 8
# Pairs tried per requested pair, before a corpus counts as having too few in the range.
_TRIES = 50


def random_pairs(sentences: list[str], size: int, random: Random) -> Iterator[_Pair]:
    """Pairs of two different places of `sentences`, each sampled independently of all others."""
    for _ in range(_TRIES * size if len(sentences) > 1 else 0):
        first, second = random.sample(range(len(sentences)), 2)
        yield _Pair(sentences[first], sentences[second])


def sentences_of_stream(documents: Iterable[Document], size: int, random: Random) -> list[str]:
    """Sentences to draw `size` pairs from: at most eight of a document, twice as many as pairs."""
    found: list[str] = []
    for document in documents:
        found += random.sample(document, min(len(document), _OF_A_STREAMED_DOCUMENT))
        if len(found) >= max(1000, 2 * size):
            break
    return found


class _Cut:
    """Cuts rows out of documents; `shortest` and `longest` are without the special tokens."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, shortest: int, longest: int, random: Random
    ) -> None:
        self.tokenizer = tokenizer
        self.shortest, self.longest = shortest, longest
        self.random = random

    def anywhere(self, documents: list[Document]) -> Iterator[_Pair]:
        """Rows from all documents at hand, their starts in random order."""
        starts = [
            (place, start)
            for place, document in enumerate(documents)
            for start in range(len(document) - 1)
        ]
        self.random.shuffle(starts)
        # Counted on first use: a few rows of a large file need few of its documents.
        counts: dict[int, list[int]] = {}
        for place, start in starts:
            if place not in counts:
                counts[place] = self._count(documents[place])
            pair = self._pair(documents[place], counts[place], start)
            if pair is not None:
                yield pair

    def streamed(self, documents: Iterable[Document]) -> Iterator[_Pair]:
        """Rows from one document after the other, a few of each."""
        for document in documents:
            counts = self._count(document)
            starts = list(range(len(document) - 1))
            self.random.shuffle(starts)
            found = (self._pair(document, counts, start) for start in starts)
            fitting = (pair for pair in found if pair is not None)
            yield from islice(fitting, _ROWS_OF_A_STREAMED_DOCUMENT)

    def _count(self, document: Document) -> list[int]:
        """Tokens of each sentence."""
        encoded = self.tokenizer(
            list(document), add_special_tokens=False, truncation=False, verbose=False
        )
        return [len(ids) for ids in encoded["input_ids"]]

    def _pair(self, document: Document, counts: list[int], start: int) -> _Pair | None:
        """The row that begins at a sentence, if one of the range does."""
        end = start + 2
        total = sum(counts[start:end])
        while total < self.shortest and end < len(document):
            total += counts[end]
            end += 1
        if not self.shortest <= total <= self.longest:
            return None
        middle = self.random.randrange(start + 1, end)
        return _Pair(" ".join(document[start:middle]), " ".join(document[middle:end]))


def _fitting(
    candidates: Iterator[_Pair], tokenizer: PreTrainedTokenizerBase, shortest: int, longest: int
) -> Iterator[_Pair]:
    """The rows whose encoded length is in the range.

    Sentences counted one by one may come out a little different from the two passages encoded
    together, so a row is measured once more as the model will read it.
    """
    while chunk := list(islice(candidates, _CHUNK)):
        encoded = tokenizer(
            [pair.first for pair in chunk],
            [pair.second for pair in chunk],
            truncation=False,
            verbose=False,
        )
        for pair, ids in zip(chunk, encoded["input_ids"], strict=True):
            if shortest <= len(ids) <= longest:
                yield pair


# ---- where documents come from ----


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
    if not path.is_file():
        raise LimbeckError(
            f"corpus {str(path)!r} does not exist",
            "choices: a text file, hub, hub:DATASET[/CONFIG], hub:DIR, pocket",
        )
    with files.readable(path):
        return list(documents_of(files.lines_of(path)))


def hub_documents(source: str, seed: int, *, progress: bool = False) -> Iterator[Document]:
    """Documents streamed from a dataset of the Hub, or from a copy of its repository, shuffled.

    Each row's `text` is a document, its lines are paragraphs. Only the rows that are read are downloaded.

    Raises:
        LimbeckError: the dataset cannot be had or has no text.
    """
    place, config = _place_and_config(source)
    try:
        with encoding.progress_bars(progress):
            stream: Any = load_dataset(place, config, split="train", streaming=True)
        for row in stream.shuffle(seed=seed, buffer_size=_BUFFER):
            if not isinstance(row.get(_TEXT), str):
                raise LimbeckError(
                    f"corpus {source!r}: its rows have no column {_TEXT!r} of text (there: {', '.join(row)})",
                    "name a dataset of documents, such as hub:wikimedia/wikipedia",
                )
            yield from documents_of(line for line in row[_TEXT].split("\n") if line.strip())
    except LimbeckError:
        raise
    # The Hub's client and the readers behind it raise kinds of four libraries, which share no base class and change
    # between releases; all mean that the rows were not had, and the kind is part of the message.
    except Exception as error:
        reason = first_line(error)
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
    for folder, config in ((path, None), (path.parent, path.name)):
        if path.is_dir() and (folder / "README.md").is_file():
            return str(folder), config
    if path.is_absolute() or named.startswith("."):
        raise LimbeckError(
            f"corpus {source!r}: there is no copy of a Hub repository (a folder with README.md)",
            "download the full repository, card included, or name a text file",
        )
    parts = named.split("/")
    repository = "/".join(parts[:2])
    return repository, "/".join(parts[2:]) or _CONFIG_OF.get(repository)
