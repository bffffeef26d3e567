"""Layers that learn one after the other, from teachers that take turns."""

from __future__ import annotations

import own_rows as own
import pytest
import torch

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import SampledTeam, SamplingProbabilities, form
from limbeck.training import DistillationConfig, DistillationTrainer

TERMS = {
    "layers": {
        "compare": "cosine_distance",
        "pool": "cls",
        "mapping": {"kind": "uniform", "student_layers": "1..M"},
        "project": {"to": "teacher", "sides": "student", "share": "all", "when": "widths-differ"},
    },
    "soft": {"compare": "soft_cross_entropy"},
}
# Ten steps: each of two layers has four, and then the answers two.
ORDER = {
    "terms": ["layers"],
    "order": "progressive",
    "wait": ["soft"],
    "share": 0.8,
    "move_on": "steps",
}


def build(folder, team, curriculum=ORDER, **changes) -> DistillationTrainer:
    return DistillationTrainer(
        own.bert(2),
        team,
        DistillationConfig.like(
            own.arguments(folder, max_steps=10, **changes), objectives=TERMS, curriculum=curriculum
        ),
        train_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )


def team() -> SampledTeam:
    members = [Teacher(own.bert(4, 1)), Teacher(own.bert(6, 2, hidden_size=24))]
    return SampledTeam(members, ["narrow", "wide"], SamplingProbabilities([0.5, 0.5]))


def logged(trainer) -> list[dict]:
    return [entry for entry in trainer.state.log_history if "learning_rate" in entry]


def test_a_drawn_team_keeps_the_curriculum(tmp_path):
    trainer = build(tmp_path, team())
    trainer.train()
    steps = logged(trainer)
    assert ["term/layers" in entry for entry in steps] == [True] * 8 + [False] * 2
    assert ["term/soft" in entry for entry in steps] == [False] * 8 + [True] * 2
    asked = {entry_key for entry in steps for entry_key in entry if "loss (" in entry_key}
    assert asked == {"term/loss (narrow)", "term/loss (wide)"}
    moments = [trainer.step_state_at(step) for step in range(10)]
    for name in ("narrow", "wide"):
        learning = [
            [
                pair[0]
                for pair in trainer.objectives.active_layers(step_state).get(f"layers ({name})", [])
            ]
            for step_state in moments
        ]
        assert learning == [[1]] * 4 + [[2]] * 4 + [[]] * 2


def test_a_recipe_may_say_both(tmp_path):
    given = {f"objectives.{name}": term for name, term in TERMS.items()}
    recipe = Recipe.load("skd-uniform", curriculum=ORDER, **given)
    members = team().members
    assert form(recipe.team, members, ["a", "b"]).separate
    trainer = DistillationTrainer(
        own.bert(2),
        [member.model for member in members],
        DistillationConfig.like(own.arguments(tmp_path, max_steps=10), method=recipe),
        train_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    trainer.train()
    assert ["term/soft" in entry for entry in logged(trainer)] == [False] * 8 + [True] * 2


def test_layers_move_on_early_for_all_teachers_alike_also_after_a_stop(tmp_path):
    """A threshold that every epoch is under: a layer an epoch of three steps, then the answers."""
    early = ORDER | {"watch": "layers", "below": 1e6}
    trainer = build(tmp_path, team(), early, save_strategy="steps", save_steps=4)
    trainer.train()
    expected = [False] * 6 + [True] * 4
    assert ["term/soft" in entry for entry in logged(trainer)] == expected
    moved = trainer.objectives.of(0).curriculum.moved_on
    assert all(part.curriculum.moved_on is moved for part in trainer.objectives.each)
    assert moved[:, 0].tolist() == pytest.approx([0.3, 0.6])
    again = build(tmp_path, team(), early)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert torch.equal(again.objectives.of(0).curriculum.moved_on, moved)
    assert ["term/soft" in entry for entry in logged(again)] == expected


def test_other_layers_with_another_teacher_are_refused(tmp_path, monkeypatch):
    from limbeck.objectives import curriculum

    made = curriculum.Curriculum.__init__
    layers = iter([(1, 2), (1,)])

    def other(self, spec, own_layers, names):
        made(self, spec, next(layers), names)

    monkeypatch.setattr(curriculum.Curriculum, "__init__", other)
    with pytest.raises(LimbeckError, match=r"narrow.*\(1, 2\).*wide \(1,\)"):
        build(tmp_path, team())
