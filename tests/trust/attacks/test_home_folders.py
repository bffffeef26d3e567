"""Home folders of nobody."""

from __future__ import annotations

from pathlib import Path

from limbeck.support.files import at_home


def test_the_home_of_nobody_is_a_folder_that_does_not_exist():
    assert at_home("~nobody-at-all/x") == Path("~nobody-at-all/x")
    assert at_home("~/x") == Path.home() / "x"
    assert at_home(Path("a/~b")) == Path("a/~b")
