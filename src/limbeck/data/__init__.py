"""Examples: where they come from, and how they become batches."""

from limbeck.data.batches import batches_of
from limbeck.data.collator import Collator
from limbeck.data.conditions import Conditions
from limbeck.data.corpus import CORPUS, CorpusSpec, load_corpus
from limbeck.data.encoding import encode
from limbeck.data.fingerprint import rows_fingerprint
from limbeck.data.loading import load_task
from limbeck.data.own_labels import Labelling
from limbeck.data.reader import DATA_READERS, DataReader, DataRequest, data_reader
from limbeck.data.reading_alike import add_inputs
from limbeck.data.sampler import EpochSampler
from limbeck.data.splits import (
    Division,
    check_splits,
    make_split,
    with_held_out,
    with_held_out_dev,
)
from limbeck.data.tables import MAX_ROWS

__all__ = [
    "CORPUS",
    "DATA_READERS",
    "MAX_ROWS",
    "Collator",
    "Conditions",
    "CorpusSpec",
    "DataReader",
    "DataRequest",
    "Division",
    "EpochSampler",
    "Labelling",
    "add_inputs",
    "batches_of",
    "check_splits",
    "data_reader",
    "encode",
    "load_corpus",
    "load_task",
    "make_split",
    "rows_fingerprint",
    "with_held_out",
    "with_held_out_dev",
]
