"""A step neither asks the device for a number nor sends it one: either would stop an accelerator.

Shown on PyTorch's `meta` device, whose tensors have shapes and no numbers: to read one raises. What
is sent there is counted. Both models' passes are part of it; the batch is there already, as the
Trainer brings it.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers.masking_utils
from tiny_pairs import GIVEN, batch, bert, t5
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from limbeck import catalog
from limbeck.engine.distiller import Distiller
from limbeck.kinds import KINDS
from limbeck.mixup import draw
from limbeck.moment import Moment
from limbeck.objectives import ModelShape, Objectives, Shape, TeamObjectives
from limbeck.recipe import Recipe
from limbeck.teachers import Teacher
from limbeck.teams import Chances, Drawn, Together

META = torch.device("meta")
STAGES = [
    (method, stage.number)
    for method in catalog.names()
    for stage in Recipe.load(method, **GIVEN.get(method, {})).stages()
    if stage.recipe.needs_teacher
]


class Sent(TorchFunctionMode):
    """Names what makes tensors of the device out of the host's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        made = function in (torch.tensor, torch.as_tensor)
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            made = any(isinstance(place, list | np.ndarray) for place in places)
        if made and isinstance(out, torch.Tensor) and out.device == META:
            self.found.append(function.__name__)
        return out


class Crossing(TorchDispatchMode):
    """Names what reads tensors of the host, but for single numbers, and answers on the device."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        read = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        at_home = [value for value in read if value.device != META and value.dim() > 0]
        if at_home and any(o.device == META for o in tree_leaves(out) if o is not None):
            self.found.append(function.overloadpacket.__name__)
        return out


@contextmanager
def numbers_are_told_apart():
    """Reading raises; sending is named. Three things are as on no accelerator:

    transformers asks of a mask whether all of it is real, but not where a graph is recorded; and
    this device has neither generators nor autocast.
    """
    autocast = torch.autocast
    with pytest.MonkeyPatch.context() as patch, Sent() as sent, Crossing(sent.found):
        patch.setattr(transformers.masking_utils, "is_tracing", lambda *_: True)
        patch.setattr(Moment, "device_generator", lambda *_: None)
        patch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        patch.setattr(torch, "autocast", lambda *_, **__: autocast("cpu", enabled=False))
        yield sent.found


def on_meta(model):
    return copy.deepcopy(model).to(META)


def of_kind(kind: str | None, layers: int, seed: int):
    return on_meta(t5(layers, 8, seed) if kind == "text" else bert(layers, 8, seed))


def examples(kind: str | None) -> dict[str, torch.Tensor]:
    given = batch()
    if kind == "text":
        given["labels"] = torch.tensor([[5, 6, 1], [7, 1, -100], [8, 1, -100], [9, 5, 1]])
    return {name: value.to(META) for name, value in given.items()}


def teaching(recipe: Recipe) -> tuple[Teacher | Together | Drawn, list[Teacher]]:
    """Whoever teaches by a recipe, and of how many."""
    if recipe.team is None or recipe.team.use == "chain":
        teacher = Teacher(of_kind(recipe.kind, 12, seed=1))
        return teacher, [teacher]
    members = [Teacher(of_kind(recipe.kind, 12, seed)) for seed in (1, 3)]
    if recipe.team.use == "together":
        return Together(members, ("a", "b"), [0.6, 0.4]), members
    return Drawn(members, ("a", "b"), Chances([0.5, 0.5])), members


def terms_of(recipe: Recipe, student, team, members) -> Objectives | TeamObjectives:
    kind = KINDS[recipe.kind or "sentence"]
    shapes = [
        Shape(ModelShape.of(student), ModelShape.of(member.model), kind=kind, rows=8)
        for member in members
    ]
    if getattr(team, "separate", False):
        return TeamObjectives(recipe.objectives, shapes, team.names)
    return Objectives(recipe.objectives, shapes[0], recipe.curriculum)


def fetch_costs(patch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Transport is solved on the processor: it is given equal costs and masses of 3 and 12 layers.

    Returns the sizes of what was asked for; anything else that is asked for raises.
    """
    asked: list[torch.Size] = []

    def cpu(packed: torch.Tensor) -> torch.Tensor:
        assert packed.shape == (3 * 12 + 3 + 12,)
        asked.append(packed.shape)
        return torch.cat([torch.ones(36), torch.full((3,), 1 / 3), torch.full((12,), 1 / 12)])

    patch.setattr(torch.Tensor, "cpu", cpu)
    return asked


@pytest.mark.parametrize(("method", "number"), STAGES)
def test_a_step_asks_and_sends_nothing(method, number, monkeypatch):
    recipe = Recipe.load(method, **GIVEN.get(method, {})).stages()[number - 1].recipe
    student = of_kind(recipe.kind, 3, seed=2).train()
    teacher, members = teaching(recipe)
    terms = terms_of(recipe, student, teacher, members)
    # When layers were left early is read once a change: it stays here.
    (terms if recipe.curriculum is None else terms.terms).to(META)
    distiller = Distiller(student, terms, kind=KINDS[recipe.kind or "sentence"])
    given = examples(recipe.kind)

    def step(moment: Moment) -> None:
        mixture = recipe.mixup and draw(recipe.mixup, 4, moment, META)
        trace = teacher.at(moment)(given, terms.request("teacher", moment), mixture)
        loss = distiller(moment=moment, teacher=trace, mixture=mixture, **given)["loss"]
        loss.backward()

    with numbers_are_told_apart() as sent:
        fetched = fetch_costs(monkeypatch)
        step(Moment())  # what is sent once and kept
        sent.clear()
        fetched.clear()
        step(Moment(step=1, teacher=len(members) - 1, progress=0.5))
    transported = [
        name
        for name, spec in recipe.objectives.items()
        if getattr(getattr(spec, "mapping", None), "kind", None) == "transport"
    ]
    assert bool(transported) == (method in ("bert-emd", "emd-ild") and number == 1)
    assert len(fetched) == len(transported)
    assert sent == ["_to_copy"] * len(transported)


def test_the_device_tells_what_is_asked_and_sent():
    """The oracle itself can fail."""
    numbers = torch.ones(3, device=META)
    with numbers_are_told_apart() as sent:
        for ask in (numbers.sum().item, numbers.tolist, numbers.nonzero, numbers.cpu):
            with pytest.raises((NotImplementedError, RuntimeError), match="[Mm]eta"):
                ask()
        with pytest.raises((NotImplementedError, RuntimeError), match="[Mm]eta"):
            numbers[numbers > 0]
        assert not sent
        for send in (
            lambda: torch.tensor([1.0, 2.0], device=META),
            lambda: torch.arange(3).to(META),
            lambda: numbers[[0, 2]],
        ):
            before = len(sent)
            send()
            assert len(sent) > before
