"""Every command line in the README and the docs is one that exists, with settings that exist."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

import pytest
import typer
from pages import PAGES, ROOT, fences
from typer.testing import CliRunner

from limbeck.cli import train_command
from limbeck.cli.app import app
from limbeck.cli.options import is_setting, parse_axes
from limbeck.objectives import OBJECTIVES
from limbeck.recipe import Recipe
from limbeck.run.grid import cells_of

# A page names a recipe file in the first line of its block: `# mine.yaml:  limbeck distill …`.
RECIPES = {
    match[1]: fence.text
    for page in PAGES
    for fence in fences(page, "yaml")
    if (match := re.match(r"# ([\w-]+\.yaml):", fence.text))
}
PLUGINS = {
    match[1]: fence.text
    for page in PAGES
    for fence in fences(page, "python")
    if (match := re.match(r"# ([\w-]+\.py)\n", fence.text))
}
# A recipe that a page leaves to its reader, and its end.
RECIPES["mine.yaml"] = RECIPES["mrpc.yaml"]
OMITTED = "…"


def commands(program: str) -> list[tuple[str, str]]:
    """Every line of a shell block that runs this program, continued lines joined."""
    found = []
    for page in PAGES:
        for fence in fences(page, "sh"):
            for line in fence.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # the environment
                    words.pop(0)
                if words and words[0] == program:
                    found.append((fence.place, shlex.join(words)))
    return found


GROUP = functools.cache(typer.main.get_command)
# Those that the commands' own help ends with.
EXAMPLES = [
    (f"limbeck {name} --help", command.epilog.removeprefix("Example: "))
    for name, command in GROUP(app).commands.items()
]
LINES = commands("limbeck") + EXAMPLES


@pytest.mark.parametrize(("place", "line"), LINES)
def test_commands_and_options_exist(place: str, line: str) -> None:
    group = GROUP(app)
    arguments = [word for word in shlex.split(line)[1:] if word != OMITTED]
    context = group.make_context("limbeck", arguments, resilient_parsing=True)
    name, command, rest = group.resolve_command(context, arguments)
    # Parsing refuses unknown options and values of the wrong type; nothing is run.
    if "--help" not in rest:
        command.make_context(name, rest, parent=context)


TRAINING = [
    (place, line) for place, line in LINES if shlex.split(line)[1] in ("finetune", "distill")
]


@pytest.mark.parametrize(("place", "line"), TRAINING)
def test_settings_of_training_exist(place, line, tmp_path, monkeypatch) -> None:
    """Method, keys and values make a recipe, and each cell of a grid one."""
    loaded = []

    def load(name, settings, *_):
        loaded.append(Recipe.load(name, **settings))

    def load_grid(words, settings, *_):
        models = [word for word in words if not is_setting(word)]
        axes = parse_axes([word for word in words if is_setting(word)])
        for own in cells_of(models, axes).values():
            load("finetune", {**settings, **own})

    monkeypatch.setattr(train_command, "run_recipe", load)
    monkeypatch.setattr(train_command, "run_grid", load_grid)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(OBJECTIVES, "_known", dict(OBJECTIVES._known))
    for name, text in (RECIPES | PLUGINS).items():
        Path(name).write_text(text, encoding="utf-8")
    words = [word for word in shlex.split(line)[1:] if word != OMITTED]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, f"{line}\n{ended.output}{ended.exception!r}"
    assert loaded


@pytest.mark.parametrize(("place", "line"), commands("make"))
def test_make_targets_exist(place: str, line: str) -> None:
    targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = [word for word in shlex.split(line)[1:] if "=" not in word and word[0] != "-"]
    assert set(asked) <= set(targets)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_load(name, tmp_path) -> None:
    (tmp_path / name).write_text(RECIPES[name], encoding="utf-8")
    assert Recipe.load(str(tmp_path / name)).method
