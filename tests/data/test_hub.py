import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from limbeck.data import load_task
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def write(folder, split, columns, label=None):
    """A parquet file as the Hub names them, with the Hub's features."""
    features = {name: Value("string") for name in columns}
    for name in columns:
        if name in ("label", "gold_label") and label is not None:
            features[name] = label
    data = Dataset.from_dict(columns, features=Features(features))
    folder.mkdir(parents=True, exist_ok=True)
    data.to_parquet(folder / f"{split}-00000-of-00001.parquet")


def card(folder, config, splits):
    """The part of a dataset card that tells `load_dataset` which files make which split."""
    lines = ["---", "configs:", f"- config_name: {config}", "  data_files:"]
    for split in splits:
        lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


MRPC = ClassLabel(names=["not_equivalent", "equivalent"])


def mrpc(folder):
    pair = {"sentence1": ["a", "b"], "sentence2": ["c", "d"]}
    write(folder / "mrpc", "train", pair | {"label": [1, 0]}, MRPC)
    write(folder / "mrpc", "validation", pair | {"label": [0, 0]}, MRPC)
    write(folder / "mrpc", "test", pair | {"label": [-1, -1]}, MRPC)


@pytest.mark.parametrize("place", ["", "glue", "nyu-mll/glue"])
@pytest.mark.parametrize("with_card", [True, False])
def test_a_copy_of_the_repository(tmp_path, place, with_card):
    mrpc(tmp_path / place)
    if with_card:
        card(tmp_path / place, "mrpc", ["train", "validation", "test"])
    task, splits = load_task("mrpc", f"hub:{tmp_path}")
    assert task is TASKS["mrpc"]
    assert {name: list(split) for name, split in splits.items()} == {
        "train": [
            {"sentence1": "a", "sentence2": "c", "label": 1, "index": 0},
            {"sentence1": "b", "sentence2": "d", "label": 0, "index": 1},
        ],
        "dev": [
            {"sentence1": "a", "sentence2": "c", "label": 0, "index": 0},
            {"sentence1": "b", "sentence2": "d", "label": 0, "index": 1},
        ],
        "test": [
            {"sentence1": "a", "sentence2": "c", "index": 0},
            {"sentence1": "b", "sentence2": "d", "index": 1},
        ],
    }


def test_mnli_splits_are_renamed_and_classes_follow_their_names(tmp_path):
    shuffled = ClassLabel(names=["contradiction", "entailment", "neutral"])
    pair = {"premise": ["p"], "hypothesis": ["h"]}
    names = ["train", "validation_matched", "validation_mismatched", "test_matched"]
    for number, split in enumerate(names):
        label = -1 if split.startswith("test") else number
        write(tmp_path / "mnli", split, pair | {"label": [label]}, shuffled)
    _, splits = load_task("mnli", f"hub:{tmp_path}")
    assert {name: split[0].get("label") for name, split in splits.items()} == {
        "train": 2, "dev": 0, "dev_mismatched": 1, "test": None,
    }  # fmt: skip


def test_scitail_labels_are_text_and_columns_have_other_names(tmp_path):
    for split in ("train", "validation", "test"):
        columns = {"sentence1": ["p", "q"], "sentence2": ["h", "i"]}
        labels = {"gold_label": ["neutral", "entailment" if split == "test" else "entails"]}
        write(tmp_path / "snli_format", split, columns | labels)
    _, splits = load_task("scitail", f"hub:{tmp_path}")
    assert all(split["label"][:] == [1, 0] for split in splits.values())
    assert splits["dev"].column_names == ["premise", "hypothesis", "label", "index"]


def test_imdb_gets_a_dev_split_and_drops_the_unlabelled_one(tmp_path):
    names = ClassLabel(names=["neg", "pos"])
    text = [f"review {i}" for i in range(40)]
    folder = tmp_path / "plain_text"
    write(folder, "train", {"text": text, "label": [0] * 20 + [1] * 20}, names)
    write(folder, "test", {"text": text[:2], "label": [1, 0]}, names)
    write(folder, "unsupervised", {"text": text, "label": [-1] * 40}, names)
    _, splits = load_task("imdb", f"hub:{tmp_path}")
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 36, "dev": 4, "test": 2,
    }  # fmt: skip
    assert sorted(splits["dev"]["label"]) == [0, 0, 1, 1]


