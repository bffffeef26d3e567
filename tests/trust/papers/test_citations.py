"""Who wrote what, and for which students: recipes and docs say it as the papers do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from limbeck.recipe import catalog

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
CR_ILD = [entry.method for entry in catalog.available() if "CR-ILD" in entry.paper]
PKD = [entry.method for entry in catalog.available() if entry.method.startswith("pkd")]


@pytest.mark.parametrize("method", CR_ILD)
def test_cr_ild_is_by_ko_and_others(method):
    """EACL 2023 Findings: Jongwoo Ko, Seungjoon Park, Minchan Jeong and others."""
    assert "CR-ILD, Ko et al. 2023" in catalog.find(method).paper


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_other_authors_of_cr_ild(page):
    assert not re.search(r"\bJung\b", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("method", ["pkd-1", "pkd-6", "pkd-12"])
def test_methods_for_two_layers_are_shown_with_two(method):
    usage = catalog.find(method).text.splitlines()[0]
    assert "--layers 2 " in usage


@pytest.mark.parametrize("method", [name for name in PKD if name != "pkd-released"])
def test_the_thirds_of_pkd_are_limbecks_own(method):
    """Neither RAIL-KD nor ALP-KD says at which weights and temperature it runs PKD."""
    entry = catalog.find(method)
    assert "reimplement" not in entry.text
    assert any("limbeck's own" in line and "τ = 1" in line for line in _comments(entry.text))


def _comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]
