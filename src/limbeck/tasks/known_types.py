"""All kinds by name, and the kind a model's head is of. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from limbeck.errors import LimbeckError, unknown
from limbeck.tasks.image import IMAGE
from limbeck.tasks.masked_language_model import MASKED
from limbeck.tasks.sentence import SENTENCE
from limbeck.tasks.spans import SPANS
from limbeck.tasks.task_type import TaskType
from limbeck.tasks.text import TEXT
from limbeck.tasks.tokens import TOKENS
from limbeck.vision import CifarNetForImageClassification

KINDS: dict[str, TaskType] = {
    kind.name: kind for kind in (SENTENCE, TOKENS, SPANS, MASKED, TEXT, IMAGE)
}

# Which classes of transformers are heads of which kind.
_HEADS: dict[str, Mapping[str, Any]] = {
    "tokens": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "spans": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "image": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    | {"cifar_net": CifarNetForImageClassification.__name__},
    "text": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}


def get_task_type(name: str) -> TaskType:
    """The kind of that name; raises LimbeckError with the nearest name when there is none."""
    if name not in KINDS:
        raise LimbeckError(unknown("kind", name, list(KINDS)))
    return KINDS[name]


def task_type_of(model: PreTrainedModel) -> TaskType:
    """The kind of a model's head; sentence classification where it is none of the others.

    Raises:
        LimbeckError: a multi-label head, which no method here defines.
    """
    if getattr(model.config, "problem_type", None) == "multi_label_classification":
        raise LimbeckError(
            "the student's head is multi-label, and soft labels are defined over exclusive classes",
            "use single-label classification or regression",
        )
    return _by_class(type(model).__name__)


def kind_of_config(config: PretrainedConfig) -> TaskType:
    """The kind of the head a saved model had; classification where the configuration names none."""
    names = getattr(config, "architectures", None) or [""]
    return _by_class(names[0])


def _by_class(name: str) -> TaskType:
    for kind, heads in _HEADS.items():
        # An entry may name several classes; encoder-decoders fill both of the last two tables.
        classes = {c for e in heads.values() for c in ((e,) if isinstance(e, str) else e)}
        if name in classes and not (kind == "masked" and name in _SEQ2SEQ):
            return KINDS[kind]
    return SENTENCE


_SEQ2SEQ = frozenset(
    c for e in _HEADS["text"].values() for c in ((e,) if isinstance(e, str) else e)
)
