"""What the page of studies says of the scale `pocket` is what the kept measurements say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limbeck.lab.study.study_file import shipped_names

ROOT = Path(__file__).parents[3]
FIVE_MINUTES = 5 * 60


@pytest.fixture(scope="module")
def studies(benchmarks):
    return benchmarks("pocket_studies")


def test_the_page_says_how_long_studies_take(studies):
    kept = json.loads(studies.KEPT.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    seconds = sorted(one["seconds"] for one in kept.values())
    half = len(seconds) // 2
    middle = seconds[half] if len(seconds) % 2 else (seconds[half - 1] + seconds[half]) / 2
    largest = max(kept, key=lambda name: kept[name]["seconds"])
    said = (
        f"{middle:.0f} s for the median study and {seconds[-1]:.0f} s for the largest (`{largest}`)"
    )
    assert said in page
    assert f"{len(kept)} of the {len(shipped_names())}" in page


def test_two_processes_take_under_five_minutes(studies):
    kept = json.loads(studies.KEPT.read_text(encoding="utf-8"))
    assert {*kept} <= {*shipped_names()}
    assert [name for name, one in kept.items() if one["seconds"] / 2 >= FIVE_MINUTES] == []
