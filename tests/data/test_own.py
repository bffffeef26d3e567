import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from limbeck.data import load_task
from limbeck.data.label_column import Labelling, class_order
from limbeck.data.splits import hold_out
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS

COLUMNS = {"text_columns": ["q"], "label_column": "y"}
SUFFIXES = ("csv", "tsv", "jsonl", "parquet")


def write(path, rows):
    """Rows (dicts) in the format of the suffix, by hand where that is possible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [list(rows[0])] + [[str(value) for value in row.values()] for row in rows]
        path.write_text("".join(mark.join(line) + "\n" for line in lines))
    return path


def forty(labels):
    return [{"id": i, "q": f"text {i}", "y": labels[i % len(labels)]} for i in range(40)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_labels_become_classes_in_alphabetical_order(tmp_path, suffix):
    path = write(tmp_path / f"mood.{suffix}", forty(["sad", "glad", "mad"]))
    task, splits = load_task(None, path, **COLUMNS)
    assert (task.name, task.labels) == ("mood", ("glad", "mad", "sad"))
    assert task.text_columns == ("sentence",)
    assert (task.metrics, task.primary) == (("accuracy", "matthews"), "accuracy")
    everything = sorted(
        (int(row["sentence"].split()[1]), row["label"])
        for split in splits.values()
        for row in split
    )
    assert everything == [(i, [2, 0, 1][i % 3]) for i in range(40)]
    assert sorted(splits["dev"]["label"]) == [0, 1, 2]
    assert splits["dev"]["index"][:] == [0, 1, 2]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whole_numbers_become_classes_in_numerical_order(tmp_path, suffix):
    path = write(tmp_path / f"data.{suffix}", forty([10, 9, -1]))
    task, splits = load_task("digits", path, **COLUMNS)
    assert (task.name, task.labels) == ("digits", ("-1", "9", "10"))
    row = splits["train"][0]
    assert row["label"] == [2, 1, 0][int(row["sentence"].split()[1]) % 3]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_decimals_become_a_regression(tmp_path, suffix):
    path = write(tmp_path / f"data.{suffix}", forty([0.5, 1.0, 2.25]))
    task, splits = load_task(None, path, **COLUMNS)
    assert task.regression
    assert (task.metrics, task.outputs) == (("pearson", "spearman"), 1)
    assert set(splits["train"]["label"]) == {0.5, 1.0, 2.25}
    assert (len(splits["train"]), len(splits["dev"])) == (36, 4)


def test_numbers_as_text_are_numbers_where_labels_say_so(tmp_path):
    """Of JSON lines text is a name; predict writes numbers of a CSV file so."""
    path = write(tmp_path / "d.jsonl", forty(["0.5", "4", "2.25", "3.75"]))
    task, splits = load_task("d", path, **COLUMNS, labelling=Labelling(holds="numbers"))
    assert task.regression and {*splits["dev"]["label"]} <= {0.5, 4.0, 2.25, 3.75}
    task, _ = load_task("d", path, **COLUMNS)
    assert task.labels == ("0.5", "2.25", "3.75", "4")
    assert "they are text (labels=numbers reads their numbers)" in str(task.said)
    write(path, forty(["0.5", "4", "much"]))
    with pytest.raises(LimbeckError, match="labels: numbers, but label column 'y' holds 'much'"):
        load_task("d", path, **COLUMNS, labelling=Labelling(holds="numbers"))


def test_a_number_without_end_is_no_number(tmp_path):
    """1e400 alone made each of 47 numbers a class."""
    path = write(tmp_path / "d.csv", forty([f"{at / 8}" for at in range(39)] + ["1e400"]))
    with pytest.raises(
        LimbeckError, match=r"39 different numbers, and in 1 of 40 rows no number: '1e400'"
    ):
        load_task("d", path, **COLUMNS)


def test_pairs_keep_the_order_they_are_named_in(tmp_path):
    path = write(tmp_path / "d.csv", [{"y": i % 2, "b": f"b{i}", "a": f"a{i}"} for i in range(9)])
    task, splits = load_task(None, path, text_columns=["a", "b"], label_column="y")
    assert task.text_columns == ("sentence1", "sentence2")
    assert (task.metrics, task.labels) == (("accuracy", "f1", "matthews"), ("0", "1"))
    assert all(row["sentence1"][1:] == row["sentence2"][1:] for row in splits["train"])
    assert splits["train"][0]["sentence1"].startswith("a")


def test_csv_quotes_and_tsv_quotes(tmp_path):
    csv = tmp_path / "d.csv"
    csv.write_text('\ufeffq,y\n"null, ""and\nvoid""",no\nNA,yes\n"x",no\nz,yes\n')
    found = load_task(None, csv, **COLUMNS, for_training=False)[1]["dev"]
    assert found["sentence"][:] == ['null, "and\nvoid"', "NA", "x", "z"]
    tsv = tmp_path / "d.tsv"
    tsv.write_text('q\ty\n"a" b\t1\n"open\t0\nx\t1\ny\t0\n')
    found = load_task(None, tsv, **COLUMNS, for_training=False)[1]["dev"]
    assert found["sentence"][:] == ['"a" b', '"open', "x", "y"]


