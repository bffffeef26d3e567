"""Hooks of mkdocs: README and pages beside it join the site, API pages come from the package, LaTeX becomes MathML.

make docs
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# What a browser would fetch from another machine. (Links that a reader follows are no matter.)
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")

# Factors of the search's scores, by the start of a page's path.
BOOSTS = {
    "faq": 3,
    "methods": 2,
    "api/": 0.1,
    "settings": 0.1,
    "architecture": 0.1,
    "CHANGELOG": 0.1,
}

# A formula as pymdownx.arithmatex marks it.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# Tables, printed tables and drawings are wider than a phone.
WIDE = re.compile(
    r'<table>.*?</table>|<p><img [^>]*></p>|<div class="highlight"><pre>(?:(?!</pre>).)*─{9}.*?</div>',
    re.DOTALL,
)


def packages() -> list[str]:
    """The package and its parts that say what is public of them (`__all__`), by their import names."""
    starts = sorted((ROOT / "src" / "limbeck").rglob("__init__.py"))
    named = [start for start in starts if "\n__all__ = [" in start.read_text(encoding="utf-8")]
    folders = sorted(start.parent.relative_to(ROOT / "src") for start in named)
    return [".".join(folder.parts) for folder in folders if "cli" not in folder.parts]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the API pages into the navigation."""
    pages = [{name: f"api/{name}.md"} for name in packages()]
    config.nav = [*(config.nav or []), {"API": pages}]
    return config


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Takes from fences why their code is not run: with more than a language a fence is none to the site.

    A search finds answers first, a method's equation before the tables that name it, and the reference last.
    """
    for start, boost in BOOSTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": boost}
    return re.sub(r"^(```\w+) no-run:.*$", r"\1", markdown, flags=re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files of the repository's root that pages link to, and one page for each package."""
    for page in (*ROOT.glob("*.md"), ROOT / "CITATION.cff"):
        name = "index.md" if page.name == "README.md" else page.name
        # Links in these pages start at the repository's root, those of the site at docs/.
        content = page.read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=content))
    for name in packages():
        page = f"# API reference of {name}\n\n::: {name}\n"
        files.append(File.generated(config, f"api/{name}.md", content=page))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Typesets formulas as MathML, which browsers show without a script; the search skips displayed ones.

    What may scroll takes the keyboard's focus.
    """
    html = WIDE.sub(r'<div class="scroll" tabindex="0">\g<0></div>', html)
    return FORMULA.sub(typeset, html)


def typeset(formula: re.Match[str]) -> str:
    """Convert one marked formula.

    Raises:
        PluginError: it has a command that the converter does not know.
    """
    inline = formula[1] == "span"
    latex = unescape(formula[2]).strip().replace(r"\tag", r"\qquad\tag")
    math = convert(latex, display="inline" if inline else "block")
    if "\\" in math:
        raise PluginError(f"a formula with an unknown command: {latex}")
    skipped = "" if inline else ' data-search-exclude tabindex="0"'
    return f'<{formula[1]} class="arithmatex"{skipped}>{math}</{formula[1]}>'


def on_post_page(output: str, **_: object) -> str:
    """Refuses a page that would fetch anything from elsewhere; names the theme's dialog for screen readers."""
    if found := FETCHED.search(output):
        raise PluginError(f"a page fetches from another machine: {found[0]}")
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


on_post_template = on_post_page  # of the page 404


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the search's index as a script too, which the theme reads on pages that are opened from a folder."""
    index = Path(config.site_dir, "search", "search_index.json").read_text(encoding="utf-8")
    Path(config.site_dir, "search", "search_index.js").write_text(
        f"var __index = {index}", encoding="utf-8"
    )
