"""From a task's name and a seed to its splits, without repeats: the data source `pocket`.

The main split and the dev
split come from one stream of distinct examples, so that they share none; the stream's random
numbers are seeded by the task's name and the seed alone (a string seed is hashed by SHA-512, not by
Python's own hash).
"""

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

from datasets import Dataset, DatasetDict, Features, Value

from limbeck.data.reader import DataReader, DataRequest, Document, Loaded, data_reader
from limbeck.data.splits import check_splits
from limbeck.lab.pocket import inference, paraphrase, sentiment
from limbeck.lab.pocket.example import Domain, Example, Generator
from limbeck.support.errors import LimbeckError, unknown

_GENERATORS: dict[str, tuple[Generator, tuple[str, ...]]] = {
    "cola": (sentiment.cola, ("sentence",)),
    "sst2": (sentiment.sst2, ("sentence",)),
    "mrpc": (paraphrase.mrpc, ("sentence1", "sentence2")),
    "stsb": (paraphrase.stsb, ("sentence1", "sentence2")),
    "qqp": (paraphrase.qqp, ("question1", "question2")),
    "mnli": (inference.mnli, ("premise", "hypothesis")),
    "qnli": (paraphrase.qnli, ("question", "sentence")),
    "rte": (inference.rte, ("sentence1", "sentence2")),
    "wnli": (inference.wnli, ("sentence1", "sentence2")),
    "scitail": (inference.scitail, ("premise", "hypothesis")),
    "paws": (paraphrase.paws, ("sentence1", "sentence2")),
    "imdb": (sentiment.imdb, ("text",)),
}

SIZES: dict[str, tuple[int, int]] = {
    "mnli": (24000, 1000),
    "qqp": (22000, 1000),
    "qnli": (20000, 1000),
    "sst2": (16000, 1000),
    "cola": (15500, 1000),
    "stsb": (15000, 1000),
    "mrpc": (14000, 1000),
    "rte": (13000, 1000),
    "wnli": (12000, 1000),
    "scitail": (500, 1000),
    "paws": (500, 1000),
    "imdb": (500, 1000),
    **inference.SIZES,
}
"""Examples by task: train and dev, in GLUE's order of size, then three tasks for scoring only and
those beyond GLUE."""


def load(task: str, seed: int = 0) -> DatasetDict:
    """The splits train and dev (MNLI: also dev_mismatched) of a pocket task.

    Columns: the task's text columns, `label` (class id, or a number from 0 to 5 for stsb) and
    `index` (row number). The same task and seed give the same rows anywhere; different seeds give
    different rows. No text occurs twice, within a split or across. Raises LimbeckError for a task
    without a generator.
    """
    if task in inference.SIZES:
        return inference.load(task, seed)
    if task not in _GENERATORS:
        raise LimbeckError(unknown("pocket task", task, list(SIZES)))
    train, dev = SIZES[task]
    stream = _distinct(task, seed, "main")
    splits = {"dev": dev, "train": train}
    loaded = {name: _split(task, stream, size) for name, size in splits.items()}
    if task == "mnli":
        # Its kinds are rare in the main domain, yet a plain statement about them can be there.
        seen = {
            texts
            for part in loaded.values()
            for texts in zip(part["premise"], part["hypothesis"], strict=True)
        }
        others = (e for e in _distinct(task, seed, "other") if e.texts not in seen)
        loaded["dev_mismatched"] = _split(task, others, dev)
    return DatasetDict(
        {name: loaded[name] for name in ("train", *sorted(loaded.keys() - {"train"}))}
    )


def sentences(task: str, seed: int = 0) -> Iterator[str]:
    """Endless text in a task's words, without labels: the texts of its examples, one by one.

    Sampled apart from `load`'s rows; short ones may occur in both.
    """
    generator, _ = _GENERATORS[task]
    random = Random(f"pocket {task} text {seed}")
    while True:
        yield from generator(random, "main").texts


def _distinct(task: str, seed: int, domain: Domain) -> Iterator[Example]:
    generator, _ = _GENERATORS[task]
    random = Random(f"pocket {task} {domain} {seed}")
    seen: set[tuple[str, ...]] = set()
    while True:
        example = generator(random, domain)
        if example.texts not in seen:
            seen.add(example.texts)
            yield example


def _split(task: str, stream: Iterator[Example], size: int) -> Dataset:
    _, columns = _GENERATORS[task]
    rows = [next(stream) for _ in range(size)]
    data: dict[str, list[Any]] = {
        column: [row.texts[place] for row in rows] for place, column in enumerate(columns)
    }
    kind = "float32" if task == "stsb" else "int64"
    data |= {"label": [row.label for row in rows], "index": list(range(size))}
    features = {column: Value("string") for column in columns}
    features |= {"label": Value(kind), "index": Value("int64")}
    return Dataset.from_dict(data, features=Features(features))


POCKET = "pocket"


@data_reader(POCKET)
class PocketSource(DataReader):
    """Tasks with GLUE's names, drawn from a grammar."""

    own_tasks = False

    def reads(self, request: DataRequest) -> bool:
        """The word `pocket`."""
        return request.text == POCKET

    def read(self, request: DataRequest) -> Loaded:
        """The task's splits, drawn by the request's seed."""
        task = request.known_task()
        splits = DatasetDict(_drawn(task.name, request.seed))
        check_splits(task, splits, POCKET, for_training=request.for_training)
        return task, splits

    def documents(self, seed: int, rows: int) -> Iterator[Document]:
        """Documents in Pocket GLUE's words."""
        return pocket_documents(seed, rows)


# A study's runs request the same rows again and again, and drawing them takes longer than to train on some.
_drawn = lru_cache(maxsize=8)(load)

# Sentences of a generated document, fewest and most.
_POCKET_LENGTHS = (4, 12)
# Generated text never ends; after this many sentences for each requested row, none will fit.
_POCKET_TRIES = 20


def pocket_documents(seed: int, rows: int) -> Iterator[Document]:
    """Documents in Pocket GLUE's words, plenty for that many rows; each has one task's themes."""
    random = Random(f"pocket corpus {seed}")
    themes = {task: sentences(task, seed) for task in ("sst2", "mrpc", "mnli", "qnli", "rte")}
    made = 0
    while made < _POCKET_TRIES * rows:
        stream = themes[random.choice(list(themes))]
        document = tuple(next(stream) for _ in range(random.randint(*_POCKET_LENGTHS)))
        made += len(document)
        yield document