def test_paws_and_stsb(tmp_path):
    pair = {"sentence1": ["a"], "sentence2": ["b"]}
    for split in ("train", "validation"):
        digits = ClassLabel(names=["0", "1"])
        write(tmp_path / "labeled_final", split, pair | {"label": [1]}, digits)
        write(tmp_path / "stsb", split, pair | {"label": [3.5]}, Value("float32"))
    paws = load_task("paws", f"hub:{tmp_path}")[1]["train"]
    assert paws.features["label"].names == ["different_meaning", "paraphrase"]
    assert paws["label"][:] == [1]
    assert load_task("stsb", f"hub:{tmp_path}")[1]["dev"]["label"][:] == [3.5]


def test_the_real_coordinates_are_asked_for(monkeypatch):
    asked = []

    def refuse(*arguments, **branch):
        asked.append((*arguments, *branch.items()))
        raise ConnectionError("no route\nto the Hub")

    monkeypatch.setattr("limbeck.data.hub.load_dataset", refuse)
    for name in TASKS.keys() - {"mlm", "digits"}:
        with pytest.raises(LimbeckError, match=r"ConnectionError: no route\n.*--data DIR"):
            load_task(name, "hub")
    assert sorted(asked) == sorted(
        [
            *(
                ("nyu-mll/glue", name)
                for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
            ),
            ("allenai/scitail", "snli_format"),
            ("google-research-datasets/paws", "labeled_final"),
            ("stanfordnlp/imdb", "plain_text"),
            ("eriktks/conll2003", "conll2003", ("revision", "refs/convert/parquet")),
            ("rajpurkar/squad", "plain_text"),
            ("uoft-cs/cifar10", "plain_text"),
            ("uoft-cs/cifar100", "cifar100"),
        ]
    )
    with pytest.raises(LimbeckError, match="'mlm' is not on the Hub"):
        load_task("mlm", "hub")


def test_offline_the_hub_says_what_to_do(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LimbeckError, match=r"cannot load nyu-mll/glue \(rte\)(.|\n)*pocket"):
        load_task("rte", "hub")


def test_what_a_copy_may_lack(tmp_path):
    with pytest.raises(LimbeckError, match="there is no folder"):
        load_task("mrpc", f"hub:{tmp_path / 'nowhere'}")
    with pytest.raises(LimbeckError, match="no parquet files"):
        load_task("mrpc", f"hub:{tmp_path}")
    write(tmp_path / "mrpc", "train", {"sentence1": ["a"], "label": [1]}, MRPC)
    with pytest.raises(LimbeckError, match="split train lacks the columns sentence2"):
        load_task("mrpc", f"hub:{tmp_path}")
    write(tmp_path / "rte", "train", {"sentence1": ["a"], "sentence2": ["b"], "label": ["yes"]})
    with pytest.raises(LimbeckError, match="has the labels 'yes'"):
        load_task("rte", f"hub:{tmp_path}")
    (tmp_path / "qnli").mkdir()
    (tmp_path / "qnli" / "train-00000-of-00001.parquet").write_bytes(b"not parquet")
    with pytest.raises(LimbeckError, match="cannot load"):
        load_task("qnli", f"hub:{tmp_path}")


def test_columns_cannot_be_named_for_the_hub():
    with pytest.raises(LimbeckError, match="cannot be named"):
        load_task("mrpc", "hub", text_columns=["a"])
    with pytest.raises(LimbeckError, match="unknown task 'mrcp'"):
        load_task("mrcp", "hub")
    with pytest.raises(LimbeckError, match="no task is named"):
        load_task(None, "hub")


@pytest.mark.network
def test_the_hub_itself():
    _, splits = load_task("wnli", "hub")
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 635, "dev": 71, "test": 146,
    }  # fmt: skip
