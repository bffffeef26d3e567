"""The page of the papers at small scale prints what the kept records say, whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "papers-at-small-scale.md").read_text(encoding="utf-8")
SECTIONS = {
    re.search(r"limbeck study ([a-z0-9-]+)", part)[1]: part.splitlines()
    for part in PAGE.split("\n## ")[1:]
}


@pytest.fixture(scope="module")
def studies(benchmarks):
    return benchmarks("paper_studies")


def test_each_kept_study_has_its_section(studies):
    assert sorted(SECTIONS) == studies.taken()


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_all_rows_of_a_study_stand_in_its_section(studies, name):
    rows = [line for table in studies.printed(name) for line in table.splitlines()]
    assert len(rows) > 3
    assert [row for row in rows if row not in SECTIONS[name]] == []
    # And no other.
    assert [row for row in SECTIONS[name] if row.startswith("|") and row not in rows] == []


def test_what_is_kept_says_no_text(studies):
    """No row's text or tokens are kept; labels and numbers are."""
    for path in studies.KEPT.glob("*.analyses.json"):
        kept = path.read_text(encoding="utf-8")
        assert "[CLS]" not in kept
        assert '"text"' not in kept
