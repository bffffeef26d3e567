"""Examples: where they come from, and how they become batches."""

from limbeck.data.corpus import CORPUS, CorpusSpec, load_corpus
from limbeck.data.encoding import Collator, add_inputs, batches_of, encode
from limbeck.data.label_column import Labelling
from limbeck.data.load import load_task
from limbeck.data.reader import (
    DATA_READERS,
    NOTHING_NAMED,
    DataReader,
    DataRequest,
    RowsAsked,
    data_reader,
)
from limbeck.data.row_ids import rows_fingerprint
from limbeck.data.samplers import EpochSampler
from limbeck.data.splits import Conditions, Division, make_split, with_held_out_dev

__all__ = [
    "CORPUS",
    "DATA_READERS",
    "NOTHING_NAMED",
    "Collator",
    "Conditions",
    "CorpusSpec",
    "DataReader",
    "DataRequest",
    "Division",
    "EpochSampler",
    "Labelling",
    "RowsAsked",
    "add_inputs",
    "batches_of",
    "data_reader",
    "encode",
    "load_corpus",
    "load_task",
    "make_split",
    "rows_fingerprint",
    "with_held_out_dev",
]
