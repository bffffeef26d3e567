"""LoRA adapters of PEFT: read from safetensors, and merged into the model that they were trained on.

PEFT itself is not needed. Settings of its folders beyond plain LoRA raise an error by name, so that nothing is ignored.
"""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers as hf
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME

from limbeck.activations.compat import Conv1D, class_builder
from limbeck.embedding.embedder import with_modules
from limbeck.embedding.folder import find_file, read_json
from limbeck.support.errors import LimbeckError

# Settings that plain LoRA follows from, or that were for training alone; any other that is set changes the result.
_READ = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "eva_config", "exclude_modules",
    "fan_in_fan_out", "inference_mode", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout",
    "megatron_core", "modules_to_save", "peft_version", "qalora_group_size", "r", "rank_pattern",
    "target_modules", "task_type", "use_rslora",
}  # fmt: skip
# The same of settings with certain values; other starts change the base model's weights before training.
_PLAIN = {
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "peft_type": ("LORA",),
    "revision": ("main",),
}
_HEADS: Mapping[str, Any] = {
    "SEQ_CLS": hf.AutoModelForSequenceClassification,
    "TOKEN_CLS": hf.AutoModelForTokenClassification,
    "QUESTION_ANS": hf.AutoModelForQuestionAnswering,
    "CAUSAL_LM": hf.AutoModelForCausalLM,
    "SEQ_2_SEQ_LM": hf.AutoModelForSeq2SeqLM,
}
# A number of classes that no width is.
_CLASSES = 10_007
MERGE = (
    "merge it into its base model and save that: "
    "AutoPeftModelForSequenceClassification.from_pretrained(FOLDER).merge_and_unload().save_pretrained(OUT), "
    "and save its tokenizer there too"
)


class Adapter(NamedTuple):
    """An adapter's folder.

    Attributes:
        source: its folder or Hub name.
        settings: its adapter_config.json.
        weights: its file of weights.
    """

    source: str
    settings: Mapping[str, Any]
    weights: Path

    @property
    def base(self) -> str:
        """The folder or Hub name of the model that it was trained on."""
        return str(self.settings["base_model_name_or_path"])

    def tensors(self) -> dict[str, Tensor]:
        """Its weights in float32 by names of the model; of LoRA's with `lora_…` behind the layer's name."""
        found = load_file(self.weights)
        return {
            key.removeprefix("base_model.model.").replace(".base_layer.", "."): value.float()
            for key, value in found.items()
        }

    def config(self, base: hf.PretrainedConfig) -> hf.PretrainedConfig:
        """The configuration of the merged model.

        Class names come from a config.json in the adapter's folder. A head in the adapter has no others: PEFT does
        not save them.

        Args:
            base: the base model's configuration.
        """
        whole = find_file(self.source, "config.json") is not None
        config = copy.deepcopy(base)
        if whole:
            config = hf.AutoConfig.from_pretrained(self.source, trust_remote_code=False)
        config = with_modules(config, self.source)
        named = (self.settings.get("auto_mapping") or {}).get("base_model_class")
        head = _HEADS.get(str(self.settings.get("task_type")))
        if head is None and not hasattr(hf, str(named)):
            return config
        probed = copy.deepcopy(config)
        probed.num_labels = _CLASSES
        build: Any = class_builder(getattr(hf, str(named))) if head is None else head.from_config
        with torch.device("meta"):
            probe = build(probed)
        config.architectures = [type(probe).__name__]
        own, tensors = probe.state_dict(), self.tensors()
        heads = [key for key, value in own.items() if key in tensors and _CLASSES in value.shape]
        if heads and not whole:
            # Names of another head do not stay.
            config.id2label = {n: f"LABEL_{n}" for n in range(len(tensors[heads[0]]))}
            config.label2id = {name: n for n, name in config.id2label.items()}
            config.problem_type = None
        return config

    @torch.no_grad()
    def merge(self, model: hf.PreTrainedModel) -> set[str]:
        """Add s·B·A to each adapted weight, after copying the weights that were trained completely.

        Args:
            model: the base model with the head that `config` names; changed in place.

        Returns:
            the names of the weights that were trained completely.

        Raises:
            LimbeckError: quantized weights; one that the model does not have, has in another shape, or uses twice.
        """
        if getattr(model, "is_quantized", False):
            raise LimbeckError(
                f"adapter {self.source!r}: the weights of its base {self.base} are quantized",
                f"name the base in float as base_model_name_or_path in its {ADAPTER_CONFIG_NAME}",
            )
        tensors, changes = self.tensors(), {}
        for key in [
            one for one in tensors if one.endswith((".lora_A.weight", ".lora_embedding_A"))
        ]:
            layer, _, part = key.partition(".lora_")
            first, second = tensors.pop(key), tensors.pop(f"{layer}.lora_{part.replace('A', 'B')}")
            changes[f"{layer}.weight"] = self._scale(layer, len(first)) * second @ first
        own: dict[str, Tensor] = model.state_dict(keep_vars=True)
        replaced = {
            self._name(key, value.shape, model, own): value for key, value in tensors.items()
        }
        for name, value in replaced.items():
            own[name].copy_(value)
        for key, change in changes.items():
            name = self._name(key, change.shape, model, own)
            # These hold a weight of (inputs, outputs).
            turned = isinstance(
                model.get_submodule(name.removesuffix(".weight")), Conv1D | nn.Embedding
            )
            own[name].add_(change.T if turned else change)
        return {*replaced}

    def _scale(self, layer: str, rank: int) -> float:
        """α/r, with rank-stabilised LoRA α/√r."""
        patterns = self.settings.get("alpha_pattern") or {}
        own = [value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", layer)]
        alpha = float((own or [self.settings["lora_alpha"]])[0])
        return alpha / (rank**0.5 if self.settings.get("use_rslora") else rank)

    def _name(
        self, key: str, shape: torch.Size, model: hf.PreTrainedModel, own: Mapping[str, Tensor]
    ) -> str:
        """The model's name for a weight: the adapter may have been trained on its backbone alone, or under a head."""
        there = model.base_model_prefix + "."
        name = next(
            (one for one in (key, there + key, key.removeprefix(there)) if one in own), None
        )
        if name is None or sorted(own[name].shape) != sorted(shape):
            what = f"{key} {tuple(shape)} has no place in {type(model).__name__} of {self.base}"
        elif sum(one is own[name] for one in own.values()) > 1:
            what = f"{key} is a weight that {type(model).__name__} of {self.base} uses twice (tied embeddings)"
        else:
            return name
        raise LimbeckError(f"adapter {self.source!r}: {what}", MERGE)


def find_adapter(source: str) -> Adapter | None:
    """The adapter in a folder or a repository of the Hub; None if there is no adapter.

    Raises:
        LimbeckError: one that is not plain LoRA in safetensors.
    """
    settings = read_json(source, ADAPTER_CONFIG_NAME)
    if settings is None:
        return None
    if not isinstance(settings, dict) or not settings.get("base_model_name_or_path"):
        raise LimbeckError(
            f"adapter {source!r}: {ADAPTER_CONFIG_NAME} names no base_model_name_or_path",
            "write the folder or Hub name of the model that it was trained on there",
        )
    weights = find_file(source, ADAPTER_SAFE_WEIGHTS_NAME)
    if weights is None:
        raise LimbeckError(
            f"adapter {source!r}: no {ADAPTER_SAFE_WEIGHTS_NAME} in it (pickled weights, such as adapter_model.bin, "
            "are never loaded: they can run code)",
            "load it with PEFT where you trust it and write it again with save_pretrained(FOLDER)",
        )
    read = _READ | {key for key, plain in _PLAIN.items() if settings.get(key) in plain}
    others = sorted(key for key in settings.keys() - read if settings[key])
    if others:
        told = ", ".join(f"{key}={settings.get(key)}" for key in others)
        raise LimbeckError(f"adapter {source!r} is not plain LoRA: {told}", MERGE)
    return Adapter(source, settings, weights)
