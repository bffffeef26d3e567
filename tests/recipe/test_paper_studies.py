"""Shipped studies at the scale `paper` hold the runs that the papers print: models, teams, corpora, settings.

Expected values are read off the papers; no model is loaded.
"""

from __future__ import annotations

import functools

import pytest

from limbeck.lab.study import StudyPlan, load_study
from limbeck.recipe import Recipe
from quick_cases import quick


@functools.cache
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


TEAMS = {
    "T13-T14": {"MT-BERT": 86.9, "uniform": 86.9, "TAKD": 86.8, "SKD": 87.1},
    "T07-T14": {"MT-BERT": 86.6, "uniform": 86.8, "TAKD": 85.9, "SKD": 87.4},
    "T04-T14": {"MT-BERT": 86.9, "uniform": 86.7, "TAKD": 84.4, "SKD": 87.6},
    "T01-T14": {"MT-BERT": 86.7, "uniform": 86.7, "TAKD": 81.4, "SKD": 87.1},
}
"""SKDBERT, Table 5: columns but T10-T14, and four of its six rows."""


@pytest.mark.slow
def test_skdberts_table_of_teams_is_whole():
    five, others = plan("skdbert-table-5"), plan("skdbert-table-5-teams")
    assert len(five.study.methods) + len(others.study.methods) == 30
    printed = others.study.printed.numbers()
    for team, scores in TEAMS.items():
        for how, score in scores.items():
            row = f"{team} {how}" if how in ("TAKD", "SKD") else f"{team} WKD ({how})"
            assert printed[row] == {"average": score}
            members = others.study.methods[row].teachers
            first = int(team[1:3])
            assert members == [f"T{number:02}" for number in range(first, 15)]
    for name, team in (("skdbert-table-5", ""), ("skdbert-table-5-teams", "T04-T14 ")):
        (own, *_) = recipes(name, f"{team}WKD (MT-BERT)", task="stsb")
        assert (own.epochs, own.weight_decay, own.adam_epsilon) == (10, 1e-4, 1e-6)


@pytest.mark.slow
def test_skdberts_students_have_each_of_fourteen_teachers():
    """Table 14: its first and last numbers, and two in the middle."""
    shown = {
        6: ("skdbert-table-14", 84.61, 83.46, 90.24),
        4: ("skdbert-table-14-4", 81.73, 76.73, 85.94),
    }
    for layers, (name, first, last, sixth) in shown.items():
        printed = plan(name).study.printed.numbers()
        assert list(printed) == ["none", *(f"by T{number:02}" for number in range(1, 15))]
        assert (printed["by T01"]["MRPC"], printed["by T14"]["MNLI-m"]) == (first, last)
        assert printed["by T06"]["QNLI"] == sixth
        assert {one.student.init[-7:-5] for one in recipes(name, "none")} == {f"{layers}L"}


@pytest.mark.slow
def test_skdberts_capacity_is_drawn_beside_the_strongest_teacher():
    """Figure 3: T_MAX of each team alone, also for the student of six layers."""
    for name, prefix in (("skdbert-table-4", " uniform"), ("skdbert-figure-5", "")):
        study = plan(name).study
        drawn = study.figures["figure-3"].methods or list(study.methods)
        teams = [f"{team}{prefix}" for team in ("T04-T06", "T07-T09", "T10-T12", "T12-T14")]
        assert drawn == [*teams, "by T06", "by T09", "by T12", "by T14"]


def test_mt_berts_batches_reach_64():
    """App. A: {16, 32, 64}; rows of one teacher are Table 14's, {16, 32}."""
    batches: dict[str, set[int]] = {}
    for group in plan("skdbert-table-1").groups:
        batches.setdefault(group.label, set()).update(cell["batch_size"] for cell, _ in group.grid)
    assert batches.pop("by all (MT-BERT)") == {16, 32, 64}
    assert set(map(tuple, map(sorted, batches.values()))) == {(16, 32)}


@pytest.mark.parametrize(
    "name",
    quick(
        "skdbert-table-2",
        of=(
            *(f"skdbert-table-{number}" for number in (1, 2, 3, 4, 5, "5-teams", 14, "14-4")),
            *("skdbert-figure-3", "skdbert-figure-4", "skdbert-figure-5"),
        ),
    ),
)
def test_skdberts_teachers_are_the_best_of_four_rates(name):
    """Table 11: 6e-6 to 9e-6 for the large ones on MRPC and RTE, 2e-5 to 5e-5 otherwise; 10 epochs on small tasks."""
    found = plan(name)
    for task in found.study.tasks:
        for run in found.teachers_of(task):
            large = run.label in ("T13", "T14") and task in ("mrpc", "rte")
            scale = 1e-6 if large else 1e-5
            first = 6 if large else 2
            tried = [one.settings["lr"] for one in run.tries]
            assert tried == pytest.approx([(first + step) * scale for step in range(4)])
            own = run.recipe_with(())
            assert (own.epochs, own.batch_size) == (
                10 if task in ("mrpc", "rte", "stsb") else 3,
                32,
            )


@pytest.mark.slow
def test_cr_ilds_supplementary_tasks_are_all_eight_and_the_line():
    """Figure 5: each of GLUE's eight as the first stage of four targets, the target itself among them."""
    found = plan("cr-ild-figure-5")
    eight = {"cola", "mrpc", "rte", "stsb", "mnli", "qnli", "qqp", "sst2"}
    for task in ("cola", "mrpc", "rte", "stsb"):
        for label in ("L-ILD", "U-ILD"):
            own = [one.first_stage.task for one in recipes("cr-ild-figure-5", label, task=task)]
            assert len(own) == 8 and set(own) == eight
        names = {g.sample.name for g in found.groups if g.label == "KD" and g.task == task}
        assert len(names) == 1  # one row, whatever the supplementary task is
    for one in recipes("cr-ild-figure-5", "KD"):
        assert [term.compare for term in one.objectives.values()] == ["soft_cross_entropy"]
        assert (one.first_stage, one.epochs, one.lr, one.batch_size) == (None, 4, 2e-5, 16)


def test_cr_ilds_losses_are_of_fine_tuning():
    """Figure 6: "using the cross-entropy loss", RTE after RTE, MRPC, STS-B and QNLI, over 20 trials."""
    study = plan("cr-ild-figure-6").study
    assert (study.tasks, len(study.seeds)) == (["rte"], 20)
    found = recipes("cr-ild-figure-6", "L-ILD, then labels")
    assert [one.first_stage.task for one in found] == ["rte", "mrpc", "stsb", "qnli"]
    for one in found:
        assert [term.compare for term in one.objectives.values()] == ["hard_label"]
    assert {one.y for one in study.figures.values()} == {"hard", "dev.loss"}


def test_cr_ilds_probes_are_of_its_tasks_and_of_train():
    """Figures 4, 10 and 11: MRPC and RTE; CoLA too; RTE on train, RTE, MRPC and STS-B on dev."""
    figures = plan("cr-ild-figure-4").study.figures
    tasks = {name: set(one.tasks or ()) for name, one in figures.items()}
    assert tasks == {
        "figure-4": {"mrpc", "rte"},
        "figure-10": {"cola", "mrpc", "rte"},
        "figure-11": {"rte", "mrpc", "stsb"},
        "figure-11a": {"rte"},
    }
    assert figures["figure-11a"].split == "train" and figures["figure-11"].split != "train"
