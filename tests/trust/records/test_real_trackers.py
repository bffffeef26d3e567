"""W&B and MLflow themselves, where they are installed: what a run leaves in their own files, without a server."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.records import Record

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TERMS = ("soft", "hard")
STEPS = [1, 2, 3, 4, 5, 6]


def trained(place: Path, *trackers: str) -> Record:
    """A run by the command line."""
    tiny.save(tiny.knowing_teacher(4), place / "teacher")
    tiny.write_csv(place / "reviews.csv", 40)
    keys = {
        "teacher": place / "teacher", "data": place / "reviews.csv", "student.layers": 2,
        "max_length": 24, "batch_size": 8, "max_steps": STEPS[-1], "log_steps": 1, "cache": "never",
        "checkpoint_steps": 1,
    }  # fmt: skip
    words = [f"{key}={value}" for key, value in keys.items()]
    columns = ["--text-columns", "review", "--label-column", "verdict", "--report-to", *trackers]
    line = ["distill", "kd", *words, "--out", str(place / "small-student"), *columns]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code == 0, ended.output
    return Record.load(place / "small-student")


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> str:
    """Of MLflow, which keeps to the first that a process names."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def test_mlflow(tmp_path, monkeypatch, database):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "reviews")
    record = trained(tmp_path, "mlflow")
    assert mlflow.active_run() is None
    mlflow.set_tracking_uri(database)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("reviews")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("small-student", "FINISHED")
    for term in TERMS:
        history = client.get_metric_history(run.info.run_id, f"term/{term}")
        assert [one.step for one in history] == STEPS
    params, metrics = run.data.params, run.data.metrics
    assert params["recipe.method"] == "kd" and params["recipe.student.layers"] == "2"
    assert params["recipe.teacher"] == str(tmp_path / "teacher")
    for name, score in record.scores["dev"].items():
        assert metrics[f"best/{name}"] == pytest.approx(score)


def test_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true",
                        "WANDB_PROJECT": "reviews"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    record = trained(tmp_path, "wandb")
    assert wandb.run is None
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    config, summary, history = {}, {}, []
    for entry in wandb_records(file):
        kind = entry.WhichOneof("record_type")
        if kind == "run":
            assert (entry.run.display_name, entry.run.project) == ("small-student", "reviews")
        elif kind == "config":
            config |= values(entry.config.update)
        elif kind == "summary":
            summary |= values(entry.summary.update)
        elif kind == "history":
            history.append(values(entry.history.item))
        elif kind == "exit":
            assert entry.exit.exit_code == 0
    for term in TERMS:
        found = [one["train/global_step"] for one in history if f"train/term/{term}" in one]
        assert found == STEPS
    assert any("eval/accuracy" in one for one in history)
    assert config["recipe"]["method"] == "kd" and config["recipe"]["student"]["layers"] == 2
    for name, score in record.scores["dev"].items():
        assert summary[f"best/{name}"] == pytest.approx(score)


def values(items) -> dict:
    return {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items}


def wandb_records(file: Path):
    """Its file is a log as LevelDB describes it: blocks of 32 KiB with pieces of records, behind seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            found = wandb_internal_pb2.Record()
            found.ParseFromString(record)
            yield found
            record = b""
