"""`cache_teacher_outputs`: a trainer's teacher is asked once about each example."""

from __future__ import annotations

import pytest
import torch
from tiny_trainers import arguments, still

import tiny_runs as tiny
from limbeck import DistillationConfig, DistillationTrainer
from limbeck.data import Collator
from limbeck.outputs.cache import Store
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import OwnTokens, Teacher
from quick_cases import quick

ROWS = 12


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Examples of every pass that a live teacher makes."""
    seen: list[int] = []
    live = Teacher.__call__

    def counting(self, inputs, request):
        seen.append(len(getattr(inputs, "batch", inputs)["input_ids"]))
        return live(self, inputs, request)

    monkeypatch.setattr(Teacher, "__call__", counting)
    return seen


def trained(folder, cache: str, **changes) -> DistillationTrainer:
    own = {"method": "rail-kd-l"} | {
        k: changes.pop(k) for k in ("method", "mixup", "objectives") if k in changes
    }
    plain = arguments(folder, num_train_epochs=3)
    settings = {"train_dataset": tiny.rows(ROWS), "data_collator": Collator(tiny.tokenizer())}
    trainer = DistillationTrainer(
        still(),
        changes.pop("teacher", None) or tiny.knowing_teacher(3),
        DistillationConfig.like(plain, cache_teacher_outputs=cache, **own),
        **(settings | changes),
    )
    trainer.train()
    return trainer


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "learning_rate" in entry]


@pytest.mark.parametrize("method", quick("rail-kd-l", of=("kd", "rail-kd-l")))
@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_teacher_is_asked_once_and_says_the_same(tmp_path, asked, cache, method):
    expected = losses(trained(tmp_path / "live", "off", method=method))
    assert sum(asked) == 3 * ROWS
    asked.clear()
    found = losses(trained(tmp_path / cache, cache, method=method))
    # By example, not by row of a batch: one that is seen again rides with those that are new.
    # What is stored on disk is measured first, by two passes over a few rows: of so few over all.
    measured = 2 * ROWS if cache == "disk" else 0
    assert ROWS <= sum(asked) - measured < 2 * ROWS
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_a_teacher_with_a_tokenizer_of_its_own_is_stored_by_its_own_rows(tmp_path, asked):
    def teacher() -> Teacher:
        """It reads each text from its end."""
        rows = tiny.rows(ROWS).map(lambda row: {"input_ids": row["input_ids"][::-1]})
        own = OwnTokens(rows, Collator(tiny.tokenizer()))
        return Teacher(tiny.knowing_teacher(3)).reading(None, own)

    expected = losses(trained(tmp_path / "live", "off", method="kd", teacher=teacher()))
    asked.clear()
    stored = trained(tmp_path / "stored", "disk", method="kd", teacher=teacher())
    assert isinstance(stored.teacher, CachedTeacher) and sum(asked) < 4 * ROWS
    assert losses(stored) == pytest.approx(expected, rel=1e-5)
    forwards = losses(trained(tmp_path / "forwards", "disk", method="kd"))
    assert forwards != pytest.approx(expected, rel=1e-5)


def test_the_store_is_limited_as_the_recipe_says(tmp_path):
    with pytest.raises(LimbeckError, match="more than cache_limit 1e-09 GiB"):
        trained(tmp_path, "disk", method=Recipe.load("kd", cache_limit=1e-9))


def test_another_training_finds_what_is_stored(tmp_path, asked):
    trained(tmp_path / "one", "disk")
    asked.clear()
    again = trained(tmp_path / "other", "disk")
    assert not asked and isinstance(again.teacher, CachedTeacher)


def test_other_inputs_are_another_entry(tmp_path, asked, store):
    trained(tmp_path / "one", "disk")
    changed = tiny.rows(ROWS).map(
        lambda row: {"input_ids": [row["input_ids"][0], 7, *row["input_ids"][2:]]}
    )
    trained(tmp_path / "other", "disk", train_dataset=changed)
    assert len(store.entries()) == 2


def test_auto_asks_live_where_little_is_saved(tmp_path, asked, store):
    trained(tmp_path, "auto")
    assert not store.entries()


class Noisy(Collator):
    """Other inputs of a row each time."""

    def __call__(self, rows):
        batch = super().__call__(rows)
        return batch | {"noise": torch.rand(len(rows))}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"mixup": {"alpha": 1}, "objectives": {"soft": {"compare": "soft_kl"}}, "method": None},
            "mixup",
        ),
        ({"teacher": Teacher(tiny.knowing_teacher(3), dropout=True)}, "dropout is on"),
        ({"data_collator": Noisy(tiny.tokenizer())}, "other inputs of a row each time"),
        ({"train_dataset": [dict(row) for row in tiny.rows(4)]}, "no datasets.Dataset"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(tmp_path, changes, reason):
    for cache in ("memory", "disk"):
        with pytest.raises(LimbeckError, match=f"cache_teacher_outputs={cache}: .*{reason}"):
            trained(tmp_path / cache, cache, **changes)
