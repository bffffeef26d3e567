"""Rerankers about lists of passages: every pair's score by the model itself, ranks by sorting."""

from __future__ import annotations

import json

import pyarrow.parquet as parquet
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import tiny_runs as tiny
from limbeck import LimbeckError, predict
from limbeck.predicting import readers
from limbeck.tasks import PAIR_SCORE

ROWS = [
    {"id": 1, "query": "good film", "passages": ["a good film", "the end", "bad plot", "the end"]},
    {"id": 2, "query": "bad", "passages": ["very bad", None, "a slow long plot"]},
    {"id": 3, "query": "the end", "passages": []},
    {"id": 4, "query": "very", "passages": None},
    {"id": 5, "query": "long", "passages": ["good"]},
]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory) -> str:
    """A model of random weights, marked as a student of this type is."""
    plain = tiny.bert(2, id2label={0: "LABEL_0"}, initializer_range=0.5)
    model = BertForSequenceClassification(PAIR_SCORE.student_config(plain.config))
    model.load_state_dict(plain.state_dict())
    return str(tiny.save(model, tmp_path_factory.mktemp("models") / "reranker"))


def one_by_one(folder: str) -> list[list[float | None] | None]:
    """Each pair alone, without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = tiny.tokenizer()

    def score(query: str, passage: str | None) -> float | None:
        if passage is None:
            return None
        with torch.no_grad():
            return float(model(**words(query, passage, return_tensors="pt")).logits)

    return [
        None if row["passages"] is None else [score(row["query"], text) for text in row["passages"]]
        for row in ROWS
    ]


def test_every_passage_has_its_score_and_rank(reranker, monkeypatch) -> None:
    """Missing passages keep their places; however many pairs are encoded at once."""
    for rows in (64, 2):
        monkeypatch.setattr(readers, "_LISTS", rows)
        found = predict(reranker, ROWS, output=["labels", "ranks"], batch_size=2)
        assert (found.count, found.blank) == (5, 1)
        for row, given, scores in zip(found, ROWS, one_by_one(reranker), strict=True):
            assert {name: row[name] for name in given} == given
            if scores is None:
                assert row["prediction"] is row["rank"] is None
                continue
            assert row["prediction"] == [
                None if score is None else pytest.approx(score, abs=1e-5) for score in scores
            ]
            # Of equal passages some processors round one otherwise, so either may stand before the other.
            for rank, score in zip(row["rank"], scores, strict=True):
                before = [None not in (score, one) and one > score + 1e-4 for one in scores]
                there = [None not in (score, one) and one > score - 1e-4 for one in scores]
                assert rank is score is None or sum(before) < rank <= sum(there)
            own = [
                (one, rank)
                for one, rank in zip(row["prediction"], row["rank"], strict=True)
                if rank
            ]
            assert all((one > other) == (a < b) for one, a in own for other, b in own)


def test_equal_scores_share_the_better_rank(tmp_path) -> None:
    """A head of zeros scores all alike, and a rank does not depend on the order of the list."""
    model = tiny.bert(1, id2label={0: "LABEL_0"})
    torch.nn.init.zeros_(model.classifier.weight)
    folder = str(tiny.save(model, tmp_path / "model"))
    (found,) = predict(folder, ROWS[:1], output=["ranks"], keep="none")
    assert found == {"rank": [1, 1, 1, 1]}


def test_files_of_lists_are_found_continued_and_typed(reranker, tmp_path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [{**row, "documents": row["passages"]} for row in ROWS]
    file.write_text("".join(json.dumps(line, default=str) + "\n" for line in lines))
    out = tmp_path / "out.parquet"
    predict(reranker, file, to=out, output=["labels", "ranks"], keep=["id"], chunk_rows=2)
    table = parquet.read_table(out)
    assert [str(kind) for kind in table.schema.types] == [
        "int64",
        "list<element: float>",
        "list<element: int32>",
    ]
    assert table.column("rank").to_pylist()[1:] == [[*table["rank"][1].as_py()], [], None, [1]]


def test_a_cross_encoder_that_nobody_marked_reads_lists_too(reranker, folders) -> None:
    with pytest.raises(LimbeckError, match="ranks: they are given to the texts of a list"):
        predict(folders["regression"], tiny.sentences(3), output="ranks")
    (found,) = predict(folders["regression"], ROWS[:1], output="ranks", keep="none")
    assert [*found] == ["rank"] and min(found["rank"]) == 1


def test_what_lists_do_not_have_is_refused(reranker, folders) -> None:
    with pytest.raises(
        LimbeckError, match="embeddings: a row with a list of texts has no embedding"
    ):
        predict(reranker, ROWS, output=["labels", "embeddings"])
    mixed = [ROWS[0], {"query": "good", "passages": "a film"}]
    with pytest.raises(LimbeckError, match="row 2: passages is 'a film', expected"):
        predict(reranker, mixed)
    with pytest.raises(LimbeckError, match="task type sentence, which has no such output"):
        predict(folders["sentence"], ROWS, output="ranks", text_columns=["query", "passages"])
