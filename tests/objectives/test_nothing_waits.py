"""A step neither asks the device for a number nor sends it one: either would stop an accelerator.

Shown on PyTorch's `meta` device, whose tensors have shapes and no numbers: to read one raises. What
is sent there is counted. Both models' passes are part of it; the batch is there already, as the
Trainer brings it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from tiny_pairs import GIVEN, TAUGHT, batch, bert, t5

from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.input_transforms import StepInputs
from limbeck.objectives import ModelShape, Objectives, Shape, TeamObjectives
from limbeck.recipe import Recipe
from limbeck.support.step_state import StepState
from limbeck.tasks import get_task_type
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import EnsembleTeam, SampledTeam, SamplingProbabilities
from limbeck.training.step import Distiller
from numberless import META, numbers_are_told_apart
from quick_cases import ONE_OF_A_KIND

# Layers of the teacher where a recipe names one that six do not have.
DEEP = {"pkd-12": 12}


def recipe_of(method: str, number: int) -> Recipe:
    return Recipe.load(method, **GIVEN.get(method, {})).stages()[number - 1].recipe


def different() -> Iterator[tuple[str, int]]:
    """Every stage that learns from a teacher; of those that are the same to a step, the first."""
    seen = []
    for method, number in TAUGHT:
        recipe = recipe_of(method, number)
        use = recipe.team and recipe.team.use
        steps = (recipe.kind, use, recipe.objectives, recipe.curriculum, recipe.mixup)
        if steps not in seen:
            seen.append(steps)
            yield method, number


def on_meta(model):
    return copy.deepcopy(model).to(META)


def of_kind(kind: str | None, layers: int, seed: int):
    if kind == "text":
        return on_meta(t5(layers, 8, seed))
    model = bert(layers, 8, seed)
    return on_meta(SENTENCE_EMBEDDERS.from_config(model.config) if kind == "embedding" else model)


def examples(kind: str | None) -> dict[str, torch.Tensor]:
    given = batch()
    if kind == "text":
        given["labels"] = torch.tensor([[5, 6, 1], [7, 1, -100], [8, 1, -100], [9, 5, 1]])
    if kind == "embedding":
        given |= {"query_id": torch.zeros(4).long(), "grade": torch.ones(4)}
    return {name: value.to(META) for name, value in given.items()}


def teaching(recipe: Recipe) -> tuple[Teacher | EnsembleTeam | SampledTeam, list[Teacher]]:
    """Whoever teaches by a recipe, and of how many."""
    layers = DEEP.get(recipe.method, 6)
    if recipe.team is None or recipe.team.use == "chain":
        teacher = Teacher(of_kind(recipe.kind, layers, seed=1))
        return teacher, [teacher]
    members = [Teacher(of_kind(recipe.kind, layers, seed)) for seed in (1, 3)]
    if recipe.team.use == "ensemble":
        return EnsembleTeam(members, ("a", "b"), [0.6, 0.4]), members
    return SampledTeam(members, ("a", "b"), SamplingProbabilities([0.5, 0.5])), members


def terms_of(recipe: Recipe, student, team, members) -> Objectives | TeamObjectives:
    kind = get_task_type(recipe.kind or "sentence")
    shapes = [
        Shape(ModelShape.of(student), ModelShape.of(member.model), kind=kind, rows=8)
        for member in members
    ]
    if getattr(team, "separate", False):
        return TeamObjectives(recipe.loss, shapes, team.names)
    return Objectives(recipe.loss, shapes[0])


def fetch_costs(patch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Transport is solved on the processor: it is given equal costs and masses of 3 and 6 layers.

    Returns the sizes of what was asked for; anything else that is asked for raises.
    """
    asked: list[torch.Size] = []
    at_home = torch.Tensor.cpu

    def cpu(packed: torch.Tensor) -> torch.Tensor:
        if packed.device != META:
            return at_home(packed)
        assert packed.shape == (3 * 6 + 3 + 6,)
        asked.append(packed.shape)
        return torch.cat([torch.ones(18), torch.full((3,), 1 / 3), torch.full((6,), 1 / 6)])

    patch.setattr(torch.Tensor, "cpu", cpu)
    return asked


@pytest.mark.parametrize(
    ("method", "number"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case[0] not in ONE_OF_A_KIND))
        for case in different()
    ],
)
def test_a_step_asks_and_sends_nothing(method, number, monkeypatch):
    recipe = recipe_of(method, number)
    student = of_kind(recipe.kind, 3, seed=2).train()
    teacher, members = teaching(recipe)
    terms = terms_of(recipe, student, teacher, members)
    # When layers were left early is read once a change: it stays here.
    (terms if recipe.curriculum is None else terms.terms).to(META)
    distiller = Distiller(student, terms, kind=get_task_type(recipe.kind or "sentence"))
    given = examples(recipe.kind)

    def step(step_state: StepState) -> None:
        inputs = StepInputs.of(given, recipe.transform, step_state, META)
        answering = teacher.at(step_state)
        distiller(inputs, step_state=step_state, teacher=answering)["loss"].backward()

    with numbers_are_told_apart() as sent:
        fetched = fetch_costs(monkeypatch)
        step(StepState())  # what is sent once and kept
        sent.clear()
        fetched.clear()
        step(StepState(step=1, teacher=len(members) - 1, progress=0.5))
    transported = [
        name
        for name, spec in recipe.objectives.items()
        if getattr(getattr(spec, "mapping", None), "kind", None) == "transport"
    ]
    transporting = method in ("bert-emd", "bert-emd-released", "emd-ild")
    assert bool(transported) == (transporting and number == 1)
    assert len(fetched) == len(transported)
    assert sent == ["_to_copy"] * len(transported)
