"""Every method's terms on an accelerator are those of the processor: `pytest -m gpu`."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_pairs import TAUGHT, answers, batch, bert, build, stage_recipe, t5, traces

from accelerated import accelerator
from limbeck.input_transforms import Mixture
from limbeck.support.step_state import StepState


def step(method: str, number: int, device: torch.device) -> tuple[dict[str, float], list[float]]:
    """The terms' values, and the norm of the gradient of each of the student's weights."""
    recipe = stage_recipe(method, number)
    text = recipe.kind == "text"
    models = (t5(3, 8, seed=2), t5(12, 8, seed=1)) if text else (bert(3, 8, 2), bert(12, 8, 1))
    objectives = build(method, *models, stage=number).to(device)
    student, teacher = (copy.deepcopy(model).to(device) for model in models)
    examples = batch() | ({"labels": answers()} if text else {})
    examples = {name: value.to(device) for name, value in examples.items()}
    mixture = None
    if recipe.mixup is not None:
        mixture = Mixture(torch.tensor([1, 0, 3, 2], device=device), 0.7, recipe.mixup.at)
    step_state = StepState(seed=3, step=1, progress=0.5, passes=1.5)
    seen = traces(objectives, student, teacher, examples, step_state, mixture)
    terms = objectives(*seen, examples, step_state)
    objectives.total(terms, step_state).backward()
    gradients = [weight.grad for weight in student.parameters() if weight.grad is not None]
    return (
        {name: value.item() for name, value in terms.items()},
        [gradient.norm().item() for gradient in gradients],
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "number"), TAUGHT)
def test_terms_and_gradients_are_the_processor_s(method, number):
    values, gradients = step(method, number, accelerator())
    expected, expected_gradients = step(method, number, torch.device("cpu"))
    assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert gradients == pytest.approx(expected_gradients, rel=1e-3, abs=1e-5)
