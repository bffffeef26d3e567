"""Where images come from: digits, CIFAR's binary files, folders, and a copy of the Hub's sets."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features
from datasets import Image as Picture
from PIL import Image
from sklearn.datasets import load_digits

import image_sets as sets
from limbeck.data import Collator, Conditions, encode, load_task
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS
from limbeck.tasks.metrics import top5
from limbeck.vision import image_processor


def pixels_of_row(row: dict) -> np.ndarray:
    picture = row["image"]
    source = BytesIO(picture["bytes"]) if picture["bytes"] else picture["path"]
    with Image.open(source) as image:
        return np.asarray(image)


# Digits


def test_digits_are_scikit_learns_split_by_writer():
    task, splits = load_task(None, "digits")
    assert task is TASKS["digits"]
    source = load_digits()
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 1297, "dev": 500}
    for split, row, place in (("train", 0, 0), ("train", 1296, 1296), ("dev", 499, 1796)):
        found = splits[split][row]
        assert found["label"] == source.target[place]
        assert np.array_equal(np.round(pixels_of_row(found) / 255 * 16), source.images[place])


def test_digits_hold_one_task():
    with pytest.raises(LimbeckError, match="holds the task digits, not 'cifar10'"):
        load_task("cifar10", "digits")


def test_conditions_work_on_pictures():
    task, splits = load_task(None, "digits")
    train = splits["train"]
    fewer = Conditions(train_rows=200, stratified=True, label_noise=0.25).apply(train, task)
    assert len(fewer) == 200
    right = dict(zip(train["index"], train["label"], strict=True))
    wrong = sum(right[row["index"]] != row["label"] for row in fewer)
    assert wrong == 50
    assert fewer[0]["image"] == train[fewer[0]["index"]]["image"]


def test_encoded_pictures_are_batched_as_their_processor_makes_them():
    task, splits = load_task(None, "digits")
    processor = image_processor(12)
    encoded, cut = encode(splits["dev"], task, processor, 128)
    assert cut == 0 and set(encoded.column_names) == {"pixel_values", "labels", "index"}
    batch = Collator(processor, kind=task.kind)(list(encoded.select([3, 9])))
    pictures = [Image.fromarray(pixels_of_row(splits["dev"][row])).convert("RGB") for row in (3, 9)]
    expected = processor(pictures, return_tensors="np")["pixel_values"]
    assert np.allclose(batch["pixel_values"], expected, atol=1e-6)
    assert batch["labels"].tolist() == [splits["dev"][row]["label"] for row in (3, 9)]
    assert batch["index"].tolist() == [3, 9]


# CIFAR's binary files


def test_cifar100_binary_files_are_read_by_their_fine_labels(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    train, pixels = sets.cifar_records([(4, 0), (1, 1), (14, 98)])
    test, _ = sets.cifar_records([(0, 99)])
    (folder / "train.bin").write_bytes(train)
    (folder / "test.bin").write_bytes(test)
    for root in (tmp_path, folder):
        task, splits = load_task("cifar100", root)
        assert [task.labels[label] for label in splits["train"]["label"]] == [
            "apple", "aquarium_fish", "woman",
        ]  # fmt: skip
        assert splits["dev"]["label"][:] == [99] and "test" not in splits
        for row in range(3):
            found = pixels_of_row(splits["train"][row])
            assert found.shape == (32, 32, 3)
            for channel in range(3):
                assert np.array_equal(found[:, :, channel], pixels[row, channel])


def test_cifar10_binary_files(tmp_path):
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (tmp_path / f"{name}.bin").write_bytes(sets.cifar_records([(6,), (9,)])[0])
    task, splits = load_task("cifar10", tmp_path)
    assert (len(splits["train"]), len(splits["dev"])) == (10, 2)
    assert [task.labels[label] for label in splits["dev"]["label"]] == ["frog", "truck"]


def test_damaged_binary_files_are_named(tmp_path):
    whole, _ = sets.cifar_records([(4, 0)])
    (tmp_path / "train.bin").write_bytes(whole)
    with pytest.raises(LimbeckError, match=r"cannot read .*test\.bin"):
        load_task("cifar100", tmp_path)
    (tmp_path / "test.bin").write_bytes(whole[:-1])
    with pytest.raises(LimbeckError, match=r"test\.bin has 3073 bytes, which is not a multiple"):
        load_task("cifar100", tmp_path)
    (tmp_path / "test.bin").write_bytes(sets.cifar_records([(0, 100)])[0])
    with pytest.raises(LimbeckError, match="a label is 100"):
        load_task("cifar100", tmp_path)


def test_the_pickled_release_is_refused_unread(tmp_path):
    for name in ("train", "test", "meta"):
        (tmp_path / name).write_bytes(b"\x80\x02cos\nsystem\n")
    with pytest.raises(LimbeckError, match=r"pickled(.|\n)*binary version(.|\n)*--data hub"):
        load_task("cifar100", tmp_path)


# Folders of images


def test_a_folder_a_class(tmp_path):
    root = tmp_path / "a [set]"
    for split, each in (("train", 4), ("val", 2), ("test", 1)):
        sets.write_pictures(root / split, {"dog": 10, "cat": 200, "train": 90}, each=each)
    task, splits = load_task("pets", root, kind="image")
    assert (task.name, task.labels, task.metrics) == (
        "pets",
        ("cat", "dog", "train"),
        ("accuracy",),
    )
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 12, "dev": 6, "test": 3}
    greys = {"dog": 10, "cat": 200, "train": 90}
    for row in splits["train"]:
        assert np.unique(pixels_of_row(row)).tolist() == [greys[task.labels[row["label"]]]]
    encoded, _ = encode(splits["train"], task, image_processor(8), 128)
    batch = Collator(image_processor(8), kind=task.kind)(list(encoded))
    assert batch["pixel_values"].shape == (12, 3, 8, 8)


def test_classes_alone_give_up_a_dev_split(tmp_path):
    sets.write_pictures(tmp_path / "own", {"x": 1, "y": 2}, each=20)
    _, splits = load_task(None, tmp_path / "own", kind="image")
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 36, "dev": 4}
    assert sorted(splits["dev"]["label"]) == [0, 0, 1, 1]
    _, again = load_task(None, tmp_path / "own", kind="image")
    assert again["dev"]["image"] == splits["dev"]["image"]


def test_a_known_tasks_folders_keep_its_classes(tmp_path):
    for split in ("train", "test"):
        sets.write_pictures(tmp_path / split, {"truck": 1, "cat": 2})
    task, splits = load_task("cifar10", tmp_path)
    assert task is TASKS["cifar10"] and set(splits) == {"train", "dev"}
    assert sorted(set(splits["dev"]["label"])) == [3, 9]
    sets.write_pictures(tmp_path / "train", {"unicorn": 3})
    with pytest.raises(LimbeckError, match="the class 'unicorn' is not a class of the task"):
        load_task("cifar10", tmp_path)


def test_a_class_that_train_has_not_is_named(tmp_path):
    sets.write_pictures(tmp_path / "train", {"a": 1, "b": 2})
    sets.write_pictures(tmp_path / "dev", {"a": 1, "c": 2})
    with pytest.raises(LimbeckError, match="the class 'c' is not a class of the task"):
        load_task("own", tmp_path, kind="image")


def test_folders_that_hold_no_pictures_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimbeckError, match=r"images of 0 classes; in it: nothing"):
        load_task("own", tmp_path / "empty", kind="image")
    sets.write_pictures(tmp_path / "one", {"a": 1})
    with pytest.raises(LimbeckError, match="images of 1 classes; in it: a/"):
        load_task("own", tmp_path / "one", kind="image")
    (tmp_path / "file.csv").write_text("a,b\n")
    with pytest.raises(LimbeckError, match="is a file"):
        load_task("own", tmp_path / "file.csv", kind="image")
    with pytest.raises(LimbeckError, match="has no columns"):
        load_task("own", tmp_path / "one", kind="image", label_column="x")


def test_a_picture_that_is_none_is_named(tmp_path):
    sets.write_pictures(tmp_path / "p", {"a": 1, "b": 2}, each=20)
    (tmp_path / "p" / "a" / "03.png").write_bytes(b"nothing")
    task, splits = load_task("own", tmp_path / "p", kind="image")
    with pytest.raises(LimbeckError, match=r"03\.png cannot be opened"):
        encode(splits["train"], task, image_processor(8), 128)


# The Hub


def test_a_copy_of_the_hubs_set(tmp_path):
    folder = tmp_path / "cifar100" / "cifar100"
    folder.mkdir(parents=True)
    content, pixels = sets.cifar_records([(0, 1), (0, 99)])
    assert content
    labels = ClassLabel(names=list(TASKS["cifar100"].labels))
    for split in ("train", "test"):
        pictures = [Image.fromarray(image.transpose(1, 2, 0)) for image in pixels]
        columns = {"img": pictures, "fine_label": [1, 99], "coarse_label": [0, 0]}
        features = Features(
            {"img": Picture(), "fine_label": labels, "coarse_label": ClassLabel(num_classes=20)}
        )
        rows = Dataset.from_dict(columns, features=features)
        rows.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    task, splits = load_task("cifar100", f"hub:{tmp_path}")
    assert set(splits) == {"train", "dev"}
    assert splits["dev"]["label"][:] == [1, 99]
    assert np.array_equal(pixels_of_row(splits["dev"][1]), pixels[1].transpose(1, 2, 0))
    assert len(task.labels) == 100


# Scores


def test_top5_counts_rows_whose_class_is_among_five():
    scores = np.array([[9, 8, 7, 6, 5, 4, 3], [1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 0]])
    assert top5(scores, np.array([4, 2, 5])) == pytest.approx(200 / 3)
    assert top5(scores, np.array([5, 1, 4])) == pytest.approx(100 / 3)
    found = TASKS["digits"].scores(np.eye(10)[:3] * 2, np.array([0, 1, 9]))
    assert found == {
        "accuracy": pytest.approx(200 / 3), "top5": pytest.approx(200 / 3),
        "primary": pytest.approx(200 / 3),
    }  # fmt: skip


def test_pictures_are_not_read_as_text():
    with pytest.raises(LimbeckError, match="is of kind image, not text"):
        load_task("digits", "digits", kind="text")
