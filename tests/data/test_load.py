import pytest
from datasets import DatasetDict

import limbeck.data
from limbeck.data import load_task
from limbeck.data.splits import make_split
from limbeck.lab.pocket import generate
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS


def test_pocket_is_asked_for_the_task_and_its_seed(monkeypatch):
    asked = []

    def load(name, seed=0):
        asked.append((name, seed))
        split = make_split(TASKS[name], {"sentence": ["a", "b"]}, [0, 1])
        return DatasetDict({"train": split, "dev": split} if seed else {"train": split})

    monkeypatch.setattr(generate, "_drawn", load)
    task, splits = load_task("sst2", "pocket", seed=5)
    assert (task, len(splits["dev"]), asked) == (TASKS["sst2"], 2, [("sst2", 5)])
    with pytest.raises(LimbeckError, match="pocket has no labelled split dev"):
        load_task("sst2", "pocket")


@pytest.mark.parametrize("source", ["pokcet", "/nowhere/at/all", "hup"])
def test_an_unknown_source_lists_the_choices(source):
    with pytest.raises(LimbeckError, match=rf"{source}(.|\n)*hub, hub:DIR, pocket"):
        load_task("rte", source)


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("limbeck.data.glue.read_folder", refuse)
    with pytest.raises(LimbeckError, match="Permission denied"):
        load_task("rte", tmp_path)


def test_everything_promised_is_there():
    assert all(hasattr(limbeck.data, name) for name in limbeck.data.__all__)
