"""Where a recipe's student starts: what its model is built from, and the tokenizer it reads with.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from limbeck.data import Task, pocket
from limbeck.errors import LimbeckError
from limbeck.recipe import Recipe
from limbeck.students import (
    BERT_VOCABULARY,
    RANDOM,
    NamedModel,
    named_model,
    read_config,
    read_tokenizer,
)


@dataclass(frozen=True)
class Start:
    """What `build_student` starts from, and its tokenizer."""

    init: str | PretrainedConfig
    tokenizer: PreTrainedTokenizerBase


def start_of(recipe: Recipe, task: Task) -> Start:
    """The student's start as the recipe has it, names of shapes resolved.

    The tokenizer is `student.tokenizer`, or that of the weights; with random weights the pocket
    tokenizer for pocket models and pocket data, else BERT's.

    Raises:
        LimbeckError: no such shape, or what the Hub or a folder cannot give.
    """
    init, given = recipe.student.init, recipe.student.tokenizer
    if init == "pocket":
        return Start(pocket.config_of(task), _read(given) or pocket.tokenizer_of(task))
    named = named_model(init)
    if named is None:
        source = str(recipe.lead if init in ("teacher", "fresh") else init)
        read_config(source)  # What is wrong with a model says more than its missing tokenizer.
        return Start(init, _read(given) or read_tokenizer(source))
    if named.family == "pocket":
        shape = {"layers": named.layers, "width": named.width, "heads": named.heads}
        return Start(pocket.config_of(task, **shape), _read(given) or pocket.tokenizer_of(task))
    if not named.random:
        return _from_hub(named, given)
    own = pocket.tokenizer_of(task) if recipe.data == "pocket" and given is None else None
    tokenizer = own or _vocabulary(given or BERT_VOCABULARY, named)
    return Start(named.config(tokenizer), tokenizer)


def _read(given: str | None) -> PreTrainedTokenizerBase | None:
    return None if given is None else read_tokenizer(given)


def _from_hub(named: NamedModel, given: str | None) -> Start:
    repository = str(named.repository)
    try:
        read_config(repository)
        return Start(repository, read_tokenizer(given or repository))
    except LimbeckError as error:
        raise LimbeckError(
            f"student.init: {named.name} is {repository} on the Hub: {error.problems[0].message}",
            "check the network and HF_HUB_OFFLINE, give a folder with a copy of it in place of "
            f"the name, or take random weights: {named.name}{RANDOM}",
        ) from error


def _vocabulary(source: str, named: NamedModel) -> PreTrainedTokenizerBase:
    try:
        return read_tokenizer(source)
    except LimbeckError as error:
        raise LimbeckError(
            f"student.init: {named.name}{RANDOM} has random weights and needs a tokenizer: "
            f"{error.problems[0].message}",
            "name one: student.tokenizer=FOLDER, a folder that holds a tokenizer or any "
            "checkpoint's or run's",
        ) from error
