"""*How limbeck is built* names the packages in the order that imports follow, and files that exist."""

from __future__ import annotations

import re

from pages import ROOT

from test_order import ORDER

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_table_of_packages_is_the_order_of_imports() -> None:
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", PAGE, re.MULTILINE)
    shown = [set(re.findall(r"`([\w.]+)`", row)) for row in rows]
    core = [names for names in ORDER if not any(re.match(r"lab(\.|$)|__", name) for name in names)]
    assert shown == [*core, {"lab"}]


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:\w+/)+[\w.]*)`", PAGE)
    assert len(named) > 20
    source = ROOT / "src" / "limbeck"
    missing = [
        name for name in named if not (source / name).exists() and not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_function_that_is_named_stands_in_its_file() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)` \(`(\w+)`\)", PAGE)
    assert named
    for place, name in named:
        text = (ROOT / "src" / "limbeck" / place).read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b|^{name} =", text, re.MULTILINE), (place, name)
