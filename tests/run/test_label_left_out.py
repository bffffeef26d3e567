"""`label` with `missing_rows="drop"`: shards of rows that have no outputs, one of them, all of one, all of all."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import limbeck
from limbeck.cli.app import app
from limbeck.data.row_ids import row_ids
from limbeck.labelling.fill import _TRIED_ROWS
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.store import open_store, read_manifest
from limbeck.outputs.writer import copy_store
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError

LINES = [f"row number {number}" for number in range(10, 22)]
DROP = {"missing_rows": "drop", "shard_rows": 2, "with_text": True}


class Fails:
    """Has no outputs for some texts; of the others logits, and a value for each of their words."""

    name, kind, classes, batch_size = "fails", "sentence", ("few", "many"), 1
    outputs = ("logits", "words")

    def __init__(self, *failing: str, after: int = 0) -> None:
        self.failing, self.after = failing, after
        self.seen: list[str] = []

    def fingerprint(self):
        return {}

    def score(self, rows):
        texts = [row["sentence"] for row in rows]
        self.seen += texts
        bad = [at for at, text in enumerate(texts) if text in self.failing]
        if bad and len(self.seen) > self.after:
            raise RowsMissingError(dict.fromkeys(bad, "refused"))
        words = np.empty(len(texts), dtype=object)
        for at, text in enumerate(texts):
            words[at] = np.ones((len(text.split()), 3), dtype=np.float16)
        return {"logits": np.array([[len(text), 20] for text in texts], np.float32), "words": words}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(LINES))
    return path


@pytest.mark.parametrize("at", [slice(0, 2), slice(4, 6), slice(10, 12), slice(1, 5)])
def test_a_shard_without_any_row_is_empty_and_the_store_whole(rows, tmp_path, at):
    """The first, one amidst the others, the last, and one with two halves."""
    store = limbeck.label(
        Fails(*LINES[at]), rows, out=tmp_path / "a", to=tmp_path / "a.csv", **DROP
    )
    kept = [line for line in LINES if line not in LINES[at]]
    ids = row_ids([LINES[at]]).tolist()
    assert store.manifest.complete and store.row_ids.tolist() == row_ids([kept]).tolist()
    assert store.manifest.missing_rows == dict.fromkeys(ids, "refused")
    found = store.take(row_ids([kept[::-1]]), ["text", "label", "logits", "words"])
    assert found["text"].tolist() == kept[::-1] and found["label"].tolist() == [1] * len(kept)
    assert {word.shape for word in found["words"]} == {(3, 3)}
    with (tmp_path / "a.csv").open(newline="") as stream:
        table = [*csv.DictReader(stream)]
    assert [row["text"] for row in table if not row["label"]] == LINES[at]
    said = json.loads((tmp_path / "a" / "missing.json").read_text())
    assert [one["row"] for one in said] == ids
    # Whoever reads the shards by themselves finds one schema.
    shards = [parquet.read_table(path) for path in sorted((tmp_path / "a").glob("shard-*"))]
    assert pa.concat_tables(shards)["text"].to_pylist() == kept and len(shards) == 6


def test_such_a_store_is_shown_copied_and_asks_nobody_again(rows, tmp_path):
    store = limbeck.label(Fails(*LINES[4:6]), rows, out=tmp_path / "a", **DROP)
    again = Fails()
    limbeck.label(again, rows, out=tmp_path / "a", **DROP)
    assert again.seen == []
    shown = CliRunner().invoke(app, ["outputs", "show", str(tmp_path / "a"), "--rows", "12"])
    assert shown.exit_code == 0 and LINES[6] in shown.output and LINES[4] not in shown.output
    copy_store(store, StoreFiles(str(tmp_path / "b")))
    copied = open_store(tmp_path / "b")
    assert copied.manifest == store.manifest
    assert copied.row_ids.tolist() == store.row_ids.tolist()


def test_a_store_whose_last_shard_alone_fails_is_finished(rows, tmp_path):
    kept = {**DROP, "missing_rows": "error"}
    for _ in range(2):
        with pytest.raises(LimbeckError, match="2 rows have no outputs: refused"):
            limbeck.label(Fails(*LINES[10:]), rows, out=tmp_path / "a", **kept)
    store = limbeck.label(Fails(*LINES[10:]), rows, out=tmp_path / "a", **DROP)
    assert store.manifest.complete and len(store) == 10


def test_a_few_measured_rows_that_fail_end_nothing(rows, tmp_path):
    """A batch is one row here, and more of them are measured."""
    labeller = Fails(*LINES[:3])
    store = limbeck.label(labeller, rows, out=tmp_path / "a", **DROP)
    assert len(store) == 9 and {*labeller.seen[: len(LINES)]} == {*LINES}


def test_each_member_of_a_team_may_lack_other_rows(rows, tmp_path):
    one, two = Fails(*LINES[3:5]), Fails(LINES[4], LINES[9])
    one.name, two.name = "one", "two"
    one.outputs = two.outputs = ("logits",)
    store = limbeck.label([one, two], rows, out=tmp_path / "a", **{**DROP, "shard_rows": 6})
    lacking = (LINES[3], LINES[4], LINES[9])
    kept = [line for line in LINES if line not in lacking]
    assert store.row_ids.tolist() == row_ids([kept]).tolist()
    assert store.manifest.missing_rows == dict.fromkeys(row_ids([[*lacking]]).tolist(), "refused")
    assert store.take(row_ids([kept]), ["text"])["text"].tolist() == kept


def test_rows_that_fail_only_when_they_are_asked_about_again(rows, tmp_path):
    """As of a server that is busy: the reason is that of the row, whichever had failed before."""

    class Busy(Fails):
        def score(self, rows):
            texts = [row["sentence"] for row in rows]
            if LINES[3] in texts:
                raise RowsMissingError({texts.index(LINES[3]): "refused"})
            if LINES[7] in texts:
                raise RowsMissingError({texts.index(LINES[7]): "busy"})
            return super().score(rows)

    labeller = Busy()
    labeller.batch_size = 12
    store = limbeck.label(labeller, rows, out=tmp_path / "a", **{**DROP, "shard_rows": 12})
    three, seven = row_ids([[LINES[3], LINES[7]]]).tolist()
    assert store.manifest.complete and len(store) == 10
    assert store.manifest.missing_rows == {three: "refused", seven: "busy"}


@pytest.mark.parametrize("after", [0, 2])
def test_where_no_row_has_outputs_it_is_said_and_no_store_is_whole(rows, tmp_path, after):
    """Before any shard is made, or where only the measured batch, asked twice, had outputs."""
    for _ in range(2):
        with pytest.raises(LimbeckError, match="12 rows have no outputs: refused"):
            limbeck.label(Fails(*LINES, after=after), rows, out=tmp_path / "a", **DROP)
    with pytest.raises(LimbeckError, match="incomplete: 0 of 12"):
        open_store(tmp_path / "a")
    # Whoever answers at last finds nothing in the way.
    assert len(limbeck.label(Fails(), rows, out=tmp_path / "a", **DROP)) == 12


def test_so_many_failing_rows_end_it(tmp_path):
    lines = [f"row number {number}" for number in range(1000, 1000 + 2 * _TRIED_ROWS)]
    (tmp_path / "rows.txt").write_text("\n".join(lines))
    labeller = Fails(*lines)
    with pytest.raises(LimbeckError, match=f"{_TRIED_ROWS} rows have no outputs"):
        limbeck.label(labeller, tmp_path / "rows.txt", out=tmp_path / "a", missing_rows="drop")
    assert len(labeller.seen) == _TRIED_ROWS


def test_rows_that_were_left_out_are_none_that_are_left(rows, tmp_path, capsys):
    """What is said of rows, size and time before a start is of those that it asks for."""

    class Stops(Fails):
        def score(self, asked):
            if len(self.seen) >= 48:  # all rows are measured first
                raise KeyboardInterrupt
            return super().score(asked)

    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Stops(*LINES[1:4]), rows, out=tmp_path / "a", **DROP)
    found = read_manifest(StoreFiles(str(tmp_path / "a")))
    stored, without = found.stored_rows, len(found.missing_rows)
    assert stored and without
    capsys.readouterr()
    limbeck.label(Fails(), rows, out=tmp_path / "a", **DROP, show=True)
    said = capsys.readouterr().err
    left = len(LINES) - stored - without
    assert f"continued: {stored} rows are there, {without} were left out, {left} are left" in said
