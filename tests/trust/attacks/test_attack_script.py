"""Malformed inputs of the quick kinds through the real command line; all by hand: scripts/attack_inputs.py."""

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def attack(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    import attack_inputs

    from limbeck.cli.app import SETTINGS

    for name in SETTINGS:
        monkeypatch.setenv(name, "")
    return attack_inputs


@pytest.mark.parametrize(
    ("kind", "cases"),
    [("recipes of odd YAML", 12), ("records", 12), ("stored outputs", 6), ("labels", 3)],
)
def test_malformed_input_ends_in_a_clear_error(attack, tmp_path, kind, cases):
    ended = list(attack.attack(tmp_path, [kind], quick=cases))
    assert len(ended) == cases
    bad = [one for one in ended if one.outcome not in attack.GOOD]
    assert not bad, attack.table(bad) + "\n" + bad[0].name + ": " + bad[0].said[-500:]


def test_every_outcome_is_told(attack):
    case = attack.Case("it", ("x",), warned="mind")
    said = "error: it\n    fix: that"
    assert attack.outcome(case, 2, said, None) == "clear error"
    assert attack.outcome(case, 2, "error: it", None) == "traceback"
    assert attack.outcome(case, 1, said, ValueError("x")) == "traceback"
    assert attack.outcome(case, 0, "note: mind", None) == "accepted with a warning"
    assert attack.outcome(case, 0, "fine", None) == "accepted"
