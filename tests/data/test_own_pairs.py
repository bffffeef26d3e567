"""Queries with candidates of a user's own: lists, tables, BEIR's folders, known tasks; and what may be wrong."""

import json
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from limbeck.data import load_task
from limbeck.data.beir import nearest
from limbeck.support.errors import LimbeckError
from limbeck.tasks import PAIR_SCORE, as_kind, get_task


def lines(path: Path, rows) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def lists(count: int) -> list[dict]:
    return [
        {"query": f"q{n}", "passages": [f"a{n}", f"b{n}", f"c{n}"], "labels": [0, 2, 0]}
        for n in range(count)
    ]


def test_lists_are_pairs_and_dev_is_made_of_whole_queries(tmp_path) -> None:
    file = lines(tmp_path / "mine.jsonl", lists(30))
    task, splits = load_task(None, file)
    assert (task.kind, task.name) == (PAIR_SCORE, "mine")
    assert (task.metrics, task.primary) == (("ndcg@10", "mrr@10"), "ndcg@10")
    assert task.text_columns == ("query", "passage") and task.regression
    assert [len(splits[split]) for split in ("train", "dev")] == [81, 9]
    asked = [set(splits[split]["query"]) for split in ("train", "dev")]
    assert not asked[0] & asked[1] and len(asked[1]) == 3
    _, again = load_task(None, file)
    assert again["dev"]["query"][:] == splits["dev"]["query"][:]
    _, alone = load_task(None, file, for_training=False)
    assert len(alone["dev"]) == 90


def test_a_query_in_other_case_stays_with_its_equal(tmp_path) -> None:
    """Docs: rows of the same text stay together, case and outer whitespace left aside."""
    rows = lists(20)
    again = [row | {"query": f" {row['query'].upper()}"} for row in rows]
    _, splits = load_task(None, lines(tmp_path / "mine.jsonl", rows + again))
    train, dev = ({*splits[split]["query"]} for split in ("train", "dev"))
    assert len(dev) == 4 and not {one.strip().lower() for one in train} & {*map(str.lower, dev)}
    assert {f" {one.strip().upper()}" for one in dev} <= dev


def test_a_table_of_pairs(tmp_path) -> None:
    (tmp_path / "train.csv").write_text("ask,found,y\nq,a,1\nq,b,\nr,a,0.5\n")
    (tmp_path / "dev.csv").write_text("ask,found,y\nq,a,1\nq,c,\n")
    task, splits = load_task(
        "own", tmp_path, kind="pair-score", text_columns=["ask", "found"], label_column="y"
    )
    train = splits["train"]["label"][:]
    assert train[::2] == [1, 0.5] and isnan(train[1])
    assert splits["dev"]["label"][:] == [1, 0]  # as in TREC's scores
    groups = PAIR_SCORE.groups_of(task, splits["train"][:])
    assert groups[0] == groups[1] != groups[2]


def test_scores_alone_are_rows_without_grades(tmp_path) -> None:
    row = {"query": "q", "passages": ["a", "b"], "scores": [1.5, -2]}
    lines(tmp_path / "train.jsonl", [row])
    lines(tmp_path / "dev.jsonl", lists(2))
    _, splits = load_task("own", tmp_path)
    assert all(isnan(value) for value in splits["train"]["label"])


@pytest.fixture
def beir(tmp_path) -> Path:
    words = ["cats live here", "birds sing loud", "dogs bark", "cats sing", "cars drive"]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(words[:3])]
    lines(tmp_path / "queries.jsonl", queries)
    corpus = [{"_id": f"d{n}", "title": "", "text": f"{text} now"} for n, text in enumerate(words)]
    lines(tmp_path / "corpus.jsonl", corpus)
    (tmp_path / "qrels").mkdir()
    header = "query-id\tcorpus-id\tscore\n"
    (tmp_path / "qrels/train.tsv").write_text(f"{header}q0\td0\t2\nq1\td1\t1\n")
    (tmp_path / "qrels/test.tsv").write_text(f"{header}q2\td2\t1\nq2\td4\t0\n")
    return tmp_path


