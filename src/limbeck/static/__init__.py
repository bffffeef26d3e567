"""Static students: tables of token vectors without layers, taught like any other student.

`static_student` and `from_teacher` make one, `RowAdam` trains it at the cost of the tokens it reads, `write_plain` and
`write_model2vec` write the files that its users load.
"""

from limbeck.static.formats import write_model2vec, write_plain
from limbeck.static.model import PAIR_RATE, StaticConfig, StaticStudent, pair_rows
from limbeck.static.reader import StaticReader
from limbeck.static.row_adam import RowAdam, clip_gradients, set_apart
from limbeck.static.start import (
    from_teacher,
    static_student,
    token_counts,
    token_vectors,
    train_tokenizer,
)

__all__ = [
    "PAIR_RATE",
    "RowAdam",
    "StaticConfig",
    "StaticReader",
    "StaticStudent",
    "clip_gradients",
    "from_teacher",
    "pair_rows",
    "set_apart",
    "static_student",
    "token_counts",
    "token_vectors",
    "train_tokenizer",
    "write_model2vec",
    "write_plain",
]
