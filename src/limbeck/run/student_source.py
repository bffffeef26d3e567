"""Where a recipe's student starts: what its model is built from, and the tokenizer it reads with.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from limbeck.recipe import Recipe
from limbeck.students import (
    BERT_VOCABULARY,
    NAMED_CNNS,
    RANDOM,
    TOY_MODELS,
    NamedModel,
    ToyModels,
    named_model,
    names_cnn,
    read_config,
    read_processor,
    read_tokenizer,
)
from limbeck.support.errors import LimbeckError
from limbeck.tasks import IMAGE, TEXT_READING, Processor, Task
from limbeck.vision import image_processor, side_of, with_side


@dataclass(frozen=True)
class Start:
    """What `build_student` starts from, and what makes its input."""

    init: str | PretrainedConfig
    tokenizer: Processor


def start_of(recipe: Recipe, task: Task) -> Start:
    """The student's start as the recipe has it, names of shapes resolved.

    The tokenizer is `student.tokenizer`, or that of the weights; with random weights the pocket
    tokenizer for pocket models and pocket data, else BERT's.

    Raises:
        LimbeckError: no such shape, or what the Hub or a folder cannot give.
    """
    _check_form(recipe, task)
    init, given = recipe.student.init, recipe.student.tokenizer
    if task.kind.reads is not TEXT_READING:
        return _picture_start(recipe, task)
    if init == "pocket":
        return _toy_start(task, given)
    named = named_model(init)
    if named is None:
        source = str(recipe.lead if recipe.student.from_teacher else init)
        read_config(source)  # What is wrong with a model says more than its missing tokenizer.
        return Start(init, _read(given) or read_tokenizer(source))
    if named.family == "pocket":
        shape = {"layers": named.layers, "width": named.width, "heads": named.heads}
        return _toy_start(task, given, **shape)
    if not named.random:
        return _from_hub(named, given)
    if recipe.data == "pocket" and given is None:
        tokenizer = _toys().tokenizer_of(task)
    else:
        tokenizer = _vocabulary(given or BERT_VOCABULARY, named)
    return Start(named.config(tokenizer), tokenizer)


def _toys() -> ToyModels:
    return TOY_MODELS.get("pocket", "student.init:")


def _toy_start(task: Task, given: str | None, **shape: int) -> Start:
    return Start(_toys().config_of(task, **shape), _read(given) or _toys().tokenizer_of(task))


def _check_form(recipe: Recipe, task: Task) -> None:
    """Raise for a student of its own name that reads something else than the task's rows."""
    init, wanted = recipe.student.init, task.kind.reads.name
    if names_cnn(init):
        form, others = IMAGE.reads.name, "pocket, or a shape such as bert-8-128-2"
    elif init == "pocket" or named_model(init) is not None:
        form, others = TEXT_READING.name, "one of " + ", ".join(NAMED_CNNS)
    else:
        return
    if form != wanted:
        raise LimbeckError(
            f"student.init: {init} reads {form}, and the rows of {task.name} are {wanted}",
            f"start from a checkpoint that reads them, or from {others}",
        )


def _picture_start(recipe: Recipe, task: Task) -> Start:
    """A named CNN reads as its teacher does."""
    init = recipe.student.init
    if not names_cnn(init):
        source = recipe.lead if recipe.student.from_teacher else init
        return Start(init, processor_of(recipe, task, str(source)))
    if recipe.lead is not None:
        processor = processor_of(recipe, task, recipe.lead)
    else:
        own = image_processor(task.image_traits.side, task.image_traits.normalisation)
        processor = _at_size(recipe, own)
    return Start(NAMED_CNNS.get(init).config(image_size=side_of(processor)[0]), processor)


def processor_of(recipe: Recipe, task: Task, source: str) -> Processor:
    """What makes a model's input: of a run, a checkpoint's folder or a Hub name.

    Raises:
        LimbeckError: there is none to read.
    """
    return _at_size(recipe, read_processor(source, task.kind.reads))


def _at_size(recipe: Recipe, processor: Processor) -> Processor:
    size = None if recipe.images is None else recipe.images.size
    return processor if size is None else with_side(processor, size)


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
