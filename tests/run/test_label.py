"""`label`: what a teacher says of rows is what transformers itself computes, whatever interrupts it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import limbeck
from limbeck.data.row_ids import row_ids
from limbeck.outputs.store import open_store
from limbeck.support.errors import LimbeckError
from stopping_labeller import Stops
from tiny_runs import bert, knowing_teacher, save, sentences, tokenizer

COUNT = 23


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return save(knowing_teacher(), tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Plain text, a row a line; the last three are rows that were there before."""
    path = tmp_path_factory.mktemp("rows") / "rows.txt"
    path.write_text("\n".join([*sentences(COUNT), *sentences(3)]))
    return path


def by_transformers(folder: Path, lines: list[str]) -> tuple[np.ndarray, tuple[torch.Tensor, ...]]:
    """Logits and hidden states, one text at a time and so without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    logits, states = [], []
    with torch.no_grad():
        for line in lines:
            inputs = tokenizer()(line, return_tensors="pt", return_token_type_ids=False)
            found = model(**inputs, output_hidden_states=True, output_attentions=False)
            logits.append(found.logits[0].numpy())
            states.append([state[0] for state in found.hidden_states])
    return np.stack(logits), states


def test_every_output_is_transformers_own(teacher, texts, tmp_path):
    words = ["logits", "probabilities", "hidden:-1", "hidden:2:cls", "hidden:0:mean"]
    store = limbeck.label(
        str(teacher), texts, out=tmp_path / "store", outputs=words, shard_rows=8, batch_size=5
    )
    lines = list(dict.fromkeys(sentences(COUNT)))
    logits, states = by_transformers(teacher, lines)
    assert store.classes == ("negative", "positive") and store.kind == "sentence"
    assert len(store) == len(lines) and len(store.manifest.shards) == -(-len(lines) // 8)
    ids = row_ids([lines])
    assert store.row_ids.tolist() == ids.tolist()
    found = store.take(ids)
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    exact = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(
        found["probabilities"], exact / exact.sum(1, keepdims=True), atol=1e-6
    )
    assert found["label"].tolist() == logits.argmax(1).tolist()
    for row, own in enumerate(states):
        np.testing.assert_allclose(found["hidden-main-4"][row], own[4], atol=2e-3)
        np.testing.assert_allclose(found["hidden-main-2-cls"][row], own[2][0], atol=2e-3)
        np.testing.assert_allclose(found["hidden-main-0-mean"][row], own[0].mean(0), atol=2e-3)


def test_a_length_beyond_the_model_is_refused(teacher, texts, tmp_path):
    with pytest.raises(LimbeckError, match=r"max_length 9999: the model reads \d+ tokens at most"):
        limbeck.label(str(teacher), texts, out=tmp_path / "store", max_length=9999)
    assert not (tmp_path / "store").exists()


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*"))}


def test_interrupted_after_any_batch_the_store_is_the_same_bytes(texts, tmp_path):
    whole = limbeck.label(Stops(), texts, out=tmp_path / "whole", shard_rows=8)
    expected = shards(tmp_path / "whole")
    assert len(expected) == 3
    # Four batches are measured, and a shard is two.
    for after in range(6, 9):
        folder, starts = tmp_path / str(after), 0
        while True:
            starts += 1
            try:
                again = limbeck.label(Stops(after), texts, out=folder, shard_rows=8)
            except KeyboardInterrupt:
                continue
            break
        assert starts > 1 and shards(folder) == expected
        assert again.manifest.rows == whole.manifest.rows
        assert len(set(again.row_ids.tolist())) == len(again.row_ids) == len(whole)


def test_a_store_that_is_whole_asks_nobody(texts, tmp_path):
    first, again = Stops(), Stops()
    limbeck.label(first, texts, out=tmp_path, shard_rows=8)
    store = limbeck.label(again, texts, out=tmp_path)
    assert again.seen == [] and store.manifest.settings["rows of a shard"] == 8
    assert store.manifest.costs["texts"] == len(first.seen)  # those of the measured batch too


def test_another_teacher_other_rows_or_settings_are_refused(teacher, texts, tmp_path):
    kept = {"out": tmp_path / "store", "shard_rows": 8}
    limbeck.label(str(teacher), texts, **kept)
    before = shards(tmp_path / "store")
    other = save(bert(2, seed=3), tmp_path / "other")
    for changes, said in (
        ({"teacher": str(other)}, "other teacher model"),
        ({"max_length": 5}, "other teacher max_length"),
        ({"precision": "bf16"}, "other teacher precision"),
        ({"outputs": ["logits"]}, "other outputs"),
        ({"with_text": True}, "other text"),
        ({"shard_rows": 4}, "other rows of a shard"),
        ({"unlabelled": [_lines(tmp_path, "a good end")]}, "other rows"),
    ):
        settings = {"teacher": str(teacher), "data": texts} | kept | changes
        with pytest.raises(LimbeckError, match=said):
            limbeck.label(**settings)
    assert shards(tmp_path / "store") == before


def _lines(folder: Path, *lines: str) -> Path:
    path = folder / "more.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "folder"])
def test_files_of_any_kind_are_labelled_alike(texts, tmp_path, kind):
    expected = limbeck.label(Stops(), texts, out=tmp_path / "plain").row_ids.tolist()
    lines = texts.read_text().splitlines()
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([["page", "review"], *([7, line] for line in lines)])
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"review": line}) + "\n" for line in lines))
    elif kind == "parquet":
        import pyarrow as pa

        parquet.write_table(pa.table({"review": lines, "label": [None] * len(lines)}), path)
    else:
        path.mkdir()
        for part, some in enumerate((lines[:10], lines[10:])):
            (path / f"{part}.jsonl").write_text(
                "".join(json.dumps({"review": line}) + "\n" for line in some)
            )
    store = limbeck.label(Stops(), path, text_columns=["review"], out=tmp_path / "store")
    assert store.row_ids.tolist() == expected


def test_a_known_tasks_rows_of_all_splits_are_labelled(tmp_path):
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    lines = sentences(6)
    for split, some in (("train", lines[:3]), ("dev", lines[3:5])):
        rows = "".join(f"{line}\t{number % 2}\n" for number, line in enumerate(some))
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    (folder / "test.tsv").write_text(f"index\tsentence\n0\t{lines[5]}\n")
    store = limbeck.label(Stops(), tmp_path / "glue", task="sst2", out=tmp_path / "store")
    assert store.row_ids.tolist() == row_ids([lines]).tolist()
    assert store.manifest.task == "sst2"


def test_a_store_lies_anywhere_fsspec_reaches(texts, tmp_path):
    fsspec.filesystem("memory").store.clear()
    local = limbeck.label(Stops(), texts, out=tmp_path / "a", shard_rows=8)
    for url in ("memory://bucket/b", f"file://{tmp_path}/c"):
        found = limbeck.label(Stops(), texts, out=url, shard_rows=8)
        assert found.manifest.shards == local.manifest.shards
        assert open_store(url).row_ids.tolist() == local.row_ids.tolist()


def test_a_team_keeps_each_members_outputs_beside_the_mean(teacher, texts, tmp_path):
    second = bert(2, seed=5, id2label={0: "positive", 1: "negative"})  # the other way round
    other = save(second, tmp_path / "other")
    alone = [
        limbeck.label(str(path), texts, out=tmp_path / f"{number}").take
        for number, path in enumerate((teacher, other))
    ]
    team = limbeck.label([str(teacher), str(other)], texts, out=tmp_path / "team")
    ids = team.row_ids
    first, reversed_ = (take(ids) for take in alone)
    swapped = {name: reversed_[name][:, ::-1] for name in ("logits", "probabilities")}
    found = team.take(ids)
    for name in ("logits", "probabilities"):
        np.testing.assert_array_equal(found[f"{teacher.name}:{name}"], first[name])
        np.testing.assert_array_equal(found[f"other:{name}"], swapped[name])
        np.testing.assert_allclose(found[name], (first[name] + swapped[name]) / 2, atol=1e-6)
    assert team.members == (teacher.name, "other")
    assert found["label"].tolist() == found["probabilities"].argmax(1).tolist()


def test_teachers_of_other_classes_are_no_team(teacher, texts, tmp_path):
    other = save(bert(2, id2label={0: "a", 1: "b", 2: "c"}), tmp_path / "other")
    with pytest.raises(LimbeckError, match="teacher other has the classes a, b, c"):
        limbeck.label([str(teacher), str(other)], texts, out=tmp_path / "store")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_pseudo_labels_as_a_plain_table(teacher, texts, tmp_path, kind):
    table = tmp_path / f"labels.{kind}"
    limbeck.label(str(teacher), texts, to=table)
    lines = texts.read_text().splitlines()
    if kind == "csv":
        with table.open(newline="") as stream:
            rows = [*csv.DictReader(stream)]
    elif kind == "jsonl":
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    else:
        rows = parquet.read_table(table).to_pylist()
    assert [row["text"] for row in rows] == lines
    right = ["positive" if line.startswith("good") else "negative" for line in lines]
    assert [row["label"] for row in rows] == right
    assert all(0.5 < float(row["confidence"]) <= 1 for row in rows)
    assert (tmp_path / f"labels.{kind}.store" / "manifest.json").is_file()


def test_a_number_is_its_own_label(texts, tmp_path):
    folder = save(knowing_teacher(regression=True), tmp_path / "teacher")
    store = limbeck.label(str(folder), texts, out=tmp_path / "store", to=tmp_path / "t.jsonl")
    found = store.take(store.row_ids)
    assert store.classes == () and found["label"].tolist() == found["logits"][:, 0].tolist()
    row = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert row.keys() == {"text", "label"}
    with pytest.raises(LimbeckError, match="no probabilities"):
        limbeck.label(str(folder), texts, out=tmp_path / "b", outputs=["probabilities"])


def test_texts_are_stored_where_they_are_asked_for(texts, tmp_path):
    store = limbeck.label(Stops(), texts, out=tmp_path, with_text=True, shard_rows=8)
    stored = [text for table in store.tables() for text in table["text"].to_pylist()]
    assert stored == list(dict.fromkeys(texts.read_text().splitlines()))


def own_table(folder: Path) -> Path:
    """Pairs under names of the user's own, half of them said before; one row says nothing."""
    lines = [{"subject": f"subject {n}", "body": text} for n, text in enumerate(sentences(30))]
    path = folder / "mails.jsonl"
    rows = [*lines, {"subject": None}, *lines[:15]]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


