"""A recipe written out whole, as a run folder holds it, is the same recipe when it is read again."""

from __future__ import annotations

from typing import Any

import pytest

from limbeck.recipe import Recipe, catalog

GIVEN: dict[str, dict[str, Any]] = {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}
# Keys that stand in for others, or that a single kind has.
CHANGED: list[tuple[str, dict[str, Any]]] = [
    ("internal-kd-pid", {"curriculum.epochs_per_layer": 2}),
    ("internal-kd-sid", {"curriculum.epochs_per_layer": [1, 2, 3]}),
    ("internal-kd-sid", {"curriculum.watch": "cosine", "curriculum.below": "1/2"}),
    ("contextual-kd", {"objectives.word_angles.window": 5}),
    ("alp-sparse", {"objectives.attention.mapping.weigh": "entmax"}),
    ("bert-emd", {"objectives.hidden.mapping.layer_weights": "uniform"}),
    ("cr-ild", {"first_stage.mixup.partner": "reversed", "first_stage.mixup.dominant": True}),
    ("l-ild", {"joint": True}),
    ("minilmv2", {"first_stage.objectives.key.heads": 48}),
]


@pytest.mark.parametrize(
    ("method", "given"),
    [*((name, GIVEN.get(name, {})) for name in catalog.names()), *CHANGED],
)
def test_a_written_recipe_is_read_as_the_same(tmp_path, method, given):
    recipe = Recipe.load(method, **given)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    again = Recipe.load(tmp_path / "recipe.yaml")
    assert again == recipe
    assert again.to_yaml() == recipe.to_yaml()
