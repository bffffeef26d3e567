"""Outputs in a file of one's own: every form, each number at its class, and what is refused in words."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data.outputs_file import read_outputs_file
from limbeck.data.row_ids import row_ids
from limbeck.support.errors import LimbeckError

TEXTS = ["good film", "bad, bad film", "a film"]
VALUES = [[0.25, 0.75], [0.875, 0.125], [0.5, 0.5]]


def write(path, rows) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(path, **given):
    return read_outputs_file(path, ["text"], classes=("no", "yes"), **given)


def by_text(found) -> dict[str, list[float]]:
    known = dict(zip(found.ids.tolist(), found.values.tolist(), strict=True))
    return {text: known[int(row_ids([[text]])[0])] for text in TEXTS}


EXPECTED = dict(zip(TEXTS, VALUES, strict=True))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("what", ["logits", "probabilities"])
def test_lists_in_a_stated_order(tmp_path, suffix, what):
    path = tmp_path / f"o.{suffix}"
    write(path, [{"text": t, what: v} for t, v in EXPECTED.items()])
    found = read(path, order=("no", "yes"))
    assert (found.what, found.classes) == (what, ("no", "yes"))
    assert by_text(found) == EXPECTED
    assert found.values.dtype == np.float32 and (np.diff(found.ids) > 0).all()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_numbers_with_names_keep_them(tmp_path, suffix):
    path = tmp_path / f"o.{suffix}"
    write(path, [{"text": t, "votes": {"yes": 3 * b, "no": a}} for t, (a, b) in EXPECTED.items()])
    found = read(path)
    assert (found.what, found.classes) == ("votes", ("yes", "no"))
    assert by_text(found)["bad, bad film"] == [0.375, 0.875]


def test_votes_are_read_before_their_shares(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text("text,probabilities.no,probabilities.yes,votes.no,votes.yes\na,1,0,5,0\n")
    found = read(path)
    assert (found.what, found.values.tolist()) == ("votes", [[5, 0]])
    # Of several labels a row they do not say how many were asked, and the shares do.
    found = read(path, several=True)
    assert (found.what, found.values.tolist()) == ("probabilities", [[1, 0]])


def test_a_column_for_each_class_in_csv(tmp_path):
    path = tmp_path / "o.csv"
    lines = [f'"{t}",{b},{a}' for t, (a, b) in EXPECTED.items()]
    path.write_text("text,probabilities.yes,probabilities.no\n" + "\n".join(lines), "utf-8")
    found = read(path)
    assert found.classes == ("yes", "no")
    assert by_text(found) == {t: [b, a] for t, (a, b) in EXPECTED.items()}


def test_lists_in_csv_are_written_as_in_json(tmp_path):
    path = tmp_path / "o.tsv"
    path.write_text(
        "text\tlogits\n" + "".join(f"{t}\t{v}\n" for t, v in EXPECTED.items()), encoding="utf-8"
    )
    assert by_text(read(path, order=("no", "yes"))) == EXPECTED


def test_numbers_of_a_regression(tmp_path):
    path = tmp_path / "o.jsonl"
    write(path, [{"text": t, "score": v} for t, v in zip(TEXTS, (1, -2.5, 4.0), strict=True)])
    found = read_outputs_file(path, ["text"])
    assert (found.what, found.classes) == ("score", ())
    assert by_text(found)["bad, bad film"] == [-2.5]


def test_pairs_are_found_by_both_texts_and_rows_by_their_id(tmp_path):
    path, again = tmp_path / "o.jsonl", tmp_path / "again.jsonl"
    pairs = [("a", "b"), ("b", "a")]
    ids = row_ids([["a", "b"], ["b", "a"]])
    write(path, [{"one": a, "two": b, "logits": [n, 0]} for n, (a, b) in enumerate(pairs)])
    write(again, [{"row": int(i), "logits": [n, 0]} for n, i in enumerate(ids)])
    for file in (path, again):
        found = read_outputs_file(file, ["one", "two"], order=("x", "y"))
        assert dict(zip(found.ids.tolist(), found.values[:, 0], strict=True)) == {
            int(ids[0]): 0.0,
            int(ids[1]): 1.0,
        }


def test_a_row_that_stands_twice_counts_once(tmp_path):
    path = tmp_path / "o.jsonl"
    write(path, [{"text": "a", "logits": [1, 2]}] * 2)
    assert read(path, order=("no", "yes")).values.tolist() == [[1, 2]]


ROW = {"text": "a", "probabilities": {"no": 0.5, "yes": 0.5}}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"text": "a", "label": 1}], r"no column of outputs among text, label"),
        ([{"words": "a", "logits": {"no": 1, "yes": 2}}], r"no column text .* it has words, logits"),
        ([{"text": "a", "logits": [1, 2]}], r"data's classes are no, yes.*output_classes"),
        ([ROW, {"text": "b", "probabilities": {"no": 1.0}}], r"row 2: probabilities of no"),
        ([{"text": "a", "probabilities": {"no": 0.9}}], r"of no, .* classes are no, yes: .* no outputs of yes"),
        ([ROW, {"text": "b", "probabilities": {"no": 0.5, "yes": 0.6}}], r"row 2.*sum that is not 1"),
        ([ROW, {"text": "b", "probabilities": {"no": -0.5, "yes": 1.5}}], r"row 2.*below 0"),
        ([ROW, {"text": "b", "probabilities": {"no": None, "yes": 1}}], r"row 2.*expected 2 numbers"),
        ([ROW, {"text": "b", "probabilities": {"no": True, "yes": 0}}], r"row 2.*expected 2 numbers"),
        ([{"text": "a", "votes": {"no": 0, "yes": 0}}], r"row 1.*no vote at all"),
        ([{"text": "a", "logits": {"no": 1e999, "yes": 0}}], r"row 1.*not finite"),
        ([ROW, {"text": "a", "probabilities": {"no": 1, "yes": 0}}], r"row 2: the text of row 1 again"),
        ([{"row": "x", "logits": {"no": 1, "yes": 0}}], r"no row id"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_row(tmp_path, rows, words):
    path = tmp_path / "o.jsonl"
    write(path, rows)
    with pytest.raises(LimbeckError, match=f"(?s){words}"):
        read(path)


@pytest.mark.parametrize(
    ("cell", "words"), [("[1, 2, 3]", "expected 2"), ("1", "expected 2"), ("[1, x]", "expected 2")]
)
def test_lists_of_another_length_are_refused(tmp_path, cell, words):
    path = tmp_path / "o.tsv"
    path.write_text(f"text\tlogits\na\t[1, 2]\nb\t{cell}\n", encoding="utf-8")
    with pytest.raises(LimbeckError, match=f"row 2.*{words}"):
        read(path, order=("no", "yes"))
