"""Tasks and their types: the prediction of a head, and the data, losses and scores that follow from it.

One object for each
task type knows the head's class, how rows become tokens and batches, the labels' loss and the soft
label, the outputs that evaluation keeps of a batch and how they become scores. Nothing else asks which
kind a task is of.
"""

from limbeck.tasks.abstract_type import (
    TASK_TYPES,
    TaskType,
    get_task_type,
    kind_of_config,
    task_type,
    task_type_of,
)
from limbeck.tasks.classes import MULTI_LABEL, SENTENCE
from limbeck.tasks.image import IMAGE, Image
from limbeck.tasks.language_models import CAUSAL_LM, MASKED
from limbeck.tasks.metrics import LOWER_IS_BETTER, METRICS
from limbeck.tasks.modality import TEXT_READING, Processor, Reading
from limbeck.tasks.ordinal import ORDINAL
from limbeck.tasks.pair_score import PAIR_SCORE
from limbeck.tasks.positions import TOKENS
from limbeck.tasks.rules import Results, ScoredSplit, SoftRule, as_array, join
from limbeck.tasks.sentence_embedding import EMBEDDING
from limbeck.tasks.spans import SPANS
from limbeck.tasks.task import TASKS, HubSource, Task, as_kind, get_task, project
from limbeck.tasks.text import TEXT

__all__ = [
    "CAUSAL_LM",
    "EMBEDDING",
    "IMAGE",
    "LOWER_IS_BETTER",
    "MASKED",
    "METRICS",
    "MULTI_LABEL",
    "ORDINAL",
    "PAIR_SCORE",
    "SENTENCE",
    "SPANS",
    "TASKS",
    "TASK_TYPES",
    "TEXT",
    "TEXT_READING",
    "TOKENS",
    "HubSource",
    "Image",
    "Processor",
    "Reading",
    "Results",
    "ScoredSplit",
    "SoftRule",
    "Task",
    "TaskType",
    "as_array",
    "as_kind",
    "get_task",
    "get_task_type",
    "join",
    "kind_of_config",
    "project",
    "task_type",
    "task_type_of",
]
