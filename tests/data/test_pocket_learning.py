"""Pocket GLUE is learned from scratch, and takes depth: small trainings, and in earnest when slow."""

import pytest

from limbeck.recipe import Recipe
from limbeck.run import distill

MAJORITY = {
    "sst2": 50.0, "cola": 0.0, "mrpc": 74.4, "stsb": 0.0, "qqp": 30.7, "mnli": 33.5, "qnli": 50.2,
    "rte": 50.6, "wnli": 51.3,
}  # fmt: skip
# Of each task: what the deep teacher reaches at least, and by how much two layers stay below it;
# the scores behind them are in benchmarks/records/pocket_glue.json.
LEARNED = {
    "sst2": (90.0, 1.0), "cola": (85.0, 5.0), "mrpc": (88.0, 1.0), "stsb": (58.0, 3.0),
    "qqp": (80.0, 3.0), "mnli": (85.0, 1.5), "qnli": (79.0, 3.0), "rte": (83.0, 3.0),
    "wnli": (88.0, 1.5),
}  # fmt: skip


def trained(task, folder, **settings):
    """Primary dev score of a pocket model trained from scratch."""
    recipe = Recipe.load("finetune", task=task, data="pocket", seed=1, **settings)
    return distill(recipe, folder, report=False).scores["dev"]["primary"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sst2", "mnli"])
def test_a_few_hundred_steps_beat_the_majority(task, tmp_path):
    # Four layers instead of twelve: what shows here is that the labels can be learned at all.
    student = {"init": "pocket", "config": {"num_hidden_layers": 4}}
    score = trained(task, tmp_path / "run", student=student, max_steps=250, lr=1e-3)
    # Two standard errors of a share near one half over 1,000 dev rows.
    assert score > MAJORITY[task] + 3.2


@pytest.mark.slow
@pytest.mark.parametrize("task", LEARNED)
def test_a_shallow_model_alone_stays_below_the_deep_teacher(task, tmp_path):
    # The same epochs and rate for both.
    floor, gap = LEARNED[task]
    shallow = {"init": "pocket", "config": {"num_hidden_layers": 2}}
    teacher = trained(task, tmp_path / "teacher", student={"init": "pocket"})
    alone = trained(task, tmp_path / "alone", student=shallow)
    assert teacher > floor > MAJORITY[task]
    assert alone < teacher - gap
