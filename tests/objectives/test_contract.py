"""What every shipped recipe promises, whatever the models: padding, masks, half precision, families.

One table names the settings of each recipe. A recipe that is not in it fails here, so none escapes.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import transformers as hf

from limbeck import catalog
from limbeck.capture import capture
from limbeck.moment import Moment
from limbeck.objectives import LayerMatch, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.teachers import Teacher

VOCABULARY, PAD, CLASSES = 40, 1, 3
LENGTHS = (6, 4, 5)

# What a recipe needs besides its name; all of them are listed.
SETTINGS: dict[str, dict[str, Any]] = {
    "alp-kd": {},
    "alp-no": {},
    "alp-po": {},
    "ckd-no": {},
    "ckd-po": {},
    "distilbert": {},
    "finetune": {},
    "kd": {},
    "kd-soft": {},
    "pkd": {"objectives.patience.mapping.layers": {1: 4}},
    "pkd-1": {},
    "pkd-12": {},
    "pkd-6": {},
    "pkd-first": {},
    "pkd-last": {},
    "pkd-skip": {},
    "rail-kd-c": {},
    "rail-kd-l": {},
}


@functools.cache
def model(family: str, layers: int, width: int, seed: int) -> Any:
    """A tiny random classifier of a family, in eval mode."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "num_labels": CLASSES, "pad_token_id": PAD}
    sizes |= {"max_position_embeddings": 32, "initializer_range": 0.2}
    if family == "distilbert":
        config = hf.DistilBertConfig(
            **sizes, dim=width, n_layers=layers, n_heads=2, hidden_dim=2 * width
        )
        return hf.DistilBertForSequenceClassification(config).eval()
    sizes |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 2 * width}
    if family == "roberta":
        return hf.RobertaForSequenceClassification(hf.RobertaConfig(**sizes)).eval()
    return hf.BertForSequenceClassification(hf.BertConfig(**sizes)).eval()


# (teacher), (student): family, layers, width.
PAIRS = {
    "RoBERTa to DistilRoBERTa": (("roberta", 12, 8), ("roberta", 6, 8)),
    "BERT to DistilBERT": (("bert", 12, 8), ("distilbert", 6, 8)),
    "24 to 6 layers, narrower": (("roberta", 24, 12), ("bert", 6, 8)),
}


class Step:
    """One recipe on one pair of models."""

    def __init__(self, method: str, pair: str) -> None:
        (teacher, student) = PAIRS[pair]
        self.student = model(*student, seed=1)
        self.teacher = Teacher(model(*teacher, seed=0))
        recipe = Recipe.load(method, **SETTINGS[method])
        torch.manual_seed(2)
        shape = Shape(ModelShape.of(self.student), ModelShape.of(self.teacher.model))
        self.objectives = Objectives(recipe.objectives, shape)
        self.moment = Moment(seed=3, epoch=1)

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        request = self.objectives.request
        student = capture(self.student, batch, request("student", self.moment))
        teacher = self.teacher(batch, request("teacher", self.moment))
        return self.objectives(student, teacher, batch, self.moment)

    def gradients(self, found: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Of the weighted total, for every weight it reaches."""
        weights = [*self.student.parameters(), *self.objectives.parameters()]
        total = self.objectives.total(found, self.moment)
        gradients = torch.autograd.grad(total, weights, allow_unused=True)
        return [gradient for gradient in gradients if gradient is not None]


def batch(tokens: int = max(LENGTHS), examples: int = len(LENGTHS)) -> dict[str, torch.Tensor]:
    """The first `examples`, padded to `tokens`."""
    generator = torch.Generator().manual_seed(5)
    text = torch.randint(5, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    ids = torch.full((examples, tokens), PAD)
    mask = torch.zeros(examples, tokens, dtype=torch.long)
    for row, length in enumerate(LENGTHS[:examples]):
        ids[row, :length] = text[row, :length]
        mask[row, :length] = 1
    labels = torch.tensor([0, 2, 1])[:examples]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


every_recipe = pytest.mark.parametrize("method", catalog.names())
every_pair = pytest.mark.parametrize("pair", PAIRS)


def test_every_recipe_is_listed():
    assert sorted(catalog.names()) == sorted(SETTINGS), "list the recipe in SETTINGS above"


@every_pair
@every_recipe
def test_padding_to_twice_the_length_changes_no_term(method, pair):
    step = Step(method, pair)
    with torch.no_grad():
        short, long = step(batch()), step(batch(2 * max(LENGTHS)))
    assert list(short) == list(step.objectives.weights)
    for name, value in short.items():
        assert value.shape == () and value.isfinite()
        torch.testing.assert_close(long[name], value, rtol=0, atol=1e-5, msg=name)


@every_pair
@every_recipe
def test_a_fully_masked_example_adds_nothing_and_breaks_nothing(method, pair):
    step = Step(method, pair)
    masked = batch()
    masked["attention_mask"][-1] = 0
    found, without = step(masked), step(batch(examples=2))
    for name, value in found.items():
        assert value.isfinite(), name
        if isinstance(step.objectives[name], LayerMatch):
            torch.testing.assert_close(value, without[name] * 2 / 3, rtol=1e-4, atol=1e-6, msg=name)
    assert all(gradient.isfinite().all() for gradient in step.gradients(found))


@every_pair
@every_recipe
def test_under_autocast_terms_stay_float32_and_gradients_finite(method, pair):
    step = Step(method, pair)
    with torch.autocast("cpu", torch.bfloat16):
        found = step(batch())
    with torch.no_grad():
        exact = step(batch())
    for name, value in found.items():
        assert value.dtype == torch.float32 and value.isfinite(), name
        # bfloat16 keeps 8 bits, and a dozen layers add up.
        torch.testing.assert_close(value, exact[name], rtol=0.1, atol=0.05, msg=name)
    gradients = step.gradients(found)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)
