"""Pocket GLUE: nine generated tasks with GLUE's names, columns, labels and metrics, and a few more.

One source of the data stage. `load` draws a task's splits, `tokenizer` knows every word of them,
`teacher_config` is a deep small model that learns them from scratch, and `RECOMMENDED` holds
settings that are known to train it. Nothing here needs the network.
"""

from limbeck.lab.pocket.generate import SIZES, load
from limbeck.lab.pocket.lexicon import tokenizer
from limbeck.lab.pocket.pocket_models import (
    RECOMMENDED,
    TEXT_STUDENT,
    TEXT_TEACHER,
    teacher_config,
    text_tokenizer,
)

__all__ = [
    "RECOMMENDED",
    "SIZES",
    "TEXT_STUDENT",
    "TEXT_TEACHER",
    "load",
    "teacher_config",
    "text_tokenizer",
    "tokenizer",
]
