"""The page of attacks shows the record, and what counts as a failure is one; the attacks: scripts/attack.py."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def attack(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import attack

    return attack


@pytest.fixture
def place(attack, tmp_path):
    """Of one kind of run, that ended before."""
    from attacks.place import Place

    place = Place(tmp_path)
    for name in ("unbroken", "other"):
        run = tmp_path / name
        (run / "student").mkdir(parents=True)
        (run / "student" / "model.safetensors").write_bytes(b"weights")
        (run / "predictions.json").write_text("{}")
        cost = {"student_examples": 8, "student_flops": 1.0, "teacher_flops": 2.0}
        record = {"status": "finished", "scores": {}, "epochs": [], "cost": cost}
        (run / "record.json").write_text(json.dumps(record))
    place.unbroken["kind"] = tmp_path / "unbroken"
    return place


def outcome(place, code, said="") -> str:
    from attacks.place import Ended

    return place.compare("kind", place.folder / "other", Ended(code, said))[0]


def test_the_page_shows_the_record(attack):
    record = json.loads(attack.RECORD.read_text(encoding="utf-8"))
    assert set(record["groups"]) <= set(attack.GROUPS)
    shown = attack.PAGE.read_text(encoding="utf-8").partition(attack.MARK)[2]
    assert shown.strip() == attack.table(record)


def test_every_attack_of_the_record_has_ended(attack):
    record = json.loads(attack.RECORD.read_text(encoding="utf-8"))
    rows = [row for group in record["groups"].values() for row in group["rows"]]
    assert all(row["tried"] == sum(row[name] for name in attack.OUTCOMES) for row in rows)


def test_every_end_is_told(place):
    from attacks import place as ends

    assert outcome(place, 0) == ends.SAME
    assert outcome(place, 0, "it is damaged, and is made again") == ends.NOTICED
    assert outcome(place, 2, "error: it\n   fix: that") == ends.REFUSED
    assert outcome(place, 2, "error: it") == ends.BAD
    assert outcome(place, None) == ends.BAD
    assert outcome(place, 1, "Traceback (most recent call last)") == ends.BAD


@pytest.mark.parametrize("name", ["student/model.safetensors", "predictions.json", "record.json"])
def test_what_changed_without_a_word_is_a_failure(place, name):
    from attacks.place import BAD

    path = place.folder / "other" / name
    text = path.read_text()
    path.write_text({"record.json": text.replace("1.0", "1.5")}.get(name, text + " "))
    assert outcome(place, 0) == BAD


def test_a_file_left_over_is_a_failure(place):
    from attacks.place import BAD

    (place.folder / "other" / ".record.json.x.tmp").touch()
    assert outcome(place, 0) == BAD


def test_one_bit_is_flipped(attack, tmp_path):
    from attacks.flips import flip

    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    flip(path, random.Random(3))
    assert sum(byte.bit_count() for byte in path.read_bytes()) == 1


def test_counts_add_up(attack):
    from attacks.place import REFUSED, SAME, Tried

    tried = [Tried("kills", "a", SAME), Tried("kills", "a", REFUSED), Tried("kills", "b", SAME)]
    record = {"groups": {"kills": {"rows": attack.summary(tried)}}}
    lines = attack.table(record).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:4]] == ["a", "2", "1"]
    assert [cell.strip() for cell in lines[-1].split("|")[1:4]] == ["**all**", "**3**", "**2**"]
