"""Hooks of mkdocs: the README is the site's first page, and the API pages are written from the package.

make docs
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# What a browser would fetch from another machine. (Links that a reader follows are no matter.)
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the first page and one page for each package that the navigation names below `api/`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    # Links in the README start at the repository's root, those of the site at docs/.
    files.append(File.generated(config, "index.md", content=readme.replace("](docs/", "](")))
    for name in re.findall(r"\bapi/([\w.]+)\.md", (ROOT / "mkdocs.yml").read_text("utf-8")):
        package = "limbeck" if name == "limbeck" else f"limbeck.{name}"
        page = f"# {package}\n\n::: {package}\n"
        files.append(File.generated(config, f"api/{name}.md", content=page))
    return files


def on_post_page(output: str, **_: object) -> str:
    """Refuses a page that would fetch anything from elsewhere."""
    if found := FETCHED.search(output):
        raise PluginError(f"a page fetches from another machine: {found[0]}")
    return output
