"""Whole runs on images: CNNs by name, ViT cut and matched layer by layer, ResNet of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from transformers import AutoImageProcessor, AutoModelForImageClassification

import image_sets as sets
import tiny_runs
from fresh_process import printed_by
from limbeck.lab.cifar_nets import CifarNetForImageClassification
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.scoring import evaluate, look_at_team
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationTrainer

PLAIN = {"images.crop": 0, "images.flip": False}


def recipe(method: str = "finetune", **changes) -> Recipe:
    settings = {"data": "digits", "train_rows": 256, "seed": 3, "log_steps": 2}
    return Recipe.load(method, **(settings | changes))


def refused(given: Recipe, out: Path) -> str:
    with pytest.raises(LimbeckError) as caught:
        distill(given, out=out, report=False)
    assert all(problem.fix for problem in caught.value.problems)
    assert not (out / "student").exists()
    return str(caught.value)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def net(place):
    """A trained small CNN."""
    given = recipe(epochs=4, **{"student.init": "resnet-8"})
    return distill(given, out=place / "net", report=False)


@pytest.fixture(scope="module")
def vit(place):
    """A ViT trained from random weights in a checkpoint."""
    start = sets.save(sets.vit(3), place / "vit-start")
    given = recipe(epochs=4, lr=3e-3, **{"student.init": str(start)})
    return distill(given, out=place / "vit", report=False)


# Named CNNs


@pytest.mark.slow
def test_a_net_learns_and_is_distilled_into_another(net, place, pages):
    assert net.scores["dev"]["accuracy"] > 30  # chance is 10; the last points follow rounding
    assert net.scores["dev"]["top5"] > net.scores["dev"]["accuracy"]
    given = recipe("kd", epochs=2, teacher=str(net.path), **{"student.init": "wrn-16-1"})
    student = distill(given, out=place / "kd")
    record = student.record
    assert record.epochs[0].train.keys() == {"loss", "hard", "soft"}
    assert record.last.epoch == 2 and record.last.primary == record.epochs[-1].dev["primary"]
    assert record.best.primary == max(epoch.dev["primary"] for epoch in record.epochs)
    assert (record.student.layers, record.teacher.layers) == (None, None)
    assert record.student.parameters == sum(w.numel() for w in student.student.parameters())
    assert "<svg" in (student.path / "report.html").read_text(encoding="utf-8")
    assert evaluate(student.path) == pytest.approx(student.scores["dev"])
    answers = json.loads((student.path / "predictions.json").read_text())["dev"]
    right = np.mean(np.array(answers["prediction"]) == np.array(answers["label"]))
    assert 100 * right == pytest.approx(student.scores["dev"]["accuracy"])


def test_a_shipped_net_answers_pictures_with_its_processor(net):
    model = AutoModelForImageClassification.from_pretrained(net.path / "student").eval()
    assert isinstance(model, CifarNetForImageClassification)
    processor = AutoImageProcessor.from_pretrained(net.path / "student")
    digits = load_digits()
    grey = np.rint(digits.images[-500:] * (255 / 16)).astype(np.uint8)
    pictures = [Image.fromarray(image).convert("RGB") for image in grey]
    with torch.no_grad():
        logits = model(**processor(pictures, return_tensors="pt")).logits
    right = [model.config.id2label[int(best)] for best in logits.argmax(-1)]
    share = np.mean([int(name) for name in right] == digits.target[-500:])
    assert 100 * share == pytest.approx(net.scores["dev"]["accuracy"], abs=0.21)


@pytest.mark.slow
def test_another_size_is_read_if_asked_for(place):
    given = recipe(max_steps=1, **{"student.init": "resnet-8", "images.size": 16})
    prepared = prepare(given)
    batch = prepared.collator(list(prepared.selecting.select([0])))
    assert batch["pixel_values"].shape == (1, 3, 16, 16)
    assert prepared.student.config.image_size == 16
    small = prepare(recipe(max_steps=1, **{"student.init": "resnet-8"}))
    assert prepared.example_size() == (16, 16) and small.example_size() == (8, 8)


# Views


@pytest.mark.parametrize("kills", [[("step_begin", 5)], [("epoch_end", 8), ("save", 12)]], ids=str)
@pytest.mark.slow
def test_killed_and_continued_it_ends_as_unbroken(net, unbroken, tmp_path, monkeypatch, kills):
    given = augmented(net)
    for kill in kills:

        def build(*args, kill=kill, **kwargs):
            trainer = DistillationTrainer(*args, **kwargs)
            trainer.add_callback(tiny_runs.Kill(*kill))
            return trainer

        with monkeypatch.context() as patched:
            patched.setattr("limbeck.run.train.DistillationTrainer", build)
            with pytest.raises(tiny_runs.KilledError):
                distill(given, out=tmp_path / "run", report=False)
    again = distill(given, out=tmp_path / "run", report=False)
    for file in ("student/model.safetensors", "predictions.json"):
        assert (again.path / file).read_bytes() == (unbroken.path / file).read_bytes()
    ours, theirs = again.record.epochs, unbroken.record.epochs
    assert [(e.train, e.dev) for e in ours] == [(e.train, e.dev) for e in theirs]


def augmented(net) -> Recipe:
    return recipe(
        "kd", epochs=4, teacher=str(net.path), checkpoint_steps=3, nesterov=True,
        **{"student.init": "resnet-8", "images.crop": 2, "images.flip": True},
    )  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(net, place):
    return distill(augmented(net), out=place / "unbroken", report=False)


@pytest.mark.slow
def test_views_change_what_is_learned(net, unbroken, tmp_path):
    given = augmented(net)
    plain = given.model_copy(
        update={"images": given.images.model_copy(update={"crop": 0, "flip": False})}
    )
    other = distill(plain, out=tmp_path / "plain", report=False)
    assert other.record.epochs[0].train != unbroken.record.epochs[0].train
    # Evaluation sees no views: before training both are the same student.
    assert other.record.recipe["images"] == {"size": None, "crop": 0, "flip": False}


@pytest.mark.slow
def test_answers_about_views_are_not_stored(net, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    common = {"teacher": str(net.path), "student.init": "resnet-8", "epochs": 1, "cache": "always"}
    message = refused(recipe("kd", **common), tmp_path / "views")
    assert "cache: always, but crops and mirror images" in message
    stored = distill(recipe("kd", **common, **PLAIN), out=tmp_path / "stored", report=False)
    live = distill(
        recipe("kd", **common | {"cache": "never"}, **PLAIN), out=tmp_path / "live", report=False
    )
    assert stored.record.execution.teacher_outputs == {"1": "stored"}
    assert live.record.execution.teacher_outputs == {"1": "live"}
    for ours, theirs in zip(stored.record.epochs, live.record.epochs, strict=True):
        assert ours.train == pytest.approx(theirs.train, rel=1e-4)


@pytest.mark.slow
def test_a_remembering_teacher_is_refused_for_views(net, tmp_path):
    given = recipe("kd", epochs=1, teacher=str(net.path), **{"student.init": "resnet-8"})
    remembering = RememberingTeacher(Teacher.load(net.path))
    with pytest.raises(LimbeckError, match="remembers its outputs"):
        distill(given, out=tmp_path / "run", live_teacher=remembering, report=False)
    plain = recipe(
        "kd", max_steps=1, teacher=str(net.path), **{"student.init": "resnet-8"}, **PLAIN
    )
    distill(plain, out=tmp_path / "plain", live_teacher=remembering, report=False)


# ViT


@pytest.mark.parametrize(
    "method",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("pkd-skip", "rail-kd-l", "tinybert")
        ),
        "minilmv2",
    ],
)
@pytest.mark.slow
def test_methods_that_look_inside_work_on_vit(vit, tmp_path, method):
    changes = {"teacher": str(vit.path), "student.init": "teacher", "student.layers": 2}
    if method in ("tinybert", "minilmv2"):
        changes["first_stage.epochs"] = 1
    given = recipe(method, epochs=1, lr=1e-3, train_rows=128, **changes)
    student = distill(given, out=tmp_path / method, report=method == "pkd-skip")
    # The total, and at least one term that looks inside.
    assert len(student.record.epochs[0].train) >= 2
    assert student.record.student.layers == 2 and student.record.teacher.layers == 3
    shipped = AutoModelForImageClassification.from_pretrained(student.path / "student")
    assert type(shipped).__name__ == "ViTForImageClassification"
    assert shipped.config.num_hidden_layers == 2
    if method == "pkd-skip":
        page = (student.path / "report.html").read_text(encoding="utf-8")
        assert "layer" in page


@pytest.mark.slow
def test_a_cut_vit_starts_with_its_teachers_first_layers(vit):
    prepared = prepare(
        recipe("kd", teacher=str(vit.path), **{"student.init": "teacher", "student.layers": 2})
    )
    ours, theirs = prepared.student.state_dict(), prepared.teacher.state_dict()
    assert len(ours) < len(theirs)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    fresh = prepare(
        recipe("kd", teacher=str(vit.path),
               **{"student.init": "fresh", "student.config": {"hidden_size": 16}})
    )  # fmt: skip
    assert fresh.student.config.hidden_size == 16


@pytest.mark.slow
def test_a_vit_teaches_a_net_and_its_hidden_answers_are_stored(vit, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    net = distill(
        recipe("kd", epochs=1, teacher=str(vit.path), **{"student.init": "resnet-8"}),
        out=tmp_path / "net", report=False,
    )  # fmt: skip
    assert net.record.teacher.layers == 3 and net.record.student.layers is None
    common = {"teacher": str(vit.path), "student.init": "teacher", "student.layers": 2,
              "epochs": 1, "lr": 1e-3} | PLAIN  # fmt: skip
    runs = [
        distill(recipe("rail-kd-l", cache=cache, **common), out=tmp_path / cache, report=False)
        for cache in ("always", "never")
    ]
    assert runs[0].record.execution.teacher_outputs == {"1": "stored"}
    for ours, theirs in zip(*(run.record.epochs for run in runs), strict=True):
        assert ours.train == pytest.approx(theirs.train, rel=1e-2)


# ResNet of transformers


@pytest.mark.slow
def test_what_is_read_without_limbeck_and_what_with_it(net, tmp_path):
    start = sets.save(sets.hf_resnet(), tmp_path / "start")
    given = recipe(epochs=1, lr=1e-3, **{"student.init": str(start)})
    run = distill(given, out=tmp_path / "run", report=False)
    assert run.record.student.flops_per_example > 0
    script = """
import sys
from transformers import AutoImageProcessor, AutoModelForImageClassification as Auto
ours, theirs = sys.argv[1:]
print(type(Auto.from_pretrained(theirs)).__name__)
AutoImageProcessor.from_pretrained(theirs)
assert "limbeck" not in sys.modules
try:
    Auto.from_pretrained(ours)
except ValueError:
    print("unknown")
import limbeck.lab.cifar_nets
print(type(Auto.from_pretrained(ours)).__name__)
"""
    printed = printed_by(script, net.path / "student", run.path / "student")
    assert printed.split() == [
        "ResNetForImageClassification", "unknown", "CifarNetForImageClassification",
    ]  # fmt: skip


# Own images


@pytest.mark.slow
def test_a_folder_of_ones_own(tmp_path):
    for split, each in (("train", 16), ("dev", 6)):
        sets.write_pictures(tmp_path / "pets" / split, {"dark": 20, "light": 230}, each=each)
    given = Recipe.load(
        "finetune", data=str(tmp_path / "pets"), task="pets", kind="image", epochs=8, batch_size=8,
        **{"student.init": "resnet-8", "images.size": 8},
    )  # fmt: skip
    run = distill(given, out=tmp_path / "run", report=False)
    assert run.scores["dev"] == {"accuracy": 100.0, "primary": 100.0}
    assert evaluate(run.path) == run.scores["dev"]


# What does not fit


@pytest.mark.parametrize(
    "method",
    [
        "pkd-skip",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("minilm", "codir", "l-ild")),
    ],
)
def test_layers_of_a_convolutional_net_are_refused(net, tmp_path, method):
    given = recipe(method, teacher=str(net.path), **{"student.init": "resnet-8"})
    message = refused(given, tmp_path / "run")
    assert "no layers over tokens" in message or "no stack of layers" in message, message


def test_refusals_name_what_does_not_fit(net, vit, tmp_path):
    cut = {"teacher": str(net.path), "student.init": "teacher", "student.layers": 2}
    assert "does not state the number of layers" in refused(recipe("kd", **cut), tmp_path / "cut")
    size = {"teacher": str(vit.path), "student.init": "teacher", "images.size": 16}
    message = refused(recipe("kd", **size), tmp_path / "size")
    assert "made for images of 8 × 8 pixels" in message and "set images.size=8" in message
    other = sets.save(sets.vit(1, image_size=16), tmp_path / "other", side=16)
    apart = recipe("kd", teacher=str(vit.path), **{"student.init": str(other)})
    assert "read images differently" in refused(apart, tmp_path / "apart")
    grey = sets.save(sets.vit(1, num_channels=1), tmp_path / "grey")
    message = refused(recipe(**{"student.init": str(grey)}), tmp_path / "one")
    assert "images of 1 channels" in message


@pytest.mark.slow
def test_refusals_name_what_text_and_images_do_not_share(net, vit, tmp_path):
    text = recipe(task="mrpc", data="pocket", train_rows=None, **{"student.init": "resnet-8"})
    assert "resnet-8 reads images" in refused(text, tmp_path / "text")
    pocket = recipe(**{"student.init": "pocket"})
    assert "pocket reads text" in refused(pocket, tmp_path / "pocket")
    views = recipe(
        task="mrpc", data="pocket", train_rows=None, **{"student.init": "pocket"}, **PLAIN
    )
    assert "images: the task 'mrpc' has no images" in refused(views, tmp_path / "views")
    corpus = {"first_stage.corpus": {"source": "pocket", "size": 9}}
    size = {"teacher": str(vit.path), "student.init": "teacher", "images.size": 8}
    message = refused(recipe("tinybert", **size, **corpus), tmp_path / "words")
    assert "the rows of corpus are text, and the models read images" in message
    mixed = recipe("kd", teacher=str(net.path), **{"student.init": "resnet-8", "mixup.alpha": 1,
                                                   "objectives.hard": None})  # fmt: skip
    assert "leave mixup out for images" in refused(mixed, tmp_path / "mixed")


# Several teachers


@pytest.mark.parametrize("method", ["finetune", "skd-uniform", "tinybert"])
def test_the_papers_rates_for_text_are_not_those_of_nets(method):
    """2e-5, which is SKDBERT's for BERT, leaves SGD where it starts."""
    given = Recipe.load(method, data="digits", **{"student.init": "resnet-8"})
    stages = [given, *([given.first_stage] if given.first_stage else [])]
    assert [stage.lr for stage in stages if stage.lr is not None] == [0.05]
    assert (given.optimizer, given.epochs, given.batch_size) == ("sgd", 30, 64)
    assert Recipe.load(method, data="digits", lr=0.1, **{"student.init": "resnet-8"}).lr == 0.1


@pytest.mark.parametrize(
    "method",
    [
        "skd-uniform",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("wkd-teacher-rank", "takd")),
    ],
)
@pytest.mark.slow
def test_a_net_and_a_vit_teach_another_net(net, vit, place, method):
    teachers = [str(net.path), str(vit.path)]
    given = recipe(method, teachers=teachers, epochs=1, **{"student.init": "resnet-8"})
    record = distill(given, out=place / f"team-{method}", report=False).record
    assert [member.name for member in record.team.members] == ["net", "vit"]
    scores = [net.scores["dev"]["primary"], vit.scores["dev"]["primary"]]
    assert [member.score for member in record.team.members] == scores
    if method == "skd-uniform":
        assert sum(record.epochs[0].sampled.values()) == 4
        # Images are shifted and mirrored again in every epoch.
        assert set(record.execution.teacher_outputs.values()) == set()
    if method == "takd":
        assert [Path(run).name for run in record.team.runs] == ["01-vit"]


@pytest.mark.slow
def test_a_team_of_pictures_can_be_looked_at(net, vit, place):
    look = look_at_team([str(net.path), str(vit.path)])
    found = [look.models[name].parameters for name in ("net", "vit")]
    assert found == [net.record.student.parameters, vit.record.student.parameters]
