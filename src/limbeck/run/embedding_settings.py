"""The task type of a run of embeddings: its models' prompts and the recipe's settings. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transformers import PretrainedConfig

from limbeck.embedding import modules_of
from limbeck.embedding.text_prompts import PASSAGE, QUERY, SENTENCE
from limbeck.errors import LimbeckError, Problem
from limbeck.recipe import Recipe
from limbeck.students import named_model, read_config
from limbeck.tasks import TaskType

_PROMPTS = {"prompt": SENTENCE, "query_prompt": QUERY, "passage_prompt": PASSAGE}
"""By setting, what the texts are that its prompt stands before."""


def embedding_kind(kind: TaskType, recipe: Recipe) -> TaskType:
    """The type with what the models and the recipe say of prompts, pooling and width.

    The prompts are the teacher's, or the student's own where the teacher is no embedding model.

    Raises:
        LimbeckError: a single word as a prompt, which would stick to each text's first one, and no prompt's name.
    """
    known: dict[str, str] = {}
    config = next((one for one in _configs(recipe) if modules_of(one) is not None), None)
    modules = None if config is None else modules_of(config)
    if config is not None and modules is not None:
        kind, known = kind.of_model(config), {k: v for k, v in modules.prompts.items() if v}
    own = recipe.embedding
    if own is None:
        return kind
    given = {key: getattr(own, key) for key in _PROMPTS if getattr(own, key) is not None}
    problems = [_unknown(key, text, known) for key, text in given.items() if _lost(text, known)]
    if problems:
        raise LimbeckError(problems)
    prompts = {_PROMPTS[key]: known.get(text, text) for key, text in given.items()}
    return kind.embedding_as(own.pooling, own.normalize, own.width, prompts)


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
