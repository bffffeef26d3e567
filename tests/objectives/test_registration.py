"""Terms made known by name from outside the package: recipes, traits and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
import torch
from pydantic import Field
from tiny_pairs import batch, bert, terms

import limbeck
from limbeck.objectives import OBJECTIVES, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test registers is gone behind it."""
    known = dict(OBJECTIVES._known)
    yield
    OBJECTIVES._known = known


class GapSettings(limbeck.TermSettings):
    """How far the student may be off."""

    free: float = Field(0.0, ge=0, description="what is not counted")


def registered(name: str = "gap", **traits: object) -> type[limbeck.Objective]:
    class Gap(limbeck.Objective):
        """The mean distance of logits."""

        settings: GapSettings

        def forward(self, student, teacher, batch, step_state):
            """Logits (B, C)."""
            return ((student.logits - teacher.logits).abs() - self.settings.free).clamp(0).mean()

    for trait, value in traits.items():
        setattr(Gap, trait, value)
    return limbeck.objective(name, settings=GapSettings)(Gap)


def problems_of(**overrides: object) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("kd", **overrides)
    return [str(problem) for problem in caught.value.problems]


def test_a_registered_term_is_a_term_of_recipes(tmp_path):
    registered()
    recipe = Recipe.load(
        "kd", **{"objectives.gap": {"compare": "gap", "free": 0.5, "weight": "1/3"}}
    )
    assert recipe.objectives["gap"] == GapSettings(free=0.5, weight=1 / 3)
    assert recipe.objectives["gap"].compare == "gap"  # of settings that one term has
    file = tmp_path / "own.yaml"
    file.write_text(recipe.to_yaml(), encoding="utf-8")
    assert Recipe.load(file) == recipe
    student, teacher = bert(2, 8, 1), bert(4, 8, 0)
    shape = Shape(ModelShape.of(student), ModelShape.of(teacher))
    found = terms(Objectives(recipe.loss, shape), student, teacher, batch())
    with torch.no_grad():
        examples = {k: v for k, v in batch().items() if k in ("input_ids", "attention_mask")}
        logits = student(**examples).logits, teacher(**examples).logits
    expected = [
        max(0.0, abs(ours - theirs) - 0.5)
        for row in zip(*(side.tolist() for side in logits), strict=True)
        for ours, theirs in zip(*row, strict=True)
    ]
    assert found["gap"].item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_its_mistakes_are_said_like_the_packages_own():
    registered()
    gap = {"compare": "gap", "free": -1, "fre": 2}
    unknown = {"compare": "gab"}
    found = problems_of(
        **{"objectives.a": gap, "objectives.b": unknown, "objectives.c": {"free": 1}}
    )
    assert len(found) == 4
    text = "\n".join(found)
    assert "objectives.a.free: Input should be greater than or equal to 0" in text
    assert "unknown key in objectives.a: 'fre'" in text and "did you mean 'free'?" in text
    assert "objectives.b: unknown compare 'gab'" in text and "did you mean 'gap'?" in text
    assert "objectives.c: compare: is missing" in text


@pytest.mark.parametrize(
    ("traits", "overrides", "words"),
    [
        ({"needs_mixed": "it blends"}, {}, "objectives.gap: it blends, and nothing is mixed"),
        ({"reads_labels": True}, {"mixup.alpha": 1}, "reads an example's one label"),
        ({"reads_labels": True}, {"first_stage.objectives.gap.compare": "gap"}, None),
        (
            {"reads_labels": True},
            {"first_stage.objectives.gap.compare": "gap", "first_stage.task": "mnli"},
            "first_stage.objectives.gap: it reads labels",
        ),
        (
            {"needs_layers": True},
            {"teachers": ["a", "b"], "team.use": "ensemble"},
            "objectives.gap: gap looks at a teacher's layers",
        ),
    ],
)
def test_its_traits_decide_what_is_refused(traits, overrides, words):
    registered(**traits)
    overrides = {"objectives.gap.compare": "gap"} | overrides
    if words is None:
        assert Recipe.load("kd", **overrides)
    else:
        assert words in "\n".join(problems_of(**overrides))


def test_a_term_without_a_teacher_needs_none():
    registered(needs_teacher=False)
    assert not Recipe.load("finetune", **{"objectives.gap.compare": "gap"}).needs_teacher


def test_what_cannot_be_built_is_refused_when_it_is_registered():
    with pytest.raises(LimbeckError, match=r"int is no limbeck\.Objective"):
        limbeck.objective("int")(int)
    with pytest.raises(LimbeckError, match=r"soft_kl.*registers it"):
        registered("soft_kl")


def test_settings_of_several_names_have_to_say_which():
    class Two(limbeck.TermSettings):
        compare: Literal["near", "far"]

    class Near(limbeck.Objective):
        def forward(self, student, teacher, batch, step_state):
            return student.logits.mean()

    limbeck.objective("near", "far", settings=Two)(Near)
    assert Recipe.load("kd", **{"objectives.n.compare": "far"}).objectives["n"] == Two(
        compare="far"
    )
    with pytest.raises(ValueError, match="compare"):
        Two()
