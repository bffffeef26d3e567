"""What `auto` comes to, and that settling it leaves no trace on the models."""

import importlib

import pytest
import torch
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

import limbeck
from limbeck.records import Record
from limbeck.students import execution
from limbeck.students.execution import resolve_attention, resolve_precision
from limbeck.support.errors import LimbeckError
from tiny_runs import bert

BATCH = {
    "input_ids": torch.tensor([[2, 4, 6, 3], [2, 5, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": torch.tensor([1, 0]),
    "index": torch.tensor([0, 1]),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_named_precision_is_kept(precision):
    assert resolve_precision(precision) == precision


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bf16"),
        ({"avx2": True, "avx512_f": True}, "fp32"),
    ],
)
def test_auto_takes_bf16_where_the_processor_multiplies_it(monkeypatch, capabilities, precision):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve_precision("auto") == precision


def test_a_named_attention_is_given_to_the_model():
    model = bert(2).eval()
    before = model(**BATCH_OF_MODEL).logits
    found = resolve_attention(model, "eager", BATCH, precision="fp32", setting="student")
    assert found == model.config._attn_implementation == "eager"
    torch.testing.assert_close(model(**BATCH_OF_MODEL).logits, before)


BATCH_OF_MODEL = {name: BATCH[name] for name in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention"])
def test_an_attention_that_does_not_run_is_refused_by_name(name):
    config = DebertaV2Config(
        hidden_size=16, num_attention_heads=2, intermediate_size=24, num_hidden_layers=1
    )
    model = DebertaV2ForSequenceClassification(config)
    with pytest.raises(LimbeckError, match=f"attention={name}") as error:
        resolve_attention(model, name, BATCH, precision="fp32", setting="teacher")
    assert "teacher" in str(error.value)


def test_auto_in_fp32_keeps_the_models_own_and_measures_nothing(monkeypatch):
    monkeypatch.setattr(execution, "_fastest", lambda work: pytest.fail("measured"))
    assert resolve_attention(bert(1), "auto", BATCH, precision="fp32", setting="student") == "sdpa"


@pytest.mark.parametrize(("eager", "chosen"), [(0.5, "eager"), (0.97, "sdpa"), (2.0, "sdpa")])
def test_auto_in_bf16_takes_the_clearly_faster_one(monkeypatch, eager, chosen):
    model = bert(1)
    seconds = {"sdpa": 1.0, "eager": eager}

    def clocked(work):
        work()
        return seconds[model.config._attn_implementation]

    monkeypatch.setattr(execution, "_fastest", clocked)
    found = resolve_attention(model, "auto", BATCH, precision="bf16", setting="student")
    assert found == model.config._attn_implementation == chosen


@pytest.mark.parametrize("learns", [True, False])
def test_measuring_leaves_no_gradient_and_the_random_state_alone(learns):
    model = bert(2).train().requires_grad_(learns)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.get_rng_state()
    resolve_attention(model, "auto", BATCH, precision="bf16", setting="student")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def run(folder, **settings):
    settings = {"task": "sst2", "data": "pocket", "train_rows": 64, "epochs": 1} | settings
    settings |= {"student.init": "pocket", "student.config": {"num_hidden_layers": 2}}
    return limbeck.distill("finetune", folder, report=False, **settings)


@pytest.mark.slow
def test_the_record_says_what_it_came_to(tmp_path):
    result = run(tmp_path / "run", attention="eager", precision="bf16")
    assert result.record.execution.precision == "bf16"
    assert result.record.execution.attention == {"student": "eager"}
    assert result.record.recipe["attention"] == "eager"
    config = (tmp_path / "run" / "student" / "config.json").read_text()
    assert "eager" not in config  # how it was trained is nothing to ship


def test_bf16_that_a_processor_only_emulates_is_warned_of_once(monkeypatch, caplog):
    monkeypatch.setattr(execution.torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(execution, "_has_bf16", lambda: False)
    monkeypatch.setattr(execution, "_seconds", {torch.bfloat16: 30.0, torch.float32: 0.4}.get)
    execution._warn_once.cache_clear()
    execution.warn_of_emulated_bf16("fp32")
    assert caplog.text == ""
    for _ in range(2):
        execution.warn_of_emulated_bf16("bf16")
    assert caplog.text.count("takes 75.0 times as long as in fp32") == 1
    execution._warn_once.cache_clear()
    monkeypatch.setattr(execution, "_has_bf16", lambda: True)
    execution.warn_of_emulated_bf16("bf16")
    assert len(caplog.records) == 1


def test_a_continued_run_keeps_to_what_its_first_start_settled(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(execution, "_has_bf16", lambda: True)
    monkeypatch.setattr(execution, "_fastest", lambda work: 1.0)
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as stop:
        stop.setattr(importlib.import_module("limbeck.run.train"), "train_stage", interrupt)
        run(folder, precision="auto")
    assert Record.load(folder).execution.precision == "bf16"
    monkeypatch.setattr(execution, "_has_bf16", lambda: False)
    result = run(folder, precision="auto")
    assert result.record.execution.precision == "bf16"
    assert result.record.recipe["precision"] == "auto"


def interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt
