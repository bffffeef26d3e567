"""One tiny place and one finished run, shared by the tests of whole runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.training import DistillationTrainer


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """Teachers, a student to start from and the rows, in one folder."""
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(4), folder / "teacher")
    tiny.save(tiny.bert(3), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    return folder


def make_recipe(place: Path, method: str = "rail-kd-l", **changes) -> Recipe:
    settings = {
        "task": "reviews",
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "teacher": None if method == "finetune" else str(place / "teacher"),
        "student.init": str(place / "start"),
        "epochs": 2,
        "batch_size": 8,
        "max_length": 24,
        "lr": 1e-2,
        "seed": 3,
    }
    return Recipe.load(method, **(settings | changes))


@pytest.fixture(scope="session")
def recipe(place) -> Callable[..., Recipe]:
    """`recipe("kd", seed=4)`: a recipe on the place's rows and models."""
    return lambda method="rail-kd-l", **changes: make_recipe(place, method, **changes)


@pytest.fixture(scope="session")
def finished(place, tmp_path_factory):
    """A run that no test may change."""
    return distill(make_recipe(place), out=tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(autouse=True)
def no_page(request, monkeypatch) -> None:
    """A page takes as long as all the rest of a tiny run, and few tests read theirs: `pages` is for those."""
    if "pages" in request.fixturenames or request.node.get_closest_marker("slow"):
        return
    monkeypatch.setattr(import_module("limbeck.run.distill"), "report_run", lambda *args: None)


@pytest.fixture
def pages() -> None:
    """Runs of this test write their pages."""


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """The finished run's folder, to be played with."""
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


@pytest.fixture
def no_training(monkeypatch) -> None:
    def refuse(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(DistillationTrainer, "__init__", refuse)


@pytest.fixture
def watch_training(monkeypatch) -> Callable[[Callable[..., object]], None]:
    """`watch_training(look)`: from now on every training pass calls `look(trainer, inputs)` first."""

    def watch(look) -> None:
        original = DistillationTrainer.compute_loss

        def watching(self, model, inputs, *args, **kwargs):
            if model.training:
                look(self, inputs)
            return original(self, model, inputs, *args, **kwargs)

        monkeypatch.setattr(DistillationTrainer, "compute_loss", watching)

    return watch
