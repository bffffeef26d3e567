"""Runs from models, tokenizers and rows in memory: as from files, and honest about what was given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.objects import model_fingerprint
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer

SETTINGS = {
    "student.layers": 2,
    "max_length": 24,
    "batch_size": 8,
    "epochs": 1,
    "lr": 1e-2,
    "cache": "never",
}
NAMES = ClassLabel(names=["praise", "blame"])


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))


def some_rows(start: int, end: int, *, columns=("text", "label"), label=NAMES) -> Dataset:
    texts = tiny.sentences(end)[start:end]
    ids = [row % 2 for row in range(start, end)]
    features = Features({columns[0]: Value("string"), columns[1]: label})
    return Dataset.from_dict({columns[0]: texts, columns[1]: ids}, features=features)


def rows() -> DatasetDict:
    return DatasetDict(train=some_rows(0, 24), validation=some_rows(24, 32))


def teacher(**changes):
    model = tiny.knowing_teacher(4, **changes)
    with torch.no_grad():  # praise is its first class
        model.classifier.weight.neg_()
    model.config.id2label = {0: "praise", 1: "blame"}
    model.config.label2id = {"praise": 0, "blame": 1}
    return model


def run(out: Path, **changes):
    given = {"teacher": teacher(), "data": rows(), "tokenizer": tiny.tokenizer()} | changes
    return distill("kd", out=out, report=False, **(SETTINGS | given))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that no test changes."""
    return run(tmp_path_factory.mktemp("runs") / "run")


def weights(folder: Path) -> bytes:
    return (folder / "student" / "model.safetensors").read_bytes()


# ---- the same run ----


@pytest.mark.parametrize("start", ["teacher", "student"])
@pytest.mark.slow
def test_a_run_from_objects_is_the_run_from_files(start, tmp_path):
    tiny.save(teacher(), tmp_path / "teacher")
    (tmp_path / "rows").mkdir()
    for split, part in rows().items():
        part.to_parquet(tmp_path / "rows" / f"{split}.parquet")
    files = {
        "teacher": str(tmp_path / "teacher"),
        "data": str(tmp_path / "rows"),
        "text_columns": ["text"],
        "label_column": "label",
    }
    given = {}
    if start == "student":
        given = {"student": tiny.bert(3, seed=5, id2label={0: "praise", 1: "blame"})}
        files["student.init"] = str(tiny.save(given["student"], tmp_path / "start"))
    from_files = distill("kd", out=tmp_path / "files", report=False, **(SETTINGS | files))
    from_objects = run(tmp_path / "objects", **given)
    assert weights(tmp_path / "objects") == weights(tmp_path / "files")
    answers = [(tmp_path / one / "predictions.json").read_bytes() for one in ("objects", "files")]
    assert answers[0] == answers[1]
    assert from_objects.scores == from_files.scores
    ours, theirs = from_objects.record, from_files.record
    assert ours.teacher.scores == theirs.teacher.scores == {"dev": ours.teacher.scores["dev"]}
    assert ours.examples == theirs.examples
    assert [entry.train for entry in ours.epochs] == [entry.train for entry in theirs.epochs]
    assert from_objects.student.config.id2label == {0: "praise", 1: "blame"}


@pytest.mark.slow
def test_what_was_given_stays_as_it_was(tmp_path):
    model, student, data = teacher(), tiny.bert(3), rows()
    model.train()
    student.eval()
    before = [{k: v.clone() for k, v in one.state_dict().items()} for one in (model, student)]
    run(tmp_path / "run", teacher=model, student=student, data=data, max_steps=1)
    for one, state in zip((model, student), before, strict=True):
        assert one.training is (one is model)
        assert all(weight.requires_grad for weight in one.parameters())
        assert all(torch.equal(weight, state[key]) for key, weight in one.state_dict().items())
    assert data["train"].column_names == ["text", "label"]


