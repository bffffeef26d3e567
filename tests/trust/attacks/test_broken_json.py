"""A broken description of a stored entry, and records that someone edited."""

import json

import pytest

from limbeck.outputs.cache import Store, describe
from limbeck.outputs.manifest import ExamplesManifest
from limbeck.records import Record
from limbeck.support.errors import LimbeckError

BROKEN = ["", "{", "[1]", "null", '"text"', "[" * 50_000, '{"bytes": 1, "bytes": 2}', "9" * 5000]


@pytest.mark.parametrize("text", BROKEN)
def test_an_entry_whose_description_is_broken_is_no_entry(tmp_path, text):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shard-00000.arrow").write_bytes(b"x" * 8)
        describe(tmp_path / name, ExamplesManifest(complete=False, model="m", rows=1), rows=1)
    (tmp_path / "bad" / "manifest.json").write_text(text, encoding="utf-8")
    store = Store(tmp_path)
    assert [entry.key for entry in store.entries()] == ["good"]
    assert store.find("bad") is None


@pytest.mark.parametrize("text", BROKEN)
def test_a_record_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "record.json").write_text(text, encoding="utf-8")
    with pytest.raises(LimbeckError, match=r"record\.json"):
        Record.load(tmp_path)


def test_a_key_twice_in_a_record_is_refused(tmp_path):
    plain = {"schema": 1, "kind": "distill", "method": "kd", "task": "t", "data": "d", "seed": 1}
    twice = json.dumps(plain)[:-1] + ', "seed": 2}'
    (tmp_path / "record.json").write_text(twice, encoding="utf-8")
    with pytest.raises(LimbeckError, match="'seed' occurs twice"):
        Record.load(tmp_path)
