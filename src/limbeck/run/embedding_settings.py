"""The task type of a run of embeddings: what its models and the recipe's settings say. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from transformers import PretrainedConfig

from limbeck.embedding import modules_of
from limbeck.embedding.folder import COSINE, DOT, PASSAGE, QUERY, SENTENCE, EmbeddingModules
from limbeck.recipe import Recipe
from limbeck.recipe.groups import EmbeddingModelSpec
from limbeck.students import named_model, read_config
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TaskType

_PROMPTS = {"prompt": SENTENCE, "query_prompt": QUERY, "passage_prompt": PASSAGE}
"""By setting, what the texts are that its prompt stands before."""


def embedding_kind(kind: TaskType, recipe: Recipe) -> TaskType:
    """The type with what the models and the recipe say of prompts, pooling, width, tokens of a text and similarity.

    Prompts, tokens and similarity are the teacher's, or the student's own where the teacher is no embedding model.

    Raises:
        LimbeckError: a single word as a prompt, which would stick to each text's first one, and no prompt's name; more
            tokens than a model has positions, or than batches have.
    """
    known: dict[str, str] = {}
    configs = [*_configs(recipe)]
    config = next((one for one in configs if modules_of(one) is not None), None)
    modules = None if config is None else modules_of(config)
    if config is not None and modules is not None:
        kind, known = kind.of_model(config), {k: v for k, v in modules.prompts.items() if v}
    own = recipe.embedding or EmbeddingModelSpec.model_validate({})
    tokens = _max_tokens(recipe, own, modules, configs)
    given = {key: getattr(own, key) for key in _PROMPTS if getattr(own, key) is not None}
    problems = [_unknown(key, text, known) for key, text in given.items() if _lost(text, known)]
    if problems:
        raise LimbeckError(problems)
    prompts = {_PROMPTS[key]: known.get(text, text) for key, text in given.items()}
    usual = DOT if own.normalize is False else COSINE
    similarity = own.similarity or (usual if modules is None else modules.similarity)
    return kind.embedding_as(own.pooling, own.normalize, own.width, prompts, tokens, similarity)


def _max_tokens(
    recipe: Recipe,
    own: EmbeddingModelSpec,
    modules: EmbeddingModules | None,
    configs: Sequence[PretrainedConfig],
) -> int:
    """Tokens of a text that the student is scored with and shipped to read.

    Raises:
        LimbeckError: more than a model has positions, or than `pad_to` gives a batch.
    """
    found = [getattr(config, "max_position_embeddings", None) for config in configs]
    positions = min([one for one in found if isinstance(one, int) and one > 0], default=None)
    if own.max_tokens is not None and positions is not None and own.max_tokens > positions:
        raise LimbeckError(
            f"embedding.max_tokens {own.max_tokens} is beyond the {positions} positions of a model",
            f"set it to {positions} or less",
        )
    known = None if modules is None else modules.max_tokens
    if known is not None and positions is not None:
        known = min(known, positions)
    tokens = own.max_tokens or known or recipe.max_length
    width = recipe.padded_width
    if width is not None and width < tokens:
        raise LimbeckError(
            f"pad_to {width}: the student is scored with texts of up to {tokens} tokens, and shipped to read as many",
            f"set embedding.max_tokens={width}, raise pad_to, or leave it out",
        )
    return tokens


def _configs(recipe: Recipe) -> Iterator[PretrainedConfig]:
    """The configurations of the models that a run starts from, the teacher's first."""
    if recipe.lead is not None:
        yield read_config(recipe.lead)
    init = recipe.student.init
    if not recipe.student.from_teacher and init != "pocket" and named_model(init) is None:
        yield read_config(init)


def _lost(text: str, known: Mapping[str, str]) -> bool:
    """Whether a text is meant as a name that is none."""
    return text.isidentifier() and text not in known


def _unknown(key: str, text: str, known: Mapping[str, str]) -> Problem:
    return Problem(
        f"embedding.{key}: the model has no prompt {text!r} (it has {', '.join(known) or 'none'})",
        f"name one that it has, or give the whole text, as it stands before others: '{text}: '",
    )