@pytest.mark.slow
def test_a_list_of_teachers_is_a_team(tmp_path):
    small, large = teacher(), tiny.knowing_teacher(6)
    with torch.no_grad():
        large.classifier.weight.neg_()
    large.config.id2label = small.config.id2label
    names = ("teacher", "teachers")
    records = []
    for name in names:
        result = distill(
            "skd-uniform",
            out=tmp_path / name,
            tokenizer=tiny.tokenizer(),
            data=rows(),
            **(SETTINGS | {name: [small, (large, tiny.tokenizer())]}),
        )
        records.append(result.record.team)
    assert [member.layers for member in records[0].members] == [4, 6]
    assert all(re.fullmatch(r"bert@\w{12}", member.name) for member in records[0].members)
    assert records[0].members == records[1].members
    assert weights(tmp_path / "teacher") == weights(tmp_path / "teachers")


# ---- what the record and the folder say ----


def test_the_record_names_the_objects_and_their_fingerprints(finished):
    record = json.loads((finished.path / "record.json").read_text("utf-8"))
    digest = model_fingerprint(teacher(), tiny.tokenizer())
    assert record["recipe"]["teacher"] == f"given:bert@{digest}"
    assert record["task"] == "rows" and record["data"].startswith("given:rows@")
    assert record["recipe"]["text_columns"] == ["text"]
    assert record["recipe"]["label_column"] == "label"
    assert not any("/tmp" in text for text in map(str, record["recipe"].values()))


def test_a_model_is_called_as_what_it_was_loaded_from(tmp_path):
    loaded = type(teacher()).from_pretrained(tiny.save(teacher(), tmp_path / "stars" / "student"))
    # Its tokenizer lies there too.
    result = run(tmp_path / "run", teacher=loaded, tokenizer=None, max_steps=1)
    assert result.record.recipe["teacher"].startswith("given:stars@")


def test_the_recipe_says_how_to_give_them_again(finished, tmp_path):
    recipe = (finished.path / "recipe.yaml").read_text("utf-8")
    said = recipe.partition("method:")[0]
    assert said.startswith("# teacher, data: objects given from Python")
    assert 'limbeck.distill("recipe.yaml", out=".", teacher=MODEL, data=ROWS)' in said
    ended = CliRunner().invoke(
        app, ["distill", str(finished.path / "recipe.yaml"), "--out", str(tmp_path / "other")]
    )
    assert ended.exit_code == 2
    said = " ".join(ended.output.split())
    assert "teacher: given:bert@" in said and "data: given:rows@" in said
    assert "teacher=MODEL" in said and "data=ROWS" in said
    assert not (tmp_path / "other").exists()


def test_rows_that_are_wrong_are_named_as_what_was_given(tmp_path):
    frame = pd.DataFrame({"text": ["good film"] * 39 + [None], "label": ["a", "b"] * 20})
    with pytest.raises(
        LimbeckError, match=r"^rows@\w+ \(train rows, given from Python\), row 40: text is None"
    ):
        start = {"student.init": "bert-2-16-2:random"}
        limbeck.distill("finetune", data=frame, out=tmp_path / "run", **start)


def test_rows_that_are_gone_are_asked_for_as_a_file(finished):
    for command in (limbeck.export, limbeck.evaluate):
        with pytest.raises(LimbeckError, match="which a run does not keep") as caught:
            command(finished.path)
        assert "--data FILE" in caught.value.problems[0].fix


def test_the_command_line_scores_such_a_student_on_a_file(finished, tmp_path):
    ended = CliRunner().invoke(app, ["evaluate", str(finished.path)])
    assert ended.exit_code == 2 and "given from Python" in " ".join(ended.output.split())
    tiny_rows = [("text", "label"), *zip(*rows()["validation"][:].values(), strict=True)]
    lines = [f"{text},{label}" for text, label in tiny_rows]
    lines = [line.replace(",0", ",praise").replace(",1", ",blame") for line in lines]
    (tmp_path / "dev.csv").write_text("\n".join(lines) + "\n")
    scores = limbeck.evaluate(finished.path, data=tmp_path / "dev.csv")
    assert scores == finished.scores["dev"]