@pytest.mark.parametrize(
    "words", [("1_0", "2_0"), ("inf", "infinity"), ("True", "False"), ("1", "b")]
)
def test_words_that_python_takes_for_numbers_are_classes(tmp_path, words):
    path = write(tmp_path / "d.csv", forty(list(words)))
    assert load_task(None, path, **COLUMNS)[0].labels == tuple(sorted(words))


def test_booleans(tmp_path):
    path = write(tmp_path / "d.jsonl", forty([True, False]))
    assert load_task(None, path, **COLUMNS)[0].labels == ("False", "True")


def test_class_names_stored_in_parquet_keep_their_order(tmp_path):
    features = Features({"q": Value("string"), "y": ClassLabel(names=["zero", "alpha", "never"])})
    rows = {"q": [f"t{i}" for i in range(20)], "y": [0, 1] * 10}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "d.parquet")
    task, splits = load_task(None, tmp_path / "d.parquet", **COLUMNS)
    assert task.labels == ("zero", "alpha", "never")
    assert set(splits["train"]["label"]) == {0, 1}


@pytest.mark.parametrize("dev", ["dev.csv", "validation.jsonl", "val.parquet"])
def test_a_folder_of_splits(tmp_path, dev):
    write(tmp_path / "train.csv", forty(["no", "yes"]))
    write(tmp_path / dev, forty(["yes"])[:3])
    (tmp_path / "test.tsv").write_text("q\ty\nsecret\t\n")
    task, splits = load_task(None, tmp_path, **COLUMNS)
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 40, "dev": 3, "test": 1,
    }  # fmt: skip
    assert splits["dev"]["label"][:] == [1, 1, 1]
    assert "label" not in splits["test"].column_names
    assert task.name == tmp_path.name


def test_a_folder_mixing_whole_numbers_and_decimals_is_a_regression(tmp_path):
    write(tmp_path / "train.csv", forty([1, 2]))
    write(tmp_path / "dev.csv", forty([1.5]))
    task, splits = load_task(None, tmp_path, **COLUMNS)
    assert task.regression
    assert splits["dev"]["label"][0] == 1.5


def test_a_known_task_from_ones_own_file(tmp_path):
    rows = [{"a": f"x{i}", "b": "z", "y": ["equivalent", 0, "1"][i % 3]} for i in range(12)]
    path = write(tmp_path / "d.jsonl", rows)
    task, splits = load_task("mrpc", path, text_columns=["a", "b"], label_column="y")
    assert task is TASKS["mrpc"]
    for row in splits["train"]:
        assert row["label"] == [1, 0, 1][int(row["sentence1"][1:]) % 3]
    rows[7]["y"] = "2"
    with pytest.raises(LimbeckError, match=r"row 8: the label is '2'(.|\n)*not_equivalent"):
        load_task("mrpc", write(path, rows), text_columns=["a", "b"], label_column="y")
    with pytest.raises(LimbeckError, match="1 text columns are named: a"):
        load_task("mrpc", path, text_columns=["a"], label_column="y")


