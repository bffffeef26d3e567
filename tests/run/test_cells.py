"""Grids: which cells there are, and what their folders are called."""

import re

import pytest

from limbeck.run.grid import cells_of
from limbeck.support.errors import LimbeckError


def names(*models: str, **axes) -> list[str]:
    return [*cells_of(models, {k.replace("__", "."): v for k, v in axes.items()})]


def test_models_alone() -> None:
    found = cells_of(["bert-8-128-2", "runs/big/", "google/electra-small-discriminator"])
    assert found == {
        "bert-8-128-2": {"student.init": "bert-8-128-2"},
        "big": {"student.init": "runs/big/"},
        "electra-small-discriminator": {"student.init": "google/electra-small-discriminator"},
    }


def test_every_combination_the_first_axis_slowest() -> None:
    found = cells_of(["a", "b"], {"student.layers": [2, [1, 4]], "seed": [1, 2]})
    assert [*found] == [
        "a_layers-2_seed-1", "a_layers-2_seed-2", "a_layers-1.4_seed-1", "a_layers-1.4_seed-2",
        "b_layers-2_seed-1", "b_layers-2_seed-2", "b_layers-1.4_seed-1", "b_layers-1.4_seed-2",
    ]  # fmt: skip
    assert found["b_layers-1.4_seed-2"] == {
        "student.init": "b",
        "student.layers": [1, 4],
        "seed": 2,
    }


def test_what_is_the_same_in_all_cells_is_not_in_their_names() -> None:
    found = cells_of(["a"], {"epochs": [3], "lr": [1e-4, 5e-5]})
    assert [*found] == ["a_lr-0.0001", "a_lr-5e-05"]
    assert all(cell["epochs"] == 3 for cell in found.values())
    assert names(seed=[3]) == ["seed-3"]


def test_keys_that_end_alike_are_told_apart() -> None:
    found = names(student__config__a=[1, 2], student__b__a=[1, 2])
    assert found[0] == "student.config.a-1_student.b.a-1"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("bert-8-128-2:random", "bert-8-128-2-random"),
        ("a b", "a-b"),
        ({"x": 1}, "x-1"),
        (None, "None"),
    ],
)
def test_names_are_fit_for_folders(value: object, name: str) -> None:
    assert next(iter(cells_of(axes={"student.init": [value, "z"]}))) == name


def test_teams_are_their_members() -> None:
    paper = names("paper")
    assert len(paper) == 14
    assert paper[0] == "bert-8-128-2"
    assert paper[-1] == "bert-24-1024-16-wwm"
    # At random the last two would be one and the same shape.
    at_random = cells_of(["paper:random"])
    assert len(at_random) == 13
    assert next(iter(at_random.values())) == {"student.init": "bert-8-128-2:random"}
    assert len(names("pocket", "pocket-12-64-4")) == 9


@pytest.mark.parametrize(
    ("models", "axes", "said"),
    [
        ([], {}, "it has no values"),
        ([], {"seed": []}, "seed has no values"),
        (["a"], {"student.init": ["b"]}, "student.init has values too"),
        (["x/a", "y/a"], {}, "several cells would be the folder a"),
        ([], {"seed": [1, 1]}, "several cells would be the folder seed-1"),
    ],
)
def test_what_is_no_grid_is_refused(models: list, axes: dict, said: str) -> None:
    with pytest.raises(LimbeckError, match=re.escape(said)):
        cells_of(models, axes)