# ---- going on ----


@pytest.mark.slow
def test_the_same_objects_go_on_and_others_are_refused(tmp_path, monkeypatch, finished):
    whole, out = finished.path, tmp_path / "run"
    with monkeypatch.context() as patch:
        train = DistillationTrainer.start_or_continue

        def killed(trainer, checkpoint):
            trainer.add_callback(tiny.Kill("step_begin", 2))
            return train(trainer, checkpoint)

        patch.setattr(DistillationTrainer, "start_or_continue", killed)
        with pytest.raises(tiny.KilledError):
            run(out, checkpoint_steps=1)
    other = teacher()
    with torch.no_grad():
        other.bert.pooler.dense.bias[0] += 1e-3
    with pytest.raises(LimbeckError, match=r"another recipe.*teacher"):
        run(out, teacher=other, checkpoint_steps=1)
    fewer = DatasetDict(train=some_rows(0, 23), validation=some_rows(24, 32))
    with pytest.raises(LimbeckError, match=r"another recipe.*data"):
        run(out, data=fewer, checkpoint_steps=1)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(
            DistillationTrainer,
            "start_or_continue",
            lambda trainer, checkpoint: (seen.append(checkpoint), train(trainer, checkpoint))[1],
        )
        again = distill(
            out / "recipe.yaml", out, teacher=teacher(), data=rows(), tokenizer=tiny.tokenizer()
        )
    assert [checkpoint.name for checkpoint in seen] == ["checkpoint-2"]
    assert again.record.status == "finished"
    assert weights(out) == weights(whole)
    monkeypatch.setattr(DistillationTrainer, "__init__", None)  # nothing is trained again
    assert run(out, checkpoint_steps=1).scores == again.scores


def test_a_fingerprint_is_of_what_a_model_answers_by(tmp_path):
    words = tiny.tokenizer()
    known = model_fingerprint(teacher(), words)
    saved = teacher()
    saved.save_pretrained(tmp_path)  # writes its class and type into the configuration
    words(["good film"], padding="max_length", truncation=True, max_length=9)
    assert model_fingerprint(saved, words) == known
    assert model_fingerprint(type(saved).from_pretrained(tmp_path), words) == known
    saved.config.layer_norm_eps = 1e-3
    assert model_fingerprint(saved, tiny.tokenizer()) != known
    words.add_tokens(["new"])
    assert model_fingerprint(teacher(), words) != known


# ---- rows ----


def load(data, **settings):
    """Task and splits as a run would have them."""
    from limbeck.run.objects import settings_of
    from limbeck.run.rows import load_rows
    from limbeck.support.given import at_hand

    given = {"data": data, "student.init": "x", **settings}
    found, writers = settings_of("finetune", given, None)
    with at_hand(writers):
        return load_rows(Recipe.load("finetune", **found))


def test_rows_may_be_of_many_forms():
    part = some_rows(0, 24)
    by_column = part[:]
    by_row = list(part)
    task, splits = load(part)
    assert task.labels == ("praise", "blame") and set(splits) == {"train", "dev"}
    assert len(splits["train"]) + len(splits["dev"]) == 24
    for form in (by_row, part.to_pandas(), {"train": by_column}, {"train": by_row}):
        task, found = load(form)
        assert task.labels == ("0", "1")
        assert found["train"]["sentence"][:] == splits["train"]["sentence"][:]
        assert found["dev"]["label"][:] == splits["dev"]["label"][:]


def test_a_test_split_without_labels_is_one():
    blind = some_rows(0, 4).map(lambda row: {"label": -1})
    _, splits = load(DatasetDict(train=some_rows(0, 24), test=blind))
    assert splits["test"].column_names == ["sentence", "index"]


