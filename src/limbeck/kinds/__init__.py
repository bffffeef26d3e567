"""Kinds of task: what a head answers, and what follows from that for data, losses and scores.

Below the objectives on the way of a training step, and read by everything above them: one object a
kind knows the head's class, how rows become tokens and batches, what the labels' loss and the soft
label are, what evaluation keeps of a batch and how that becomes scores. Nothing else asks which
kind a task is of.
"""

from limbeck.kinds.base import LOWER_IS_BETTER, Kind, Results, as_array, join
from limbeck.kinds.image import IMAGE, Image
from limbeck.kinds.known import KINDS, get_kind, kind_of, kind_of_config
from limbeck.kinds.masked import MASKED
from limbeck.kinds.positions import SoftRule
from limbeck.kinds.reading import TEXT_READING, Processor, Reading
from limbeck.kinds.sentence import SENTENCE
from limbeck.kinds.spans import SPANS
from limbeck.kinds.text import TEXT
from limbeck.kinds.tokens import TOKENS

__all__ = [
    "IMAGE",
    "KINDS",
    "LOWER_IS_BETTER",
    "MASKED",
    "SENTENCE",
    "SPANS",
    "TEXT",
    "TEXT_READING",
    "TOKENS",
    "Image",
    "Kind",
    "Processor",
    "Reading",
    "Results",
    "SoftRule",
    "as_array",
    "get_kind",
    "join",
    "kind_of",
    "kind_of_config",
]
