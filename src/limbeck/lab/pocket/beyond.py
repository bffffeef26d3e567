"""Pocket tasks beyond GLUE: words to tag, answers to find, words to guess.

Before the data stage of a training step, as one source of it. As in `generate` every example is
distinct and a function of task and seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from datasets import DatasetDict

from limbeck.data.splits import make_split
from limbeck.lab.pocket import contexts, entities, questions, sentiment, subject_verb_agreement
from limbeck.lab.pocket.example import Domain, pick
from limbeck.tasks.task import TASKS

Row = tuple[Any, ...]
"""An example's text columns, then its label; text that is its own label has none."""

SIZES: dict[str, tuple[int, int]] = {
    "squad": (14000, 1000),
    "mlm": (12000, 1000),
    "ner": (8000, 1000),
}
"""Examples by task: train and dev."""


def _ner(random: Random, domain: Domain) -> Row:
    words, tags = entities.ner(random, domain)
    return words, [TASKS["ner"].labels.index(tag) for tag in tags]


def _squad(random: Random, domain: Domain) -> Row:
    asked = contexts.squad(random, domain)
    answers = {"text": [asked.answer], "answer_start": [asked.start]}
    return asked.question, asked.context, answers


def _mlm(random: Random, domain: Domain) -> Row:
    """A sentence of one of three grammars, as it should be."""
    generator = pick(random, (subject_verb_agreement.cola, sentiment.sst2, questions.qnli))
    while True:
        example = generator(random, domain)
        # A sentence with a verb in the wrong number is none to learn words from.
        if generator is not subject_verb_agreement.cola or example.label == 1:
            return (example.texts[-1],)


_GENERATORS: dict[str, Callable[[Random, Domain], Row]] = {
    "ner": _ner,
    "squad": _squad,
    "mlm": _mlm,
}


def load(name: str, seed: int = 0) -> DatasetDict:
    """The splits train and dev of a task of this file, in the task's own columns."""
    train, dev = SIZES[name]
    stream = _distinct(name, seed)
    loaded = {
        split: [next(stream) for _ in range(n)] for split, n in (("dev", dev), ("train", train))
    }
    task = TASKS[name]
    splits = DatasetDict()
    for split in ("train", "dev"):
        columns = list(zip(*loaded[split], strict=True))
        texts = dict(zip(task.text_columns, map(list, columns), strict=False))
        labelled = len(columns) > len(texts)
        splits[split] = make_split(task, texts, list(columns[-1]) if labelled else None)
    return splits


def _distinct(name: str, seed: int) -> Iterator[Row]:
    random = Random(f"pocket {name} main {seed}")
    seen: set[str] = set()
    while True:
        row = _GENERATORS[name](random, "main")
        texts = repr(row)
        if texts not in seen:
            seen.add(texts)
            yield row
