"""What stands behind an encoder and makes its tokens one vector. Part of `limbeck.embedding`.

Kept in the model's configuration, so that it goes wherever the configuration goes: into students, fingerprints
and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from transformers import PretrainedConfig

from limbeck.embedding.text_prompts import TextPrompts, named_prompts, prompts_of
from limbeck.functional.hidden import POOLINGS
from limbeck.support.errors import LimbeckError, unknown

ENTRY = "sentence_embedding"
"""The entry of a configuration that holds them."""
COSINE, DOT = "cosine", "dot"
SIMILARITIES = (COSINE, DOT)
"""How embeddings may be compared, by sentence-transformers' names: by the cosine or the inner product."""


@dataclass(frozen=True)
class DenseModule:
    """A linear map of the pooled vector that is shipped with the model.

    Attributes:
        width: numbers that it puts out.
        bias: whether it adds a learned vector.
        activation: the name of torch's module behind it: Identity, Tanh, ReLU or GELU.
    """

    width: int
    bias: bool = True
    activation: str = "Identity"


@dataclass(frozen=True)
class EmbeddingModules:
    """Pooling and what follows it, in the order in which it runs.

    Attributes:
        pooling: which tokens speak for a text: mean, cls or last.
        normalize: whether the embedding is divided by its length.
        dense: a linear map before that, if there is one.
        prompts: texts to put before a text, by the name of what it is for.
        default_prompt: the name of the one that is used unasked, of texts that are neither queries nor passages.
        max_tokens: tokens that are read of a text; None where nobody says.
        similarity: how embeddings are compared: cosine or dot.
        lower_case: whether texts are read in lower case, whatever the tokenizer does.
        truncate: how many numbers of an embedding are kept, the first ones, after all else; None for all.
    """

    pooling: str = "mean"
    normalize: bool = True
    dense: DenseModule | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_tokens: int | None = None
    similarity: str = COSINE
    lower_case: bool = False
    truncate: int | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise LimbeckError(unknown("pooling", self.pooling, POOLINGS))
        if self.similarity not in SIMILARITIES:
            raise LimbeckError(unknown("similarity", self.similarity, SIMILARITIES))

    @property
    def text_prompts(self) -> TextPrompts:
        """What is put before sentences, queries and passages."""
        return prompts_of(self.prompts, self.default_prompt)

    def prompted(self, prompts: TextPrompts) -> EmbeddingModules:
        """The same with these, under the names that sentence-transformers looks for."""
        named, default = named_prompts(prompts, self.prompts)
        return replace(self, prompts=named, default_prompt=default)

    def written(self) -> dict[str, Any]:
        """As a configuration keeps it."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> EmbeddingModules:
        """From what `written` gave.

        Raises:
            LimbeckError: it is something else.
        """
        try:
            dense = content.get("dense")
            return cls(**{**content, "dense": None if dense is None else DenseModule(**dense)})
        except (TypeError, AttributeError) as error:
            raise LimbeckError(
                f"config.json: {ENTRY} is not as limbeck writes it ({error})",
                "take the entry out: modules.json beside it says what it said",
            ) from error


def modules_of(config: PretrainedConfig) -> EmbeddingModules | None:
    """What a configuration says of its embeddings; None where it is no embedding model's."""
    content = getattr(config, ENTRY, None)
    return EmbeddingModules.read(content) if isinstance(content, Mapping) else None


def set_modules(config: PretrainedConfig, modules: EmbeddingModules) -> None:
    """Write the modules into a configuration."""
    setattr(config, ENTRY, modules.written())
