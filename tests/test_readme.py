"""The README and the docs: every command line and every Python block in them is one that exists."""

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from limbeck.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[tuple[str, str]]:
    """All fenced blocks in these languages: where, and the text."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append((f"{page.relative_to(ROOT)}:{line}", match[2]))
    return found


def commands() -> list[tuple[str, str]]:
    """Every line of a shell block, continued lines joined, `$ ` and comments taken off."""
    found = []
    for place, text in blocks("sh", "bash", "shell", "console"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words:
                found.append((place, shlex.join(words)))
    return found


COMMANDS = commands()
LIMBECK = [(place, line) for place, line in COMMANDS if shlex.split(line)[0] == "limbeck"]
MAKE = [(place, line) for place, line in COMMANDS if shlex.split(line)[0] == "make"]


@pytest.mark.parametrize(("place", "line"), LIMBECK)
def test_commands_and_options_exist(place: str, line: str) -> None:
    group = typer.main.get_command(app)
    arguments = shlex.split(line)[1:]
    context = group.make_context("limbeck", arguments, resilient_parsing=True)
    name, command, rest = group.resolve_command(context, arguments)
    # Parsing refuses unknown options and values of the wrong type; nothing is run.
    if "--help" not in rest:
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize(("place", "line"), MAKE)
def test_make_targets_exist(place: str, line: str) -> None:
    targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = [word for word in shlex.split(line)[1:] if "=" not in word and word[0] != "-"]
    assert set(asked) <= set(targets)


@pytest.mark.parametrize(("place", "code"), blocks("python", "py"))
def test_python_blocks_compile_and_import_what_exists(place: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken
