"""One table of endings: whatever one command reads, all read alike, compressed or not."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data import load_task
from limbeck.data.outputs_file import read_outputs_file
from limbeck.data.row_ids import row_ids
from limbeck.data.splits import Division
from limbeck.data.stream import RowStream, named_files
from limbeck.data.text_rows import read_text_rows, read_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task, get_task

TEXTS = [f"a good film, number {n}" for n in range(20)] + [f"a {n}. bad one " for n in range(20)]
LABELS = ["good"] * 20 + ["bad"] * 20
# What str.splitlines and universal newlines take for line ends.
ODD = [
    "one\u2028line",
    "next\u0085line",
    "vertical\x0btab",
    "form\x0cfeed",
    "a\x1cseparator",
    "a\rreturn",
]
ENDINGS = ("csv", "tsv", "tab", "jsonl", "ndjson", "json", "parquet", "txt")
COMPRESSED = ("", ".gz", ".zst")


def written(path, columns):
    """A file of these columns, in the form and the compression that its name says."""
    plain = path.with_name(path.name.removesuffix(".gz").removesuffix(".zst"))
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    ending = plain.suffix[1:]
    if ending == "parquet":
        parquet.write_table(pa.table(columns), plain)
    elif ending in ("csv", "tsv", "tab"):
        between = "," if ending == "csv" else "\t"
        quote = '"' if ending == "csv" else ""
        lines = [between.join(f"{quote}{value}{quote}" for value in row.values()) for row in rows]
        plain.write_text("\n".join([between.join(columns), *lines]) + "\n", newline="")
    elif ending == "txt":
        plain.write_text("".join(f"{text}\n" for text in columns["text"]), newline="")
    else:
        plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = plain.read_bytes()
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    elif path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(content)
    if path != plain:
        plain.unlink()
    return path


def streamed(path):
    """The texts as `predict` reads them."""
    stream = RowStream(named_files([path]))
    try:
        return stream.take(10_000).values("text")
    finally:
        stream.close()


@pytest.fixture(params=[f".{ending}{packed}" for ending in ENDINGS for packed in COMPRESSED])
def texts(request, tmp_path):
    return written(tmp_path / f"reviews{request.param}", {"text": TEXTS})


def test_texts_are_the_same_by_every_reader(texts):
    task = Task("t", "t", ("text",), ("a", "b"), ("accuracy",), "accuracy")
    (file,) = read_unlabelled([str(texts)], task)
    assert next(iter(file.columns.values())).to_pylist() == TEXTS
    found = read_text_rows(texts)
    assert found.take(found.first)["sentence"] == TEXTS
    assert read_text_rows(texts.parent).ids.tolist() == row_ids([TEXTS]).tolist()
    assert streamed(texts) == TEXTS
    masked, splits = load_task(None, texts, kind="masked", for_training=False)
    assert splits["dev"]["text"][:] == TEXTS and masked.name == "reviews"


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending != "txt"])
@pytest.mark.parametrize("packed", COMPRESSED)
def test_labelled_rows_are_the_same_in_files_and_folders(tmp_path, ending, packed):
    columns = {"text": TEXTS, "label": LABELS}
    file = written(tmp_path / f"reviews.{ending}{packed}", columns)
    named = {"text_columns": ["text"], "label_column": "label"}
    task, splits = load_task(None, file, for_training=False, **named)
    assert (task.name, task.labels) == ("reviews", ("bad", "good"))
    assert splits["dev"]["sentence"][:] == TEXTS
    folder = tmp_path / "folder"
    folder.mkdir()
    for split in ("train", "validation"):
        written(folder / f"{split}.{ending}{packed}", columns)
    _, splits = load_task(None, folder, **named)
    assert splits["train"]["sentence"][:] == splits["dev"]["sentence"][:] == TEXTS


@pytest.mark.parametrize("packed", COMPRESSED)
def test_other_layouts_may_be_compressed_too(tmp_path, packed):
    def packs(name, content):
        plain, path = tmp_path / name, tmp_path / f"{name}{packed}"
        if packed == ".zst":
            with pa.CompressedOutputStream(str(path), "zstd") as stream:
                stream.write(content.encode())
        else:
            path = plain if not packed else path
            path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
        return path

    _, splits = load_task(
        None, packs("ner.conll", "ann\tB-PER\n\nsaw\tO\n"), kind="tokens", for_training=False
    )
    assert splits["dev"]["tokens"][:] == [["ann"], ["saw"]]
    asked = {"question": "who ?", "answers": [{"text": "ann", "answer_start": 0}]}
    squad = {"data": [{"paragraphs": [{"context": "ann saw", "qas": [asked]}]}]}
    _, splits = load_task(
        None, packs("asked.json", json.dumps(squad)), kind="spans", for_training=False
    )
    assert splits["dev"]["question"][:] == ["who ?"]
    lists = {"query": "q", "passages": ["a", "b"], "labels": [1, 0]}
    _, splits = load_task(None, packs("lists.jsonl", json.dumps(lists) + "\n"), for_training=False)
    assert splits["dev"]["passage"][:] == ["a", "b"]
    scored = "sentence1\tsentence2\tscore\na\tb\t0.5\nc\td\t1\n"
    _, splits = load_task(None, packs("sick.tsv", scored), kind="embedding", for_training=False)
    assert splits["dev"]["score"][:] == [0.5, 1.0]
    path = packs("votes.csv", "text,votes.yes,votes.no\na,1,2\n")
    assert read_outputs_file(path, ["text"]).values.tolist() == [[1.0, 2.0]]
    path = packs("queries.tsv", "index\tsentence\tlabel\n0\ta film\t1\n")
    (file,) = read_unlabelled([str(path)], get_task("sst2"))
    assert next(iter(file.columns.values())).to_pylist() == ["a film"]


def test_a_line_of_text_ends_at_a_line_feed_alone(tmp_path):
    path = tmp_path / "odd.txt"
    mixed = "".join(f"{text}\r\n" if place % 2 else f"{text}\n" for place, text in enumerate(ODD))
    path.write_bytes(b"\xef\xbb\xbf" + mixed.encode() + b"  \n")
    task = get_task("sst2")
    assert read_unlabelled([str(path)], task)[0].columns["sentence"].to_pylist() == ODD
    found = read_text_rows(path)
    assert found.columns["sentence"].to_pylist() == ODD
    assert streamed(path) == [*ODD, "  "]  # whose output is empty
    for kind, column in (("masked", "text"), ("embedding", "sentence1")):
        dev = tmp_path / "dev.tsv"
        dev.write_text("sentence1\tsentence2\tscore\na\tb\t1\n")
        given = {"division": Division(dev=dev)} if kind == "embedding" else {"for_training": False}
        _, splits = load_task(None, path, kind=kind, **given)
        rows = splits["train" if kind == "embedding" else "dev"]
        assert rows[column][:] == ODD


@pytest.mark.parametrize(
    "name", ["rows.csv.gz", "rows.jsonl.zst", "rows.txt.gz", "rows.parquet.zst"]
)
def test_damaged_compression_is_said_by_every_reader(tmp_path, name):
    whole = written(tmp_path / name, {"text": TEXTS * 50})
    for content in (whole.read_bytes()[:-9], b"text\nno archive at all\n"):
        whole.write_bytes(content)
        for read in (
            lambda: read_unlabelled([str(whole)], get_task("sst2"), text_columns=["text"]),
            lambda: streamed(whole),
            lambda: load_task(None, whole, text_columns=["text"], label_column="label"),
        ):
            with pytest.raises(LimbeckError, match=r"compressed is damaged or ends too early"):
                read()


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.csv.bz2", "rows"])
def test_an_unknown_ending_names_those_that_are_read(tmp_path, name):
    (tmp_path / name).write_text("text\n")
    for read in (
        lambda: read_unlabelled([str(tmp_path / name)], get_task("sst2")),
        lambda: RowStream([tmp_path / name]),
        lambda: load_task(None, tmp_path / name, text_columns=["text"], label_column="label"),
    ):
        with pytest.raises(LimbeckError, match=r"unknown file type") as caught:
            read()
        assert all(f".{ending}" in str(caught.value) for ending in (*ENDINGS, "gz", "zst"))
