"""Numbers that no training can mean are refused by their names, in a recipe and as a Trainer's arguments."""

from __future__ import annotations

import math

import own_rows as own
import pytest
from transformers import EarlyStoppingCallback, TrainingArguments
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer, Optimisation

NOT_NUMBERS = (math.nan, math.inf, -math.inf)
# A setting, the method that has it, values without sense, values at the edge that have some.
SETTINGS = [
    ("lr", "kd", (0, -1e-5, 1e-300, 1e9, *NOT_NUMBERS), (1e-12, 1.0, 10.0)),
    ("warmup", "kd", (-0.1, 1, 1.5, 100, *NOT_NUMBERS), (0.0, 0.99)),
    ("weight_decay", "kd", (-0.1, 1e9, *NOT_NUMBERS), (0.0, 10.0)),
    ("adam_epsilon", "kd", (0, -1e-8, 2, *NOT_NUMBERS), (1e-12, 1.0)),
    ("max_grad_norm", "kd", (-1, *NOT_NUMBERS), (0.0, 1e9)),
    ("epochs", "kd", (0, -1, 1e9, *NOT_NUMBERS), (0.5, 1000.0)),
    ("patience", "kd", (0, -1, 0.5), (1,)),
    ("max_steps", "kd", (0, -1, 1.5), (1,)),
    ("batch_size", "kd", (0, -8, 10**9, 2.5), (1, 10**6)),
    ("accumulation", "kd", (0, -1, 10**9), (1,)),
    ("log_steps", "kd", (0, -1), (1,)),
    ("checkpoint_steps", "kd", (0, -1), (1,)),
    ("train_rows", "kd", (0, -1), (1,)),
    ("label_noise", "kd", (-0.1, 1, 2, *NOT_NUMBERS), (0.0, 0.5)),
    ("max_length", "kd", (0, 2, -1, 10**9), (3, 10**6)),
    ("pad_to", "kd", (0, 2, -1, 10**9), (128, 10**6)),
    ("cache_limit", "kd", (0, -1, 1e300, *NOT_NUMBERS), (0.5,)),
    ("workers", "kd", (-1, 10**4), (0, 256)),
    ("student.layers", "kd", (0, -1, 10**9), (1,)),
    ("objectives.soft.weight", "kd", (-1, 1e9, *NOT_NUMBERS), (0.0, 1e6)),
    ("objectives.soft.temperature", "kd", (0, -1, 1e-300, 1e9, *NOT_NUMBERS), (1e-3, 1e3)),
    ("first_stage.lr", "tinybert", (0, 1e9, *NOT_NUMBERS), (1e-5,)),
    ("first_stage.warmup", "tinybert", (-0.1, 1, *NOT_NUMBERS), (0.5,)),
    ("first_stage.weight_decay", "tinybert", (-1, 1e9), (0.01,)),
    ("first_stage.batch_size", "tinybert", (0, 10**9), (1,)),
    ("first_stage.accumulation", "tinybert", (0, 10**9), (1,)),
    ("first_stage.pad_to", "tinybert", (0, 10**9), (128,)),
    ("first_stage.mixup.alpha", "l-ild-mixup", (0, -1, 1e-300, 1e300, *NOT_NUMBERS), (0.2, 1000.0)),
    ("team.rate", "skd-adaptive", (0, -1, 1e300, *NOT_NUMBERS), (0.1,)),
    ("team.explore", "skd-adaptive", (0, -1, 1.5), (1.0,)),
    ("team.student_epochs", "skd-student-rank", (0, -1, 1e9, *NOT_NUMBERS), (1.0,)),
    ("team.by", "skd-uniform", ([1, -1], [0, 0], [1, math.nan], [1e308, 1e308]), ([3, 1],)),
    ("augment.examples", "tinybert", (0, -1, 10**9), (20,)),
    ("augment.candidates", "tinybert", (0, 10**9), (15,)),
    ("augment.probability", "tinybert", (0, -0.1, 1.5, *NOT_NUMBERS), (1.0,)),
]
WITH = {"augment.": {"augment.model": "somewhere"}}


def load(key: str, method: str, value: object) -> Recipe:
    beside = next((kept for start, kept in WITH.items() if key.startswith(start)), {})
    return Recipe.load(method, **(beside | {key: value}))


@pytest.mark.parametrize(
    ("key", "method", "value"), [(k, m, v) for k, m, wrong, _ in SETTINGS for v in wrong]
)
def test_a_recipe_names_what_it_refuses(key, method, value):
    with pytest.raises(LimbeckError) as caught:
        load(key, method, value)
    # Of a setting of several forms each form may say what is wrong.
    said = [problem.message.replace(": ", ".") for problem in caught.value.problems]
    assert any(text.startswith(key) for text in said), caught.value


