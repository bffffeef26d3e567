"""Shipped studies at the scale `paper` hold the runs that the papers print: models, teams, corpora, settings.

Expected values are read off the papers; no model is loaded.
"""

from __future__ import annotations

import pytest

from limbeck.recipe import Recipe
from limbeck.study import StudyPlan, load_study


def plan(name: str) -> StudyPlan:
    return StudyPlan.of(load_study(name, scale="paper"))


BERT_SMALL = "google/bert_uncased_L-6_H-768_A-12"
"""CR-ILD's BERT-small: 67.5M parameters in its tables, so 6 layers of width 768 (Turc et al. 2019)."""


@pytest.mark.parametrize(
    "name",
    [
        *("cr-ild-table-1-bert-small", "cr-ild-figure-3", "cr-ild-figure-5", "cr-ild-figure-7"),
        *("cr-ild-figure-7-length", "cr-ild-figure-7-similarity"),
    ],
)
def test_cr_ilds_small_bert(name):
    runs = [run for group in plan(name).groups for _, own in group.grid for run in own]
    assert {run.settings["student.init"] for run in runs} == {BERT_SMALL}


def recipes(name: str, *labels: str, task: str | None = None) -> list[Recipe]:
    """Of the first cell and seed of each group of these rows."""
    return [
        group.sample.recipe_with(group.sample.needs)
        for group in plan(name).groups
        if group.label in labels and task in (None, group.task)
    ]


@pytest.mark.parametrize(
    ("name", "noise", "rows"),
    [
        ("cr-ild-table-2-few", 0.0, 1000),
        ("cr-ild-table-2-noise", 0.3, None),
        ("cr-ild-table-6-10", 0.1, None),
        ("cr-ild-table-6-20", 0.2, None),
    ],
)
def test_cr_ilds_ill_conditioned_rows_are_of_bert_small(name, noise, rows):
    """Figure 1's caption says so, and KD with 10 % noise has 44.9 on CoLA, clean and truncated 36.7."""
    found = recipes(name, "KD", "PKD", "TinyBERT", "BERT-EMD", "CR-ILD")
    assert len(found) == 5 * len(plan(name).study.tasks)
    assert {(one.student.init, one.student.layers) for one in found} == {(BERT_SMALL, None)}
    assert {(one.label_noise, one.train_rows) for one in found} == {(noise, rows)}
    assert "BERT-small" in plan(name).study.printed.source


@pytest.mark.parametrize("name", ["cr-ild-figure-2", "cr-ild-figure-3", "cr-ild-figure-9"])
def test_the_line_in_cr_ilds_figures_is_the_teachers_outputs_alone(name):
    """App. D.1: "we only use PLD term", 4 epochs at 2e-5 with batches of 16."""
    for one in recipes(name, "KD"):
        assert [term.compare for term in one.objectives.values()] == ["soft_cross_entropy"]
        assert (one.epochs, one.lr, one.batch_size, one.max_length) == (4, 2e-5, 16, 128)
        assert one.first_stage is None


def test_cr_ilds_ablation_differs_in_its_components_alone():
    """App. D.2: 2e-5 in the first stage of all, batches of 32 on RTE and 16 on CoLA."""
    for task, batch in (("rte", 32), ("cola", 16)):
        found = recipes("cr-ild-figure-9", "L-ILD", "L-ILD + MixUp", "CR-ILD", task=task)
        assert [(one.first_stage.lr, one.batch_size) for one in found] == [(2e-5, batch)] * 3


def test_cr_ilds_supplementary_rows_are_pairs_from_wikipedia():
    """App. B: "two sentences from the Wikipedia corpus", filtered by length; c-d of 30,000 rows."""
    sizes = [one.first_stage.corpus for one in recipes("cr-ild-figure-7", "L-ILD", task="cola")]
    lengths = [
        one.first_stage.corpus for one in recipes("cr-ild-figure-7-length", "L-ILD", task="stsb")
    ]
    assert {(one.source, one.pairs) for one in sizes + lengths} == {("hub", "random")}
    assert len({one.size for one in sizes}) == 3 and {one.min_tokens for one in sizes} == {None}
    assert {one.size for one in lengths} == {30000} and len(
        {one.min_tokens for one in lengths}
    ) == 4


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("skdbert-table-8", 24),
        ("skdbert-table-8-wrn", 9),
        ("skdbert-table-9", 8),
        ("skdbert-table-9-wrn", 4),
    ],
)
def test_cifars_kd_is_the_cited_one(name, rows):
    """CRD's commands: -r 0.1 -a 0.9 at --kd_T 4, whose loss is times T²; SKD beside it likewise."""
    found = [
        group.sample.recipe_with(group.sample.needs)
        for group in plan(name).groups
        if " by " in group.label
    ]
    assert len(found) == rows
    for one in found:
        hard, soft = one.objectives["hard"], one.objectives["soft"]
        assert (len(one.objectives), hard.weight, soft.weight) == (2, 0.1, 0.9)
        assert (hard.compare, soft.temperature, soft.scale_by_t2) == ("hard_label", 4, True)
