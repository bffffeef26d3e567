"""What `label` says before the work: time and costs of the batch that was measured, and the size that the store has."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import limbeck
from limbeck.data.text_rows import read_text_rows
from limbeck.labelling.fill import _MANY_ROWS, _TRIED_ROWS, LabelWork, measure
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.scored_shard import ShardContent
from limbeck.outputs.store import open_store
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError, TeamLabeller

_EACH = 0.02


class Keeps:
    """Takes its time for each row that it was not asked about before; some rows have no answer."""

    name, kind, classes, outputs, batch_size = "keeps", "sentence", ("a", "b"), ("logits",), 20

    def __init__(self, *failing: str, each: float = 0) -> None:
        self.failing, self.each, self.kept, self.asked = failing, each, set(), 0

    def fingerprint(self):
        return {}

    def costs(self):
        return {"requests": float(self.asked)}

    def score(self, rows):
        texts = [row["sentence"] for row in rows]
        for text in {*texts} - self.kept:
            self.asked += 1
            time.sleep(self.each)
            if text not in self.failing:
                self.kept.add(text)
        if missing := {at: "filtered" for at, text in enumerate(texts) if text not in self.kept}:
            raise RowsMissingError(missing)
        return {"logits": np.array([[len(text), 1.0] for text in texts], dtype=np.float32)}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(f"row {number}" for number in range(10, 30)))
    return path


def measured(labeller, rows):
    content = ShardContent(labeller.outputs, 20, (), drop_missing=False)
    return measure(LabelWork(StoreFiles("nowhere"), read_text_rows(rows), labeller, content))


def test_rows_that_fail_take_time_and_money_too(rows):
    labeller = Keeps("row 13", "row 14", each=_EACH)
    found = measured(labeller, rows)
    # Two of the twenty were asked about once, and the eighteen others were not asked again.
    assert labeller.asked == 20 and found.costs == {"requests": 1}
    assert _EACH <= found.seconds < 5 * _EACH
    assert measured(Keeps(), rows).bytes == found.bytes
    # What is kept takes no time.
    assert measured(labeller, rows).seconds < _EACH


def test_a_labeller_whose_rows_all_fail_ends_it(rows):
    with pytest.raises(LimbeckError, match="20 rows have no outputs: filtered"):
        measured(Keeps(*rows.read_text().splitlines()), rows)


@pytest.mark.parametrize("failing", [(), ("row 13",)])
def test_the_measured_batch_counts_in_what_the_store_took(tmp_path, rows, failing):
    store = limbeck.label(
        Keeps(*failing), rows, out=tmp_path / "store", missing_rows="drop" if failing else "error"
    )
    asked = store.manifest.costs["requests"]
    limbeck.label(Keeps(), rows, out=tmp_path / "store", missing_rows="drop" if failing else "error")  # fmt: skip
    assert open_store(tmp_path / "store").manifest.costs["requests"] == asked


class Sized:
    """Random numbers, as many of each row as it has words."""

    name, kind, classes, batch_size = "sized", "sentence", ("a", "b"), 64

    def __init__(self, width: int) -> None:
        self.width, self.random = width, np.random.default_rng(0)
        self.outputs = ("logits", "layers") if width else ("logits",)

    def fingerprint(self):
        return {}

    def score(self, rows):
        made = {"logits": self.random.random((len(rows), 2)).astype(np.float32)}
        if self.width:
            layers = np.empty(len(rows), dtype=object)
            for at, row in enumerate(rows):
                size = len(row["sentence"].split()), self.width
                layers[at] = self.random.normal(size=size).astype(np.float16)
            made["layers"] = layers
        return made


def bytes_said(text: str) -> float:
    """What is said of the size."""
    said = re.search(r"by one measured batch: about ([\d.]+) (B|KiB|MiB), about", text)
    assert said, text
    return float(said[1]) * 1024 ** ("B", "KiB", "MiB").index(said[2])


@pytest.mark.parametrize(("width", "shard_rows"), [(8, None), (64, None), (64, 64)])
def test_the_size_that_is_said_is_nearly_the_stores(tmp_path, capsys, width, shard_rows):
    path = tmp_path / "rows.txt"
    lines = [f"row {number}" + " and so on" * (number % 3) for number in range(500)]
    path.write_text("\n".join(lines))
    store = limbeck.label(
        Sized(width), path, out=tmp_path / "store", shard_rows=shard_rows, show=True
    )
    printed = capsys.readouterr().err
    assert "at most" not in printed
    assert bytes_said(printed) == pytest.approx(store.manifest.bytes, rel=0.15)


class Warms:
    """Slow at its first call alone, as a model is."""

    kind, classes, outputs, batch_size = "sentence", ("a", "b"), ("logits",), 20

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, 0

    def fingerprint(self):
        return {}

    def score(self, rows):
        self.calls += 1
        time.sleep(_EACH * 10 if self.calls == 1 else 0)
        return {"logits": np.ones((len(rows), 2), dtype=np.float32)}


def test_a_team_of_models_is_measured_warm_as_each_of_them_is(rows):
    team = TeamLabeller([Warms("one"), Warms("two")], ["one", "two"])
    found = measured(team, rows)
    assert [one.calls for one in team.members] == [2, 2]
    assert found.seconds < _EACH


class Heavy:
    """So slow that a batch of its size would take as long as the work."""

    name, kind, classes, outputs, batch_size = "heavy", "sentence", ("a", "b"), ("logits",), 20

    def __init__(self) -> None:
        self.seen = 0

    def fingerprint(self):
        return {}

    def score(self, rows):
        self.seen += len(rows)
        return {"logits": np.ones((len(rows), 2), dtype=np.float32)}


@pytest.mark.parametrize(("quick", "seen"), [(60.0, _TRIED_ROWS + 20), (0.0, _TRIED_ROWS)])
def test_a_slow_model_is_measured_by_few_rows(rows, monkeypatch, quick, seen):
    monkeypatch.setattr("limbeck.labelling.fill._WARM_SECONDS", quick)
    labeller = Heavy()
    measured(labeller, rows)
    assert labeller.seen == seen
    # Of many rows it is measured warm.
    rows.write_text("\n".join(f"row {number}" for number in range(_MANY_ROWS)))
    labeller = Heavy()
    measured(labeller, rows)
    assert labeller.seen == max(seen, 2 * _TRIED_ROWS)
