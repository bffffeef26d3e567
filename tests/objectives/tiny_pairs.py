"""Tiny random teacher–student pairs, a padded batch, and what Hugging Face itself says of them."""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers as hf

from limbeck.activations import Passes, Trace, capture
from limbeck.input_transforms import Mixture, Mixup, MixupSpec, StepInputs
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe, catalog
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher

VOCABULARY, PAD = 40, 0
LENGTHS = (7, 5, 3, 6)
# Tokens of the answers that an encoder–decoder writes.
ANSWERS = (2, 3, 1, 2)
CLASSES = 3
# pkd leaves its map to the user; this one asks little of the models.
GIVEN: dict[str, dict[str, Any]] = {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}
# Method and number of every stage that learns from a teacher.
TAUGHT = [
    (method, stage.number)
    for method in catalog.names()
    for stage in Recipe.load(method, **GIVEN.get(method, {})).stages()
    # Lists of candidates have their own tests: these models are of classes.
    if stage.recipe.needs_teacher and stage.recipe.kind != "pair-score"
]


@functools.cache
def bert(layers: int, width: int, seed: int, classes: int = CLASSES, heads: int = 2) -> Any:
    """A random BERT classifier in eval mode; the same one for the same arguments."""
    torch.manual_seed(seed)
    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=20,
        max_position_embeddings=32,
        num_labels=classes,
        # The usual 0.02 makes all layers of a tiny model nearly alike, and mistakes invisible.
        initializer_range=0.3,
    )
    return hf.BertForSequenceClassification(config).eval()


@functools.cache
def t5(layers: int, width: int, seed: int, heads: int = 2) -> Any:
    """A random T5 in eval mode, as deep in both stacks; the same one for the same arguments."""
    torch.manual_seed(seed)
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=width,
        d_kv=width // heads,
        d_ff=20,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=PAD,
    )
    return hf.T5ForConditionalGeneration(config).eval()


def answers(extra: int = 0, seed: int = 5) -> torch.Tensor:
    """Target tokens of the batch's four examples, for a T5: `labels` (B, T), padded with −100."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.full((len(ANSWERS), max(ANSWERS) + extra), -100)
    for row, length in enumerate(ANSWERS):
        labels[row, :length] = torch.randint(5, VOCABULARY, (length,), generator=generator)
    return labels


def batch(extra: int = 0, classes: int = CLASSES, seed: int = 5) -> dict[str, torch.Tensor]:
    """Four examples of different lengths, padded on the right, `extra` tokens more than needed."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(LENGTHS)
    tokens = torch.randint(5, VOCABULARY, (len(LENGTHS), longest), generator=generator)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
        tokens[row, length:] = PAD
    padding = (0, extra)
    labels = torch.tensor([0, 2, 1, 1]) if classes > 1 else torch.tensor([0.5, 3.0, 4.5, 1.0])
    return {
        "input_ids": torch.nn.functional.pad(tokens, padding, value=PAD),
        "attention_mask": torch.nn.functional.pad(mask, padding),
        "labels": labels,
        "index": torch.arange(len(LENGTHS)),
    }


def build(
    method: str, student: Any, teacher: Any, *, stage: int = -1, **overrides: Any
) -> Objectives:
    """The terms of a shipped recipe for two models; projections sampled with a fixed seed.

    `stage`: of a recipe of two, 1 for its first; the last one otherwise.
    """
    recipe = stage_recipe(method, stage, **overrides)
    torch.manual_seed(11)
    shape = Shape(ModelShape.of(student), ModelShape.of(teacher), rows=8)
    return Objectives(recipe.loss, shape)


def stage_recipe(method: str, stage: int = -1, **overrides: Any) -> Recipe:
    """The recipe of one stage alone."""
    stages = Recipe.load(method, **(GIVEN.get(method, {}) | overrides)).stages()
    return stages[stage - 1 if stage > 0 else stage].recipe


def traces(
    objectives: Objectives,
    student: Any,
    teacher: Any,
    examples: dict[str, torch.Tensor],
    step_state: StepState,
    mixture: Mixture | None = None,
) -> tuple[Trace, Trace]:
    """What both models answer to what the terms ask for, as in a training step."""
    asked = {s: objectives.request(s, step_state) for s in ("student", "teacher", "clean")}
    inputs = step_inputs(examples, mixture)
    told = Teacher(teacher)(inputs, asked["teacher"])
    run = functools.partial(capture, student)
    return inputs.of_student(student, asked["student"], asked["clean"], run, Passes()), told


def step_inputs(examples: dict[str, torch.Tensor], mixture: Mixture | None = None) -> StepInputs:
    """The inputs of a step, mixed as it is said."""
    return (
        StepInputs(examples)
        if mixture is None
        else StepInputs(examples, Mixup(MixupSpec()), mixture)
    )


def terms(
    objectives: Objectives,
    student: Any,
    teacher: Any,
    examples: dict[str, torch.Tensor],
    step_state: StepState | None = None,
    mixture: Mixture | None = None,
) -> dict[str, torch.Tensor]:
    """The named, unweighted terms of one step."""
    step_state = step_state or StepState()
    seen = traces(objectives, student, teacher, examples, step_state, mixture)
    return objectives(*seen, examples, step_state)
