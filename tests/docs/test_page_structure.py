"""Blocks say what they hold, links lead somewhere, and the site shows every page."""

from __future__ import annotations

import importlib.util
import re
from itertools import pairwise

import pytest
from pages import PAGES, ROOT, anchors, fences, name_of, prose

LANGUAGES = {"python", "sh", "yaml", "json", "text"}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language(page) -> None:
    assert [f.place for f in fences(page) if f.language not in LANGUAGES] == []
    marks = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(marks) == 2 * len(fences(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_stand_in_shell_blocks(page) -> None:
    """Where a test parses them."""
    outside = [
        f.place for f in fences(page) if f.language != "sh" and "\nlimbeck " in "\n" + f.text
    ]
    assert outside == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page) -> None:
    broken = []
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        to = page.parent / target if target else page
        if not to.exists() or (anchor and anchor not in anchors(to)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lists_and_tables_begin_after_an_empty_line(page) -> None:
    """The site's Markdown needs one; GitHub's does not."""
    lines = ["", *prose(page).splitlines()]
    joined = [
        line
        for before, line in pairwise(lines)
        if re.match(r"(- |\d+\. |\|)", line)
        and before.strip()
        and not re.match(r"- |  |#|\||\d+\. ", before)
    ]
    assert joined == []


def test_the_site_shows_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    shown = re.findall(r"([\w./-]+\.md)$", navigation, re.MULTILINE)
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]} <= set(shown)
    assert len(shown) == len(set(shown))


def test_every_recipe_key_stands_on_its_page() -> None:
    place = ROOT / "scripts" / "recipe_page.py"
    spec = importlib.util.spec_from_file_location("recipe_page", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text("utf-8")
    assert page == module.page(), "run: python scripts/recipe_page.py"
    for key in ("text_columns", "label_column", "dev", "student", "first_stage", "lr_schedule"):
        assert f"| `{key}` |" in page
