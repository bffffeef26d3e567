"""`DistillationConfig`: a method's training settings, said as the Trainer's arguments are."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import pytest
from tiny_trainers import still
from transformers import HfArgumentParser, TrainingArguments

import tiny_runs as tiny
from limbeck import DistillationConfig, DistillationTrainer
from limbeck.data import Collator
from limbeck.objectives import SoftSpec
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import Optimisation
from limbeck.training.config import OWN_SETTINGS

PLAIN = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
SOFT = {"soft": {"compare": "soft_kl", "temperature": 2}}


def config(folder: Path, **said) -> DistillationConfig:
    return DistillationConfig(str(folder), **(PLAIN | said))


def trainer(args, student=None, **changes) -> DistillationTrainer:
    given = {"train_dataset": tiny.rows(8), "data_collator": Collator(tiny.tokenizer())}
    return DistillationTrainer(
        student or still(), tiny.knowing_teacher(3), args, **(given | changes)
    )


# ---- a method's own settings ----


@pytest.mark.parametrize("method", ["kd", "tinybert", "rail-kd-l"])
def test_what_is_left_out_is_the_methods(tmp_path, method):
    recipe, made = Recipe.load(method), config(tmp_path, method=method)
    assert recipe.epochs in (None, made.num_train_epochs)
    assert recipe.lr in (None, made.learning_rate)
    assert made.per_device_train_batch_size == recipe.batch_size
    assert made.warmup_steps == recipe.warmup
    assert made.seed == recipe.seed
    assert made.how_to_optimise() == Optimisation.of(recipe.stages()[-1].recipe)


def test_epochs_and_rate_that_nobody_set_follow_rows_and_depth(tmp_path):
    plain = config(tmp_path, per_device_train_batch_size=4)
    assert (plain.num_train_epochs, plain.learning_rate) == (3, 5e-5)
    assert plain.to_dict()["learning_rate"] is None  # read back, it is still left open
    # 64 rows are 16 steps of 4: 200 steps are 12.5 passes. One layer of three is less than two thirds.
    rows = tiny.rows(64)
    short = trainer(plain, tiny.bert(1), train_dataset=rows).args
    assert (short.num_train_epochs, short.learning_rate) == (13, 1e-4)
    whole = trainer(plain, tiny.bert(3), train_dataset=rows).args
    assert (whole.num_train_epochs, whole.learning_rate) == (13, 5e-5)
    assert plain.num_train_epochs == 3  # a configuration may serve several trainers
    said = config(tmp_path, num_train_epochs=2, learning_rate=3e-5)
    own = trainer(said, tiny.bert(1), train_dataset=rows).args
    assert (own.num_train_epochs, own.learning_rate) == (2, 3e-5)


def test_what_is_said_holds(tmp_path):
    made = config(tmp_path, method="tinybert", num_train_epochs=7, learning_rate=3e-4, seed=5)
    assert (made.num_train_epochs, made.learning_rate, made.seed) == (7, 3e-4, 5)
    assert made.per_device_train_batch_size == Recipe.load("tinybert").batch_size


def test_whoever_says_epochs_means_them(tmp_path):
    recipe = Recipe.load("kd", max_steps=3)
    assert config(tmp_path, method=recipe).max_steps == 3
    assert config(tmp_path, method=recipe, num_train_epochs=2).max_steps == -1


def test_plain_arguments_train_kd_as_they_say(tmp_path):
    made = trainer(TrainingArguments(str(tmp_path), **PLAIN))
    assert made.plan.recipe.method == "kd"
    assert made.args.per_device_train_batch_size == 8


# ---- written and read ----

GIVEN = [
    {"method": "tinybert", "first_stage": {"epochs": 2}},
    {"objectives": {"soft": SoftSpec(compare="soft_kl", temperature=2)}, "mixup": {"alpha": 2}},
    {"method": Recipe.load("kd-soft", input_transform={"use": "masked-kd"})},
    {"method": "kd", "optimisation": Optimisation(momentum=0.9, milestones=(0.5, 0.75))},
    {"method": "kd", "cache_teacher_outputs": "memory", "group_by_length": True},
]


@pytest.mark.parametrize("given", GIVEN)
def test_it_is_written_to_json_and_read_back(tmp_path, given):
    made = config(tmp_path, **given)
    again = DistillationConfig(**json.loads(made.to_json_string()))
    assert again.to_dict() == made.to_dict()
    assert again.recipe() == made.recipe()
    assert again.how_to_optimise() == made.how_to_optimise()
    assert copy.deepcopy(made).to_dict() == made.to_dict()


def test_a_command_line_says_it(tmp_path):
    words = ["--output_dir", str(tmp_path), "--objectives", json.dumps(SOFT), "--use_cpu"]
    words += [
        "--mixup",
        '{"alpha": 2}',
        "--learning_rate",
        "1e-4",
        "--cache_teacher_outputs",
        "memory",
    ]
    (made,) = HfArgumentParser(DistillationConfig).parse_args_into_dataclasses(words)
    assert made.objectives == SOFT and made.mixup == {"alpha": 2}
    assert (made.learning_rate, made.cache_teacher_outputs) == (1e-4, "memory")
    (made,) = HfArgumentParser(DistillationConfig).parse_args_into_dataclasses(
        ["--output_dir", str(tmp_path), "--method", "tinybert", "--compile", "--use_cpu"]
    )
    assert made.method == "tinybert" and made.compile


def test_every_setting_has_its_help():
    known = {one.name: one for one in dataclasses.fields(DistillationConfig)}
    assert all(len(known[name].metadata["help"]) > 20 for name in OWN_SETTINGS)


# ---- refused ----


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"method": "tinybret"}, "tinybert"),
        ({"method": "kd", "objectives": SOFT}, "method, objectives"),
        ({"method": "kd", "mixup": {"alpha": 1}}, "mixup: read with objectives= only"),
        ({"objectives": {"soft": {"compare": "soft_lk"}}}, "soft_lk"),
        ({"cache_teacher_outputs": "always"}, "unknown cache_teacher_outputs 'always'"),
        ({"optimisation": {"momentun": 0.9}}, "momentun"),
        ({"optimisation": {"momentum": 2.0}}, "optimisation.momentum=2.0 means nothing"),
        ({"optimisation": {"momentum": 0.9}, "optim": "adafactor"}, "optimisation.momentum, optim"),
        (
            {"optimisation": {"milestones": [0.5]}, "lr_scheduler_type": "cosine"},
            "optimisation.milestones, lr_scheduler_type",
        ),
        (
            {"group_by_length": True, "train_sampling_strategy": "sequential"},
            "group_by_length, train_sampling_strategy",
        ),
        ({"first_stage": {"teacher": None}}, "first_stage.teacher"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path, said, named):
    with pytest.raises(LimbeckError) as caught:
        config(tmp_path, **said)
    assert named in str(caught.value)


@pytest.mark.parametrize("name", ["method", "compile", "mixup"])
def test_settings_stand_in_the_configuration(tmp_path, name):
    with pytest.raises(LimbeckError, match=rf"{name}=: a setting of the configuration"):
        trainer(config(tmp_path), **{name: "kd"})


def test_a_first_stage_s_settings_stand_there_too(tmp_path):
    with pytest.raises(LimbeckError, match=r"first_stage\.epochs: a setting of the configuration"):
        trainer(config(tmp_path, method="tinybert"), first_stage={"epochs": 2})
    with pytest.raises(LimbeckError, match="did you mean 'teacher'"):
        trainer(config(tmp_path, method="tinybert"), first_stage={"techer": None})


# ---- read ----


def test_an_attention_implementation_is_set_on_all_models(tmp_path):
    made = trainer(config(tmp_path, attn_implementation="eager"))
    models = (made.student, *(member.model for member in made.teacher.members))
    assert {model.config._attn_implementation for model in models} == {"eager"}
    with pytest.raises(LimbeckError, match="attn_implementation=egaer"):
        trainer(config(tmp_path, attn_implementation="egaer"))


def test_plain_arguments_become_a_configuration(tmp_path):
    plain = TrainingArguments(str(tmp_path), learning_rate=2e-3, **PLAIN)
    made = DistillationConfig.like(plain, method="kd-soft")
    assert (made.learning_rate, made.method, made.per_device_train_batch_size) == (
        2e-3,
        "kd-soft",
        8,
    )
    other = DistillationConfig.like(made, objectives=SOFT)
    assert other.method is None and other.objectives == SOFT
    with pytest.raises(LimbeckError, match="did you mean 'method'"):
        DistillationConfig.like(plain, methd="kd")