def test_columns_are_found_by_their_names_or_named():
    pairs = some_rows(0, 24).rename_columns({"text": "premise", "label": "verdict"})
    pairs = pairs.add_column("hypothesis", pairs["premise"]).add_column("id", pairs["premise"])
    task, _ = load(pairs)  # its only column of classes
    assert task.text_columns == ("sentence1", "sentence2")
    task, _ = load(pairs, text_columns=["id"])
    assert task.text_columns == ("sentence",)


def test_rows_of_a_known_task_are_that_tasks():
    one = some_rows(0, 24, columns=("sentence", "label"), label=Value("int64"))
    task, splits = load({"train": one, "dev": one}, task="sst2")
    assert task.name == "sst2" and splits["train"]["label"][:] == one["label"][:]


def test_tags_keep_their_names():
    tags = [["B-X", "O"], ["O", "B-X"]] * 6
    data = Dataset.from_dict({"tokens": [["good", "film"]] * 12, "ner_tags": tags})
    named, _ = load(
        data, kind="tokens", task="names", text_columns=["tokens"], label_column="ner_tags"
    )
    from datasets import List

    ids = [[("O", "B-X").index(tag) for tag in row] for row in tags]
    features = Features(
        {
            "tokens": List(Value("string")),
            "ner_tags": List(ClassLabel(names=["O", "B-X"])),
        }
    )
    data = Dataset.from_dict({"tokens": data["tokens"][:], "ner_tags": ids}, features=features)
    numbered, _ = load(
        data, kind="tokens", task="names", text_columns=["tokens"], label_column="ner_tags"
    )
    assert numbered.labels == named.labels == ("O", "B-X")


# ---- what is no such object ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": torch.nn.Linear(2, 2)}, "teacher: a Linear is not a transformers model"),
        ({"student": 3}, "student: a int is not a transformers model"),
        ({"tokenizer": None}, r"without its tokenizer\n.*teacher=\(model, tokenizer\)"),
        ({"tokenizer": 7}, "tokenizer: a int is no tokenizer"),
        ({"tokenizer": "no/such/folder"}, "no/such/folder"),
        ({"teacher": "no-model", "student": "no-model"}, "belongs to model objects"),
        ({"student": "a", "student.init": "b"}, "student.init is given twice"),
        ({"data": 5}, "data: a int holds no rows"),
        ({"data": {"test": []}}, "holds no rows"),
        ({"dev": some_rows(0, 4)}, r'dev: a Dataset(.|\n)*data={"train": …, "dev": …}'),
        ({"data": {}}, "is not one of the splits"),
        ({"data": {"training": []}}, "training is not one of the splits train, dev"),
        ({"data": {"dev": [{"text": "a", "label": 1}]}}, "no train split"),
        ({"data": [{"a": "x", "b": "y", "label": 1}]}, "no text columns are named"),
        ({"data": [{"text": "x", "b": "y"}]}, "1 different text, too few to hold some out"),
        ({"data": [1, 2]}, "these are no rows"),
    ],
)
def test_objects_that_cannot_be_read_are_refused(changes, message, tmp_path):
    with pytest.raises(LimbeckError, match=message):
        run(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_nothing_is_ignored_beside_a_checked_recipe(tmp_path):
    recipe = Recipe.load("kd", teacher="x", task="mrpc", data="glue")
    with pytest.raises(LimbeckError, match="teacher, tokenizer: next to a Recipe"):
        distill(recipe, tmp_path / "run", teacher=teacher(), tokenizer=tiny.tokenizer())


def test_pictures_are_read_from_folders(tmp_path):
    from datasets import Image
    from PIL import Image as Picture

    Picture.new("RGB", (4, 4)).save(tmp_path / "a.png")
    data = Dataset.from_dict({"image": [str(tmp_path / "a.png")], "label": [0]})
    with pytest.raises(LimbeckError, match="column 'image' holds images"):
        run(tmp_path / "run", data=data.cast_column("image", Image()))
