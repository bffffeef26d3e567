"""CI tests what `pyproject.toml` claims: its Pythons, its extras, its version; and runs only what exists."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml
from pages import ROOT

FOLDER = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def jobs(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["jobs"]


def test_ci_runs_the_pythons_that_are_claimed() -> None:
    prefix = "Programming Language :: Python :: "
    claimed = [one.removeprefix(prefix) for one in PROJECT["classifiers"] if prefix in one]
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    check = jobs("check.yml")
    rows = check["test"]["strategy"]["matrix"]["include"]
    (first,) = [
        step["with"] for step in check["check"]["steps"] if "python-version" in step.get("with", {})
    ]
    newest = [row["python"] for row in rows if row["versions"] == "newest"]
    assert [first["python-version"], *newest] == claimed
    assert [row["python"] for row in rows if row["versions"] == "lowest"] == claimed[:1]
    assert check["wheel"]["strategy"]["matrix"]["python"] == [claimed[0], claimed[-1]]
    install = (ROOT / "scripts" / "install").read_text(encoding="utf-8")
    assert (
        re.findall(r"python(3\.\d+)", install.split("for candidate")[1].split(";")[0])
        == claimed[::-1]
    )


def test_ci_installs_every_extra() -> None:
    extras = jobs("check.yml")["extras"]["strategy"]["matrix"]["extra"]
    assert {*extras, "dev"} == {*PROJECT["optional-dependencies"]}


def test_commands_are_there() -> None:
    targets = set(
        re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for file in FOLDER.glob("*.yml"):
        for job in jobs(file.name).values():
            for run in (step["run"] for step in job["steps"] if "run" in step):
                assert set(re.findall(r"\bmake (\w+)", run)) <= targets, file
                for script in re.findall(r"\bscripts/\w+", run):
                    assert (ROOT / script).is_file(), script


def test_a_tag_is_held_against_the_version() -> None:
    (line,) = [
        step["run"]
        for step in jobs("release.yml")["build"]["steps"]
        if "grep" in step.get("run", "")
    ]
    pattern = line.split('"', 1)[1].split("#v}")[0]
    assert pattern.startswith("version = ")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{PROJECT["version"]}"' in text.splitlines()
