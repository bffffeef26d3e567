"""An encoder with its pooling as a model of transformers, whose logits are the embeddings.

Part of `limbeck.embedding`. A class is made of each encoder's own family, as transformers makes a classifier of it:
capture, students and checkpoints meet nothing new.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers.normalizers import Lowercase, Sequence
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from limbeck.activations.compat import class_builder
from limbeck.embedding import folder
from limbeck.functional.hidden import pool
from limbeck.support.errors import LimbeckError
from limbeck.support.positions import positions_by_config

HEAD = "ForSentenceEmbedding"
"""How the classes' names end."""


class SentenceEmbedder(PreTrainedModel):
    """An encoder, pooling, perhaps a linear map, perhaps a division by the length.

    `embedder_class` makes its classes for an encoder's family; this is their common part. `logits` of its
    output are the embeddings (B, d).

    Attributes:
        behind: the modules behind the encoder.
        dense: the linear map among them, if there is one.
    """

    encoder_class: ClassVar[type[PreTrainedModel]]

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.encoder_class(config))
        self.behind = folder.modules_of(config) or folder.EmbeddingModules()
        self.dense: nn.Module | None = None
        if self.behind.dense is not None:
            own = self.behind.dense
            self.dense = nn.Linear(config.hidden_size, own.width, bias=own.bias)
        self.post_init()  # type: ignore[no-untyped-call]

    @property
    def embedding_width(self) -> int:
        """Numbers of an embedding, d."""
        dense, truncate = self.behind.dense, self.behind.truncate
        width = int(self.config.hidden_size) if dense is None else dense.width
        return min(width, truncate or width)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Embeddings of tokens (B, N), or of their vectors (B, N, d), as `logits` (B, d)."""
        named = {"token_type_ids": token_type_ids, "position_ids": position_ids}
        given = {name: value for name, value in named.items() if value is not None}
        found = self.base_model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            **given,
            **kwargs,
        )
        states = found.last_hidden_state
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        return SequenceClassifierOutput(
            logits=self._behind(states, attention_mask),
            hidden_states=getattr(found, "hidden_states", None),
            attentions=getattr(found, "attentions", None),
        )

    def _behind(self, states: Tensor, mask: Tensor) -> Tensor:
        """Token states (B, N, d) as embeddings."""
        modules = self.behind
        pooled = pool(states, mask, modules.pooling)
        if self.dense is not None and modules.dense is not None:
            pooled = getattr(nn, modules.dense.activation)()(self.dense(pooled))
        found = F.normalize(pooled.float(), dim=-1) if modules.normalize else pooled
        return found if modules.truncate is None else found[:, : modules.truncate]

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Write a folder of sentence-transformers', whose root is the plain encoder."""
        encoder: Any = self.base_model
        encoder.save_pretrained(save_directory, *args, **kwargs)
        folder.write_modules(Path(save_directory), self.behind, self.config.hidden_size, self.dense)


def embedding_width(model: PreTrainedModel) -> int:
    """Numbers of a model's embeddings; 0 of one that gives none."""
    return int(getattr(model, "embedding_width", 0))


@cache
def embedder_class(encoder: type[PreTrainedModel]) -> type[SentenceEmbedder]:
    """The class of an encoder with its pooling; made once.

    Raises:
        LimbeckError: a model that is no part of a family with others.
    """
    family: Any = next(base for base in encoder.__mro__[1:] if issubclass(base, PreTrainedModel))
    if family is PreTrainedModel or not family.base_model_prefix:
        raise LimbeckError(
            f"{encoder.__name__} has no family of classes to make an embedding model in",
            "use an encoder of transformers' own, such as BERT, MPNet, ModernBERT or XLM-RoBERTa",
        )
    name = encoder.__name__.removesuffix("Model") + HEAD
    own = {"encoder_class": encoder, "__module__": __name__, "__doc__": SentenceEmbedder.__doc__}
    return type(name, (SentenceEmbedder, family), own)


def _class_for(config: PretrainedConfig) -> type[SentenceEmbedder]:
    """Raises LimbeckError for a configuration that is no encoder's."""
    found = MODEL_MAPPING.get(type(config), None)
    encoder = found[0] if isinstance(found, tuple | list) else found
    if encoder is None or config.is_encoder_decoder:
        what = "an encoder with a decoder" if encoder is not None else "no encoder of text"
        raise LimbeckError(
            f"kind embedding: {config.model_type} is {what}",
            "use an encoder such as BERT, MPNet, ModernBERT or XLM-RoBERTa",
        )
    known: Any = encoder
    return known if hasattr(known, "embedding_width") else embedder_class(known)


