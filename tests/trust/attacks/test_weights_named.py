"""A checkpoint's folder decides what is read, and nothing of it may be unpickled or lie elsewhere."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch

import tiny_runs as tiny
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError


class Code:
    """What runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def sharded(tmp_path) -> Path:
    """A checkpoint in several files, as transformers writes it."""
    folder = tmp_path / "model"
    tiny.bert(2).save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def index_of(folder: Path) -> Path:
    return folder / "model.safetensors.index.json"


def point(folder: Path, name: object) -> None:
    """Let the index name another file for the first weight of a shard."""
    index = json.loads(index_of(folder).read_text())
    first = next(iter(index["weight_map"]))
    index["weight_map"][first] = name
    index_of(folder).write_text(json.dumps(index))


def test_a_model_in_several_files_is_loaded(sharded):
    found = load_model(sharded).state_dict()
    for name, value in tiny.bert(2).state_dict().items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("place", ["inside", "outside", "absolute"])
def test_a_pickled_shard_is_refused_and_not_read(sharded, tmp_path, place):
    ran = tmp_path / "ran"
    where = {"inside": sharded, "outside": tmp_path, "absolute": tmp_path}[place] / "evil.bin"
    where.write_bytes(pickle.dumps(Code(ran)))
    point(sharded, {"inside": "evil.bin", "outside": "../evil.bin", "absolute": str(where)}[place])
    with pytest.raises(LimbeckError, match=r"model\.safetensors\.index\.json names .*evil\.bin"):
        load_model(sharded)
    assert not ran.exists()


@pytest.mark.parametrize(
    "name",
    [
        "../other/model.safetensors",
        "sub/../../other/model.safetensors",
        "/etc/model.safetensors",
        "..\\other\\model.safetensors",
        "C:\\other\\model.safetensors",
        "~/model.safetensors",
        None,
        7,
    ],
)
def test_a_file_outside_the_folder_is_refused(sharded, name):
    point(sharded, name)
    with pytest.raises(LimbeckError, match="outside the folder"):
        load_model(sharded)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', "[" * 100_000])
def test_an_index_that_is_none_is_said_to_be(sharded, text):
    index_of(sharded).write_text(text)
    with pytest.raises(LimbeckError, match=r"index\.json"):
        load_model(sharded)


@pytest.mark.parametrize("name", ["weights.bin", "../model.safetensors", "/m.safetensors"])
def test_a_configuration_that_names_other_weights_is_refused(tmp_path, name):
    folder = tiny.save(tiny.bert(2), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": name}))
    with pytest.raises(LimbeckError, match=r"config\.json names"):
        load_model(folder)


def test_an_adapter_that_is_pickled_is_refused(tmp_path):
    folder = tiny.save(tiny.bert(2), tmp_path / "model")
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(LimbeckError, match="adapter"):
        load_model(folder)
