"""Two stages: the same as two runs by hand, however often they are killed; what they record."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny_runs as tiny
from closeness import assert_trained_alike, travelled
from limbeck.records import Record
from limbeck.run import Result, distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.run_folder import RunFolder
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import Manifest
from limbeck.training import DistillationTrainer

# The package's attribute of that name is the function.
module = import_module("limbeck.run.train")

HIDDEN = {
    "compare": "hidden_mse",
    "mapping": {"kind": "uniform", "student_layers": "1..M"},
    "project": {"to": "teacher", "sides": "student"},
}
# 54 rows in batches of 16: 4 steps an epoch; stage 2 in batches of 8: 7 steps.
FIRST = {
    "objectives": {"hidden": HIDDEN},
    "epochs": 2,
    "lr": 5e-3,
    "batch_size": 16,
    "lr_schedule": "constant_with_warmup",
}


@pytest.fixture(scope="module")
def two(recipe):
    """`two(seed=4)`: a recipe of two stages."""

    def make(**changes):
        settings = {"first_stage": FIRST, "epochs": 1, "keep_first_stage": True}
        return recipe("kd-soft", **(settings | changes))

    return make


@pytest.fixture(scope="module")
def unbroken(two, tmp_path_factory):
    return train(two(), tmp_path_factory.mktemp("unbroken") / "run")


def train(recipe, folder: Path, **settings) -> Result:
    return distill(recipe, out=folder, report=False, **settings)


def weights(run: Path, of: str = "student") -> bytes:
    return (run / of / "model.safetensors").read_bytes()


def timeless(record: Record) -> dict:
    """What two runs of one recipe share."""
    kept = record.model_dump(include={"epochs", "stages", "best", "scores", "examples"})
    for part in kept["epochs"] + kept["stages"]:
        del part["seconds"]
    return kept


# ---- what is trained ----


def test_two_stages_are_two_runs_by_hand(two, recipe, tmp_path):
    """Stage 1 as a run of its own, its student on disk, stage 2 as a run that starts from it."""
    first, second = two(**{"first_stage.epochs": 1}).stages()
    settings = {key: value for key, value in FIRST.items() if key != "objectives"}
    alone = recipe(
        "kd-soft",
        **{"objectives.soft": None, "objectives.hidden": HIDDEN},
        **(settings | {"epochs": 1, "seed": first.recipe.seed}),
    )
    before = train(alone, tmp_path / "before")
    start = {"student.init": str(before.path), "epochs": 1}
    after = train(recipe("kd-soft", **start), tmp_path / "after")
    both = train(two(**{"first_stage.epochs": 1}), tmp_path / "both")
    for of, alike in (("first_stage", before), ("student", after)):
        ours, theirs = (
            load_file(folder / "model.safetensors")
            for folder in (both.path / of, alike.path / "student")
        )
        assert_trained_alike(ours, theirs, travelled=travelled(alike.record))
    assert both.scores["dev"]["primary"] == after.scores["dev"]["primary"]
    for epoch, alike in zip(both.record.epochs, (before, after), strict=True):
        assert epoch.train == pytest.approx(alike.record.epochs[0].train, rel=1e-4)
    assert second.recipe == recipe("kd-soft", epochs=1)


def test_a_first_stage_ends_with_its_last_weights(two, tmp_path, monkeypatch):
    """Its epochs are not scored: nothing chooses among them, and the head is not trained."""
    seen = {}

    def look(inputs, prepared, folder, parts, *, show):
        trainer = real(inputs, prepared, folder, parts, show=show)
        stage = inputs.stage
        if not stage.last:
            seen["end"] = {k: v.clone() for k, v in prepared.student.state_dict().items()}
            seen["scores"] = [entry["dev"] for entry in trainer.progress.epochs]
            seen["steps"] = trainer.state.global_step
            kept = (folder.checkpoints / "first_stage").glob("checkpoint-*")
            seen["checkpoint"] = max(kept, key=lambda path: int(path.name.split("-")[1])).name
        return trainer

    real = module.train_stage
    monkeypatch.setattr(module, "train_stage", look)
    train(two(patience=1), tmp_path / "run")
    assert seen["scores"] == [{}, {}]
    assert (seen["steps"], seen["checkpoint"]) == (8, "checkpoint-8")
    start = tiny.bert(3).state_dict()
    # Layers have learned, the head has not: no term of this stage reaches it.
    assert torch.equal(seen["end"]["classifier.weight"], start["classifier.weight"])
    query = "bert.encoder.layer.2.attention.self.query.weight"
    assert not torch.equal(seen["end"][query], start[query])
    # What is kept of it is any model folder, with its tokenizer.
    kept = tmp_path / "run" / "first_stage"
    loaded = AutoModelForSequenceClassification.from_pretrained(kept).state_dict()
    assert loaded.keys() == seen["end"].keys()
    assert all(torch.equal(loaded[name], value) for name, value in seen["end"].items())
    assert AutoTokenizer.from_pretrained(kept).tokenize("good bad") == ["good", "bad"]


@pytest.mark.slow
def test_joint_is_one_stage_of_all_terms(two, tmp_path):
    result = train(two(joint=True, keep_first_stage=False), tmp_path / "run")
    assert [(epoch.stage, epoch.step) for epoch in result.record.epochs] == [(1, 7)]
    assert result.record.epochs[0].train.keys() == {"loss", "hidden", "soft"}
    assert result.record.cost.student_examples == 54


# ---- killed and started again ----


@pytest.fixture
def start(monkeypatch):
    """`start(recipe, folder, {2: ("step_begin", 3)})`: a process that ends there in stage 2."""

    def run(recipe, folder, kills):
        numbers = iter((1, 2))

        def build(*args, **kwargs):
            trainer = DistillationTrainer(*args, **kwargs)
            kill = kills.get(next(numbers))
            if kill is not None:
                trainer.add_callback(tiny.Kill(*kill))
            return trainer

        with monkeypatch.context() as patched:
            patched.setattr(module, "DistillationTrainer", build)
            return train(recipe, folder)

    return run


@pytest.mark.parametrize(
    ("every", "kills"),
    [
        # In the first stage, and between the two.
        (3, [{1: ("step_begin", 7)}, {1: ("train_end", 8)}, {2: ("step_begin", 1)}]),
        pytest.param(
            3,
            [{1: ("step_begin", 2)}, {1: ("step_begin", 7)}],
            marks=pytest.mark.slow,
        ),  # the first before anything was saved
        pytest.param(None, [{1: ("train_end", 8)}, {2: ("step_begin", 1)}], marks=pytest.mark.slow),
        pytest.param(
            3,
            [{1: ("step_begin", 5)}, {2: ("step_begin", 4)}, {2: ("epoch_end", 7)}],
            marks=pytest.mark.slow,
        ),
        pytest.param(None, [{2: ("save", 7)}], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_at_any_moment_it_ends_as_unbroken(two, unbroken, start, tmp_path, every, kills):
    recipe = two(checkpoint_steps=every)
    for kill in kills:
        with pytest.raises(tiny.KilledError):
            start(recipe, tmp_path / "run", kill)
    result = train(recipe, tmp_path / "run")
    for of in ("student", "first_stage"):
        assert weights(result.path, of) == weights(unbroken.path, of)
    assert timeless(result.record) == timeless(unbroken.record)
    answers = [(run.path / "predictions.json").read_bytes() for run in (result, unbroken)]
    assert answers[0] == answers[1]
    assert not (result.path / "checkpoints").exists()


@pytest.mark.slow
def test_a_finished_first_stage_is_not_trained_again(two, unbroken, start, tmp_path):
    with pytest.raises(tiny.KilledError):
        start(two(), tmp_path / "run", {2: ("step_begin", 4)})
    never = {1: ("train_begin", 0)}  # would end the process if stage 1 began
    assert weights(start(two(), tmp_path / "run", never).path) == weights(unbroken.path)


def test_other_draws_in_each_stage_from_one_seed(two):
    seeds = {}
    for seed in (3, 4):
        first, last = two(seed=seed).stages()
        again = two(seed=seed).stages()
        assert [stage.recipe.seed for stage in again] == [first.recipe.seed, last.recipe.seed]
        assert last.recipe.seed == seed
        seeds[seed] = first.recipe.seed
    assert len({*seeds, *seeds.values()}) == 4


# ---- what is recorded and shown ----


def test_the_record_counts_both_stages(unbroken):
    record = unbroken.record
    epochs = [(e.stage, e.epoch, e.step) for e in record.epochs]
    assert epochs == [(1, 1, 4), (1, 2, 8), (2, 1, 7)]
    assert [e.train.keys() for e in record.epochs] == [{"loss", "hidden"}] * 2 + [{"loss", "soft"}]
    assert [bool(e.dev) for e in record.epochs] == [False, False, True]
    assert record.best.epoch == 1
    first, second = record.stages
    assert (first.rows, first.steps, first.student_examples) == (54, 8, 108)
    assert (second.rows, second.steps, second.student_examples) == (54, 7, 54)
    cost, student, teacher = record.cost, record.student, record.teacher
    assert cost.student_examples == 162
    assert 0.8 < cost.student_flops / (3 * 162 * student.flops_per_example) < 1.5
    assert 0.8 < cost.teacher_flops / (162 * teacher.flops_per_example) < 1.5
    assert cost.student_seconds + cost.teacher_seconds >= sum(e.seconds for e in record.epochs)
    assert Record.load(unbroken.path) == record


def test_lines_and_logs_keep_the_stages_apart(two, tmp_path, capsys):
    train(two(log_steps=1, report_to="tensorboard"), tmp_path / "run", show=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "epoch" in line]
    assert [line.partition("  ")[0] for line in lines] == [
        "reviews kd-soft seed 3 stage 1/2",
        "reviews kd-soft seed 3 stage 1/2",
        "reviews kd-soft seed 3 stage 2/2",
    ]
    assert "epoch 2/2  loss" in lines[1]
    assert "epoch 1/1  dev" in lines[2]
    events = (tmp_path / "run" / "tensorboard").rglob("events*")
    assert {path.parent.name for path in events} == {"first_stage", "tensorboard"}


# ---- what is kept of the first stage ----


def test_a_kept_first_stage_is_the_runs_own_as_its_student_is(unbroken, two, tmp_path, no_training):
    copy = Path(shutil.copytree(unbroken.path, tmp_path / "run"))
    folder = RunFolder(copy)
    assert Manifest.read(copy).checksums.keys() >= {
        "first_stage/model.safetensors", "first_stage/tokenizer.json", "student/model.safetensors",
    }  # fmt: skip
    assert EarlierRun(folder, two()).finished() is not None
    # Another run starts from it as from any checkpoint; damaged it is refused.
    load_model(copy / "first_stage")
    weights_there = copy / "first_stage" / "model.safetensors"
    weights_there.write_bytes(weights_there.read_bytes()[:-1] + b"!")
    with pytest.raises(LimbeckError, match=r"first_stage/model.safetensors changed since the run"):
        load_model(copy / "first_stage")
    assert EarlierRun(folder, two()).finished() is None
    folder.clear()
    assert not (copy / "first_stage").exists()


@pytest.mark.parametrize(
    "changes", [{"first_stage": None}, {"joint": True}], ids=["one stage", "joined"]
)
def test_no_first_stage_to_keep_is_refused(two, changes):
    with pytest.raises(
        LimbeckError, match="keep_first_stage: has an effect only with a first_stage"
    ):
        two(**changes)


# ---- what is wrong with a first stage ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "first_stage.objectives.hidden.mapping": {"kind": "explicit", "layers": {1: 9}},
            },
            r"^first_stage\.objectives\.hidden\.mapping.*9",
        ),
        (
            {"first_stage.objectives.hidden.weight": 0},
            r"first_stage\.objectives\.hidden: its weight is 0",
        ),
        ({"teacher": None}, "teacher: method kd-soft learns from one"),
        ({"first_stage.train_rows": 99}, "train_rows: 99 of 54"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_pre_flight_looks_at_the_first_stage(two, tmp_path, changes, message):
    with pytest.raises(LimbeckError, match=message):
        train(two(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_for_the_first_stage_alone_is_enough(two, recipe, place, tmp_path):
    """Stage 2 may be plain fine-tuning."""
    made = recipe("finetune", first_stage=FIRST, teacher=str(place / "teacher"), max_steps=2)
    assert made.needs_teacher
    assert not made.stages()[1].recipe.needs_teacher
    record = train(made, tmp_path / "run").record
    assert record.kind == "distill"
    assert [stage.teacher_flops > 0 for stage in record.stages] == [True, False]
    assert [stage.teacher for stage in record.stages] == [str(place / "teacher"), None]
