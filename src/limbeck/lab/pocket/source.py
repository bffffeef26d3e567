"""`--data pocket`: the generated tasks as a source of data. Part of `limbeck.lab.pocket`."""

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from datasets import DatasetDict

from limbeck.data.reader import DataReader, DataRequest, Document, Loaded, data_reader
from limbeck.data.splits import check_splits
from limbeck.lab.pocket.generate import load, sentences

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


# A study's runs ask for the same rows again and again, and drawing them takes longer than to train on some.
_drawn = lru_cache(maxsize=8)(load)

# Sentences of a generated document, fewest and most.
_POCKET_LENGTHS = (4, 12)
# Generated text never ends; after this many sentences for each row asked for, none will fit.
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
