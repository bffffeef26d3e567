"""What commands and trainer do is what the reference says, which only a commit that names it may change."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

import net
from fresh_process import printed_by

SAMPLE = ("recipe/tinybert", "errors without models")
CHANGE = """
tests/net/reference.json says otherwise. If that is meant, record those cases again, and say so in the commit:
    python tests/net/net.py record tests/net/reference.json --only 'recipe/NAME'
(without --only on another processor or torch). What differs:
"""


@pytest.fixture(scope="module")
def reference():
    return json.loads(net.REFERENCE.read_text(encoding="utf-8"))


def assert_same(reference, found) -> None:
    assert not (lines := net.compared(reference, found)), CHANGE + "\n".join(lines)


def test_every_case_has_an_entry(reference):
    """A recipe that is new has none."""
    assert reference["cases"].keys() == net.CASES.keys(), CHANGE


def test_a_sample_is_as_it_was(reference):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import net; net.print_found(sys.argv[2:])"
    found = json.loads(printed_by(code, Path(net.__file__).parent, *SAMPLE))
    assert_same(reference | {"cases": {name: reference["cases"][name] for name in SAMPLE}}, found)


@pytest.mark.slow
def test_all_is_as_it_was(reference, tmp_path):
    line = [sys.executable, net.__file__, "record", tmp_path / "found.json", "--jobs", "2"]
    subprocess.run(line, check=True, cwd=tmp_path)
    assert_same(reference, json.loads((tmp_path / "found.json").read_text(encoding="utf-8")))


def losses_of(found, recipe="recipe/kd"):
    return found["cases"][recipe]["close"]["trainer"]["losses"]["loss"]


def test_what_differs_is_named(reference):
    other = copy.deepcopy(reference)
    del other["cases"]["recipe/dkd"]
    other["cases"]["recipe/new"] = {"close": {}, "exact": {}}
    other["cases"]["errors without models"]["close"]["table nowhere"][1] += "!"
    losses_of(other)[0] *= 1.001
    text, gone, loss, new = net.compared(reference, other)
    assert gone.startswith("recipe/dkd: gone") and new.startswith("recipe/new: new")
    assert text.splitlines()[-1] == "    +error: no such file or folder: nowhere!"
    assert loss.startswith("recipe/kd › close › trainer › losses › loss[0]:")


def test_another_processor_may_round_otherwise(reference):
    other = copy.deepcopy(reference)
    other["about"]["processor"] = "another"
    other["cases"]["recipe/kd"]["exact"]["command"]["student"] = "another"
    losses_of(other)[0] *= 1.0005
    losses_of(other, "recipe/contextual-kd")[5] *= 1.02
    assert net.compared(reference, other) == []
    losses_of(other)[0] *= 1.002
    (line,) = net.compared(reference, other)
    assert line.startswith("recipe/kd › trainer › losses › loss[0]:")
