"""Layers that learn in turn move on at an epoch's end, as in internal-KD's Algorithm 1, and then
only the classification layer is trained (its figure 4). The other readings are settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import tiny_runs as tiny
from limbeck.objectives import CurriculumSpec
from limbeck.objectives.curriculum import Curriculum
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.training.step import head_of

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
import tiny_trainers

STEPS = 10  # in an epoch


def curriculum(layers: int, **settings) -> Curriculum:
    spec = CurriculumSpec(terms=["cosine"], order="progressive", **settings)
    return Curriculum(spec, tuple(range(1, layers + 1)), ("cosine", "soft"))


def step_state(step: int, epochs: float) -> StepState:
    return StepState(
        epoch=step // STEPS,
        step=step,
        progress=step / (epochs * STEPS),
        passes=step / STEPS,
        length=epochs,
    )


def places(one: Curriculum, epochs: float) -> list[list[int]]:
    """By epoch, the layers that are through at each of its steps."""
    whole = [one.place(step_state(step, epochs)) for step in range(int(epochs * STEPS))]
    return [whole[first : first + STEPS] for first in range(0, len(whole), STEPS)]


@pytest.mark.parametrize(
    ("epochs", "layers", "ends"),
    [
        # .8 of 50 over six layers are 6.67, 13.33, 20, 26.67, 33.33 and 40 epochs.
        (50, 6, [7, 13, 20, 27, 33, 40]),
        (10, 3, [3, 5, 8]),
        (4, 3, [1, 2, 3]),
        # At least one epoch each, and one for what follows.
        (7, 6, [1, 2, 3, 4, 5, 6]),
        (2, 1, [1]),
    ],
)
def test_a_layer_has_whole_epochs(epochs, layers, ends):
    by_epoch = places(curriculum(layers), epochs)
    assert all(len(set(turns)) == 1 for turns in by_epoch)
    expected = [sum(end <= epoch for end in ends) for epoch in range(epochs)]
    assert [turns[0] for turns in by_epoch] == expected


def test_by_steps_a_layer_may_end_inside_an_epoch():
    by_epoch = places(curriculum(3, move_on="steps"), 10)
    assert any(len(set(turns)) > 1 for turns in by_epoch)
    assert [turn for turns in by_epoch for turn in turns] == [0] * 27 + [1] * 27 + [2] * 26 + [
        3
    ] * 20


@pytest.mark.parametrize("epochs", [3, 1, 0.5])
def test_a_run_of_too_few_epochs_goes_by_steps_and_says_so(epochs):
    one = curriculum(3)
    steps = [one.place(step_state(step, epochs)) for step in range(int(epochs * STEPS))]
    share = 0.8 * epochs * STEPS / 3
    assert steps == [min(3, int(step / share + 1e-9)) for step in range(int(epochs * STEPS))]
    note = one.note(epochs)
    assert note is not None
    assert "3 layers" in note.message and "epochs=4" in note.fix and note.severity == "warning"
    assert curriculum(3, move_on="steps").note(epochs) is None
    assert one.note(4) is None


def test_an_early_end_gives_the_next_layer_its_own_epochs():
    one = curriculum(3, watch="cosine", below=1.0)
    sums = [0.5, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]  # the first layer is done at once
    turns = []
    for epoch, total in enumerate(sums):
        turns.append(one.place(step_state(epoch * STEPS, 10)))
        last, following = (
            step_state((epoch + 1) * STEPS - 1, 10),
            step_state((epoch + 1) * STEPS, 10),
        )
        one.end_epoch({"cosine": total}, last, following)
    # Planned are 3, 2 and 3 epochs.
    assert turns == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_parts_of_an_epoch_need_the_other_reading():
    with pytest.raises(ValueError, match="integer number of epochs"):
        CurriculumSpec(
            terms=["cosine"], order="progressive", move_on="epochs", epochs_per_layer=[1, 0.5]
        )
    fine = CurriculumSpec(terms=["cosine"], order="progressive", epochs_per_layer=[1, 0.5])
    assert fine.epochs_per_layer == [1, 0.5]


# --- what is trained then -----------------------------------------------------------------------


def trained(folder, then: str, method: str = "internal-kd-pid", **settings):
    """The student's weights after the layers' last step and after the run; the trainer."""
    recipe = Recipe.load(method, **{"curriculum.then": then} | settings)
    student = tiny_trainers.still(2, hidden_act="gelu")
    trainer = tiny_trainers.make(
        folder,
        method=recipe,
        student=student,
        args={"num_train_epochs": 4, "max_grad_norm": 0.05, "weight_decay": 0.1},
    )
    through = {}
    original = trainer.training_step

    def step(*args, **kwargs):
        now = trainer.step_state_at(trainer.state.global_step)
        if trainer.objectives.curriculum.place(now) == 2 and not through:
            through.update({k: v.clone() for k, v in student.state_dict().items()})
        return original(*args, **kwargs)

    trainer.training_step = step
    trainer.train()
    assert through
    return through, student.state_dict(), trainer


def changed(before, after) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("method", ["internal-kd-pid", "internal-kd-sid-soft"])
def test_only_what_stands_behind_the_last_layer_is_trained_then(tmp_path, method):
    before, after, _ = trained(tmp_path, "head", method)
    # Neither momentum nor weight decay moves a layer on.
    assert changed(before, after) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    }


def test_the_whole_student_on_request(tmp_path):
    before, after, _ = trained(tmp_path, "student")
    assert any("encoder.layer.0" in name for name in changed(before, after))
    assert "classifier.weight" in changed(before, after)


def test_the_norm_that_is_clipped_is_the_heads_alone(tmp_path):
    _, _, trainer = trained(tmp_path, "head")
    seen = []
    original = trainer.accelerator.clip_grad_norm_

    def clip(parameters, *args, **kwargs):
        parameters = list(parameters)
        now = trainer.step_state_at(trainer.state.global_step)
        given = {id(p) for p in trainer.student.parameters() if p.grad is not None}
        seen.append((trainer.objectives.curriculum.place(now), given))
        return original(parameters, *args, **kwargs)

    trainer.accelerator.clip_grad_norm_ = clip
    trainer.train()
    head = {id(p) for p in head_of(trainer.student)}
    assert [given <= head for place, given in seen if place == 2] == [True] * 3
    assert not any(given <= head for place, given in seen if place < 2)


def test_a_student_without_a_head_of_its_own_is_refused(tmp_path):
    import transformers as hf

    config = hf.T5Config(
        vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, pad_token_id=0,
        decoder_start_token_id=0,
    )  # fmt: skip
    assert head_of(hf.T5ForConditionalGeneration(config)) == []
    with pytest.raises(LimbeckError, match=r"curriculum\.then.*head") as caught:
        recipe = Recipe.load("internal-kd-pid")
        tiny_trainers.make(tmp_path, method=recipe, student=_headless())
    assert "curriculum.then=student" in caught.value.problems[0].fix


def _headless():
    student = tiny.bert(2)
    student.base_model_prefix = "nothing"
    return student


def test_preflight_says_that_a_run_is_too_short():
    one = curriculum(3)
    found = one.note(Recipe.load("internal-kd-pid", epochs=2).passes_over(100))
    assert (
        "curriculum.move_on: epochs: a run of 2 epochs is too short for 3 layers and what"
        in found.message
    )
    assert one.note(Recipe.load("internal-kd-pid", epochs=9).passes_over(100)) is None
    found = one.note(Recipe.load("internal-kd-pid", max_steps=4, batch_size=25).passes_over(100))
    assert "of 1 epoch is" in found.message
