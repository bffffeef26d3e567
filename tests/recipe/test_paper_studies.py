"""Shipped studies at the scale `paper` hold the runs that the papers print: models, teams, corpora, settings.

Expected values are read off the papers; no model is loaded.
"""

from __future__ import annotations

import pytest

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
