"""Blocks say what they hold, links lead somewhere, and the site shows every page."""

from __future__ import annotations

import importlib.util
import re
import runpy
from itertools import pairwise
from types import SimpleNamespace

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


def test_what_scrolls_on_the_site_takes_the_keyboards_focus() -> None:
    for name in ("mkdocs", "latex2mathml"):  # of the extra docs
        pytest.importorskip(name)
    hooks = runpy.run_path(str(ROOT / "scripts" / "site.py"))
    formula = r'<div class="arithmatex">\[x\]</div>'
    page = f'<p>a</p><table><tr></tr></table>{formula}<p><img alt="b" src="b.svg" /></p><p>c</p>'
    shown = hooks["on_page_content"](page)
    start = '<div class="scroll" tabindex="0">'
    assert f"<p>a</p>{start}<table><tr></tr></table></div><div" in shown
    assert f'{start}<p><img alt="b" src="b.svg" /></p></div><p>c</p>' in shown
    printed = '<div class="highlight"><pre><span></span><code>a  b\n─────────\n</code></pre></div>'
    assert hooks["on_page_content"](printed) == f"{start}{printed}</div>"
    assert hooks["on_page_content"](code := printed.replace("─", "-")) == code
    assert re.search(r'<div class="arithmatex"[^>]* tabindex="0"><math', shown)
    for hook in ("on_post_page", "on_post_template"):
        assert hooks[hook]('<a role="dialog">') == '<a role="dialog" aria-label="Search">'


def test_pages_opened_from_a_folder_find_the_searchs_index(tmp_path) -> None:
    for name in ("mkdocs", "latex2mathml"):  # of the extra docs
        pytest.importorskip(name)
    hooks = runpy.run_path(str(ROOT / "scripts" / "site.py"))
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.json").write_text('{"docs":["é"]}', encoding="utf-8")
    hooks["on_post_build"](SimpleNamespace(site_dir=str(tmp_path)))
    script = (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")
    assert script == 'var __index = {"docs":["é"]}'
    assert "polyfills: [assets/folder-search.js]" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_colours_of_the_site_contrast() -> None:
    """WCAG 2.2, 1.4.3, on the theme's ground of code, which is nearest to the text."""
    style = (ROOT / "docs" / "assets" / "extra.css").read_text(encoding="utf-8")
    # Luminances by hand: #272a35 has 0.0234, #f5f5f5 has 0.9131; black of 64 % on the latter is #585858, 0.0976.
    colours = re.findall(r"#([0-9a-f]{6});", style.partition('"slate"')[2])
    assert len(colours) == 3 and "--md-default-fg-color--light: #000000a3;" in style
    assert (0.9131 + 0.05) / (0.0976 + 0.05) >= 4.5
    for colour in colours:
        parts = [((int(colour[at : at + 2], 16) / 255 + 0.055) / 1.055) ** 2.4 for at in (0, 2, 4)]
        light = sum(
            share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
        )
        assert (light + 0.05) / (0.0234 + 0.05) >= 4.5, colour
    assert re.search(r"\.md-content a:not\(\.headerlink\) \{\n  text-decoration: underline;", style)