class Pairs(Stops):
    def score(self, rows):
        long = [[len(row["sentence2"]), 20] for row in rows]
        return {"logits": np.array(long, dtype=np.float32)}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_what_is_written_has_the_users_columns_and_is_read_as_data(tmp_path, kind, capsys):
    columns = ["subject", "body"]
    table = tmp_path / f"labels.{kind}"
    path = own_table(tmp_path)
    store = limbeck.label(
        Pairs(), path, text_columns=columns, to=table, with_text=True, shard_rows=8, show=True
    )
    assert "30 rows (15 more have the same texts, 1 are empty)" in capsys.readouterr().err
    assert store.manifest.rows.columns == ("subject", "body")
    stored = pa.concat_tables(store.tables())
    assert stored["subject"].to_pylist() == [f"subject {n}" for n in range(30)]
    task, splits = limbeck.data.load_task(
        None, str(table), text_columns=columns, label_column="label"
    )
    assert sorted(task.labels) == ["few", "many"]
    rows = [row for split in splits.values() for row in split]
    assert len(rows) == 45
    for row in rows:
        assert task.labels[row["label"]] == ("few" if len(row["sentence2"]) > 20 else "many")
    # Under other names they are the same rows; names count where texts are stored.
    path.write_text(path.read_text().replace('"body"', '"text"'))
    same = limbeck.label(
        Pairs(), path, text_columns=["subject", "text"], out=tmp_path / "ids", shard_rows=8
    )
    assert same.row_ids.tolist() == store.row_ids.tolist()
    with pytest.raises(LimbeckError, match="other text columns"):
        limbeck.label(
            Pairs(),
            path,
            text_columns=["subject", "text"],
            out=f"{table}.store",
            with_text=True,
            shard_rows=8,
        )


