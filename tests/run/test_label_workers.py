"""What `label` tells: the time of several workers, rows that were truncated, a cluster that is not there."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import limbeck
import tiny_runs as tiny
from limbeck.labelling import fill
from limbeck.labelling.by_ray import RayMaker, found_anywhere, ray_session
from limbeck.labelling.fill import LabelEstimate, LabelWork, ShardMaker
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.outputs import StoreFiles
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import TeamLabeller


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
        made = ShardMaker(work)
        made.workers = workers
        yield made

    measured = LabelEstimate(bytes=24, seconds=0.5, costs={})
    monkeypatch.setattr(sys.modules["limbeck.labelling.label"], "local_maker", makers)
    monkeypatch.setattr(fill, "measure", lambda work: measured)
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(f"row {number}" for number in range(24)))
    store = limbeck.label(Letters(), rows, out=tmp_path / "store", shard_rows=7, show=True)
    assert said in capsys.readouterr().err
    assert len(store) == 24 and store.manifest.costs["texts"] == 24


class Cuts(Letters):
    """Reads twelve characters; stops (once) when it has been asked so often."""

    def __init__(self, after: int = 10**9) -> None:
        super().__init__()
        self.left = after
        self.truncated: set[int] = set()

    def score(self, rows):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.truncated = {at for at, row in enumerate(rows) if len(row["sentence"]) > 12}
        return super().score(rows)


@pytest.fixture
def long_rows(tmp_path):
    """Forty different rows, some there twice; eleven are longer than twelve characters."""
    lines = [
        f"row {number}" + " and so on" * (number % 4 == 1 or number > 38) for number in range(40)
    ]
    assert sum(len(line) > 12 for line in lines) == 11
    path = tmp_path / "rows.txt"
    path.write_text("\n".join([*lines, *lines[:20]]))
    return path


@pytest.mark.parametrize("after", [3, 5, 8])
def test_a_row_that_was_truncated_counts_once(tmp_path, long_rows, capsys, after):
    """Not in the measured batch too, nor where it is labelled again after an interruption."""
    said = "11 of 40 rows lost the end of their longest text"
    kept = {"out": tmp_path / "store", "shard_rows": 8, "show": True}
    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Cuts(after), long_rows, **kept)
    assert "lost the end" not in capsys.readouterr().err
    store = limbeck.label(Cuts(), long_rows, **kept)
    assert said in capsys.readouterr().err and store.manifest.truncated_rows == 11
    # A start that finds the store whole says it again, and a damaged shard's rows count once.
    assert limbeck.label(Cuts(0), long_rows, **kept) and said in capsys.readouterr().err
    (tmp_path / "store" / "shard-00001.parquet").write_bytes(b"")
    limbeck.label(Cuts(), long_rows, **kept)
    assert said in capsys.readouterr().err


def test_what_a_fine_tuned_model_does_not_read_is_counted(tmp_path):
    """By its own tokenizer, which adds two tokens to the words."""
    texts = list(dict.fromkeys(tiny.sentences(30)))
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    teacher = ModelLabeller(tiny.knowing_teacher(), tiny.tokenizer(), name="t", max_length=5)
    store = limbeck.label(teacher, tmp_path / "rows.txt", out=tmp_path / "store", shard_rows=8)
    long = sum(len(tiny.tokenizer()(text)["input_ids"]) > 5 for text in texts)
    assert 0 < store.manifest.truncated_rows == long < len(texts)


def test_a_teams_row_counts_once_whoever_truncated_it(tmp_path, long_rows):
    class Seven(Cuts):
        def score(self, rows):
            found = super().score(rows)
            self.truncated = {
                at for at, row in enumerate(rows) if row["sentence"] in ("row 7", "row 1 and so on")
            }
            return found

    team = TeamLabeller([Cuts(), Letters(), Seven()], ["cuts", "reads", "seven"])
    store = limbeck.label(team, long_rows, out=tmp_path / "store")
    assert store.manifest.truncated_rows == 12


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


@pytest.mark.parametrize(
    ("url", "handed"),
    [
        ("stores/a", "{here}/stores/a"),
        ("/stores/a", "/stores/a"),
        ("memory://stores/a", "memory://stores/a"),
    ],
)
def test_actors_get_places_that_mean_the_same_in_any_folder(tmp_path, monkeypatch, url, handed):
    monkeypatch.chdir(tmp_path)
    asked = []

    class Actor:
        def remote(self, *given):
            asked.append(given)

        def options(self, **settings):
            return self

    ray, util = ModuleType("ray"), ModuleType("ray.util")
    util.ActorPool = lambda actors: SimpleNamespace(has_next=lambda: False)
    ray.util, ray.remote, ray.cluster_resources = util, lambda made: Actor(), lambda: {"CPU": 2}
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.util", util)
    work = LabelWork(StoreFiles(url), None, Letters(), None, workers=5)
    assert [*RayMaker(ray, work)._labelled([])] == []
    # No more than the cluster has room for: others would wait for ever.
    assert [one[0] for one in asked] == [handed.format(here=tmp_path)] * 2


def test_teachers_of_this_machine_are_named_by_their_whole_paths(tmp_path, monkeypatch):
    (tmp_path / "runs" / "teacher").mkdir(parents=True)
    (tmp_path / "home" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = Letters()
    # Names on the Hub, which has a folder's form, and labellers stay as they are.
    named = ("runs/teacher", "~/mine", str(tmp_path / "runs"), "google-bert/bert-base-uncased", own)
    assert found_anywhere(named) == (
        f"{tmp_path}/runs/teacher", f"{tmp_path}/home/mine", f"{tmp_path}/runs",
        "google-bert/bert-base-uncased", own,
    )  # fmt: skip
