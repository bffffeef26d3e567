"""Pocket GLUE: nine generated tasks with GLUE's names, columns, labels and metrics, and a few more.

One source of the data stage. `load` draws a task's splits, `tokenizer` knows every word of them,
`teacher_config` is a deep small model that learns them from scratch, and `RECOMMENDED` holds
settings that are known to train it. Nothing here needs the network.
"""

from limbeck.lab.pocket.generate import SIZES, load
from limbeck.lab.pocket.pocket_models import (
    TEXT_STUDENT,
    TEXT_TEACHER,
    config_of,
    text_config,
    text_tokenizer,
    tokenizer_of,
)
from limbeck.lab.pocket.pocket_teacher import (
    RECOMMENDED,
    PocketSettings,
    Recommended,
    teacher_config,
)
from limbeck.lab.pocket.vocabulary import tokenizer

__all__ = [
    "RECOMMENDED",
    "SIZES",
    "TEXT_STUDENT",
    "TEXT_TEACHER",
    "PocketSettings",
    "Recommended",
    "config_of",
    "load",
    "teacher_config",
    "text_config",
    "text_tokenizer",
    "tokenizer",
    "tokenizer_of",
]
