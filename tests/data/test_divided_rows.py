"""Own files become train, dev and test: by shares, class by class, in whole groups, or by files that are named."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from limbeck.data import Division, load_task
from limbeck.data.splits import hold_out, hold_out_texts
from limbeck.support.errors import LimbeckError

SHARES = Division(dev_share=0.1, test_share=0.2)


def table(path: Path, rows: int, *, label=lambda row: "good" if row % 4 else "bad") -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label", "author"])
        writer.writerows([f"text {row}", label(row), f"author {row // 7}"] for row in range(rows))
    return path


def load(path: Path, **division) -> dict[str, list[str]]:
    """Texts by split."""
    _, splits = load_task(
        None, path, text_columns=["text"], label_column="label", division=Division(**division)
    )
    return {split: rows["sentence"][:] for split, rows in splits.items()}


def test_one_file_gives_train_dev_and_test(tmp_path):
    found = load(table(tmp_path / "rows.csv", 200))
    assert {split: len(texts) for split, texts in found.items()} == {
        "train": 160, "dev": 20, "test": 20,
    }  # fmt: skip
    everything = [text for texts in found.values() for text in texts]
    assert sorted(everything) == sorted(f"text {row}" for row in range(200))
    bad = {split: sum(int(t.split()[1]) % 4 == 0 for t in texts) for split, texts in found.items()}
    assert bad == {"train": 40, "dev": 5, "test": 5}
    # A teacher of the file as it was divided before selected its epoch on the same rows.
    assert load(tmp_path / "rows.csv", test_share=0.0)["dev"] == found["dev"]


@pytest.mark.parametrize(("rows", "test"), [(99, 0), (100, 10)])
def test_few_rows_are_not_spent_on_a_test_that_says_nothing(tmp_path, rows, test):
    found = load(table(tmp_path / "rows.csv", rows))
    assert len(found.get("test", ())) == test
    assert len(load(tmp_path / "rows.csv", test_share=0.2)["test"]) == round(0.2 * rows)


def test_named_files_are_their_splits(tmp_path):
    rows, more = table(tmp_path / "rows.csv", 200), table(tmp_path / "more.csv", 40)
    dev = load(rows, dev=more)
    assert {split: len(texts) for split, texts in dev.items()} == {"train": 200, "dev": 40}
    asked = load(rows, dev=more, test_share=0.25)
    assert {split: len(texts) for split, texts in asked.items()} == {
        "train": 150, "dev": 40, "test": 50,
    }  # fmt: skip
    test = load(rows, test=more)
    assert {split: len(texts) for split, texts in test.items()} == {
        "train": 180, "dev": 20, "test": 40,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["tokens", "spans", "masked", "multi-label"])
def test_every_kind_that_reads_one_file_divides_it(tmp_path, kind):
    rows = {
        "tokens": [{"tokens": ["a", f"w{row}"], "tags": ["O", "B"]} for row in range(120)],
        "spans": [
            {"question": f"q {row}", "context": "a b", "answers": {"text": ["a"], "answer_start": [0]}}
            for row in range(120)
        ],
        "masked": [{"text": f"text {row}"} for row in range(120)],
        "multi-label": [
            {"text": f"text {row}", "label": ["x"] * (row % 10 == 0) + ["y"] * (row % 2)}
            for row in range(120)
        ],
    }[kind]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    named = {"text_columns": ["text"], "label_column": "label"} if kind == "multi-label" else {}
    _, splits = load_task(None, path, kind=kind, **named)
    assert {split: len(found) for split, found in splits.items()} == {
        "train": 96, "dev": 12, "test": 12,
    }  # fmt: skip
    if kind == "multi-label":  # of x one row in ten, and 1.2 of them belong in each
        assert sum(row[0] for row in splits["test"]["label"]) in (1, 2)


def test_queries_stay_whole(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"query": f"q {query}", "passage": f"p {query} {place}", "label": int(place == 0)}
        for query in range(100)
        for place in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    _, splits = load_task(None, path, kind="pair-score")
    queries = {split: {*found["query"]} for split, found in splits.items()}
    assert {split: len(found) for split, found in queries.items()} == {
        "train": 80, "dev": 10, "test": 10,
    }  # fmt: skip
    assert sum(map(len, splits.values())) == 300 and len(set.union(*queries.values())) == 100


@pytest.mark.parametrize("seed", range(4))
def test_classes_are_shared_as_by_scikit_learn(seed):
    counts = np.random.default_rng(seed).integers(10, 90, size=5)
    labels = np.repeat(np.arange(5), counts)
    parts = hold_out(labels, True, seed, SHARES)
    _, theirs = train_test_split(labels, test_size=len(parts.test), stratify=labels, random_state=0)
    ours = np.bincount(labels[parts.test], minlength=5)
    assert abs(ours - np.bincount(theirs, minlength=5)).max() <= 1
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


def test_groups_are_divided_whole_worked_by_hand():
    # 100 rows of one class in groups of 70, 20 and 10; train wants 70, dev 10, test 20. The 70 go to train. Of the 20
    # the squared distance grows by 400 in train, by 0 in dev, and falls by 400 in test; the 10 make it fall in dev.
    groups = np.repeat([5, 1, 9], [70, 20, 10])
    parts = hold_out(np.zeros(100, dtype=int), True, 3, SHARES, groups)
    assert [set(groups[part].tolist()) for part in parts] == [{5}, {9}, {1}]


@pytest.mark.parametrize("seed", range(3))
def test_groups_keep_classes_in_proportion_as_scikit_learn_does(seed):
    random = np.random.default_rng(seed)
    groups = random.integers(0, 60, size=600)
    # An author writes mostly of one class.
    labels = (random.random(600) < np.where(groups % 3 == 0, 0.9, 0.2)).astype(int)
    parts = hold_out(labels, True, seed, SHARES, groups)
    own = [set(groups[part].tolist()) for part in parts]
    assert not (own[0] & own[1] or own[0] & own[2] or own[1] & own[2])
    largest = np.bincount(groups).max()
    assert abs(len(parts.test) - 120) <= largest and abs(len(parts.dev) - 60) <= largest
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(labels, labels, groups)
    theirs = max(abs(labels[test].mean() - labels.mean()) for _, test in folds)
    assert abs(labels[parts.test].mean() - labels.mean()) <= max(theirs, 0.05)


def test_a_group_column_of_a_file(tmp_path):
    found = load(table(tmp_path / "rows.csv", 210), group_column="author")
    authors = {split: {int(t.split()[1]) // 7 for t in texts} for split, texts in found.items()}
    assert set(found) == {"train", "dev", "test"}
    assert sum(map(len, authors.values())) == len(set.union(*authors.values())) == 30
    # The other rows of a held-out author are not trained on, with or without a label.
    some = hold_out(
        [0, 1, -100] * 40, True, 0, Division(dev_share=0.1, test_share=0.1), np.arange(120) // 3
    )
    assert len(some.train) + 3 / 2 * (len(some.dev) + len(some.test)) == 120


@pytest.mark.parametrize(
    ("division", "message"),
    [
        ({"group_column": "writer"}, "no group column 'writer'"),
        ({"dev_share": 0.6, "test_share": 0.4}, "dev_share, test_share: 0.6 and 0.4 leave no rows"),
        ({"dev": "other.csv", "dev_share": 0.2}, "dev_share: 0.2, and the dev rows are in a file"),
        ({"test": "other.csv", "test_share": 0.2}, "test_share: 0.2, and the test rows are in"),
        ({"dev": "other.csv", "group_column": "author"}, "group_column: train, dev and test rows"),
        ({"test": "none.csv"}, "test: there is no file"),
    ],
)
def test_what_has_no_effect_is_refused(tmp_path, monkeypatch, division, message):
    monkeypatch.chdir(tmp_path)
    table(Path("other.csv"), 20)
    with pytest.raises(LimbeckError, match=message):
        load(table(Path("rows.csv"), 120), **division)


def test_sources_with_splits_of_their_own_take_no_shares():
    with pytest.raises(LimbeckError, match="test_share: data source 'pocket' has its own splits"):
        load_task("sst2", "pocket", division=Division(test_share=0.2))


def test_a_split_that_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="in these groups are too few to keep some back"):
        load(table(tmp_path / "rows.csv", 7), group_column="author", test_share=0.2)


@pytest.mark.parametrize("blank", ["", "-1"])
def test_a_test_file_without_labels_has_none(tmp_path, blank):
    for split, rows in (("train", 40), ("dev", 8)):
        table(tmp_path / f"{split}.csv", rows)
    table(tmp_path / "test.csv", 8, label=lambda row: blank)
    _, splits = load_task(None, tmp_path, text_columns=["text"], label_column="label")
    assert "label" not in splits["test"].column_names and "label" in splits["dev"].column_names


def test_rows_of_the_same_text_stay_together(tmp_path):
    path = tmp_path / "rows.csv"
    copies = ["Text {}", " text {} ", "TEXT {}"]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        for row in range(120):
            label = "good" if row % 4 else "bad"
            writer.writerows([copy.format(row), label] for copy in copies[: 1 + row % 3])
        # Of a fifth of the rows the text is the same, and one copy has another class.
        writer.writerows(["spam", "good" if row else "bad"] for row in range(60))
    found = load(path)
    plain = {split: {text.strip().lower() for text in texts} for split, texts in found.items()}
    assert sum(map(len, found.values())) == 300
    assert not plain["dev"] & plain["train"] and not plain["test"] & (plain["train"] | plain["dev"])
    assert "spam" in plain["train"] and len(plain["dev"]) == len(plain["test"]) == 12
    assert load(path) == found != load(path, dev_share=0.3)


def test_a_file_of_which_every_row_is_repeated_is_cut_by_its_texts(tmp_path):
    once = load(table(tmp_path / "once.csv", 150))
    head, *rows = (tmp_path / "once.csv").read_text().splitlines()
    (tmp_path / "twice.csv").write_text("\n".join([head, *rows, *rows]))
    twice = load(tmp_path / "twice.csv")
    assert {split: sorted(texts) for split, texts in twice.items()} == {
        split: sorted(2 * texts) for split, texts in once.items()
    }


def test_an_unlabelled_copy_of_a_row_that_is_held_out_is_in_no_split():
    labels = [0, 1] * 20 + [-100] * 40
    parts = hold_out_texts(labels, True, 1, SHARES, np.tile(np.arange(40), 2))
    held = {*parts.dev.tolist(), *parts.test.tolist()}
    assert len(held) == 12 and max(held) < 40
    assert {*parts.train.tolist()} == {*range(80)} - held - {row + 40 for row in held}
