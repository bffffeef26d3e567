"""The frozen teacher: Hugging Face's own eval outputs, and nothing that a student could inherit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel

from limbeck.activations import ActivationKey, Request
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher

CONFIG = BertConfig(
    hidden_size=16,
    num_attention_heads=2,
    intermediate_size=24,
    num_hidden_layers=2,
    vocab_size=40,
    hidden_dropout_prob=0.5,
)
BATCH = {
    "input_ids": torch.tensor([[2, 9, 11, 7], [2, 6, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    "labels": torch.tensor([0, 1]),
    "index": torch.tensor([7, 8]),
}
ASKED = Request.hidden([1, 2]) | Request.of_logits()


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(CONFIG)


def test_answers_as_hugging_face_does_in_eval_mode():
    own = model()
    teacher = Teacher(own)
    own.train()  # as a Trainer would, had it got hold of the model
    trace = teacher(BATCH, ASKED)
    with torch.no_grad():
        expected = model().eval()(
            input_ids=BATCH["input_ids"],
            attention_mask=BATCH["attention_mask"],
            output_hidden_states=True,
        )
    torch.testing.assert_close(trace.logits, expected.logits, rtol=0, atol=0)
    for layer in (1, 2):
        state = trace[ActivationKey("hidden", layer)]
        torch.testing.assert_close(state, expected.hidden_states[layer], rtol=0, atol=0)


def test_frozen_without_gradients_and_usable_in_a_backward_pass():
    teacher = Teacher(model())
    assert not any(weight.requires_grad for weight in teacher.model.parameters())
    trace = teacher(BATCH, ASKED)
    state = trace[ActivationKey("hidden", 2)]
    assert not state.requires_grad and not state.is_inference()
    scale = torch.ones(16, requires_grad=True)
    (state * scale).sum().backward()  # fails for tensors made in inference mode
    torch.testing.assert_close(scale.grad, state.sum((0, 1)))


def test_draws_no_random_numbers():
    teacher = Teacher(model())
    state = torch.get_rng_state()
    teacher(BATCH, ASKED)
    assert torch.equal(torch.get_rng_state(), state)


def test_never_registered_in_a_student():
    student = model()
    before = set(student.state_dict())
    student.teacher = Teacher(model())
    assert set(student.state_dict()) == before
    student.train()
    assert not student.teacher.model.training
    assert not isinstance(student.teacher, nn.Module)


def test_loads_with_its_own_labels_in_the_type_asked_for(tmp_path):
    own = model()
    own.config.id2label = {0: "no", 1: "yes"}
    own.save_pretrained(tmp_path)
    teacher = Teacher.load(tmp_path, dtype=torch.bfloat16)
    assert teacher.config.id2label == {0: "no", 1: "yes"}
    assert teacher(BATCH, ASKED).logits.dtype == torch.bfloat16
    assert teacher.device.type == "cpu"


def test_refuses_what_cannot_teach(tmp_path):
    with pytest.raises(LimbeckError, match="not a transformers model"):
        Teacher(nn.Linear(2, 2))
    BertModel(CONFIG).save_pretrained(tmp_path)
    with pytest.raises(LimbeckError, match="no trained classification head"):
        Teacher.load(tmp_path)
