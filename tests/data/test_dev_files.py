"""The file that is named as dev: every source that takes one reads it, whatever its rows are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from limbeck.data import Division, load_task
from limbeck.data.load import register_shipped
from limbeck.data.reader import DATA_READERS, DataRequest, reader_of
from limbeck.support.errors import LimbeckError

register_shipped()
TAKES_DEV = {name for name in DATA_READERS if DATA_READERS.get(name).takes_dev}


class Files(NamedTuple):
    """What a source reads: a file's name, its train rows, its dev rows, and how they are asked for."""

    name: str
    train: str
    dev: str
    asked: dict[str, Any]


def candidates(word: str) -> str:
    row = {"query": word, "passages": [f"{word} a", f"{word} b"], "labels": [1, 0]}
    return f"{json.dumps(row)}\n"


COLUMNS = {"text_columns": ["text"], "label_column": "label"}
FILES = {
    "table": Files(
        "rows.csv",
        "text,label\n" + "train,a\ntrain,b\n" * 10,
        "text,label\ndev,a\ndev,b\n",
        COLUMNS,
    ),
    "several labels": Files(
        "rows.csv",
        "text,label\n" + "train,a;b\ntrain,b\n" * 10,
        "text,label\ndev,a\ndev,b\n",
        {"kind": "multi-label", **COLUMNS},
    ),
    "tags, answers or text": Files(
        "rows.conll", "train\tB-X\n\n" * 20, "dev\tB-X\n\n" * 2, {"kind": "tokens"}
    ),
    "sentences": Files(
        "rows.csv",
        "sentence1,sentence2,score\n" + "train,train,1\n" * 9,
        "sentence1,sentence2,score\ndev,dev,1\ndev,other,0\n",
        {"kind": "embedding"},
    ),
    "queries with candidates": Files(
        "rows.jsonl",
        "".join(candidates(f"train{n}") for n in range(9)),
        candidates("dev"),
        {"kind": "pair-score"},
    ),
}


def written(folder: Path, files: Files) -> Path:
    (folder / files.name).write_text(files.train)
    return folder / files.name


def test_every_source_that_takes_a_dev_file_is_tried_here() -> None:
    assert {*FILES} == TAKES_DEV


@pytest.mark.parametrize("name", FILES)
def test_its_rows_are_the_dev_split(name, tmp_path) -> None:
    files = FILES[name]
    data = written(tmp_path, files)
    assert reader_of(DataRequest(None, data, **tupled(files.asked))) is DATA_READERS.get(name)
    dev = tmp_path / f"other{data.suffix}"
    dev.write_text(files.dev)
    task, splits = load_task(None, data, division=Division(dev=dev), **files.asked)
    train, scored = (splits[split][task.text_columns[0]][:] for split in ("train", "dev"))
    assert len(scored) == 2
    assert "dev" in str(scored) and "train" not in str(scored) and "dev" not in str(train)


def tupled(asked: dict[str, Any]) -> dict[str, Any]:
    return asked | {"text_columns": tuple(asked.get("text_columns", ()))}


@pytest.mark.parametrize("name", FILES)
def test_one_that_is_not_there_is_refused(name, tmp_path) -> None:
    files = FILES[name]
    with pytest.raises(LimbeckError, match="dev: there is no file"):
        load_task(
            None,
            written(tmp_path, files),
            division=Division(dev=tmp_path / "none.csv"),
            **files.asked,
        )


@pytest.mark.parametrize("name", FILES)
def test_a_folder_has_its_own(name, tmp_path) -> None:
    files = FILES[name]
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f"train{Path(files.name).suffix}").write_text(files.train)
    dev = tmp_path / files.name
    dev.write_text(files.dev)
    with pytest.raises(LimbeckError, match="is no single file"):
        load_task("own", folder, division=Division(dev=dev), **files.asked)


def beir(folder: Path, *splits: str) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, text in (("queries", "who sings"), ("corpus", "birds sing")):
        (folder / f"{name}.jsonl").write_text(json.dumps({"_id": "1", "text": text}) + "\n")
    for split in splits:
        (folder / f"qrels/{split}.tsv").write_text("query-id\tcorpus-id\tscore\n1\t1\t2\n")
    return folder


@pytest.mark.parametrize(
    ("there", "read"), [(("dev", "test"), {"dev", "test"}), (("test",), {"dev"})]
)
def test_candidates_are_scored_on_a_folder_of_queries_and_a_corpus(there, read, tmp_path) -> None:
    data = written(tmp_path, FILES["queries with candidates"])
    _, splits = load_task(
        None, data, kind="pair-score", division=Division(dev=beir(tmp_path / "set", *there))
    )
    assert {*splits} == {"train", *read} and len(splits["train"]) == 18
    assert [row["passage"] for row in splits["dev"]] == ["birds sing"]


def test_a_folder_that_only_trains_scores_nothing(tmp_path) -> None:
    data = written(tmp_path, FILES["queries with candidates"])
    with pytest.raises(LimbeckError, match="to score a student on"):
        load_task(
            None, data, kind="pair-score", division=Division(dev=beir(tmp_path / "set", "train"))
        )


@pytest.mark.parametrize("dev", ["none.jsonl", "set"])
def test_a_folder_of_queries_and_a_corpus_has_its_own(dev, tmp_path) -> None:
    data = beir(tmp_path / "set", "train", "dev")
    with pytest.raises(LimbeckError, match="dev: "):
        load_task(None, data, kind="pair-score", division=Division(dev=tmp_path / dev))


# ---- SICK's release: tab-separated text with a heading ----

SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    '1\tA man sings "loud"\tA man is singing\t4.5\tNEUTRAL\n'
    "2\tA dog runs\tNobody runs\t1.2\tCONTRADICTION\n"
)


def test_sick_as_it_is_released(tmp_path) -> None:
    data, dev = tmp_path / "SICK_train.tsv", tmp_path / "SICK_trial.tsv"
    data.write_text(SICK)
    dev.write_text("\ufeff" + SICK.replace("\n", "\r\n"))
    _, splits = load_task(None, data, kind="embedding", division=Division(dev=dev))
    for split in ("train", "dev"):
        assert splits[split]["sentence1"][:] == ['A man sings "loud"', "A dog runs"]
        assert splits[split]["sentence2"][:] == ["A man is singing", "Nobody runs"]
    assert splits["dev"]["score"][:] == pytest.approx([4.5, 1.2])
    _, alone = load_task(None, dev, kind="embedding", for_training=False)
    assert alone["dev"]["score"][:] == pytest.approx([4.5, 1.2])
    own = {"text_columns": ["sentence_B", "entailment_judgment"], "label_column": "pair_ID"}
    _, named = load_task(None, data, kind="embedding", division=Division(dev=dev), **own)
    assert named["dev"]["sentence2"][:] == ["NEUTRAL", "CONTRADICTION"]
    assert named["dev"]["score"][:] == [1, 2]


def test_lines_of_text_with_tabs_in_them_stay_lines(tmp_path) -> None:
    data, dev = tmp_path / "lines.txt", tmp_path / "dev.tsv"
    data.write_text("sentence\nA\ttext\n")
    dev.write_text(SICK)
    _, splits = load_task(None, data, kind="embedding", division=Division(dev=dev))
    assert splits["train"]["sentence1"][:] == ["sentence", "A\ttext"]
    with pytest.raises(LimbeckError, match=r"is plain text(.|\n)*ends in .tsv"):
        load_task(None, dev, kind="embedding", division=Division(dev=data))
