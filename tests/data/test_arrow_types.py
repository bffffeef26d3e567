"""Parquet columns of every type that writers use for text and labels: read as what they say, or refused by name."""

import decimal

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data import load_task
from limbeck.data.stream import RowStream
from limbeck.data.text_rows import read_text_rows, read_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import get_task

TEXTS = [f"film {n}" for n in range(24)]
LABELS = ["good", "bad"] * 12
NAMED = {"text_columns": ["text"], "label_column": "label", "for_training": False}


def a_file(path, text, label=None):
    parquet.write_table(
        pa.table({"text": text, "label": pa.array(LABELS) if label is None else label}), path
    )
    return path


def not_utf8():
    """Text of which one is no UTF-8: what pa.array refuses, and some writers do not."""
    good = pa.array(TEXTS)
    content = bytearray(good.buffers()[2].to_pybytes())
    content[0] = 0xFF
    return pa.Array.from_buffers(
        pa.string(), len(TEXTS), [None, good.buffers()[1], pa.py_buffer(bytes(content))]
    )


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_text_of_every_type_is_text(tmp_path, kind):
    path = a_file(
        tmp_path / "rows.parquet", pa.array(TEXTS).cast(kind), pa.array(LABELS).cast(kind)
    )
    task, splits = load_task(None, path, **NAMED)
    assert task.labels == ("bad", "good") and splits["dev"]["sentence"][:] == TEXTS
    assert read_text_rows(path, text_columns=["text"]).columns["sentence"].to_pylist() == TEXTS
    (found,) = read_unlabelled([str(path)], get_task("sst2"), text_columns=["text"])
    assert next(iter(found.columns.values())).to_pylist() == TEXTS
    stream = RowStream([path])
    assert stream.take(100).values("text") == TEXTS
    stream.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (pa.nulls(24), "holds no text|row 1: text is None"),
        (pa.nulls(24, pa.string_view()), "holds no text|row 1: text is None"),
        (pa.array([text.encode() for text in TEXTS]), "row 1: text is b'film 0', expected text"),
        (pa.array(range(24)), "row 1: text is 0, expected text"),
        (pa.array([[text] for text in TEXTS]), r"row 1: text is \['film 0'\], expected text"),
        (pa.array([0] * 24, pa.timestamp("ns", tz="Europe/Paris")), "row 1: text is .*1970"),
        (not_utf8(), "column 'text' is damaged or not UTF-8"),
        (pa.array([[text] for text in not_utf8()[1:].to_pylist()] + [["x"]]), "row 1: text is"),
        (pa.ListArray.from_arrays(list(range(25)), not_utf8()), "'text' is damaged or not UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_by_name(tmp_path, text, message):
    path = a_file(tmp_path / "rows.parquet", text)
    for read in (
        lambda: load_task(None, path, **NAMED),
        lambda: read_text_rows(path, text_columns=["text"]),
        lambda: read_unlabelled([str(path)], get_task("sst2"), text_columns=["text"]),
    ):
        with pytest.raises(LimbeckError, match=message):
            read()


def test_rows_to_predict_are_held_to_utf8_too(tmp_path):
    stream = RowStream([a_file(tmp_path / "rows.parquet", not_utf8())])
    with pytest.raises(LimbeckError, match="column 'text' is damaged or not UTF-8"):
        stream.take(100)
    stream.close()


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (pa.array([decimal.Decimal("1.5")] * 24), "label holds Decimal"),
        (pa.array([b"good", b"bad"] * 12), "label holds bytes"),
        (pa.array([0, 1] * 12, pa.timestamp("s")), "label holds datetime"),
        (pa.array([{"a": 1}] * 24), "label holds dict"),
        (pa.array([["good"]] * 24), "label holds list"),
    ],
)
def test_labels_of_other_types_are_refused_by_name(tmp_path, label, message):
    path = a_file(tmp_path / "rows.parquet", pa.array(TEXTS), label)
    with pytest.raises(LimbeckError, match=message):
        load_task(None, path, **NAMED)


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "9" * 400, "1e400"])
@pytest.mark.parametrize("kind", [None, "multi-label"])
def test_labels_of_thousands_of_digits_are_no_traceback(tmp_path, digits, kind):
    path = tmp_path / "rows.csv"
    rows = [f"film {n},{n % 3 if n else digits}" for n in range(40)]
    path.write_text("\n".join(["text,label", *rows]))
    task, _ = load_task(None, path, kind=kind, **NAMED)
    assert digits in task.labels
    path.with_suffix(".jsonl").write_text(f'{{"text": "a", "label": {digits}}}\n' * 4)
    with pytest.raises(LimbeckError):
        load_task(None, path.with_suffix(".jsonl"), kind=kind, **NAMED)
