"""What a training stored for itself travels as a store: the same bits, found by the rows' texts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.cli.app import app
from limbeck.data.row_ids import row_ids
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.outputs import writer
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store, StoredEntry, default_store
from limbeck.outputs.columns import Ask
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.mapped import training_entry
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import copy_store, remove_store
from limbeck.recipe import Recipe
from limbeck.run import Result, distill
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher

OWN = {"text_columns": ["review"], "label_column": "verdict"}
ROWS = 60
TEXTS = list(dict.fromkeys(tiny.sentences(ROWS)))


class Made(NamedTuple):
    """A run's inputs, the run, and what it stored in passing."""

    place: Path
    run: Result
    entry: StoredEntry


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    tiny.save(tiny.knowing_teacher(4), place / "teacher")
    tiny.save(tiny.bert(2), place / "start")
    tiny.write_csv(place / "reviews.csv", ROWS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LIMBECK_CACHE", str(place / "cache"))
        patched.setenv("COLUMNS", "200")
        run = train(place, teacher=str(place / "teacher"), cache="always")
        (entry,) = default_store().entries()
        yield Made(place, run, entry)


def train(place: Path, name: str = "live", **changes):
    given = {"task": "reviews", "data": str(place / "reviews.csv"), "epochs": 2, "max_length": 24}
    given |= {"batch_size": 8, "student.init": str(place / "start"), **OWN} | changes
    return distill(Recipe.load("pkd-skip", **given), place / name, report=False)


def outputs(*arguments: object):
    return CliRunner().invoke(app, ["outputs", *map(str, arguments)])


def test_a_trainings_outputs_are_copied_by_their_key_and_are_the_teachers(made, tmp_path):
    place = made.place
    answer = outputs("copy", made.entry.key[:8], tmp_path / "copy")
    assert answer.exit_code == 0, answer.output
    store = open_store(tmp_path / "copy")
    assert f"{len(store)} rows" in answer.output and store.classes == ("negative", "positive")
    # As Hugging Face itself has them.
    model = AutoModelForSequenceClassification.from_pretrained(place / "teacher")
    batch = AutoTokenizer.from_pretrained(place / "teacher")(
        TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False
    )
    known = np.isin(row_ids([TEXTS]), store.row_ids)  # a tenth of the rows is dev
    assert 0.8 * len(TEXTS) < known.sum() == len(store)
    with torch.no_grad():
        right = model.eval()(**batch, output_hidden_states=True)
    found = store.take(row_ids([TEXTS])[known])
    np.testing.assert_allclose(found["logits"], right.logits.numpy()[known], atol=1e-5)
    assert found["label"].tolist() == right.logits.argmax(-1).numpy()[known].tolist()
    (name,) = (column.name for column in store.columns if column.seen)
    layer, pool = int(name.split("-")[2]), name.split("-")[3]
    assert pool == "cls"
    state = right.hidden_states[layer][:, 0].numpy()[known]
    np.testing.assert_allclose(found[name].astype(np.float32), state, atol=2e-3)
    # Whoever has pandas alone reads it.
    table = pd.read_parquet(tmp_path / "copy" / "shard-00000.parquet")
    assert [*table.columns] == ["row", "label", name, "logits"]
    assert set(table["row"]) == set(store.row_ids)


def test_it_is_the_teacher_that_a_labelled_store_names(made, tmp_path):
    place = made.place
    copy_store(open_store(made.entry.path), StoreFiles(str(tmp_path / "copy")))
    told = limbeck.label(
        place / "teacher", place / "reviews.csv", text_columns=["review"], max_length=24,
        outputs=["logits"], out=tmp_path / "labelled",
    )  # fmt: skip
    copied = open_store(tmp_path / "copy").manifest
    assert copied.teacher.fingerprint == told.manifest.teacher.fingerprint
    assert copied.teacher.shape == told.manifest.teacher.shape
    assert copied.rows.columns == ("review",) == told.manifest.rows.columns
    assert copied.rows.source == (str(place / "reviews.csv"),)


@pytest.mark.slow
def test_a_student_of_the_copy_is_the_student_of_the_live_teacher(made, tmp_path):
    place = made.place
    copy_store(open_store(made.entry.path), StoreFiles(str(tmp_path / "copy")))
    taught = train(place, "from-copy", outputs=[str(tmp_path / "copy")])
    assert taught.scores == made.run.scores
    one, other = (load_file(run.path / "student/model.safetensors") for run in (made.run, taught))
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def test_from_store_to_entry_to_store_no_bit_changes(tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(TEXTS))
    words = ["logits", "hidden:-1", "hidden:2:cls", "hidden:1:mean:float32", "attention:1"]
    teacher = ModelLabeller(tiny.knowing_teacher(), tiny.tokenizer(), name="t", outputs=words)
    first = limbeck.label(teacher, tmp_path / "rows.txt", out=tmp_path / "a", shard_rows=16)
    ids = first.row_ids[::-1]
    entry = training_entry(first, np.concatenate([ids, ids[:7]]), cache=Store(tmp_path / "cache"))
    copy_store(open_store(entry.path), StoreFiles("memory://copied/b"))
    second = open_store("memory://copied/b")
    # Rows that stand in training twice are there once, in training's order.
    assert second.row_ids.tolist() == ids.tolist()
    one, other = first.take(ids), second.take(ids)
    assert one.keys() == other.keys()
    for name in one:
        for before, after in zip(one[name], other[name], strict=True):
            assert (before.dtype, before.shape) == (after.dtype, after.shape)
            assert before.tobytes() == after.tobytes()


def test_a_store_is_copied_shard_by_shard_and_goes_on_after_a_stop(tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("\n".join(TEXTS))
    teacher = ModelLabeller(tiny.knowing_teacher(), tiny.tokenizer(), name="t")
    store = limbeck.label(teacher, tmp_path / "rows.txt", out=tmp_path / "a", shard_rows=8)
    target, done = StoreFiles(str(tmp_path / "b")), []

    def stops(rows: int) -> None:
        done.append(rows)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(store, target, stops)
    with pytest.raises(LimbeckError, match="is incomplete: 16 of"):
        open_store(tmp_path / "b")
    read, original = [], store.content

    def counted(shard):
        read.append(shard.name)
        return original(shard)

    monkeypatch.setattr(store, "content", counted)
    copy_store(store, target)
    assert [*read] == sorted({shard.name for shard in store.manifest.shards})[2:]
    for path in (tmp_path / "a").iterdir():
        if not path.name.startswith("."):
            assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_copy_is_not_continued_with_what_a_served_model_says_today(tmp_path):
    """Its name and settings are those of yesterday, its answers are not."""

    class Serves:
        name, kind, classes, batch_size, outputs = "s", "sentence", ("no", "yes"), 8, ("logits",)

        def __init__(self, drift: float) -> None:
            self.drift = drift

        def fingerprint(self):
            return {"model": "served"}

        def score(self, rows):
            return {"logits": np.full((len(rows), 2), self.drift, dtype=np.float32)}

    def interrupted(rows: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "rows.txt").write_text("\n".join(TEXTS))
    store = limbeck.label(Serves(1), tmp_path / "rows.txt", out=tmp_path / "a", shard_rows=8)
    target = StoreFiles(str(tmp_path / "b"))
    with pytest.raises(KeyboardInterrupt):
        copy_store(store, target, interrupted)
    shutil.rmtree(tmp_path / "a")
    store = limbeck.label(Serves(2), tmp_path / "rows.txt", out=tmp_path / "a", shard_rows=8)
    with pytest.raises(LimbeckError, match="before it was made again"):
        copy_store(store, target)
    remove_store(tmp_path / "b")
    copy_store(store, target)
    copied = open_store(tmp_path / "b")
    assert (copied.take(copied.row_ids)["logits"] == 2).all()


def test_a_copy_of_an_entry_goes_on_after_a_stop(made, tmp_path, monkeypatch):
    store = open_store(made.entry.path)
    copy_store(store, StoreFiles(str(tmp_path / "whole")))
    monkeypatch.setattr(writer, "rows_of_shard", lambda size: 16)
    written, original = [], writer.write_shard

    def dies(files, name, table):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(name)
        return original(files, name, table)

    monkeypatch.setattr(writer, "write_shard", dies)
    with pytest.raises(KeyboardInterrupt):
        copy_store(store, StoreFiles(str(tmp_path / "parts")))
    monkeypatch.setattr(writer, "write_shard", original)
    copy_store(store, StoreFiles(str(tmp_path / "parts")))
    whole, parts = (open_store(tmp_path / name) for name in ("whole", "parts"))
    assert len(parts.manifest.shards) > 1 == len(whole.manifest.shards)
    assert parts.row_ids.tolist() == whole.row_ids.tolist()
    ids = whole.row_ids
    for name, values in whole.take(ids).items():
        assert np.array_equal(values, parts.take(ids)[name])


def test_show_has_rows_of_a_key(made):
    shown = outputs("show", made.entry.key[:8]).output
    assert "reviews.csv" in shown and "row" in shown
    assert str(open_store(made.entry.path).row_ids[0]) in shown


def test_rows_that_nobody_named_cannot_travel(tmp_path):
    """Those of a trainer's own columns: there are no texts."""
    store, rows = Store(tmp_path / "cache"), tiny.rows(4)
    batch = {
        "input_ids": torch.tensor([[2, 4, 6, 3]]),
        "attention_mask": torch.ones(1, 4, dtype=torch.long),
        "index": torch.tensor(rows["index"][:1]),
    }
    with store.writing("key") as folder:
        build(
            folder, Teacher(tiny.bert(2)), [batch], Ask(Request.of_logits()), precision="fp32"
        )  # fmt: skip
    with pytest.raises(LimbeckError, match="does not name") as error:
        open_store(store.folder / "key")
    assert "limbeck label" in str(error.value)


def test_a_store_is_not_copied_onto_itself_or_another(made, tmp_path):
    copy_store(open_store(made.entry.path), StoreFiles(str(tmp_path / "copy")))
    answer = outputs("copy", tmp_path / "copy", tmp_path / "copy")
    assert answer.exit_code == 2 and "is the store itself" in answer.output
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("mine")
    answer = outputs("copy", tmp_path / "copy", tmp_path / "taken")
    assert answer.exit_code == 2 and "holds other files" in answer.output
    answer = outputs("copy", "0000", tmp_path / "new")
    assert answer.exit_code == 2 and not (tmp_path / "new").exists()


def test_a_damaged_entry_is_not_copied(made, tmp_path):
    entry = made.entry
    (tmp_path / "entry").mkdir()
    for path in entry.path.iterdir():
        body = path.read_bytes()
        if path.suffix == ".arrow":
            body = body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]
        (tmp_path / "entry" / path.name).write_bytes(body)
    with pytest.raises(LimbeckError, match=r"shard-00000\.arrow is missing or damaged"):
        copy_store(open_store(tmp_path / "entry"), StoreFiles(str(tmp_path / "copy")))
