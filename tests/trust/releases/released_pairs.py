"""A tiny teacher and student whose weights are written down, so that any code can be given them.

What released code made of them stands in `released_numbers.py`, with how it was obtained.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from limbeck.input_transforms import Mixture, StepInputs
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE
from limbeck.teachers.teacher import Teacher
from limbeck.training.step import Distiller

WIDTH, ROWS = 12, 4
LENGTHS = (9, 6, 4, 7)
SHARE = 0.7
# The middle of a run of 20 epochs.
MOMENT = StepState(seed=0, epoch=10, step=100, progress=0.5, passes=10.0)
# Gradients that are looked at; the map between the sides has TinyBERT's name for it.
TENSORS = (
    "bert.embeddings.word_embeddings.weight",
    "bert.encoder.layer.0.attention.self.query.weight",
    "bert.encoder.layer.1.output.dense.weight",
    "classifier.weight",
    "fit_dense.weight",
    "fit_dense.bias",
)


def waves(shape: torch.Size | tuple[int, ...], start: float) -> Tensor:
    """sin(1.3 n + start) for n = 0, 1, …, computed by Python and so the same everywhere."""
    numbers = [math.sin(1.3 * n + start) for n in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape).float()


def bert(layers: int, classes: int, *, loud: bool = False) -> BertForSequenceClassification:
    """A BERT without dropout; `loud`: with attention scores far below −100."""
    config = BertConfig(
        vocab_size=20,
        hidden_size=12,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=classes,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = waves(weight.shape, sum(map(ord, name)) + layers)
            centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            weight.copy_(centre + (0.1 if weight.dim() == 1 else 0.4) * values)
            if loud and "query.weight" in name:
                weight.mul_(30)
    return model


class Written:
    """Both models, the map between them, and a padded batch."""

    def __init__(
        self, classes: int = 3, *, loud: bool = False, depths: tuple[int, int] = (4, 2)
    ) -> None:
        self.teacher = bert(depths[0], classes, loud=loud).eval()
        self.student = bert(depths[1], classes, loud=loud)
        self.weight, self.bias = 0.3 * waves((12, 12), 5.0), 0.1 * waves((12,), 6.0)
        ids = torch.zeros(ROWS, WIDTH, dtype=torch.int64)
        for row, length in enumerate(LENGTHS):
            for n in range(length):
                ids[row, n] = 1 + (7 * row + 5 * n) % 19
        labels = torch.tensor([0, 2, 1, 1]) if classes > 1 else torch.tensor([0.5, 3.0, 4.5, 1.0])
        self.batch = {
            "input_ids": ids,
            "token_type_ids": ((ids > 0) & (torch.arange(WIDTH) > 2)).long(),
            "attention_mask": (ids > 0).long(),
            "labels": labels,
            "index": torch.arange(ROWS),
        }

    @property
    def regression(self) -> bool:
        return self.student.config.num_labels == 1


@functools.cache
def found(
    method: str, stage: int, classes: int, loud: bool, depths: tuple[int, int] = (4, 2)
) -> dict[str, float]:
    """Loss and gradients of a stage (from 0) of a recipe, as `summary` tells them."""
    pair = Written(classes, loud=loud, depths=depths)
    recipe = Recipe.load(method).stages()[stage].recipe
    shape = Shape(ModelShape.of(pair.student), ModelShape.of(pair.teacher), rows=ROWS)
    objectives = Objectives(recipe.loss, shape)
    with torch.no_grad():
        for name, value in objectives.named_parameters():
            value.copy_(pair.weight if name.endswith("weight") else pair.bias)
    distiller = Distiller(pair.student, objectives, kind=SENTENCE).train()
    inputs = StepInputs(pair.batch)
    if recipe.mixup is not None:
        drawn = Mixture(torch.arange(ROWS - 1, -1, -1), SHARE, recipe.mixup.at)
        inputs = StepInputs(pair.batch, recipe.transform, drawn)
    loss = distiller(inputs, step_state=MOMENT, teacher=Teacher(pair.teacher))["loss"]
    loss.backward()
    gradients = {}
    for name, value in distiller.named_parameters():
        place = f"fit_dense.{name.rsplit('.', 1)[1]}" if ".projections." in name else name
        gradients[place.removeprefix("student.")] = value.grad
    return summary(loss.item(), gradients)


def summary(loss: float, gradients: dict[str, Tensor | None]) -> dict[str, float]:
    """The loss; of some gradients the length, and how far they point along a wave."""
    told = {"loss": loss}
    for name in TENSORS:
        gradient = gradients.get(name)
        if gradient is not None and gradient.abs().max() > 0:
            values = gradient.double()
            told[f"{name} length"] = float(values.norm())
            told[f"{name} along"] = float((values * waves(values.shape, 1.0)).sum())
    return told
