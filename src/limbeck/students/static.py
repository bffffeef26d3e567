"""A run's static student: its start, and its labels. Part of `limbeck.students`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from limbeck.static import StaticStudent, from_teacher, static_student
from limbeck.students.pretrained import seeded
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.tasks.rules import Labelled


def may_be_static(kind: TaskType, texts: int = 1) -> bool:
    """Whether one vector a row answers this task type. A static student adds two texts up and cannot compare them."""
    return kind.embeds or (kind.whole_text and texts == 1)


def build_static(
    source: PreTrainedModel | None,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    task: Labelled,
    kind: TaskType,
    settings: Mapping[str, Any],
    teacher_tokenizer: Any = None,
    read: Callable[..., np.ndarray] | None = None,
    seed: int = 0,
) -> StaticStudent:
    """Build a static student with a task's head, in eval mode, on the CPU.

    Args:
        source: the encoder that reads its tokens; None for random vectors.
        tokenizer: the student's.
        texts: training texts, for the frequency of each token and for settings by their length.
        task: names the head's outputs.
        kind: its task type.
        settings: fields of its `StaticConfig`, and `width`.
        teacher_tokenizer: the source's, where the student has another one.
        read: as in `from_teacher`.
        seed: of its random numbers.

    Raises:
        LimbeckError: a task type that one vector a text does not answer, or as `from_teacher`.
    """
    if not may_be_static(kind):
        raise LimbeckError(
            f"student.static: one vector per text does not fit task type {kind.name}",
            "leave student.static out; it is for classes and numbers of texts and for embeddings",
        )
    own: dict[str, Any] = {"embeds": True}
    if kind.whole_text:
        names = kind.head_labels(task) or ("LABEL_0",)
        own = {
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "problem_type": kind.problem_of(kind.regresses(task)),
        }
    with seeded(seed):
        if source is None:
            student = static_student(tokenizer, texts=texts, **{**own, **settings})
        else:
            usual = {"width": min(256, getattr(source.config, "hidden_size", 256))}
            student = from_teacher(
                source,
                tokenizer,
                texts,
                teacher_tokenizer=teacher_tokenizer,
                read=read,
                **{**usual, **own, **settings},
            )
    kind.student_config(student.config)
    student.train(False)
    return student
