"""Named CNNs train for their own epochs, and so do the students that their teachers are ranked by."""

from __future__ import annotations

import pytest

from limbeck.recipe import Recipe

RANKED = ["skd-student-rank", "skd-best-of", "wkd-student-rank"]


@pytest.mark.parametrize("method", RANKED)
@pytest.mark.parametrize(("data", "epochs"), [("cifar100", 240), ("digits", 30)])
def test_students_that_rank_train_as_long_as_the_run(method, data, epochs):
    recipe = Recipe.load(method, data=data, **{"student.init": "resnet-20"})
    assert recipe.epochs == epochs
    # Left out, it means: as the run's.
    assert recipe.team.student_epochs is None


@pytest.mark.parametrize("method", RANKED)
def test_on_pocket_data_too(method):
    recipe = Recipe.load(method, data="pocket", task="sst2")
    assert recipe.team.student_epochs is None


@pytest.mark.parametrize("method", RANKED)
def test_what_the_user_says_wins(method):
    given = {"student.init": "resnet-20", "team.student_epochs": 9}
    assert Recipe.load(method, data="cifar100", **given).team.student_epochs == 9


@pytest.mark.parametrize("method", RANKED)
def test_transformers_keep_the_papers(method):
    assert Recipe.load(method, task="sst2").team.student_epochs == 3
