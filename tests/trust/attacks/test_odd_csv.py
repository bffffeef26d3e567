"""CSV and TSV of every odd shape against Python's strict csv reader; and how little is done for a row."""

from __future__ import annotations

import csv
import random

import pyarrow as pa
import pytest

from limbeck.data import load_task
from limbeck.data.stream import RowStream
from limbeck.data.table import read_table
from limbeck.support.errors import LimbeckError

PARTS = [
    "a",
    "b",
    "é",
    " ",
    '"',
    ",",
    "\n",
    "\r",
    "\r\n",
    "\t",
    '""',
    "\\",
    "'",
    "\x0b",
    "\x1c",
    "\u2028",
    "#",
    "NA",
]


def strict(path, tabs):
    """Rows as Python's own reader has them, blank lines left out; None where it or a row's length refuses."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
        try:
            header, *rows = [row for row in csv.reader(file, **quoting) if row]
        except csv.Error:
            return None
    return rows if all(len(row) == len(header) for row in rows) else None


def odd_file(draw: random.Random, columns: int, tabs: bool) -> str:
    def field() -> str:
        text = "".join(draw.choices(PARTS, k=draw.randint(0, 4)))
        if tabs:
            return "".join(mark for mark in text if mark not in "\t\n\r")
        style = draw.random()
        if style < 0.7:
            return '"' + text.replace('"', '""') + '"'
        return text if style > 0.95 else "".join(mark for mark in text if mark not in '",\r\n')

    end = draw.choice(["\n", "\n", "\r\n", "\n" if tabs else "\r"])
    lines = [("\t" if tabs else ",").join("xyz"[:columns]) + end]
    for _ in range(draw.randint(1, 5)):
        row = ("\t" if tabs else ",").join(field() for _ in range(columns))
        lines.append(row + end * draw.choice([1, 1, 1, 2]))
    text = draw.choice(["", "\ufeff"]) + "".join(lines)
    return text.rstrip("\r\n") if draw.random() < 0.3 else text


@pytest.mark.parametrize("seed", [4, 7, 16])
def test_every_file_is_read_or_refused_as_the_strict_reader_does(tmp_path, seed):
    draw = random.Random(seed)
    for _ in range(250):
        tabs, columns = draw.random() < 0.3, draw.choice([1, 2, 3])
        path = tmp_path / ("f.tsv" if tabs else "f.csv")
        path.write_bytes(odd_file(draw, columns, tabs).encode())
        rows = strict(path, tabs)
        stream = RowStream([path])
        if not rows:
            with pytest.raises(LimbeckError):
                read_table(path)
            continue
        found = read_table(path).columns
        assert list(found) == list("xyz"[:columns]) == list(stream.heads[str(path)])
        assert [list(row) for row in zip(*found.values(), strict=True)] == rows
        assert [[*row.values()] for row in stream.take(99).dicts(None)] == rows
        stream.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"a"b,1', "line 3: ',' expected after '\"'"),
        ("a,b,1", "line 3: expected 2 columns (q, y), found 3"),
        ("a", "line 3: expected 2 columns (q, y), found 1"),
        ('"a,1', "unexpected end of data"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, line, said):
    path = tmp_path / "d.csv"
    path.write_text(f"q,y\n'a',0\n{line}\n")
    with pytest.raises(LimbeckError) as caught:
        read_table(path)
    assert said in str(caught.value)


def test_what_is_not_utf8(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes(b"q,y\n\xff,0\n")
    with pytest.raises(LimbeckError, match="line 2 is not UTF-8"):
        read_table(path)


def test_quotes_in_the_middle_of_a_field_are_text(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('q,y\na "good" film,1\nb,0\n')
    assert list(read_table(path).columns["q"]) == ['a "good" film', "b"]


def test_no_look_is_taken_at_each_class_id(tmp_path, monkeypatch):
    """What took the time: a look of the datasets library at every class id."""
    path = tmp_path / "d.csv"
    path.write_text("id,q,y\n" + "".join(f"{i},text {i},{'ab'[i % 2]}\n" for i in range(500)))
    monkeypatch.setattr("datasets.features.features.ClassLabel.encode_example", None)
    task, splits = load_task(None, path, text_columns=["q"], label_column="y")
    assert task.labels == ("a", "b") and [
        len(splits[name]) for name in ("train", "dev", "test")
    ] == [400, 50, 50]
    joined = [*splits["train"], *splits["dev"], *splits["test"]]
    assert {row["sentence"]: row["label"] for row in joined} == {
        f"text {i}": i % 2 for i in range(500)
    }
    assert pa.types.is_integer(splits["train"].data.schema.field("label").type)


@pytest.mark.parametrize("rows", [0, 9000])
def test_the_line_of_a_short_row_counts_quoted_breaks_and_blank_lines(tmp_path, rows):
    path = tmp_path / "d.csv"
    path.write_text("q,y\n" + "a,1\n" * rows + '"b\nc",1\n\nd\n')
    with pytest.raises(
        LimbeckError, match=rf"line {rows + 5}: expected 2 columns \(q, y\), found 1"
    ):
        read_table(path)