def test_a_known_regression_takes_whole_numbers_too(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": i % 6} for i in range(20)]
    path = write(tmp_path / "d.csv", rows)
    task, splits = load_task("stsb", path)
    assert task is TASKS["stsb"]
    assert splits["train"].features["label"].dtype == "float32"
    rows[4]["label"] = "much"
    with pytest.raises(LimbeckError, match=r"row 5: the label is 'much'\n.*a number"):
        load_task("stsb", write(path, rows))


def test_imdb_as_one_csv_file(tmp_path):
    path = tmp_path / "IMDB Dataset.csv"
    path.write_text("review,sentiment\n" + '"Good, <br />x",positive\nbad,negative\n' * 10)
    task, splits = load_task("imdb", path, for_training=False)
    assert task.evaluation_splits(splits) == ("dev",)
    assert splits["dev"]["label"][:] == [1, 0] * 10
    folder = tmp_path / "imdb"
    write(folder / "train.csv", [{"text": f"t{i}", "label": i % 2} for i in range(20)])
    assert len(load_task("imdb", tmp_path)[1]["dev"]) == 2


def refuses(message, path, **options):
    with pytest.raises(LimbeckError, match=message) as caught:
        load_task(None, path, **(COLUMNS | options))
    assert all(problem.fix for problem in caught.value.problems)


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path / "d.csv", forty([0, 1]))
    refuses(r"no text column 'text'\n.*there: id, q, y", path, text_columns=["text"])
    refuses(r"no label column 'label'\n.*there: id, q, y", path, label_column="label")
    refuses(r"no label column is named\n.*columns of d.csv: id, q, y", path, label_column=None)
    refuses(r"no text columns are named\n.*id, q, y", path, text_columns=None)
    for suffix, mark in (("csv", ","), ("tsv", "\t")):
        bare = tmp_path / f"bare.{suffix}"
        bare.write_text("a film,of the year that we were in\nanother,one\n".replace(",", mark))
        refuses(r"first line of bare.* as the names .* 'of the year", bare, text_columns=None)
    refuses("3 text columns", path, text_columns=["q", "id", "q"])
    refuses("'y' is named as text and as label", path, text_columns=["y"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", "q,y\na,1\nb\n", "line 3: expected 2 columns"),
        ("d.csv", 'q,y\n"a"b,1\n', "line 2: "),
        ("d.csv", "q,y\n", "holds no rows"),
        ("d.csv", "", "is empty"),
        ("d.csv", "q,y,q\na,1,b\n", "two columns have one name"),
        ("d.csv", b"q,y\n\xff,1\n", "not UTF-8"),
        ("d.csv", "q,y\na,1\nb,\n", "one class only: 1"),
        ("d.csv", "q,y\na,1\nb,1\n", "one class only: 1"),
        ("d.csv", "q,y\n" + "".join(f"t,{i}\n" for i in range(9)), "9 different values in 9 rows"),
        ("d.csv", "q,y\na,1\nb,0\n", "too few"),
        ("d.jsonl", '{"q": "a", "y": 1}\n{"q": \n', "line 2: not JSON"),
        ("d.jsonl", '[{"q": "a"}]\n', "line 1: expected a JSON object, found list"),
        (
            "d.jsonl",
            '{"data": [{"q": "a", "y": 1}]}\n',
            "rows are a list inside of one object, 'data'",
        ),
        (
            "d.jsonl",
            '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n',
            r"line 1: a chat \('messages'\) is not a row of texts\n.*prompt: .messages\[-2\].content",
        ),
        ("d.jsonl", '{\n"data": [\n', r"line 1: not JSON.*\n.*jq -c"),
        ("d.jsonl", '{"q": "a", "y": null}\n{"q": "a"}\n', "all of 2 rows have no label in y"),
        ("d.jsonl", '{"q": "a", "y": 1}\n{"q": "b", "y": "x"}\n', "mixes int and str"),
        ("d.jsonl", '{"q": "a", "y": [1]}\n', "row 1: y holds list"),
        ("d.jsonl", '{"q": "a", "y": 1.5}\n{"q": "b", "y": Infinity}\n', "row 2: y is inf"),
        (
            "d.jsonl",
            '{"q": "a", "y": 1}\n{"q": 7, "y": 0}\n' * 3,
            "row 2: q is 7, expected text; 2 other rows too",
        ),
        ("d.parquet", b"PAR1 is not enough", "cannot read"),
        ("d.txt", "q,y\n", "no text column 'q'"),
    ],
)
def test_files_that_do_not_fit(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refuses(message, path)


def test_folders_that_do_not_fit(tmp_path):
    refuses("has no train file; it holds nothing", tmp_path)
    write(tmp_path / "train.csv", forty(["no", "yes"]))
    write(tmp_path / "train.jsonl", forty(["no", "yes"]))
    refuses("several train files: train.csv, train.jsonl", tmp_path)
    (tmp_path / "train.jsonl").unlink()
    write(tmp_path / "dev.csv", forty(["perhaps"]))
    refuses(r"dev.csv has the label 'perhaps', which train has not\n.*no, yes", tmp_path)


def test_the_held_out_rows_are_a_seeded_tenth_of_each_class():
    labels = ["a"] * 100 + ["b"] * 30 + ["c"] * 2 + ["d"]
    train, dev, _ = hold_out(labels, stratify=True, seed=7)
    assert np.array_equal(np.sort(np.concatenate([train, dev])), np.arange(133))
    held = [labels[row] for row in dev]
    assert [held.count(name) for name in "abcd"] == [10, 3, 1, 0]
    assert np.array_equal(dev, hold_out(labels, stratify=True, seed=7)[1])
    assert not np.array_equal(dev, hold_out(labels, stratify=True, seed=8)[1])
    assert len(hold_out([0.5] * 50, stratify=False, seed=0)[1]) == 5


# ---- columns that nobody named ----


@pytest.mark.parametrize(
    ("head", "row", "texts"),
    [
        ("text,label", "a film,{}", ("sentence",)),
        ("label,fine,sentence", "{},x:y,a film", ("sentence",)),
        ("review,label", "a film,{}", ("sentence",)),
        ("id,sentence1,sentence2,label", "7,a film,a plot,{}", ("sentence1", "sentence2")),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_usual_columns_are_taken_where_none_are_named(tmp_path, head, row, texts, folder):
    """As from Python, of a file as of a folder with a train file."""
    lines = [head, *(row.format(["good", "bad"][n % 2]) for n in range(40))]
    place = tmp_path / "mine"
    place.mkdir()
    (place / "train.csv").write_text("\n".join(lines) + "\n")
    task, splits = load_task(None, place if folder else place / "train.csv")
    assert task.text_columns == texts and task.labels == ("bad", "good")
    assert splits["train"][0][texts[0]] == "a film"
    assert {len(splits["train"]), len(splits["dev"])} == {36, 4}


def test_what_is_not_clear_is_asked_for_with_the_files_columns(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("id,review,stars\n" + "".join(f"{n},a film,{n % 2}\n" for n in range(40)))
    with pytest.raises(LimbeckError) as caught:
        load_task("reviews", path)
    wrong = caught.value.problems
    assert [one.message for one in wrong] == [
        "no text columns are named",
        "no label column is named",
    ]
    assert all("columns of reviews.csv: id, review, stars" in one.fix for one in wrong)


def test_all_columns_that_are_misspelled_are_named_with_what_they_may_be(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\n" + "".join(f"a film,{n % 2}\n" for n in range(40)))
    with pytest.raises(LimbeckError) as caught:
        load_task("reviews", path, text_columns=["texts"], label_column="lable")
    assert ["did you mean 'text'?" in str(one) for one in caught.value.problems] == [True, False]
    assert "did you mean 'label'?" in str(caught.value.problems[1])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("review.csv", "did you mean .*reviews.csv"),
        ("nowhere/review.csv", "nor the folder .*nowhere"),
        ("owner/name", "of the Hub, known tasks alone"),
    ],
)
def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text("text,label\n")
    with pytest.raises(
        LimbeckError, match=rf"data: there is no such file or folder: {name}"
    ) as caught:
        load_task(None, name)
    assert re.search(said, str(caught.value))


def test_a_folder_says_what_it_holds(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\n")
    with pytest.raises(LimbeckError, match=r"has no train file; it holds rows\.csv"):
        load_task(None, tmp_path)
    (tmp_path / "glue" / "SST-2").mkdir(parents=True)
    (tmp_path / "glue" / "SST-2" / "train.tsv").write_text("sentence\tlabel\n")
    with pytest.raises(
        LimbeckError, match=r"task: none is given, and .* holds sst2.*\n.*--task sst2"
    ):
        load_task(None, tmp_path / "glue")
    with pytest.raises(LimbeckError, match="did you mean 'sst2'"):
        load_task("sst", tmp_path / "glue")


def test_a_models_classes_are_known_of_few_rows_or_rows_of_one_class(tmp_path):
    known = Labelling(teacher=("Sad", "glad", "mad"))
    for number, labels in enumerate((["mad"], ["glad", "mad"], ["mad", "sad", "glad"])):
        rows = [{"q": f"text {label}", "y": label} for label in labels]
        path = write(tmp_path / f"{number}.csv", rows)
        task, splits = load_task(None, path, **COLUMNS, labelling=known, for_training=False)
        assert [name.lower() for name in task.labels] == ["sad", "glad", "mad"]
        names = ["sad", "glad", "mad"]
        assert splits["dev"]["label"][:] == [names.index(label) for label in labels]
    path = write(tmp_path / "other.csv", [{"q": "text", "y": "bad"}] * 3)
    with pytest.raises(LimbeckError, match="holds one class only: 'bad'"):
        load_task(None, path, **COLUMNS, labelling=known, for_training=False)


def test_the_order_of_ordered_classes_is_given_or_that_of_numbers():
    ordered = Labelling(teacher=("10", "1", "2"), ordered=True)
    assert class_order(["1", "10", "2"], ordered, "it") == ("1", "2", "10")
    given = replace(ordered, classes=("low", "high"))
    assert class_order(["high", "low"], given, "it") == ("low", "high")
    with pytest.raises(LimbeckError, match="holds high, low, which are not all numbers"):
        class_order(["high", "low"], ordered, "it")
