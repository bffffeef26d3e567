"""What `label` tells in advance where several label at a time, and of a cluster that is not there."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest

import limbeck
from limbeck.errors import LimbeckError
from limbeck.run import label_store
from limbeck.run.label_estimate import LabelEstimate
from limbeck.run.ray_session import ray_session
from limbeck.run.shard_makers import LocalMaker


class Letters:
    name, kind, classes, outputs, batch_size = (
        "letters",
        "sentence",
        ("few", "many"),
        ("logits",),
        4,
    )

    def __init__(self) -> None:
        self.asked = 0

    def fingerprint(self):
        return {}

    def costs(self):
        return {"texts": float(self.asked)}

    def score(self, rows):
        self.asked += len(rows)
        return {"logits": np.array([[len(row["sentence"]), 20] for row in rows], dtype=np.float32)}


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (1, "about 12 s (2 rows/s)"),
        (2, "about 6 s (4 rows/s by 2 workers as fast as this process)"),
        # There are no more than four shards to make.
        (64, "about 3 s (8 rows/s by 4 workers as fast as this process)"),
    ],
)
def test_the_time_is_that_of_all_workers(tmp_path, monkeypatch, capsys, workers, said):
    @contextmanager
    def makers(work):
        made = LocalMaker(work.files, work.plan, work.labeller)
        made.workers = workers
        yield made

    measured = LabelEstimate(bytes=24, seconds=0.5, costs={})
    monkeypatch.setattr(label_store, "_makers", makers)
    monkeypatch.setattr(label_store, "measure_labelling", lambda labeller, plan: measured)
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(f"row {number}" for number in range(24)))
    store = limbeck.label(Letters(), rows, out=tmp_path / "store", shard_rows=7, show=True)
    assert said in capsys.readouterr().err
    assert len(store) == 24 and store.manifest.costs["texts"] == 24


@pytest.mark.parametrize(
    ("address", "environment", "said"),
    [
        ("here:1", "there:2", "here:1: name a cluster that runs"),
        (
            None,
            "there:2",
            "RAY_ADDRESS is there:2: name a cluster that runs, HOST:PORT, or unset it",
        ),
        (None, None, "ray status"),
    ],
)
def test_a_cluster_that_does_not_answer_is_named_where_it_was_read(
    monkeypatch, address, environment, said
):
    def init(**settings: object) -> None:
        raise ConnectionError("nobody answers\nat all")

    ray = ModuleType("ray")
    ray.exceptions = ModuleType("ray.exceptions")
    ray.is_initialized, ray.init = lambda: False, init
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.exceptions", ray.exceptions)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if environment is not None:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    with (
        pytest.raises(LimbeckError, match="engine ray: nobody answers") as caught,
        ray_session(address),
    ):
        pass
    assert said in caught.value.problems[0].fix


def test_ray_that_is_not_installed_is_said_before_any_row_is_labelled(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "rows.txt").write_text("one")
    labeller = Letters()
    with pytest.raises(LimbeckError, match="engine ray: import of ray halted"):
        limbeck.label(labeller, tmp_path / "rows.txt", out=tmp_path / "store", engine="ray")
    assert labeller.asked == 0 and not (tmp_path / "store").exists()
