"""Oracles: hand-worked values, the properties that define the measures, Hugging Face's states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from limbeck.lab.measures import linear_cka, mean_cosine, similarity_of_layers


def views(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def test_cka_by_hand():
    # Centred already. x = (1, −1, 0, 0), y = (1, −1, 1, −1): (x·y)² / (|x|²|y|²) = 4 / (2·4)
    x = torch.tensor([[1.0], [-1.0], [0.0], [0.0]])
    y = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    assert linear_cka(x, y).item() == pytest.approx(0.5)
    # A second feature orthogonal to x: ‖XᵀY‖² = 2² + 0, ‖XᵀX‖ = 2, YᵀY = diag(2, 2): 4/(2·2√2)
    wide = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert linear_cka(x, wide).item() == pytest.approx(1 / math.sqrt(2))


def test_cka_sees_through_rotation_scale_and_shift_only():
    x = views(40, 6)
    rotation, _ = torch.linalg.qr(views(6, 6))
    assert linear_cka(x, x).item() == pytest.approx(1)
    assert linear_cka(x, 3 * x @ rotation + 7).item() == pytest.approx(1, abs=1e-6)
    stretched = x * torch.tensor([10.0, 1, 1, 1, 1, 1])
    assert linear_cka(x, stretched).item() < 0.9


def test_cka_is_symmetric_bounded_and_zero_for_a_constant():
    x, y = views(50, 4), views(50, 9) ** 2
    assert linear_cka(x, y).item() == pytest.approx(linear_cka(y, x).item())
    assert 0 <= linear_cka(x, y).item() <= 1
    assert linear_cka(x, torch.ones(50, 3)).item() == 0
    with pytest.raises(ValueError, match="50 examples"):
        linear_cka(x, y[:10])


def test_cosine_by_hand():
    left = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    right = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert mean_cosine(left, right).item() == pytest.approx((1 + math.sqrt(0.5)) / 2)


def bert(layers: int, width: int = 16) -> BertForSequenceClassification:
    torch.manual_seed(layers)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=20,
            max_position_embeddings=16,
        )
    )


def batch_of(rows: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(rows, 7, dtype=torch.long)
    mask[0, 4:] = 0
    return {
        "input_ids": torch.randint(0, 30, (rows, 7), generator=generator),
        "attention_mask": mask,
        "labels": torch.zeros(rows, dtype=torch.long),
        "index": torch.arange(rows),
    }


def test_student_of_the_teachers_first_layers_lies_on_the_diagonal():
    teacher, student = bert(4), bert(2)
    student.bert.embeddings.load_state_dict(teacher.bert.embeddings.state_dict())
    for mine, theirs in zip(student.bert.encoder.layer, teacher.bert.encoder.layer, strict=False):
        mine.load_state_dict(theirs.state_dict())
    student.train()
    batches = [batch_of(6, 1), batch_of(6, 2)]
    found = similarity_of_layers(teacher, student, batches, batches)
    for matrix in map(np.array, (found.cka, found.cosine)):
        assert matrix.shape == (2, 4)
        assert np.diag(matrix) == pytest.approx([1, 1], abs=1e-6)
        assert matrix[0, 1] < 1 - 1e-6
    assert student.training


def test_states_are_hugging_faces_pooled_over_real_tokens():
    teacher, student = bert(3), bert(1, width=8)
    teacher.eval()
    student.eval()
    batch = batch_of(9, 3)
    expected = []
    for model in (student, teacher):
        with torch.no_grad():
            states = model.bert(
                batch["input_ids"], batch["attention_mask"], output_hidden_states=True
            ).hidden_states
        pooled = []
        for layer in states[1:]:
            rows = [layer[i, batch["attention_mask"][i].bool()].mean(0) for i in range(9)]
            pooled.append(torch.stack(rows).numpy().astype(float))
        expected.append(pooled)
    matrix = np.array(similarity_of_layers(teacher, student, [batch], [batch]).cka)
    for j in range(3):
        # The Gram form of the same measure: Tr(KHLH), with K and L the inner products.
        centre = np.eye(9) - 1 / 9
        k, m = (centre @ a @ a.T @ centre for a in (expected[0][0], expected[1][j]))
        gram = np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))
        assert matrix[0, j] == pytest.approx(gram, abs=1e-5)


def test_other_widths_have_no_cosine():
    batches = [batch_of(4, 1)]
    found = similarity_of_layers(bert(3), bert(1, width=8), batches, batches)
    assert found.cosine is None and len(found.cka[0]) == 3
