"""What `label` tells of rows that were truncated; a cluster of Ray that is not there."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import limbeck
import tiny_runs as tiny
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.support.errors import LimbeckError
from limbeck.support.workers import ray_session
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
    said = "11 of 40 rows were truncated at the end of their longest text"
    kept = {"out": tmp_path / "store", "shard_rows": 8, "show": True}
    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Cuts(after), long_rows, **kept)
    assert "were truncated" not in capsys.readouterr().err
    store = limbeck.label(Cuts(), long_rows, **kept)
    assert said in capsys.readouterr().err and store.manifest.truncated_rows == 11
    # A start that finds the store whole says it again, and a damaged shard's rows count once.
    assert limbeck.label(Cuts(0), long_rows, **kept) and said in capsys.readouterr().err
    (tmp_path / "store" / "shard-00001.parquet").write_bytes(b"")
    limbeck.label(Cuts(), long_rows, **kept)
    assert said in capsys.readouterr().err


def test_what_a_fine_tuned_model_does_not_read_is_counted(tmp_path, capsys):
    """By its own tokenizer, which adds two tokens to the words."""
    texts = list(dict.fromkeys(tiny.sentences(30)))
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    teacher = ModelLabeller(tiny.knowing_teacher(), tiny.tokenizer(), name="t", max_length=5)
    given = {"out": tmp_path / "store", "shard_rows": 8, "show": True}
    store = limbeck.label(teacher, tmp_path / "rows.txt", **given)
    said = " ".join(capsys.readouterr().err.split())
    assert "the text exceeded the model's maximum length" in said
    assert "prompt" not in said
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
