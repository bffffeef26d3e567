"""What `label` refuses before any work: a table that would take the place of another file, rows that are no text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import limbeck
from limbeck.errors import LimbeckError
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
    with pytest.raises(LimbeckError, match="is one of the files that are read"):
        label(tmp_path, reviews, tmp_path / name)
    with pytest.raises(LimbeckError, match="is one of the files that are read"):
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
    with pytest.raises(LimbeckError, match="exists, and is no table of labels"):
        label(tmp_path, reviews, tmp_path / name)
    assert (tmp_path / name).read_text() == content


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_of_an_earlier_start_is_written_again(tmp_path, reviews, suffix):
    table = tmp_path / f"labels{suffix}"
    label(tmp_path, reviews, table)
    first = table.read_bytes()
    label(tmp_path, reviews, table)
    assert table.read_bytes() == first


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


def test_what_is_not_there_is_said_of_the_setting_that_names_it(tmp_path, reviews):
    with pytest.raises(LimbeckError, match=r"unlabelled: no file has a name nothing\*\.csv"):
        label(tmp_path, reviews, None, unlabelled=["nothing*.csv"])
    with pytest.raises(LimbeckError, match="names one column twice"):
        label(tmp_path, reviews, None, text_columns=["text", "text"])
