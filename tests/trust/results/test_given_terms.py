"""A term that is an object: in a trainer, in recipes and runs, in several stages, and when a run goes on."""

from __future__ import annotations

import gc
import json

import own_rows as own
import pytest
import torch
from transformers import TrainingArguments

import limbeck
import tiny_runs as tiny
from limbeck.objectives.registration import reference_of
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer


class Mapped(limbeck.Objective):
    """The teacher's logits behind a learned map."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = share
        self.map = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.eye_(self.map.weight)

    def forward(self, student, teacher, batch, step_state):
        return self.share * (student.logits - self.map(teacher.logits)).abs().mean()


class LastStates(limbeck.Objective):
    """The last layers' first tokens."""

    reads_logits = False
    needs_layers = True

    def seen(self, side):
        layers = getattr(self.shape, side).layers
        return limbeck.ActivationKey("hidden", layers, "cls")

    def request(self, side, step_state):
        known = side in ("student", "teacher")
        return limbeck.Request(frozenset({self.seen(side)} if known else ()))

    def forward(self, student, teacher, batch, step_state):
        return (student[self.seen("student")] - teacher[self.seen("teacher")]).square().mean()


class Denied(LastStates):
    """It does not say that it looks inside."""

    needs_layers = False


def build(folder, steps=4, **changes) -> DistillationTrainer:
    arguments = TrainingArguments(
        str(folder),
        use_cpu=True,
        max_steps=steps,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_steps=2,
        report_to=[],
        disable_tqdm=True,
    )
    settings = {"train_dataset": own.sentences(), "data_collator": own.OwnCollator()}
    settings["teacher"] = own.bert(4, 1)
    return tiny.trainer_of(own.bert(2), arguments, **(settings | changes))


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_a_copy_of_an_object_is_trained_with_its_parameters(tmp_path):
    term = Mapped(0.5)
    made = build(tmp_path, objectives={"mine": term, "hard": {"compare": "hard_label"}})
    made.train()
    trained = made.objectives["mine"]
    assert isinstance(trained, Mapped) and trained.share == 0.5
    assert not torch.equal(trained.map.weight, term.map.weight)
    assert torch.equal(term.map.weight, torch.eye(2))
    assert {"term/mine", "term/hard"} <= set(made.state.log_history[0])


def test_a_weight_beside_an_object_is_the_recipes(tmp_path):
    given = {"mine": {"compare": Mapped(), "weight": "1/4"}}
    made = build(tmp_path, objectives=given)
    assert made.objectives.weights == {"mine": 0.25}
    with pytest.raises(LimbeckError, match=r"unknown key in objectives\.mine: 'wieght'"):
        build(tmp_path, objectives={"mine": {"compare": Mapped(), "wieght": 1}})


def test_going_on_equals_an_unbroken_training_and_needs_the_same_object(tmp_path):
    given = {"mine": Mapped(0.5), "states": LastStates()}
    whole = build(tmp_path / "whole", objectives=given)
    whole.train()
    stopped = build(tmp_path / "stopped", steps=4, objectives=given)
    stopped.add_callback(own_stop(2))
    stopped.train()
    again = build(tmp_path / "stopped", objectives={"mine": Mapped(0.5), "states": LastStates()})
    again.train(resume_from_checkpoint=True)
    assert losses(again) == losses(whole)
    for one, other in zip(
        again.distiller.state_dict().values(), whole.distiller.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    with pytest.raises(LimbeckError, match=r"trained by other terms: objectives\.mine"):
        build(
            tmp_path / "stopped", objectives={"mine": Mapped(0.25), "states": LastStates()}
        ).train(resume_from_checkpoint=True)


def own_stop(step: int):
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= step
            return control

    return Stop()


@pytest.mark.slow
def test_both_stages_may_have_objects(tmp_path):
    given = {"objectives": {"states": LastStates(), "embedding": None}}
    made = build(tmp_path, method="tinybert", first_stage=given)
    made.train()
    assert "term/states" in {key for entry in made.state.log_history for key in entry}


def test_teachers_that_take_turns_have_copies_of_their_own(tmp_path):
    recipe = Recipe.load("skd-uniform", **{"objectives.mine": Mapped()})
    made = build(tmp_path, method=recipe, teacher=[own.bert(3, 1), own.bert(4, 2)])
    first, second = (made.objectives.of(number)["mine"] for number in (0, 1))
    assert first is not second and isinstance(second, Mapped)


def test_a_request_that_the_traits_deny_is_refused_by_name(tmp_path):
    with pytest.raises(LimbeckError, match=r"objectives\.mine.*needs_layers = False of Denied"):
        build(tmp_path, objectives={"mine": Denied()})


@pytest.mark.slow
def test_a_run_records_an_object_goes_on_with_it_and_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    settings = {
        "teacher": str(tiny.save(tiny.knowing_teacher(2), tmp_path / "teacher")),
        "task": "reviews",
        "data": str(tiny.write_csv(tmp_path / "reviews.csv", 60)),
        "text_columns": ["review"],
        "label_column": "verdict",
        "max_length": 24,
        "epochs": 1,
        "student.layers": 1,
    }
    out = tmp_path / "run"
    limbeck.distill("kd", out=out, report=False, **settings, **{"objectives.mine": Mapped(0.5)})
    said = json.loads((out / "record.json").read_text())["recipe"]["objectives"]["mine"]
    assert said["compare"].startswith("given:test_given_terms.Mapped@")
    assert said["values"] == {"share": 0.5}
    mine = {"objectives.mine": {"compare": Mapped(0.5)}}
    again = limbeck.distill("kd", out=out, report=False, **settings, **mine)
    assert again.record.status == "finished"
    with pytest.raises(LimbeckError, match="a run of another recipe") as caught:
        limbeck.distill("kd", out=out, report=False, **settings, **{"objectives.mine": Mapped()})
    del again, mine, caught
    gc.collect()
    with pytest.raises(LimbeckError, match="a term that was given from Python") as caught:
        limbeck.distill(out / "recipe.yaml", out=out, report=False)
    assert '**{"objectives.mine.compare": TERM}' in caught.value.problems[0].fix
    assert limbeck.evaluate(out)["primary"] >= 0


def test_objects_of_equal_values_are_one_term_however_they_were_made():
    one, other = Mapped(), Mapped()
    one.first, one.second = 1, "b"
    other.second, other.first = "b", 1
    assert reference_of(one) == reference_of(other)
    other.first = 2
    assert reference_of(one) != reference_of(other)
