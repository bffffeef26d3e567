"""Reading checkpoints from disk: whole ones, headless ones and broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from student_models import FAMILIES, SIZES, TASK, Labels, logits, random_model
from transformers import (
    AutoModel,
    BertConfig,
    BertForPreTraining,
    BertModel,
    T5ForConditionalGeneration,
)

from limbeck.students import build_student, load_model, resolve_checkpoint
from limbeck.support.errors import LimbeckError


def test_pretrained_encoder_without_head(tmp_path, capfd):
    encoder = BertModel(BertConfig(**SIZES))
    encoder.save_pretrained(tmp_path)
    capfd.readouterr()  # what saving printed
    task = Labels(("a", "b", "c"))
    state = torch.get_rng_state()
    student = build_student(tmp_path, layers=2, task=task, seed=1)
    whole = load_model(tmp_path, labels=task.labels, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert student.config.num_labels == whole.config.num_labels == 3
    ours = student.bert.encoder.layer[1].attention.self.query.weight
    # Of a class for whole texts every second layer is kept, the last one among them.
    assert torch.equal(ours, encoder.encoder.layer[3].attention.self.query.weight)
    assert torch.equal(whole.bert.pooler.dense.weight, encoder.pooler.dense.weight)
    assert capfd.readouterr().err == ""  # no load report, no progress bar
    with pytest.raises(LimbeckError, match="no trained classification head"):
        load_model(tmp_path, head="required")


def test_checkpoints_with_other_heads_or_no_pooler_are_whole(tmp_path):
    BertForPreTraining(BertConfig(**SIZES)).save_pretrained(tmp_path / "pretraining")
    BertModel(BertConfig(**SIZES), add_pooling_layer=False).save_pretrained(tmp_path / "bare")
    T5ForConditionalGeneration(FAMILIES["t5"]).save_pretrained(tmp_path / "t5")
    for name in ("pretraining", "bare", "t5"):
        assert build_student(tmp_path / name, layers=2, task=TASK).config.num_labels == 2


def test_fine_tuned_checkpoint_keeps_its_head(tmp_path):
    teacher = random_model(BertConfig(**SIZES, id2label={0: "no", 1: "yes"}))
    teacher.save_pretrained(tmp_path)
    own = load_model(tmp_path, head="required")
    assert own.config.id2label == {0: "no", 1: "yes"}
    assert torch.equal(logits(own), logits(teacher))
    same = load_model(tmp_path, labels=("no", "yes"))
    assert torch.equal(logits(same), logits(teacher))
    with pytest.raises(LimbeckError, match="predicts no, yes, but the task has one number"):
        load_model(tmp_path, regression=True, head="required")
    other = load_model(tmp_path, labels=("yes", "no"))
    assert not torch.equal(other.classifier.weight, teacher.classifier.weight)
    assert torch.equal(other.bert.pooler.dense.weight, teacher.bert.pooler.dense.weight)


def test_half_precision_checkpoint_loads_in_float32(tmp_path):
    random_model(FAMILIES["bert"]).to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_model(tmp_path).dtype == torch.float32


def test_run_folder_stands_for_its_student(tmp_path):
    random_model(FAMILIES["bert"]).save_pretrained(tmp_path / "student")
    assert resolve_checkpoint(tmp_path) == str(tmp_path / "student")


def broken_missing_folder(folder: Path) -> Path:
    return folder / "absent"


def broken_no_config(folder: Path) -> Path:
    (folder / "config.json").unlink()
    return folder


def broken_folder_of_models(folder: Path) -> Path:
    folder.rename(folder.parent / "second")
    (folder.parent / "first").mkdir()
    (folder.parent / "second").rename(folder.parent / "first" / "student")
    return folder.parent


def broken_adapter(folder: Path) -> Path:
    (folder / "config.json").rename(folder / "adapter_config.json")
    return folder


def broken_pickle(folder: Path) -> Path:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def broken_export(folder: Path) -> Path:
    (folder / "model.safetensors").rename(folder / "model.onnx")
    (folder / "export.json").write_text("{}")
    return folder


def broken_json(folder: Path) -> Path:
    (folder / "config.json").write_text("{not json")
    return folder


def broken_weights(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    return folder


def broken_type(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "brt"}))
    return folder


def broken_missing_layer(folder: Path) -> Path:
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if ".layer.3." not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def broken_fewer_layers(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    return folder


def broken_shape(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 41}))
    return folder


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (broken_missing_folder, "no such folder"),
        (broken_no_config, "no config.json"),
        (
            broken_folder_of_models,
            "no config.json in it\n *fix: give one of the models in it: first$",
        ),
        (broken_adapter, "names no base_model_name_or_path\n    fix: write the folder"),
        (broken_pickle, "no .safetensors file"),
        (broken_export, "an exported model, which torch does not read\n *fix: name the run"),
        (broken_json, "cannot be read"),
        (broken_weights, "damaged weights file"),
        (broken_type, "brt"),
        (broken_missing_layer, "weights missing: bert.encoder.layer.3"),
        (broken_fewer_layers, "more layers than config.json states: .*layer.3"),
        (broken_shape, "of another shape"),
    ],
)
def test_bad_checkpoints(breaks, words, tmp_path, capfd):
    folder = tmp_path / "model"
    random_model(FAMILIES["bert"]).save_pretrained(folder)
    path = breaks(folder)
    capfd.readouterr()  # what saving printed
    with pytest.raises(LimbeckError, match=words):
        load_model(path)
    assert capfd.readouterr().err == ""


def test_hub_name_without_the_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LimbeckError, match="cannot be read"):
        load_model("nobody/no-such-model-as-this")


def test_bare_encoder_of_another_auto_class(tmp_path):
    random_model(FAMILIES["bert"]).save_pretrained(tmp_path)
    bare = load_model(tmp_path, auto=AutoModel)
    assert isinstance(bare, BertModel)
