"""Many records in one file. Oracle: the standard library's gzip and json, and single record files."""

from __future__ import annotations

import gzip
import json

import pytest

from limbeck.records import Record, read_collection, write_collection
from limbeck.support.errors import LimbeckError
from limbeck.tables import collect


def a_record(seed: int) -> Record:
    scores = {"dev": {"accuracy": 80.0 + seed, "primary": 80.0 + seed}}
    return Record(
        kind="distill", method="kd", task="sst2", data="glue", seed=seed, recipe={}, scores=scores
    )


@pytest.fixture
def study(tmp_path):
    """The same two records as run folders and as one file."""
    for seed in (2, 1):
        a_record(seed).save(tmp_path / "runs" / f"kd-s{seed}")
    raw = {
        path.parent.name: json.loads(path.read_text())
        for path in (tmp_path / "runs").rglob("record.json")
    }
    write_collection(tmp_path / "kept" / "study.jsonl.gz", raw)
    return tmp_path


def test_it_is_compressed_json_lines_sorted_by_name(study):
    lines = gzip.decompress((study / "kept" / "study.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["kd-s1", "kd-s2"]
    single = json.loads((study / "runs" / "kd-s2" / "record.json").read_text())
    assert json.loads(lines[1])["record"] == single


def test_tables_take_the_file_or_a_folder_that_holds_it(study):
    folders = [record.model_dump() for record in collect([study / "runs"])]
    for place in (study / "kept" / "study.jsonl.gz", study / "kept"):
        assert [record.model_dump() for record in collect([place])] == folders
    assert len(collect([study])) == 4


def test_a_records_path_names_its_run(study):
    found = read_collection(study / "kept" / "study.jsonl.gz")
    assert found["kd-s2"].path == study / "kept" / "study.jsonl.gz" / "kd-s2" / "record.json"


def test_the_same_records_are_the_same_bytes(study):
    raw = {"b": a_record(1).model_dump(by_alias=True), "a": a_record(2).model_dump(by_alias=True)}
    first, second = study / "one.jsonl.gz", study / "two.jsonl.gz"
    write_collection(first, raw)
    write_collection(second, dict(sorted(raw.items())))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not compressed", "cannot read"),
        (gzip.compress(b'{"name": "x"}\n'), "line 1"),
        (gzip.compress(b'{"name": "x", "record": {}}\n'), "schema"),
        (gzip.compress(b"[1, 2]\n"), "line 1"),
        (gzip.compress(b"{} " * 1000)[:-9], "cannot read"),
    ],
    ids=["not compressed", "no record", "no schema", "a list", "cut"],
)
def test_what_is_no_file_of_records_is_named(tmp_path, content, said):
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(LimbeckError) as error:
        collect([path])
    assert said in str(error.value)
    assert "bad.jsonl.gz" in str(error.value)
