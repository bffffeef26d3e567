"""Files of triplets with a teacher's differences of scores: every form, the scores they come to, what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data import load_task
from limbeck.data.outputs_file import read_outputs_file
from limbeck.data.row_ids import row_ids
from limbeck.support.errors import LimbeckError

# Of a teacher's scores, told nobody: differences of positives and negatives of two queries.
SCORES = {
    ("q", "a"): 7.0,
    ("q", "b"): 4.5,
    ("q", "c"): -1.25,
    ("q", "d"): 9.0,
    ("r", "a"): 2.0,
    ("r", "b"): 0.5,
}
TRIPLETS = [("q", "a", "b"), ("q", "a", "c"), ("q", "d", "c"), ("r", "a", "b")]
ROWS = [
    {"query": q, "positive": p, "negative": n, "margin": SCORES[q, p] - SCORES[q, n]}
    for q, p, n in TRIPLETS
]  # fmt: skip


def write(path, rows):
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path, texts=("query", "passage")):
    return read_outputs_file(path, texts, candidates=True)


def known(found) -> dict[tuple[str, str], tuple[float, int]]:
    """Score and list by query and passage."""
    both = zip(found.values[:, 0].tolist(), found.lists.tolist(), strict=True)
    by_id = dict(zip(found.ids.tolist(), both, strict=True))
    asked = [(q, p) for q in "qr" for p in "abcdef"]
    ids = row_ids([[q for q, _ in asked], [p for _, p in asked]]).tolist()
    return {pair: by_id[one] for pair, one in zip(asked, ids, strict=True) if one in by_id}


def check(found, scores=SCORES) -> None:
    """Among the passages of a list all differences are the teacher's."""
    told = known(found)
    assert found.what == "margin" and told.keys() == scores.keys()
    for one, (value, of) in told.items():
        for other, (least, its) in told.items():
            if of == its:
                assert value - least == pytest.approx(scores[one] - scores[other])


@pytest.mark.parametrize("name", ["margin", "score", "label"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_margins_are_scores_but_for_a_number_of_each_query(suffix, name, tmp_path) -> None:
    rows = [{name if key == "margin" else key: value for key, value in row.items()} for row in ROWS]
    found = read(write(tmp_path / f"rows.{suffix}", rows))
    check(found)
    assert len({of for (q, _), (_, of) in known(found).items() if q == "q"}) == 1
    assert len(set(found.lists.tolist())) == 2


@pytest.mark.parametrize("rows", [
    [{"query": "q", "positive": "a", "negative_1": "b", "negative_2": "c", "margins": [2.5, 8.25]}],
    [{"query": "q", "positive": ["a"], "negative": ["b", "c"], "scores": [2.5, 8.25]}],
    [{"query": "q", "positive": "a", "negative": "b", "labels": [2.5]},
     {"query": "q", "positive": "a", "negative": "c", "labels": [8.25]}],
])  # fmt: skip
def test_several_negatives_have_a_margin_each(rows, tmp_path) -> None:
    three = {pair: score for pair, score in SCORES.items() if pair in list(SCORES)[:3]}
    path = write(tmp_path / "rows.jsonl", rows)
    check(read(path), three)
    data = load_task("own", path, kind="pair-score", for_training=False)[1]["dev"]
    assert sorted(zip(data["passage"], data["label"], strict=True)) == [
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]


def test_named_columns(tmp_path) -> None:
    rows = [dict(zip(("n", "x", "y", "margin"), (n, q, p, m), strict=True))
            for q, p, n, m in (row.values() for row in ROWS)]  # fmt: skip
    check(read(write(tmp_path / "rows.csv", rows), ("x", "y", "n")))


def test_triplets_that_share_no_passage_are_lists_of_their_own(tmp_path) -> None:
    rows = [ROWS[0], {"query": "q", "positive": "e", "negative": "f", "margin": 3.0}]
    told = known(read(write(tmp_path / "rows.csv", rows)))
    assert told["q", "a"][1] == told["q", "b"][1] != told["q", "e"][1] == told["q", "f"][1]


def test_scores_of_each_passage_are_read_as_before(tmp_path) -> None:
    row = {"query": "q", "positive": ["a"], "negative": ["b", "c"], "scores": [7.0, 4.5, -1.25]}
    found = read(write(tmp_path / "rows.jsonl", [row]))
    assert found.what == "score" and sorted(found.values[:, 0].tolist()) == [-1.25, 4.5, 7.0]


@pytest.mark.parametrize(("rows", "message"), [
    ([*ROWS, ROWS[0] | {"margin": 4.0}], "row 5: margin is 4, and other triplets of this query come to 2.5"),
    ([row | {"margin": -row["margin"]} for row in ROWS], "above 0 in 0 of 4 triplets"),
    ([row | {"margin": 1} for row in ROWS], "margin is 1 in all rows"),
    ([*ROWS, ROWS[0] | {"margin": ""}], "row 5: margin is ''"),
    ([*ROWS, ROWS[0] | {"margin": "nan"}], "row 5: margin is 'nan'"),
    ([*ROWS, ROWS[0] | {"positive": ""}], "row 5: positive is ''"),
])  # fmt: skip
def test_what_no_teacher_says_is_refused(rows, message, tmp_path) -> None:
    with pytest.raises(LimbeckError, match=message):
        read(write(tmp_path / "rows.csv", rows))