def test_a_folder_in_beirs_layout(beir) -> None:
    (beir / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td2\t1\n")
    task, splits = load_task("own", beir)
    assert task.kind is PAIR_SCORE
    first = [row for row in splits["train"] if row["query"] == "cats live here"]
    assert {row["passage"]: row["label"] for row in first} == {
        "cats live here now": 2, "birds sing loud now": 0, "dogs bark now": 0,
        "cats sing now": 0, "cars drive now": 0,
    }  # fmt: skip
    # The judged one first, then what shares words with the query.
    assert [row["passage"] for row in first][:2] == ["cats live here now", "cats sing now"]


def test_the_nearest_passages_share_words_with_the_query() -> None:
    corpus = ["red apple pie", "green apple", "blue sky", "sky high"]
    found = nearest(["apple", "blue sky"], corpus, 2)
    assert found.tolist() == [[1, 0], [2, 3]]


@pytest.mark.parametrize("name", ["stsb", "mrpc", "sst2"])
def test_known_tasks_have_no_candidates(name) -> None:
    with pytest.raises(LimbeckError, match=f"the rows of task '{name}' have no candidates"):
        as_kind(get_task(name), "pair-score")


def test_a_constant_is_worth_the_mean_over_all_orders(tmp_path) -> None:
    lines(tmp_path / "train.jsonl", lists(4))
    lines(tmp_path / "dev.jsonl", lists(1))
    task, splits = load_task("own", tmp_path)
    # One relevant candidate of three, at each place as likely: (1 + 1/log2(3) + 1/2) / 3.
    value, said = PAIR_SCORE.baseline_of_rows(task, splits["dev"])
    assert value == pytest.approx(100 * (1 + 1 / np.log2(3) + 0.5) / 3)
    assert said == "one score for every candidate"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("query,passage,label\nq,a,1\nq,a,0\n", "row 2: the same query and passage as in row 1"),
        ("query,passage,label\nq,a,-1\n", "label is '-1'"),
        ("query,passage,label\nq,a,nan\n", "label is 'nan'"),
        ("query,passage,label\nq,a,good\n", "label is 'good'"),
        ("query,passage,label\nq,,1\n", "row 1: passage is ''"),
        ("query,text,label\nq,a,1\n", "no column 'passage'"),
        ("query,passage\nq,a\n", "no column 'label'"),
        ("query,passage,label\nq,a,1\nq,b,0\nr,c,1\n", "too few to keep some back"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, content, said) -> None:
    (tmp_path / "mine.csv").write_text(content)
    with pytest.raises(LimbeckError, match=said):
        load_task(None, tmp_path / "mine.csv", kind="pair-score")


def test_queries_of_one_candidate_each_leave_nothing_to_rank(tmp_path) -> None:
    rows = [{"query": f"q{n}", "passages": ["a"], "labels": [1]} for n in range(3)]
    lines(tmp_path / "train.jsonl", lists(3))
    task, splits = load_task("own", lines(tmp_path / "dev.jsonl", rows).parent)
    assert PAIR_SCORE.check_rows(task, splits["dev"]) == [
        "each of 3 queries has one candidate, so that nothing can be ranked"
    ]


def test_no_classes(tmp_path) -> None:
    from limbeck.data import Labelling

    file = lines(tmp_path / "mine.jsonl", lists(30))
    with pytest.raises(LimbeckError, match="grades of candidates are numbers"):
        load_task(None, file, kind="pair-score", labelling=Labelling(("no", "yes")))


def test_a_dev_split_in_which_nothing_is_relevant(tmp_path) -> None:
    lines(tmp_path / "train.jsonl", lists(3))
    nothing = [{"query": "z", "passages": ["a", "b"], "labels": [0, 0]}]
    task, splits = load_task("own", lines(tmp_path / "dev.jsonl", nothing).parent)
    assert (
        "no query of 1 has a candidate with a grade above 0"
        in PAIR_SCORE.check_rows(task, splits["dev"])[0]
    )
