"""What `label` refuses before any work: a table that would take the place of another file, rows that are no text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from datasets import Dataset, DatasetDict

import limbeck
from limbeck.support.errors import LimbeckError
from stopping_labeller import Stops

LINES = ["text,label", "a good film,good", "a slow plot,bad", "the end,bad"]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(LINES) + "\n")
    return path


def label(place, rows, to, **changes):
    given = {"text_columns": ["text"], "out": place / "store", "to": to} | changes
    return limbeck.label(Stops(), rows, **given)


@pytest.mark.parametrize("name", ["reviews.csv", "sub/../reviews.csv", "link.csv"])
def test_a_file_that_is_read_is_never_written(tmp_path, reviews, name):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to(reviews)
    before = reviews.read_bytes()
    with pytest.raises(LimbeckError, match="exists"):
        label(tmp_path, reviews, tmp_path / name)
    with pytest.raises(LimbeckError, match="exists"):
        label(tmp_path, None, tmp_path / name, unlabelled=[str(tmp_path / "re*.csv")])
    assert reviews.read_bytes() == before and not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("other.csv", "text,label\nmine,good\n"),
        ("other.csv", ""),
        ("other.csv", "text,label,confidence,page\na,b,1,2\n"),
        ("other.jsonl", '{"text": "mine", "label": "good"}\n'),
        ("other.jsonl", "no json"),
        ("other.parquet", "no parquet"),
    ],
)
def test_another_file_is_not_written_over(tmp_path, reviews, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(LimbeckError, match="exists"):
        label(tmp_path, reviews, tmp_path / name)
    assert (tmp_path / name).read_text() == content


def test_a_folder_is_no_table(tmp_path, reviews):
    (tmp_path / "labels.csv").mkdir()
    with pytest.raises(LimbeckError, match="is a folder"):
        label(tmp_path, reviews, tmp_path / "labels.csv")


@pytest.mark.parametrize("values", [[1, 2], [b"a", b"b"], [["a"], ["b"]], [1.5, None]])
def test_columns_of_parquet_that_hold_no_text_are_named(tmp_path, values):
    parquet.write_table(pa.table({"text": values}), tmp_path / "odd.parquet")
    with pytest.raises(LimbeckError, match=r"odd\.parquet, row 1: text is .*, expected text"):
        label(tmp_path, tmp_path / "odd.parquet", None)


def test_plain_text_with_zero_characters_is_damaged(tmp_path):
    (tmp_path / "rows.txt").write_bytes(b"a good film\n\0\0\0\na \0 b\n")
    with pytest.raises(LimbeckError, match="zero characters"):
        limbeck.label(Stops(), tmp_path / "rows.txt", out=tmp_path / "store")


def test_what_is_not_there_is_said(tmp_path, reviews):
    with pytest.raises(LimbeckError, match=r"there is no such file or folder: nothing\*\.csv"):
        label(tmp_path, reviews, None, unlabelled=["nothing*.csv"])


# ---- arguments from Python ----


@pytest.mark.parametrize("value", [0, -1, 2.5])
@pytest.mark.parametrize("name", ["shard_rows", "batch_size", "max_length"])
def test_numbers_of_rows_and_tokens_are_one_or_more(tmp_path, reviews, name, value):
    with pytest.raises(LimbeckError, match=f"{name} is {value}: input should be"):
        label(tmp_path, reviews, None, **{name: value})
    assert not (tmp_path / "store").exists()


def test_one_name_is_a_list_of_one(tmp_path, reviews):
    rows = {"data": None, "unlabelled": str(reviews), "text_columns": "text", "outputs": "logits"}
    store = limbeck.label(Stops(), **rows, out=tmp_path / "one")
    several = {"data": None, "unlabelled": [reviews], "text_columns": ["text"]}
    assert (
        store.row_ids.tolist()
        == limbeck.label(Stops(), **several, out=tmp_path / "several").row_ids.tolist()
    )
    by_path = {"data": None, "unlabelled": reviews, "text_columns": ["text"]}
    assert len(limbeck.label(Stops(), **by_path, out=tmp_path / "path")) == len(store) == 3


TEXTS = ["a good film", "a slow plot", "the end"]


@pytest.mark.parametrize(
    "data",
    [
        Dataset.from_dict({"text": TEXTS, "label": [0, 1, 1]}),
        DatasetDict(
            {
                "train": Dataset.from_dict({"text": TEXTS[:2]}),
                "test": Dataset.from_dict({"text": TEXTS[2:]}),
            }
        ),
        {"test": [{"text": text} for text in TEXTS]},
        [{"text": text} for text in TEXTS],
    ],
)
def test_rows_as_objects_are_those_of_a_file(tmp_path, reviews, data):
    file = limbeck.label(Stops(), reviews, text_columns=["text"], out=tmp_path / "file")
    table = tmp_path / "labels.csv"
    store = limbeck.label(Stops(), data, text_columns="text", out=tmp_path / "given", to=table)
    assert {*store.row_ids.tolist()} == {*file.row_ids.tolist()}
    assert all(source.startswith("given:") for source in store.manifest.rows.source)
    assert {line.split(",")[0].strip('"') for line in table.read_text().split("\n")[1:-1]} == {
        *TEXTS
    }
    again = Stops()
    limbeck.label(again, data, text_columns="text", out=tmp_path / "given")
    assert again.seen == []


def test_more_rows_as_objects(tmp_path, reviews):
    more = Dataset.from_dict({"text": ["a new film"]})
    rows = {"unlabelled": [more, reviews], "text_columns": "text"}
    assert len(limbeck.label(Stops(), **rows, out=tmp_path / "store")) == 4
    assert len(limbeck.label(Stops(), unlabelled=more, out=tmp_path / "more")) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "data: a int holds no rows to read\n.*datasets.Dataset"),
        (Dataset.from_dict({"text": []}), "data holds no rows"),
        ({"text": TEXTS}, "text is not one of the splits"),
    ],
)
def test_objects_that_hold_no_rows_are_refused(tmp_path, data, said):
    with pytest.raises(LimbeckError, match=said):
        limbeck.label(Stops(), data, text_columns="text", out=tmp_path / "store")
