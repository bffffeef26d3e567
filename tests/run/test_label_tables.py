"""The plain table of `label --to`: it takes no file's place, and is nowhere far away; a tie is no label."""

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
from limbeck.support.errors import LimbeckError
from stopping_labeller import Stops


class Lengths:
    """A number for each row."""

    name, kind, classes, outputs, batch_size = "lengths", "sentence", (), ("logits",), 8

    def fingerprint(self):
        return {}

    def score(self, rows):
        return {"logits": np.array([[len("".join(row.values()))] for row in rows], np.float32)}


TEXTS = {"text": ["a good film\nindeed", "a slow plot", "the end"]}
PAIRS = {"query": ["one", "one", "two"], "passage": ["a, b", "c", "d"]}


def rows_of(folder, columns):
    path = folder / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("columns", [TEXTS, PAIRS], ids=["numbers", "candidates"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_of_numbers(tmp_path, columns, suffix):
    table = tmp_path / f"numbers{suffix}"
    given = {"text_columns": [*columns], "out": tmp_path / "store", "to": table}
    limbeck.label(Lengths(), rows_of(tmp_path, columns), **given)
    first = table.read_bytes()
    assert (b"score" in first) is (columns is PAIRS) and (b"label" in first) is (columns is TEXTS)
    with pytest.raises(LimbeckError, match="exists"):
        limbeck.label(Lengths(), tmp_path / "rows.parquet", **given)
    assert table.read_bytes() == first


@pytest.mark.parametrize("url", ["s3://bucket/labels.csv", "memory://a/labels.jsonl"])
def test_a_url_is_refused_before_any_work(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    rows, labeller = rows_of(tmp_path, TEXTS), Stops()
    said = "is a URL, and a table is written to a file of this machine"
    for given in ({}, {"out": "store"}):
        with pytest.raises(LimbeckError, match=said) as caught:
            limbeck.label(labeller, rows, text_columns=["text"], to=url, **given)
        assert f"--to {url.rpartition('/')[2]}" in caught.value.problems[0].fix
    words = ["label", "--teacher", "t", "--data", str(rows), "--text-columns", "text", "--to", url]
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert ended.exit_code == 2 and f"--to {url} {said}" in ended.stderr
    assert labeller.seen == [] and [*tmp_path.iterdir()] == [rows]


class Votes:
    """Votes for the classes as a text's words name them, and their shares; or one of both."""

    name, kind, classes, batch_size = "votes", "sentence", ("bad", "good", "fair"), 2

    def __init__(self, *outputs: str) -> None:
        self.outputs = outputs

    def fingerprint(self):
        return {}

    def score(self, rows):
        words = [row["sentence"].split() for row in rows]
        votes = np.array([[own.count(name) for name in self.classes] for own in words], np.float32)
        found = {"votes": votes, "probabilities": votes / votes.sum(axis=1, keepdims=True)}
        return {name: found[name] for name in self.outputs}


@pytest.mark.parametrize("outputs", [("votes",), ("probabilities",), ("votes", "probabilities")])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_tie_is_no_label(tmp_path, capsys, outputs, suffix):
    lines = {
        "good bad good bad": (None, 0.5),
        "good good bad fair": ("good", 0.5),
        "fair good good fair bad": (None, 0.4),
        "bad": ("bad", 1.0),
        "good bad fair": (None, 1 / 3),
    }
    (tmp_path / "rows.txt").write_text("\n".join([*lines, "good bad good bad"]))
    table = tmp_path / f"labels{suffix}"
    limbeck.label(Votes(*outputs), tmp_path / "rows.txt", to=table, show=True)
    said = capsys.readouterr().err
    assert "6 rows, 4 without a label: several classes are equally likely" in said
    assert "labels: bad 1, good 1\nno row has the label fair: " in said
    if suffix == ".csv":
        with table.open(newline="") as stream:
            rows = [row | {"label": row["label"] or None} for row in csv.DictReader(stream)]
    elif suffix == ".jsonl":
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    else:
        rows = parquet.read_table(table).to_pylist()
    assert [row["label"] for row in rows] == [
        *(label for label, _ in lines.values()), None]  # fmt: skip
    sure = [*(share for _, share in lines.values()), 0.5]
    np.testing.assert_allclose([float(row["confidence"]) for row in rows], sure, rtol=1e-6)


def test_numbers_have_no_ties(tmp_path, capsys):
    rows, table = rows_of(tmp_path, {"text": ["ab", "cd"]}), tmp_path / "n.jsonl"
    limbeck.label(Lengths(), rows, text_columns=["text"], to=table, show=True)
    said = capsys.readouterr().err
    assert "n.jsonl: 2 rows\n" in said and "labels:" not in said
    assert [json.loads(line)["label"] for line in table.read_text().splitlines()] == [2.0, 2.0]
