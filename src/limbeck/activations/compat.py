"""All private parts of transformers that limbeck uses. Part of `limbeck.activations`.

The only file that has to be read again when transformers moves. It names:

- `PreTrainedModel._can_record_outputs`, a model's own list of its layers and attention modules
  (without it layers are found by their `ModuleList`);
- `AttentionInterface.get_interface`, the lookup through which attention modules find their function,
  which is not private and is not meant to be replaced either;
- `PreTrainedModel._from_config`, which is all that AutoModel classes themselves call;
- `config._attn_implementation`, which attention a model uses;
- the tables of `transformers.models.auto.modeling_auto`: which classes are heads of what,
  and of `configuration_auto`: which types of model there are.

Overrides in subclasses of transformers' classes are not listed here:
`training` overrides methods of `Trainer` (listed in `limbeck.training.checkpoints`), the CIFAR CNNs `_init_weights`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.liger import apply_liger_kernel as apply_liger_kernel
from transformers.modeling_utils import AttentionInterface
from transformers.models.auto import configuration_auto, modeling_auto
from transformers.pytorch_utils import Conv1D as Conv1D  # GPT-2's linear map, read by others


def recordable(owner: PreTrainedModel, kind: str) -> list[Any]:
    """The outputs that a model declares under `kind`: module classes, bare or in an object with `target_class`."""
    found = (getattr(type(owner), "_can_record_outputs", None) or {}).get(kind, [])
    return found if isinstance(found, list) else [found]


def calls_dispatch(module: nn.Module) -> bool:
    """Whether a module looks its attention function up when it runs."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "get_interface" in code.co_names


def wrap_dispatch(wrap: Callable[[Callable[..., Any], str], Callable[..., Any]]) -> None:
    """Let every attention module get `wrap(function, implementation)` for its function, once a process."""
    original: Any = AttentionInterface.get_interface
    if hasattr(original, "limbeck_original"):
        return

    @functools.wraps(original)
    def get_interface(
        self: AttentionInterface, attn_implementation: str, default: Callable[..., Any]
    ) -> Callable[..., Any]:
        function = original(self, attn_implementation, default)
        return wrap(function, attn_implementation or "eager")

    get_interface.limbeck_original = original  # type: ignore[attr-defined]  # a mark of our own
    AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]  # intended


def attention_of(model: PreTrainedModel) -> str:
    """Which attention a model uses: eager, sdpa, …"""
    return str(model.config._attn_implementation)


class SameClass:
    """The AutoModel class to give where the very class of a model is known."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.from_config = class_builder(type(model))


def class_builder(kind: type[PreTrainedModel]) -> Callable[..., PreTrainedModel]:
    """What builds a model of a class from a configuration."""
    return kind._from_config


def _names(table: Mapping[str, str | Sequence[str]]) -> frozenset[str]:
    """The names of classes in a table, whose entries may hold several."""
    entries = ((entry,) if isinstance(entry, str) else entry for entry in table.values())
    return frozenset(name for entry in entries for name in entry)


TOKEN_CLASSIFIERS = _names(modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES)
SPAN_HEADS = _names(modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES)
IMAGE_CLASSIFIERS = _names(modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
TEXT_TO_TEXT = _names(modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
# Encoder-decoders fill both of these tables.
MASKED_LANGUAGE_MODELS = _names(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES) - TEXT_TO_TEXT
CAUSAL_LANGUAGE_MODELS = _names(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - TEXT_TO_TEXT
"""Which classes are heads of what, by name."""

MODEL_TYPES = frozenset(configuration_auto.CONFIG_MAPPING_NAMES)
"""Models that come with transformers; registered ones of other packages are not among them."""
