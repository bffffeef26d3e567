"""The smallest and the largest value that a setting has, and what each of them means."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset

import tiny_runs as tiny
from limbeck.data import Conditions, encode, load_task
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.tasks import get_task
from limbeck.training.feeding import hold_out

SST2 = get_task("sst2")
ROWS = 12


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    tiny.save(tiny.bert(2), folder / "start")
    tiny.write_csv(folder / "d.csv", 20)
    return folder


def train(place, out, **changes):
    settings = {
        "task": "reviews",
        "data": str(place / "d.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "student.init": str(place / "start"),
        "epochs": 1,
        "batch_size": 4,
        "max_length": 24,
    }
    return distill(Recipe.load("finetune", **(settings | changes)), out, report=False)


def raw_rows(count: int = ROWS) -> Dataset:
    columns = {"sentence": tiny.sentences(count), "label": [row % 2 for row in range(count)]}
    return Dataset.from_dict(columns | {"index": list(range(count))})


# ---- rows ----


@pytest.mark.parametrize("count", [1, 2, ROWS - 1])
def test_rows_held_out_and_rows_left_are_all_of_them(count):
    held, left = hold_out(raw_rows(), count, seed=0)
    assert len(held) == count and len(left) == ROWS - count
    assert sorted(held["index"][:] + left["index"][:]) == list(range(ROWS))


@pytest.mark.parametrize("count", [ROWS, ROWS + 1])
def test_no_more_rows_are_held_out_than_leave_one_to_train_on(count):
    with pytest.raises(LimbeckError, match=rf"team\.holdout: {count} of {ROWS} training rows"):
        hold_out(raw_rows(), count, seed=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train_rows", 0), ("epochs", 0), ("batch_size", 0), ("accumulation", 0), ("max_steps", 0),
        ("patience", 0), ("log_steps", 0), ("checkpoint_steps", 0), ("warmup", 1), ("warmup", -0.1),
        ("max_length", 0), ("workers", -1), ("student.layers", 0), ("label_noise", 1.1),
        ("epochs", -1), ("lr", 0), ("lr", -1),
    ],
)  # fmt: skip
def test_values_beyond_the_smallest_are_refused_by_name(key, value):
    with pytest.raises(LimbeckError, match=key):
        Recipe.load("finetune", task="sst2", **{key: value})


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("wanted", [1, 2, ROWS - 1, ROWS])
def test_that_many_training_rows(wanted, stratified):
    rows = Conditions(train_rows=wanted, stratified=stratified).apply(raw_rows(), SST2)
    assert len(set(rows["index"][:])) == len(rows) == wanted
    if stratified:  # two classes of equal size: as many of each, or one more
        assert abs(wanted - 2 * sum(rows["label"][:])) <= 1


@pytest.mark.parametrize("stratified", [False, True])
def test_one_training_row_more_than_there_are(stratified):
    with pytest.raises(LimbeckError, match=rf"train_rows: {ROWS + 1} of {ROWS}"):
        Conditions(train_rows=ROWS + 1, stratified=stratified).apply(raw_rows(), SST2)


@pytest.mark.parametrize(("rows", "split"), [(4, (2, 2)), (3, (2, 1)), (20, (18, 2))])
def test_the_fewest_rows_that_a_file_may_have(tmp_path, rows, split):
    """A class of two rows spares one for dev, a class of one row none."""
    path = tmp_path / "d.csv"
    path.write_text("q,y\n" + "".join(f"text {row},{'ab'[row % 2]}\n" for row in range(rows)))
    _, splits = load_task(None, path, text_columns=["q"], label_column="y")
    assert (len(splits["train"]), len(splits["dev"])) == split


def test_a_row_a_class_leaves_none_for_dev(tmp_path):
    (tmp_path / "d.csv").write_text("q,y\none,a\ntwo,b\n")
    with pytest.raises(LimbeckError, match="2 rows are too few"):
        load_task(None, tmp_path / "d.csv", text_columns=["q"], label_column="y")


# ---- length ----


@pytest.mark.parametrize(
    ("name", "special"),
    [("sst2", 2), ("mrpc", 3)],
)
def test_the_shortest_length_leaves_a_token_for_each_text(name, special):
    """[CLS] a [SEP], and [CLS] a [SEP] b [SEP]."""
    task = get_task(name)
    columns = {column: ["good film", "bad"] for column in task.text_columns}
    rows = Dataset.from_dict({**columns, "label": [1, 0], "index": [0, 1]})
    least = special + len(task.text_columns)
    encoded, cut = encode(rows, task, tiny.tokenizer(), least)
    assert [len(ids) for ids in encoded["input_ids"]] == [least, least] and cut == 1
    assert tiny.tokenizer().convert_tokens_to_ids("good") in encoded["input_ids"][0]
    with pytest.raises(LimbeckError, match=f"max_length {least - 1} leaves no room"):
        encode(rows, task, tiny.tokenizer(), least - 1)


def test_a_length_that_is_just_enough_cuts_nothing():
    rows = Dataset.from_dict({"sentence": ["good film", "bad"], "label": [1, 0], "index": [0, 1]})
    assert [encode(rows, SST2, tiny.tokenizer(), length)[1] for length in (3, 4, 5)] == [1, 0, 0]


# ---- steps ----


def test_one_epoch_of_a_batch_larger_than_the_rows_is_one_step(place, tmp_path):
    run = train(place, tmp_path / "run", batch_size=64)
    assert [(epoch.epoch, epoch.step) for epoch in run.record.epochs] == [(1, 1)]
    assert run.record.examples.train == 18 and run.record.cost.student_examples == 18


def test_one_training_row_is_one_step(place, tmp_path):
    run = train(place, tmp_path / "run", train_rows=1, warmup=0)
    assert run.record.examples.train == 1 and run.record.epochs[-1].step == 1


def test_all_layers_of_the_start_are_the_start(place, tmp_path):
    """As many layers as it has: taken over, each in its place; one more is refused."""
    run = train(place, tmp_path / "run", **{"student.layers": 2}, lr=1e-12, max_steps=1)
    start, found = (
        tiny.bert(2).bert.state_dict(),
        load_model(run.path / "student").bert.state_dict(),
    )
    for name, value in start.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)
    with pytest.raises(LimbeckError, match=r"layers"):
        train(place, tmp_path / "more", **{"student.layers": 3})
