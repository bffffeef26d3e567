"""What a run reports to experiment trackers: from the command line to the tracker's own files, each run apart."""

from __future__ import annotations

import os
import sys
import textwrap
from types import SimpleNamespace

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback, integration_utils
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.recipe import FirstStage, Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.training import reporting, tracker_problems
from limbeck.training.callbacks import TrackedRecipe, best_scores, flattened


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(4), folder / "teacher")
    tiny.write_csv(folder / "reviews.csv", 40)
    return folder


def settings(place, **changes):
    return {
        "teacher": str(place / "teacher"),
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "student.layers": 2,
        "max_length": 24,
        "batch_size": 8,
        "max_steps": 3,
        "log_steps": 1,
        "cache": "never",
    } | changes


def scalars(folder) -> dict[str, list[int]]:
    read = EventAccumulator(str(folder)).Reload()
    return {tag: [event.step for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.mark.slow
def test_a_flag_brings_every_term_to_tensorboard(place, tmp_path):
    keys = settings(place)
    columns = [
        "--text-columns", keys.pop("text_columns")[0],
        "--label-column", keys.pop("label_column"),
        "--report-to", "tensorboard",
    ]  # fmt: skip
    words = [f"{key}={value}" for key, value in keys.items()]
    run = tmp_path / "run"
    ended = CliRunner().invoke(app, ["distill", "kd", *words, "--out", str(run), *columns])
    assert ended.exit_code == 0, ended.output
    seen = scalars(run / "tensorboard")
    for term in ("loss", "term/soft", "term/hard"):
        assert seen[f"train/{term}"] == [1, 2, 3]
    assert "eval/accuracy" in seen
    written = Recipe.load(str(run / "recipe.yaml")).model_dump(mode="json")
    chosen = {
        "epochs": 20.0,
        "lr": 1e-4,
    }  # for these rows and this depth, where the recipe says null
    assert recipe_in(run / "tensorboard") == written | chosen


def recipe_in(folder) -> dict:
    """As TensorBoard shows it: Markdown whose indented lines are code."""
    read = EventAccumulator(str(folder)).Reload()
    (event,) = read.Tensors("recipe/text_summary")
    return yaml.safe_load(textwrap.dedent(event.tensor_proto.string_val[0].decode()))


def test_the_epoch_that_is_kept_is_reported_and_not_only_the_last(tmp_path):
    """By hand: the second epoch's score is the best; speeds are no scores."""
    writer = Writer()
    callback = TensorBoardCallback(writer)
    state = TrainerState(is_world_process_zero=True, best_global_step=20)
    state.log_history = [
        {"step": 10, "epoch": 1.0, "eval_accuracy": 70.0},
        {"step": 20, "epoch": 2.0, "loss": 0.5},
        {"step": 20, "epoch": 2.0, "eval_accuracy": 90.0, "eval_f1": 88.0, "eval_runtime": 3.0},
        {"step": 30, "epoch": 3.0, "eval_accuracy": 80.0},
    ]
    tracked = TrackedRecipe({"method": "kd"}, [callback])
    args = TrainingArguments(str(tmp_path), report_to="none")
    for _ in range(2):
        tracked.on_step_begin(args, state, TrainerControl())
    tracked.on_train_end(args, state, TrainerControl())
    assert writer.texts == [("recipe", "    method: kd")]
    assert writer.scalars == [("best/accuracy", 90.0, 20), ("best/f1", 88.0, 20)]
    state.best_global_step = None
    assert best_scores(state) == {}


class Writer:
    """TensorBoard's, as far as it is written to."""

    def __init__(self) -> None:
        self.texts, self.scalars = [], []

    def add_text(self, *given) -> None:
        self.texts.append(given)

    def add_scalar(self, *given) -> None:
        self.scalars.append(given)


def test_a_recipe_as_flat_names():
    recipe = {"method": "kd", "student": {"layers": [1, 3], "init": None}, "objectives": {}}
    assert dict(flattened(recipe, "recipe")) == {
        "recipe.method": "kd", "recipe.student.layers": "[1, 3]", "recipe.objectives": "{}"
    }  # fmt: skip


def test_what_cannot_be_reported_to_is_said_before_anything_is_written(
    place, tmp_path, monkeypatch
):
    there = "get_available_reporting_integrations"
    monkeypatch.setattr(integration_utils, there, lambda: ["tensorboard"])
    recipe = Recipe.load("kd", **settings(place, report_to=["wandb", "tensorbord", "comet_ml"]))
    with pytest.raises(LimbeckError) as found:
        distill(recipe, out=tmp_path / "run", report=False)
    said = str(found.value)
    assert "wandb is not installed" in said and "pip install wandb" in said
    assert "pip install comet-ml" in said
    assert "'tensorbord'" in said and "did you mean 'tensorboard'?" in said and "mlflow" in said
    assert not (tmp_path / "run").exists()


def test_a_tracker_whose_list_forgets_one_still_has_it_checked(monkeypatch):
    monkeypatch.setattr("limbeck.training.callbacks.find_spec", lambda name: None)
    (problem,) = tracker_problems(["flyte"])
    assert "pip install flytekit" in problem.fix
    monkeypatch.setattr("limbeck.training.callbacks.find_spec", lambda name: object())
    assert tracker_problems(["flyte"]) == []


# ---- each run apart ----


class Tracker(SimpleNamespace):
    """W&B's module as far as it matters: one open run a process, and nothing logged without one."""

    run = None

    def init(self, *, name, id=None, project=None, resume=None):
        assert self.run is None and resume == (id and "allow")
        known = id or os.environ.get("WANDB_RUN_ID") or f"id-{len(self.names)}"
        self.run = SimpleNamespace(id=known, name=name)

    def finish(self):
        self.run = None


class Callback(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        tracker = sys.modules["wandb"]
        if tracker.run is None:
            tracker.init(name=args.run_name)
        tracker.names.append(tracker.run.name)

    def on_predict(self, args, state, control, **kwargs):
        assert sys.modules["wandb"].run is not None, "wandb.init() was not called"


@pytest.fixture
def wandb(monkeypatch) -> Tracker:
    tracker = Tracker(names=[])
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "wandb", Callback)
    there = "get_available_reporting_integrations"
    monkeypatch.setattr(integration_utils, there, lambda: ["wandb"])
    return tracker


@pytest.mark.slow
def test_every_run_and_stage_is_one_of_its_own(place, tmp_path, wandb):
    two = Recipe.load("pkd-skip", **settings(place, report_to="wandb", max_steps=1))
    first = {"objectives": two.objectives, "max_steps": 1}
    two = two.model_copy(update={"first_stage": FirstStage.model_validate(first)})
    distill(two, out=tmp_path / "one", report=False)
    distill(two.model_copy(update={"seed": 1}), out=tmp_path / "two", report=False)
    assert wandb.names == ["one/first_stage", "one", "two/first_stage", "two"]
    assert wandb.run is None


def test_a_run_is_closed_after_an_error_and_a_users_own_is_left_open(wandb, tmp_path):
    trainer = Trainer(tiny.bert(1), TrainingArguments(str(tmp_path), report_to="none"))
    with pytest.raises(KeyError), reporting(trainer, ["wandb"], tmp_path):
        wandb.run = SimpleNamespace(id="of the callback")
        raise KeyError
    assert wandb.run is None
    theirs = wandb.run = SimpleNamespace(id="theirs", name="the user's")
    with reporting(trainer, ["wandb"], tmp_path):
        first_step(trainer)
    assert wandb.run is theirs


def first_step(trainer: Trainer) -> None:
    """As far as a tracker sees it."""
    state, control = TrainerState(is_world_process_zero=True), TrainerControl()
    trainer.callback_handler.on_train_begin(trainer.args, state, control)
    trainer.callback_handler.on_step_begin(trainer.args, state, control)