@dataclass(frozen=True)
class SentenceEmbedders:
    """Loads embedding models, as transformers' AutoModel classes load theirs.

    Attributes:
        pooling: for an encoder whose folder does not specify it; mean if left out.
        normalize: the same of the division by the length; yes if left out.
    """

    pooling: str | None = None
    normalize: bool | None = None

    __name__ = f"AutoModel{HEAD}"

    def _ready(self, config: PretrainedConfig, source: str) -> PretrainedConfig:
        """The configuration with its modules: the folder's own, otherwise the requested ones."""
        known = folder.modules_of(config)
        asked = {"pooling": self.pooling, "normalize": self.normalize}
        wanted: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if known is None:
            folder.set_modules(config, replace(folder.EmbeddingModules(), **wanted))
            return config
        other = {name: value for name, value in wanted.items() if getattr(known, name) != value}
        if other:
            told = ", ".join(f"embedding.{name}={value}" for name, value in other.items())
            own = ", ".join(f"{name} {getattr(known, name)}" for name in other)
            raise LimbeckError(
                f"{told}, and {source} is an embedding model with {own}",
                "leave it out: the setting is for encoders whose folder does not specify it",
            )
        return config

    def from_config(self, config: PretrainedConfig, **kwargs: Any) -> SentenceEmbedder:
        """A model with random weights."""
        build: Any = class_builder(_class_for(config))
        model: SentenceEmbedder = build(self._ready(config, "the model it starts from"), **kwargs)
        return model

    def from_pretrained(self, source: str, **kwargs: Any) -> Any:
        """A model from a folder or the Hub; with `output_loading_info` also the loading info.

        Raises:
            LimbeckError: no encoder, or modules that are not supported.
        """
        config = kwargs.pop("config", None) or embedding_config(source)
        found = _class_for(config)
        config = self._ready(config, f"model {source!r}")
        told = kwargs.pop("output_loading_info", False)
        loaded: Any = found.from_pretrained(
            source, config=config, output_loading_info=True, **kwargs
        )
        model, info = loaded
        if isinstance(model, SentenceEmbedder) and model.dense is not None:
            info["missing_keys"] = {*info["missing_keys"]} - _load_dense(model, source)
        return (model, info) if told else model


SENTENCE_EMBEDDERS = SentenceEmbedders()
"""Embedding models with the modules of their folders."""


def embedding_config(source: str) -> PretrainedConfig:
    """A checkpoint's configuration with the modules that its folder lists, if it lists any.

    Raises:
        LimbeckError: modules that are not supported.
    """
    return with_modules(AutoConfig.from_pretrained(source, trust_remote_code=False), source)


def with_modules(config: PretrainedConfig, source: str) -> PretrainedConfig:
    """The same configuration, with the modules that a folder lists, if it lists any.

    Raises:
        LimbeckError: modules that are not supported.
    """
    modules = folder.read_modules(source)
    if modules is not None:
        folder.set_modules(config, within_positions(modules, config))
    return config


def within_positions(
    modules: folder.EmbeddingModules, config: PretrainedConfig
) -> folder.EmbeddingModules:
    """The modules with as many tokens as an encoder has positions at most, as many where its folder names no number."""
    positions = positions_by_config(config)
    if positions is None:
        return modules
    return replace(modules, max_tokens=min(modules.max_tokens or positions, positions))


def _load_dense(model: SentenceEmbedder, source: str) -> set[str]:
    """Fill the linear map from its own files, multiplied if there are several; return the names of filled weights.

    Raises:
        LimbeckError: the files hold something else.
    """
    assert model.dense is not None
    files = folder.dense_files(source)
    if not files:  # an older copy of config.json without its folders: drawn again
        return set()
    weights: dict[str, Tensor] = {}
    for file in files:
        found = {key.removeprefix("linear."): value for key, value in load_file(file).items()}
        if weights:  # V(Wx + b) + c = VWx + (Vb + c)
            found = {key: value.float() for key, value in found.items()}
            if "bias" in weights:
                found["bias"] = found["weight"] @ weights["bias"].float() + found.get("bias", 0)
            found["weight"] = found["weight"] @ weights["weight"].float()
        weights = found
    own = {key: tuple(value.shape) for key, value in model.dense.state_dict().items()}
    if {key: tuple(value.shape) for key, value in weights.items()} != own:
        places = ", ".join(file.parent.name for file in files)
        raise LimbeckError(
            f"model {source!r}: {places} does not contain the weights that its config.json describes",
            "copy or download it again",
        )
    model.dense.load_state_dict(weights)
    return {f"dense.{key}" for key in weights}


# Comparison of two embeddings: by the cosine or the inner product, as the model specifies.


class Similarity(NamedTuple):
    """One way.

    Attributes:
        of_pairs: of embeddings (n, 2, d) the similarity of each two (n,).
        searched: of embeddings (n, d) vectors (n, d) whose inner products are the similarities.
    """

    of_pairs: Callable[[np.ndarray], np.ndarray]
    searched: Callable[[Tensor], Tensor]


def _products(pairs: np.ndarray) -> np.ndarray:
    found: np.ndarray = (pairs[:, 0] * pairs[:, 1]).sum(axis=-1)
    return found


def _cosines(pairs: np.ndarray) -> np.ndarray:
    """0 where one is zero."""
    lengths = np.linalg.norm(pairs, axis=-1).prod(axis=1)
    found = np.zeros(len(pairs))
    np.divide(_products(pairs), lengths, out=found, where=lengths > 0)
    return found


WAYS: Mapping[str, Similarity] = MappingProxyType(
    {
        folder.COSINE: Similarity(_cosines, lambda vectors: F.normalize(vectors, dim=-1)),
        folder.DOT: Similarity(_products, lambda vectors: vectors),
    }
)
"""By the name that a model's folder has for it."""


# Texts in lower case, if a model's folder specifies it and its tokenizer does not do it.


def in_lower_case(tokenizer: Any) -> Any:
    """A tokenizer that reads texts in lower case, as sentence-transformers makes one of `do_lower_case`.

    Special tokens stay as they are. A tokenizer that does it already, or is no fast one, stays as it is.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or _lowers(json.loads(backend.to_str())["normalizer"]):
        return tokenizer
    own = backend.normalizer
    backend.normalizer = Lowercase() if own is None else Sequence([Lowercase(), own])
    return tokenizer


def _lowers(normalizer: dict[str, Any] | None) -> bool:
    """Whether a written normalizer makes letters small."""
    if normalizer is None:
        return False
    parts = normalizer.get("normalizers", ())
    return (
        normalizer["type"] == "Lowercase"
        or normalizer.get("lowercase") is True
        or any(map(_lowers, parts))
    )
