"""Oracles: the JSON text itself, read back with the standard library."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from limbeck.records import Record, hardware, versions
from limbeck.records.facts import Epoch, Latency, ModelFacts
from limbeck.records.machine import processor_name
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole


def a_record(**changes) -> Record:
    fields = {
        "kind": "distill",
        "method": "kd",
        "task": "mrpc",
        "data": "pocket",
        "seed": 1,
        "recipe": {"lr": 2e-5, "student": {"layers": 3}},
        "scores": {"dev": {"accuracy": 80.0, "f1": 84.0, "primary": 82.0}},
    }
    return Record(**(fields | changes))


def test_saved_and_loaded_is_the_same(tmp_path):
    record = a_record(
        epochs=[
            Epoch(epoch=1, step=10, train={"hard": 0.5}, active_layers={"rail": [[1, 3], [2, 5]]})
        ],
        student=ModelFacts(parameters=10, latency_ms=Latency(median=1.5, spread=0.2)),
    )
    path = record.save(tmp_path / "run")
    assert path == tmp_path / "run" / "record.json"
    again = Record.load(tmp_path / "run")
    assert again.model_dump() == record.model_dump()
    assert again.path == path
    assert Record.load(path).epochs[0].active_layers["rail"] == [[1, 3], [2, 5]]
    plain = json.loads(path.read_text())
    assert plain["schema"] == 1
    assert plain["status"] == "running"
    assert plain["student"]["latency_ms"]["median"] == 1.5


def test_numbers_that_are_not_finite_become_null(tmp_path):
    record = a_record(epochs=[Epoch(epoch=1, train={"loss": float("nan"), "hard": float("inf")})])
    record.scores["dev"]["primary"] = float("-inf")
    text = record.save(tmp_path).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["epochs"][0]["train"] == {"loss": None, "hard": None}
    assert Record.load(tmp_path).primary_score() is None


def test_numpy_and_torch_numbers_are_plain_in_the_file(tmp_path):
    record = a_record()
    record.recipe["lr"] = np.float32(0.5)
    record.recipe["steps"] = torch.tensor(7)
    record.recipe["folder"] = Path("some") / "where"
    plain = json.loads(record.save(tmp_path).read_text())
    assert plain["recipe"]["lr"] == 0.5
    assert plain["recipe"]["steps"] == 7
    assert plain["recipe"]["folder"] == str(Path("some/where"))


def test_unknown_keys_survive_reading_and_writing(tmp_path):
    path = a_record().save(tmp_path)
    plain = json.loads(path.read_text())
    plain["note"] = "by hand"
    del plain["checksum"]
    plain["cost"]["energy_joules"] = 12.5
    path.write_text(json.dumps(plain))
    Record.load(path).save(path)
    again = json.loads(path.read_text())
    assert again["note"] == "by hand"
    assert again["cost"]["energy_joules"] == 12.5


def test_a_failed_run_keeps_its_record_and_reason(tmp_path):
    record = a_record()
    record.fail(LimbeckError("loss is not finite", "lower lr"))
    record.save(tmp_path)
    again = Record.load(tmp_path)
    assert again.status == "failed"
    assert again.error is not None
    assert "loss is not finite" in again.error
    record.fail(KeyboardInterrupt())
    assert record.error == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schema": 1, "method": ', "not valid JSON"),
        ("", "not valid JSON"),
        ("[1, 2]", "no schema number"),
        ('{"name": "somebody else\'s"}', "no schema number"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": 1, "method": "kd"}', "kind: Field required"),
    ],
)
def test_files_that_are_not_records_are_named_with_the_reason(tmp_path, content, says):
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(LimbeckError, match=says) as caught:
        Record.load(tmp_path)
    assert str(tmp_path / "record.json") in str(caught.value)
    assert "fix:" in str(caught.value)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(LimbeckError, match="no record at"):
        Record.load(tmp_path)
    (tmp_path / "record.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LimbeckError, match="cannot read"):
        Record.load(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = a_record(seed=1).save(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(LimbeckError, match="No space left"):
        a_record(seed=2).save(tmp_path)
    assert json.loads(path.read_text())["seed"] == 1
    assert [child.name for child in tmp_path.iterdir()] == ["record.json"]


def test_a_place_that_cannot_be_a_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LimbeckError, match="cannot write"):
        a_record().save(tmp_path / "file" / "run")


def test_others_may_read_what_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "x.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.txt").stat().st_mode) == 0o644


def test_versions_and_hardware_are_filled_in():
    found = versions()
    assert set(found) == {"limbeck", "python", "torch", "transformers", "datasets"}
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] == torch.__version__
    machine = hardware()
    assert set(machine) == {
        "platform",
        "processor",
        "cores",
        "memory_gib",
        "accelerator",
        "threads",
    }
    assert machine["threads"] == torch.get_num_threads()
    assert 1 <= machine["cores"] <= (os.cpu_count() or 1)
    json.dumps(machine, allow_nan=False)


def test_processor_name_from_the_kernels_list(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Sparrow 9000 @ 2GHz\n")
    assert processor_name(tmp_path / "cpuinfo") == "Sparrow 9000 @ 2GHz"
    assert processor_name(tmp_path / "absent") != ""


def test_a_record_of_earlier_names_is_read_without_what_they_named(tmp_path):
    """What several teachers were sampled by had other names once; such a record has no such facts."""
    content = json.loads(a_record().save(tmp_path / "run").read_text())
    del content["checksum"]
    content["epochs"] = [{"epoch": 1, "drawn": {"a": 3}, "chances": {"a": 1.0}}]
    content["execution"]["answers"] = {"1": "stored"}
    (tmp_path / "run" / "record.json").write_text(json.dumps(content))
    read = Record.load(tmp_path / "run")
    assert (read.epochs[0].sampled, read.epochs[0].sampling_probabilities) == ({}, {})
    assert read.execution.teacher_outputs == {}
