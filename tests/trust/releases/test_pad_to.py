"""`pad_to`: every row as wide as a release pads it, whatever the batch."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset

import limbeck
import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TOKENS


def rows(lengths: tuple[int, ...]) -> list[dict]:
    return [
        {"input_ids": [2, *[4] * (n - 2), 3], "attention_mask": [1] * n, "labels": 1, "index": i}
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("lengths", [(4, 6), (3, 3), (9,), (11, 2)])
def test_batches_have_the_width_that_is_asked_for(lengths):
    batch = Collator(tiny.tokenizer(), pad_to=11)(rows(lengths))
    assert batch["input_ids"].shape == (len(lengths), 11)
    for row, length in enumerate(lengths):
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (11 - length)
        assert batch["input_ids"][row, length:].eq(0).all()


def test_labels_of_tokens_are_as_wide():
    one = {"input_ids": [2, 4, 3], "attention_mask": [1, 1, 1], "labels": [-100, 1, -100]}
    batch = Collator(tiny.tokenizer(), kind=TOKENS, pad_to=7)([one | {"index": 0}])
    assert batch["labels"].tolist() == [[-100, 1, -100, -100, -100, -100, -100]]


def test_a_width_is_exact_where_tiles_would_round_it(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    batch = Collator(tiny.tokenizer(), pad_to=13)(rows((4, 6)))
    assert batch["input_ids"].shape == (2, 13)


def test_a_row_beyond_the_width_is_refused():
    with pytest.raises(LimbeckError, match=r"pad_to 5: a row has 9 tokens"):
        Collator(tiny.tokenizer(), pad_to=5)(rows((9,)))


# ---- in a recipe ----


def test_it_is_a_setting_of_the_recipe_and_of_a_stage():
    own = Recipe.load("l-ild", pad_to="max_length", max_length=64, **{"first_stage.pad_to": 80})
    first, last = own.stages()
    assert (first.recipe.padded_width, last.recipe.padded_width) == (80, 64)
    assert Recipe.load("kd").padded_width is None
    plain = Recipe.load("l-ild", pad_to=128).stages()
    assert [stage.recipe.padded_width for stage in plain] == [128, 128]


@pytest.mark.parametrize("place", ["", "first_stage."])
def test_a_width_below_the_longest_input_is_refused(place):
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("l-ild", max_length=64, **{f"{place}pad_to": 32})
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{place}pad_to: 32 is less than max_length 64")
    assert problem.fix == "raise it, lower max_length, or write pad_to: max_length"


@pytest.mark.parametrize("method", ["tinybert-released", "cr-ild-released"])
def test_releases_that_count_padding_pad_to_their_longest_input(method):
    for stage in Recipe.load(method).stages():
        assert stage.recipe.padded_width == stage.recipe.max_length == 128
        assert not stage.recipe.groups_by_length
    shorter = Recipe.load(method, max_length=64)
    assert shorter.padded_width == 64


# ---- in a run ----


def test_a_run_trains_on_the_width_and_not_on_the_batchs(tmp_path, monkeypatch):
    teacher = tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    data = tiny.write_csv(tmp_path / "reviews.csv", 40)
    seen: dict[int, set[int]] = {}
    whole = Collator.__call__

    def watched(self, given):
        batch = whole(self, given)
        seen.setdefault(self.pad_to or 0, set()).add(batch["input_ids"].shape[1])
        return batch

    monkeypatch.setattr(Collator, "__call__", watched)
    limbeck.distill(
        "tinybert-released",
        **{"teacher": str(teacher), "task": "reviews", "data": str(data), "student.layers": 2},
        text_columns=["review"],
        label_column="verdict",
        out=str(tmp_path / "run"),
        **{"max_length": 12, "max_steps": 1, "first_stage.pad_to": 16, "first_stage.max_steps": 1},
        report=False,
    )
    assert seen[12] == {12} and seen[16] == {16}


def test_a_width_beyond_a_models_positions_is_refused_before_the_first_step(tmp_path):
    from limbeck.preflight.model_checks import check_padding

    (problem,) = check_padding("teacher", tiny.bert(2), 40)
    assert str(problem).startswith("pad_to 40 is beyond the 24 positions of the teacher")
    assert (
        check_padding("teacher", tiny.bert(2), 24) == check_padding("x", tiny.bert(2), None) == []
    )


def test_images_have_no_padding():
    from limbeck.tasks import IMAGE

    with pytest.raises(LimbeckError, match="pad_to 16: images are of one size"):
        Collator(object(), kind=IMAGE, pad_to=16)


def test_the_widths_do_not_reach_the_stored_rows():
    """Encoding, and so every fingerprint of rows, stays as it was."""
    held = Dataset.from_list(rows((4, 6)))
    Collator(tiny.tokenizer(), pad_to=11)(list(held))
    assert [len(ids) for ids in held["input_ids"]] == [4, 6]