@pytest.mark.parametrize(
    ("key", "method", "value"), [(k, m, v) for k, m, _, right in SETTINGS for v in right]
)
def test_what_is_at_the_edge_is_taken(key, method, value):
    found = load(key, method, value)
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    "given", ["lr=1e9", "warmup=1.5", "batch_size=0", "patience=0", "weight_decay=nan", "lr=.inf"]
)
def test_so_does_the_command_line(given, tmp_path):
    line = ["distill", "kd", "--task", "rte", "--data", "pocket", "--teacher", "none", given]
    ended = CliRunner().invoke(app, [*line, "--out", str(tmp_path / "run")])
    assert ended.exit_code == 2
    assert given.partition("=")[0] in ended.output and "fix:" in ended.output
    assert not (tmp_path / "run").exists()


def test_a_frame_is_no_wider_than_the_picture():
    with pytest.raises(LimbeckError, match=r"images.*crop"):
        Recipe.load("kd", **{"images.size": 32, "images.crop": 33})
    assert Recipe.load("kd", **{"images.size": 32, "images.crop": 32}).images.crop == 32


# ---- of a Trainer ----

ARGUMENTS = [
    ("learning_rate", (0.0, -1e-5, 1e9, *NOT_NUMBERS)),
    ("weight_decay", (-0.1, 1e9, *NOT_NUMBERS)),
    ("adam_beta1", (-0.1, 1.0, *NOT_NUMBERS)),
    ("adam_beta2", (-0.1, 1.0, 2.0)),
    ("adam_epsilon", (0.0, -1e-8, 2.0, math.nan)),
    ("max_grad_norm", (-1.0, *NOT_NUMBERS)),
    ("warmup_steps", (-1, -0.5, *NOT_NUMBERS)),
    ("per_device_train_batch_size", (0, -4)),
    ("per_device_eval_batch_size", (0, -4)),
    ("gradient_accumulation_steps", (0, -1)),
    ("max_steps", (-2,)),
    ("num_train_epochs", (0.0, -3.0, *NOT_NUMBERS)),
    ("eval_accumulation_steps", (0, -1)),
    ("save_total_limit", (0, -1)),
    ("dataloader_num_workers", (-1,)),
    ("neftune_noise_alpha", (-1.0, math.nan)),
    ("seed", (-1, 2**32)),
    ("eval_delay", (-1.0, math.nan)),
]


def trainer(tmp_path, *, given=None, **arguments) -> DistillationTrainer:
    changes = {"max_steps": -1} | arguments
    return tiny.trainer_of(
        own.bert(2),
        own.arguments(tmp_path, **changes),
        teacher=own.bert(3, 1),
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
        **(given or {}),
    )


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, wrong in ARGUMENTS for value in wrong]
)
def test_a_trainers_arguments_make_sense(tmp_path, name, value):
    # transformers refuses some itself, some of them without their name.
    with pytest.raises((LimbeckError, ValueError)) as caught:
        trainer(tmp_path, **{name: value})
    if isinstance(caught.value, LimbeckError):
        (problem,) = caught.value.problems
        assert problem.message.startswith(f"args.{name}=") and problem.fix


def test_several_are_told_together(tmp_path):
    with pytest.raises(LimbeckError) as caught:
        trainer(tmp_path, learning_rate=math.nan, gradient_accumulation_steps=0)
    said = [problem.message.partition("=")[0] for problem in caught.value.problems]
    assert sorted(said) == ["args.gradient_accumulation_steps", "args.learning_rate"]


def test_the_trainers_defaults_make_sense(tmp_path):
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    DistillationTrainer(own.bert(2), own.bert(3, 1), args, train_dataset=own.sentences())


def test_no_training_stops_before_it_was_patient(tmp_path):
    given = {"callbacks": [EarlyStoppingCallback(early_stopping_patience=0)]}
    with pytest.raises(LimbeckError, match="early_stopping_patience"):
        trainer(tmp_path, given=given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"milestones": (0.5, 1.5)},
        {"milestones": (0.7, 0.5)},
        {"milestones": (0.5,), "decay": 0.0},
        {"bert_adam": True, "epsilon": 0.0},
        {"momentum": math.nan},
    ],
)
def test_so_do_those_of_its_optimiser(wrong):
    (*_, name) = wrong
    with pytest.raises(LimbeckError, match=f"optimisation.{name}"):
        Optimisation(**wrong)
