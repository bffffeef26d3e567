"""Layers that are kept for how far they turn hidden states."""

from __future__ import annotations

import math

import pytest
import torch
from student_models import FAMILIES, batch_for, hidden_states, logits, random_model

from limbeck.students import build_student, important_layers
from limbeck.students.build import pick_layers
from limbeck.students.depth import turns
from limbeck.support.errors import LimbeckError


def _made_idle(layer) -> None:
    """A BERT layer that adds nothing: its output is the norm of its input, which is normed already."""
    for lead in (layer.attention.output, layer.output):
        lead.dense.weight.data.zero_()
        lead.dense.bias.data.zero_()
        lead.LayerNorm.weight.data.fill_(1)
        lead.LayerNorm.bias.data.zero_()


@pytest.mark.parametrize("idle", [2, 3])
def test_a_layer_that_changes_nothing_is_left_out(idle):
    model = random_model(FAMILIES["bert"])
    norm = model.bert.encoder.layer[idle - 2].output.LayerNorm
    norm.weight.data.fill_(1)
    norm.bias.data.zero_()
    _made_idle(model.bert.encoder.layer[idle - 1])
    kept = important_layers(model, 3, [batch_for(model)])
    assert kept == {"main": [layer for layer in (1, 2, 3, 4) if layer != idle]}
    student = build_student(model, layers=kept)
    torch.testing.assert_close(logits(student), logits(model))


def test_a_turn_is_the_mean_angle_over_real_tokens():
    model = random_model(FAMILIES["bert"])
    batch = batch_for(model)
    states = hidden_states(model)
    found = turns(model.train(), [batch, batch]).tolist()
    assert model.training
    for layer in (1, 4):
        angles = []
        for row in range(2):
            for token in range(7):
                if batch["attention_mask"][row, token]:
                    before, after = states[layer - 1][row, token], states[layer][row, token]
                    lengths = math.sqrt(float(before @ before) * float(after @ after))
                    angles.append(math.acos(float(before @ after) / lengths) / math.pi)
        assert found[layer - 1] == pytest.approx(sum(angles) / 12, abs=1e-5)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_layers_to_choose_from(family):
    model = random_model(FAMILIES[family])
    kept = important_layers(model, 2, [batch_for(model)])
    assert set(kept) == ({"encoder", "decoder"} if model.config.is_encoder_decoder else {"main"})
    assert all(len(layers) == 2 for layers in kept.values())
    assert logits(build_student(model, layers=kept)).isfinite().all()


def test_stacks_may_keep_different_numbers_or_listed_layers():
    model = random_model(FAMILIES["t5"])
    kept = important_layers(model, {"encoder": [3, 1], "decoder": 1}, [batch_for(model)])
    assert kept["encoder"] == [1, 3] and len(kept["decoder"]) == 1


def test_wrong_numbers_and_missing_rows_are_refused():
    model = random_model(FAMILIES["bert"])
    with pytest.raises(LimbeckError, match="5 layers requested, but the model has 4"):
        important_layers(model, 5, [batch_for(model)])
    with pytest.raises(LimbeckError, match="importance needs rows"):
        build_student(model, layers=2, pick="importance")
    with pytest.raises(LimbeckError, match="2 layers requested, but the model has no layers"):
        pick_layers("first", 2, 0)
