"""Rows of every form, as users have them: endings, columns, gaps, quotes, pipes, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from datasets import Dataset

import tiny_runs as tiny
from limbeck import LimbeckError, predict
from limbeck.data.stream import RowStream, named_files

ROWS = [
    {"id": 1, "text": 'a "good" film, the end', "note": None},
    {"id": 2, "text": "  ", "note": "x"},
    {"id": 3, "text": "bad\nplot", "note": "é 🎬"},
    {"id": 4, "text": None, "note": "y"},
    {"id": 5, "text": "very good", "note": ""},
]


@pytest.fixture(scope="module")
def model(folders) -> str:
    return folders["sentence"]


def written(path: Path, form: str) -> Path:
    path = path / f"rows.{form}"
    if form == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    elif form == "parquet":
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    elif form == "csv":
        with path.open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.DictWriter(stream, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    return path


@pytest.mark.parametrize("safe", [False, True])
def test_text_that_a_spreadsheet_would_run_is_marked_where_asked(model, tmp_path, safe) -> None:
    texts = ["=1+1", "+good", "-1", "@bad", "good = bad", "'"]
    rows, out = [{"text": text, "number": -1} for text in texts], tmp_path / "out.csv"
    predict(model, rows, to=out, csv_safe=safe)
    with out.open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))
    marked = ["'=1+1", "'+good", "'-1", "'@bad", "good = bad", "'"]
    assert [row["text"] for row in found] == (marked if safe else texts)
    assert {row["number"] for row in found} == {"-1"}  # a number is no formula


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_rows_keep_their_columns_order_and_number(model, tmp_path, form, to) -> None:
    """Blank and missing texts too, from every format to every format."""
    out = tmp_path / f"out.{to}"
    said = predict(model, written(tmp_path, form), to=out, chunk_rows=2)
    assert (said.count, said.blank, said.path) == (5, 2, out)
    frame = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(to)
    rows = (
        [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        if frame is None
        else frame(out).astype(object).where(lambda one: one.notna(), None).to_dict("records")
    )
    assert [*rows[0]] == ["id", "text", "note", "prediction"]
    assert [int(row["id"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [row["text"] for row in rows if row["prediction"]] == [
        ROWS[row]["text"] for row in (0, 2, 4)
    ]
    assert [row["prediction"] is None for row in rows] == [False, True, False, True, False]
    assert rows[2]["note"] == "é 🎬"
    assert not [*tmp_path.glob("*.partial")]


def test_types_of_parquet_stay(model, tmp_path) -> None:
    schema = pa.schema(
        [("text", pa.large_string()), ("when", pa.timestamp("ms")), ("tags", pa.list_(pa.int8()))]
    )
    rows = {"text": ["good", "bad"], "when": [0, 86_400_000], "tags": [[1], None]}
    parquet.write_table(pa.table(rows, schema=schema), tmp_path / "in.parquet")
    predict(model, tmp_path / "in.parquet", to=tmp_path / "out.parquet")
    out = parquet.read_table(tmp_path / "out.parquet")
    assert out.drop_columns("prediction").equals(pa.table(rows, schema=schema))
    predict(model, tmp_path / "in.parquet", to=tmp_path / "out.jsonl")
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])
    assert first["when"] == "1970-01-02T00:00:00" and first["tags"] is None


def test_json_values_of_many_types_become_one_column_of_parquet(model, tmp_path) -> None:
    """Also where chunks differ: whole numbers and others are numbers, anything else is text."""
    values = [1, 2.5, None, 3, "four", {"a": {}}, [1], True]
    lines = [json.dumps({"text": "good", "value": v, "number": n}) for n, v in enumerate(values)]
    lines[3] = json.dumps({"text": "bad", "late": 1, "number": 3.5})
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    predict(model, tmp_path / "in.jsonl", to=tmp_path / "out.parquet", chunk_rows=1)
    out = parquet.read_table(tmp_path / "out.parquet")
    texts = ["1", "2.5", None, None, "four", '{"a": {}}', "[1]", "true"]
    assert out["value"].to_pylist() == texts
    assert out["number"].to_pylist() == [0, 1, 2, 3.5, 4, 5, 6, 7]
    assert out["late"].to_pylist() == [None] * 3 + [1] + [None] * 4
    assert out["prediction"].to_pylist()[3] == "negative"


def test_a_column_that_comes_late_is_none_of_csv(model, tmp_path) -> None:
    lines = ['{"text": "good"}\n'] * 400 + ['{"text": "bad", "late": "x"}\n']
    (tmp_path / "in.jsonl").write_text("".join(lines))
    with pytest.raises(LimbeckError, match="CSV has one header: late"):
        predict(model, tmp_path / "in.jsonl", to=tmp_path / "out.csv", chunk_rows=400)
    predict(model, tmp_path / "in.jsonl", to=tmp_path / "few.csv", keep="text")
    assert (tmp_path / "few.csv").read_text().endswith("good,positive\nbad,negative\n")


def test_the_first_row_may_be_empty(model, tmp_path, monkeypatch) -> None:
    lines = '{}\n{}\n{"text": "good"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    expected = [
        {"prediction": None},
        {"prediction": None},
        {"text": "good", "prediction": "positive"},
    ]
    assert predict(model, "-", format="jsonl").rows == expected
    (tmp_path / "in.jsonl").write_text("{}\n" * 200 + lines)
    assert predict(model, tmp_path / "in.jsonl").rows[-3:] == expected
    (tmp_path / "in.jsonl").write_text("{}\n")
    assert predict(model, tmp_path / "in.jsonl").rows == [{"prediction": None}]


def test_plain_text_has_a_row_a_line_blank_ones_too(model, tmp_path) -> None:
    (tmp_path / "in.txt").write_bytes("good film\r\n\nbad\n".encode("utf-8-sig"))
    found = predict(model, tmp_path / "in.txt")
    assert [(row["text"], row["prediction"]) for row in found] == [
        ("good film", "positive"), ("", None), ("bad", "negative"),
    ]  # fmt: skip


def test_tsv_has_no_quotes(model, tmp_path) -> None:
    (tmp_path / "in.tsv").write_text('sentence\tlabel\n" good\t1\nbad "film\t0\n')
    assert predict(model, tmp_path / "in.tsv").rows == [
        {"sentence": '" good', "label": "1", "prediction": "positive"},
        {"sentence": 'bad "film', "label": "0", "prediction": "negative"},
    ]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_files_that_gzip_compressed_are_read_as_others(model, tmp_path, form) -> None:
    plain = written(tmp_path, form)
    packed = tmp_path / f"rows.{form.upper()}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert predict(model, packed).rows == predict(model, plain).rows
    assert [path.name for path in named_files([tmp_path])] == [packed.name, plain.name]
    stream = RowStream([packed])
    while stream.take(1) is not None:
        pass
    assert stream.position == stream.size == packed.stat().st_size
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(LimbeckError, match="damaged or ends too early"):
        predict(model, packed)


def test_a_carriage_return_alone_does_not_end_a_row_of_csv(model, tmp_path) -> None:
    rows = [{"text": "good\rfilm", "note": "a\r\nb"}, {"text": "bad", "note": "\r"}]
    predict(model, rows, to=tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        found = [*csv.DictReader(file)]
    assert [{name: row[name] for name in ("text", "note")} for row in found] == rows
    assert (tmp_path / "out.csv").read_bytes().startswith(b"text,note,prediction\n")


def test_several_files_are_read_in_their_order(model, tmp_path) -> None:
    for number, text in enumerate(["good", "bad", "very good"]):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    found = predict(model, str(tmp_path / "part-*.jsonl"))
    assert [row["prediction"] for row in found] == ["positive", "negative", "positive"]
    assert [row["text"] for row in predict(model, tmp_path)] == ["good", "bad", "very good"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "txt", "parquet"])
def test_no_rows_make_a_file_without_rows(model, tmp_path, form) -> None:
    path = tmp_path / f"in.{form}"
    path.write_text("text\n" if form == "csv" else "")
    if form == "parquet":
        parquet.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    for to in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"{form}-out.{to}"
        assert predict(model, path, to=out, output=["labels", "probabilities"]).count == 0
        if to == "parquet":
            assert parquet.read_schema(out).names[-2:] == ["prediction", "probabilities"]
        if to == "csv":
            last = "prediction,probability_negative,probability_positive\n"
            assert out.read_text().endswith(last)


def test_a_list_of_files_names_is_no_list_of_texts(model, tmp_path) -> None:
    names = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for name in names:
        Path(name).write_text("good\n")
    with pytest.raises(LimbeckError, match="is a file's name"):
        predict(model, names)
    assert predict(model, [Path(name) for name in names]).count == 2
    long = "a text that ends in " * 500 + ".txt"
    assert predict(model, [long]).count == 1
    with pytest.raises(LimbeckError, match="there is no file a good film") as refused:
        predict(model, "a good film")
    assert "in a list" in str(refused.value)


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet"])
def test_odd_names_and_texts_of_rows_in_memory(model, tmp_path, to) -> None:
    out = tmp_path / f"out.{to}"
    predict(model, [{"text": "good", 5: "five"}], to=out)
    with pytest.raises(LimbeckError, match="half of a surrogate pair"):
        predict(model, [{"text": "good", "note": "\ud800"}], to=tmp_path / f"other.{to}")
    if to == "parquet":
        assert parquet.read_table(out)["5"].to_pylist() == ["five"]
    else:
        assert "5" in out.read_text() and "five" in out.read_text()


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (None, {}, "data: found NoneType"),
        (5, {}, "data: found int"),
        ([("good", "bad")], {}, "row 1: found tuple, expected a text or a dictionary"),
        (["good"], {"batch_size": "8"}, "batch_size is '8'"),
        (["good"], {"chunk_rows": 0}, "chunk_rows is 0"),
    ],
)
def test_what_is_no_data_and_no_number_is_named(model, data, settings, message) -> None:
    with pytest.raises(LimbeckError, match=message):
        predict(model, data, **settings)


def test_rows_in_memory(model) -> None:
    texts = tiny.sentences(4)
    expected = [row["prediction"] for row in predict(model, texts)]
    frame = pd.DataFrame({"review": [*texts, None], "stars": [1, 2, 3, 4, 5]})
    for rows in (
        frame,
        Dataset.from_pandas(frame),
        frame.to_dict("records"),
        frame.to_dict("list"),
    ):
        found = predict(model, rows, text_columns=["review"], keep=["stars"])
        assert [*found.rows[0]] == ["stars", "prediction"]
        assert [row["prediction"] for row in found] == [*expected, None]
    lazily = predict(model, (text for text in texts), keep=["none"])
    assert [*lazily] == [{"prediction": one} for one in expected]


def test_no_more_rows_are_read_than_a_chunk_holds(model, tmp_path) -> None:
    """Memory is that of a chunk: what is written is gone before the next is read."""
    (tmp_path / "in.txt").write_text("good\n" * 5000)
    stream = RowStream(named_files([tmp_path / "in.txt"]))
    positions = []
    while (rows := stream.take(100)) is not None:
        positions.append(stream.position)
        assert len(rows) == 100
    assert stream.size == 25_000 and positions[-1] == 25_000
    assert positions[0] < 10_000 and len({*positions}) >= 3

    made = []

    def rows_made():
        for number in range(20):
            made.append(number)
            yield {"text": "good"}

    endless = RowStream.of_objects("made", rows_made())
    endless.take(5)
    assert len(made) <= 6


def test_a_long_text_is_cut_and_counted(model) -> None:
    said = predict(model, ["good " * 500, "bad"], max_length=16)
    assert str(said).startswith("2 rows; 1 text was longer than the model reads; ")
    assert said.cut == 1 and [row["prediction"] for row in said] == ["positive", "negative"]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", "text,text\na,b\n", "two columns have one name"),
        ("in.csv", "", "is empty"),
        ("in.csv", "text,b\ngood,1\ngood,1,2\n", "line 3: expected 2 columns"),
        ("in.csv", 'text\n"good\n', "line 2: unexpected end of data"),
        ("in.csv", "title,body\na,b\n", "no column holds the texts"),
        ("in.csv", "text;label\na;b\n", "which looks like several"),
        ("in.jsonl", '{"text": "good"}\n{"text": \n', "line 2: not JSON"),
        ("in.jsonl", '["good"]\n', "line 1: expected a JSON object"),
        ("in.jsonl", '{"text": 5}\n', "row 1: text is 5, expected text"),
        ("in.csv", b"text\n\xff\xfe\n", "is not UTF-8"),
        ("in.csv", "text\ngood\n".encode("utf-16"), "is not UTF-8"),
        ("in.csv", "text\ngo\0od\n", "zero characters"),
        ("in.txt", "go\0od\n", "row 1: zero characters"),
        ("in.parquet", "text", "cannot read"),
        ("in.xlsx", "text", "unknown file type '.xlsx'"),
        ("in.csv.zip", "text", r"'.zip'\n.*decompress it"),
        ("in.parquet.gz", "text", "cannot read .*gzip"),
        ("in.csv.gz", "text\ngood\n", "cannot read .*gzip"),
        ("in.tsv", "gj04\t1\t\tThe sailors rode\n", "no column holds the texts"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(model, tmp_path, name, content, message) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LimbeckError, match=message):
        predict(model, path, to=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_the_file_without_the_columns_is_named(model, tmp_path) -> None:
    paths = {name: tmp_path / f"{name}.csv" for name in ("text", "body", "sentence")}
    for name, path in paths.items():
        path.write_text(f"id,{name}\n1,good\n")
    with pytest.raises(LimbeckError, match=r"body.csv: no column holds the texts"):
        predict(model, [paths["text"], paths["body"]])
    with pytest.raises(
        LimbeckError, match=r"text.csv: its columns differ from those in .*sentence"
    ):
        predict(model, [paths["text"], paths["sentence"]])
    (tmp_path / "cat.png").write_bytes(b"")
    with pytest.raises(LimbeckError, match=r"holds images, and .* reads texts"):
        predict(model, tmp_path / "cat.png")


def test_every_column_that_is_looked_for_is_named_once(model) -> None:
    with pytest.raises(LimbeckError, match=r"looked for sentence or text\)"):
        predict(model, [{"title": "a", "body": "b"}], task="sst2")


def test_everything_wrong_is_said_together(model, tmp_path) -> None:
    (tmp_path / "in.csv").write_text("title,prediction\na,b\n")
    (tmp_path / "out.csv").write_text("there")
    given = {"to": tmp_path / "out.csv", "text_columns": ["body"], "keep": ["id"]}
    wrong = {"output": ["label"], "pooling": "max", "precision": "fp8", "format": "xml", "speed": 9}
    with pytest.raises(LimbeckError) as refused:
        predict(model, tmp_path / "in.csv", **given, **wrong)
    assert len(refused.value.problems) == len(wrong)
    with pytest.raises(LimbeckError) as refused:
        predict(model, tmp_path / "in.csv", **given, output=["embeddings"])
    said = [problem.message for problem in refused.value.problems]
    for part in (
        "exists", "has no column 'body'", "keep: no column 'id'", "cannot hold lists of numbers",
    ):  # fmt: skip
        assert any(part in message for message in said), part
    assert (tmp_path / "out.csv").read_text() == "there"


def test_columns_of_the_predictions_names_are_refused_and_can_be_prefixed(model, tmp_path) -> None:
    (tmp_path / "in.csv").write_text("text,prediction\ngood,x\n")
    with pytest.raises(LimbeckError, match=r"names already: prediction") as refused:
        predict(model, tmp_path / "in.csv")
    assert "--prefix" in str(refused.value)
    (row,) = predict(model, tmp_path / "in.csv", prefix="new_")
    assert row == {"text": "good", "prediction": "x", "new_prediction": "positive"}
    late = [{"text": "good"}, {"text": "good", "prediction": "x"}]
    with pytest.raises(LimbeckError, match="names already"):
        predict(model, late)


def test_an_output_that_is_an_input_is_refused(model, tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "good"}\n')
    with pytest.raises(LimbeckError, match="one of the files that are read"):
        predict(model, tmp_path, to=tmp_path / "rows.jsonl", overwrite=True)


def test_an_output_that_nobody_may_write_is_refused_before_any_work(model, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LimbeckError, match="cannot make"):
        predict(model, ["good"], to=tmp_path / "file" / "out.jsonl")


def test_standard_input_is_said_to_be_of_a_form(model) -> None:
    with pytest.raises(LimbeckError, match="standard input: its format is unknown"):
        predict(model, "-")


def test_standard_input_is_streamed(model, monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"text,n\ngood,1\nbad,2\n"))
    monkeypatch.setattr("sys.stdin", stream)
    found = predict(model, "-", format="csv")
    assert [(row["n"], row["prediction"]) for row in found] == [
        ("1", "positive"),
        ("2", "negative"),
    ]