@pytest.mark.parametrize(
    ("column", "settings", "said"),
    [
        ("label", {"with_text": True, "out": "store"}, "text column label has the name"),
        ("logits", {"with_text": True, "out": "store"}, "text column logits has the name"),
        ("confidence", {"to": "labels.csv"}, "text column confidence has the name"),
    ],
)
def test_text_columns_named_like_what_is_written_are_refused(tmp_path, column, settings, said):
    (tmp_path / "rows.csv").write_text(f"{column}\ngood film\n")
    places = {name: tmp_path / value for name, value in settings.items() if name != "with_text"}
    labeller = Stops()
    with pytest.raises(LimbeckError, match=said):
        limbeck.label(labeller, tmp_path / "rows.csv", **(settings | places))
    assert labeller.seen == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"outputs": ["logit"]}, "unknown output 'logit'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"engine": "ray"}, "unknown setting 'engine'"),
        ({"out": None}, "no store is named"),
        ({"data": None}, "no rows are named"),
        ({"to": "labels.xlsx"}, "unknown file type of --to"),
        ({"data": "nowhere.csv"}, "no such file"),
        ({"teacher": 3}, "is no labeller"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(texts, tmp_path, settings, said):
    stops = Stops()
    known = {"teacher": stops, "data": texts, "out": tmp_path / "store"}
    with pytest.raises(LimbeckError, match=said):
        limbeck.label(**(known | settings))
    assert stops.seen == [] and not (tmp_path / "store" / "manifest.json").exists()


def test_a_table_of_labels_needs_outputs_that_decide(teacher, texts, tmp_path):
    """Said before any row is labelled."""
    with pytest.raises(LimbeckError, match="hidden-main-1-mean come to no label"):
        limbeck.label(teacher, texts, outputs=["hidden:1:mean"], to=tmp_path / "labels.csv")
    assert not [*tmp_path.glob("labels*")]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hidden:9", "layers 1 to 4"),
        ("attention:0", r"layers 1 to 4\n.*1 to 4, counted from the end -4 to -1$"),
        ("hidden:5", "-4 to -1, and 0, the embeddings"),
        ("hidden", "choices: logits"),
        ("hidden:1:sum", "choices: logits"),
    ],
)
def test_outputs_that_a_model_does_not_have_are_refused(teacher, texts, tmp_path, word, said):
    with pytest.raises(LimbeckError, match=said):
        limbeck.label(str(teacher), texts, out=tmp_path, outputs=["logits", word])


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, "it returned nothing"),
        ({"logits": np.zeros((1, 2), np.float32)}, "of 1 rows instead of"),
        ({"logits": np.full((4, 2), np.nan, np.float32)}, "not finite"),
        ({"logits": np.zeros((4, 2))}, "float64"),
    ],
)
def test_a_labeller_that_breaks_its_word_is_named(texts, tmp_path, scores, said):
    class Broken(Stops):
        def score(self, rows):
            return {name: value[: len(rows)] for name, value in scores.items()}

    with pytest.raises(LimbeckError, match=said):
        limbeck.label(Broken(), texts, out=tmp_path)
