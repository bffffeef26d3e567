"""Names that a file or a recipe brings into a table are text: no markup, no escape codes, no row of their own."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.tables import FORMATS, build_table, render, terminal
from synthetic_records import a_run

NAMES = ["[/t]", "[bold]x", "a|b<i>", "*b* _c_ `d`", "[a](http://b)", "~~x~~ &lt;", "a\\"]


def table_of(name: str):
    return replace(build_table([a_run("kd", 1, 80.0, task=name)]), title=name)


@pytest.mark.parametrize("name", NAMES)
def test_any_console_prints_a_name_as_it_is(name):
    plain = Console(file=io.StringIO(), width=200)  # with markup on, as whoever imports rich has it
    with plain.capture() as shown:
        plain.print(terminal(table_of(name)))
    title, _, headings = shown.get().splitlines()[:3]
    assert title.strip() == name and name in headings
    assert name in render(table_of(name), "terminal")


def test_the_command_prints_it_too(tmp_path):
    a_run("kd", 1, 80.0, task="[/t]").save(tmp_path / "run" / "record.json")
    done = CliRunner().invoke(app, ["table", str(tmp_path / "run"), "--title", "[red]of mine[/x]"])
    assert done.exit_code == 0, done.output
    assert "[/t]" in done.output and "[red]of mine[/x]" in done.output


@pytest.mark.parametrize("name", NAMES)
def test_markdown_escapes_headings_and_title(name):
    title, _, headings, rule, *_ = render(table_of(name), "markdown").splitlines()
    special = set("|<>*_`\\[]~&")
    escaped = "".join(f"\\{mark}" if mark in special else mark for mark in name)
    assert title == f"**{escaped}**" and f"| {escaped} |" in headings
    # As many cells as the rule below has: a bar that is escaped divides nothing.
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", headings)) == rule.count("|")


@pytest.mark.parametrize(
    "name", ["a\nb", "a\r\nb", "a\u2028b", "a\tb", "a\x1b[31mb", "a\x9b1mb", "a\0b"]
)
def test_no_name_breaks_a_line_or_drives_the_terminal(name):
    for form in FORMATS:
        shown = render(table_of(name), form)
        if form == "csv":  # data for programs, quoted as CSV quotes it
            assert f"{name} mean" in next(csv.reader(io.StringIO(shown, newline="")))
            continue
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", shown)
        lines = [line for line in shown.splitlines() if "80.0" in line or "parameters" in line]
        assert len(lines) == 2
