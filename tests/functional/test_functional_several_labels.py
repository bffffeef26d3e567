"""Several labels an example: torch's and Hugging Face's own loss, loops and numbers by hand."""

import math

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from limbeck import functional as F


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


STUDENT, TEACHER = random(4, 3), random(4, 3, seed=1)
LABELS = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_the_hard_label_is_hugging_faces():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=20, hidden_size=8, num_attention_heads=2, intermediate_size=8,
            num_hidden_layers=1, num_labels=3, problem_type="multi_label_classification",
            initializer_range=1.0,
        )  # fmt: skip
        model = BertForSequenceClassification(config).eval()
    ids = torch.arange(20).view(4, 5)
    with torch.no_grad():
        theirs = model(input_ids=ids, labels=LABELS)
    found = F.binary_cross_entropy(theirs.logits, LABELS)
    assert found.item() == pytest.approx(theirs.loss.item(), rel=1e-6)


def test_weights_of_positives_are_torchs():
    weights = torch.tensor([3.0, 0.5, 1.0])
    expected = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(STUDENT, LABELS)
    found = F.binary_cross_entropy(STUDENT, LABELS, positive_weights=weights)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_rows_without_labels_do_not_count():
    labels = torch.cat([LABELS, torch.full((2, 3), math.nan)])
    logits = torch.cat([STUDENT, torch.full((2, 3), torch.inf)]).requires_grad_()
    loss = F.binary_cross_entropy(logits, labels)
    loss.backward()
    expected = torch.nn.BCEWithLogitsLoss()(STUDENT, LABELS)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.equal(logits.grad[4:], torch.zeros(2, 3))


@pytest.mark.parametrize("weights", [None, torch.tensor([4.0, 1.0, 0.5])])
@pytest.mark.parametrize("gamma", [0.5, 2])
def test_focal_by_a_loop(weights, gamma):
    expected = 0.0
    for row in range(4):
        for number in range(3):
            p = sigmoid(STUDENT[row, number].item())
            if LABELS[row, number] == 1:
                weight = 1.0 if weights is None else weights[number].item()
                expected -= weight * (1 - p) ** gamma * math.log(p)
            else:
                expected -= p**gamma * math.log(1 - p)
    found = F.binary_cross_entropy(STUDENT, LABELS, positive_weights=weights, gamma=gamma)
    assert found.item() == pytest.approx(expected / 12, rel=1e-5)


def test_binary_kl_by_hand():
    # Teacher ¾, student ½: ¾·ln(¾/½) + ¼·ln(¼/½) = .3040988 − .1732868
    student, teacher = torch.zeros(1, 1), torch.tensor([[math.log(3)]])
    assert F.binary_kl(student, teacher).item() == pytest.approx(0.1308120, abs=1e-6)
    # τ = 2 makes odds of 9 odds of 3 again; times 4.
    teacher = torch.tensor([[math.log(9)]])
    found = F.binary_kl(student, teacher, temperature=2, scale_by_t2=True)
    assert found.item() == pytest.approx(4 * 0.1308120, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_soft_labels_by_a_loop(temperature):
    kl = cross = 0.0
    for row in range(4):
        for number in range(3):
            p = sigmoid(TEACHER[row, number].item() / temperature)
            q = sigmoid(STUDENT[row, number].item() / temperature)
            kl += p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
            cross -= p * math.log(q) + (1 - p) * math.log(1 - q)
    found = F.binary_kl(STUDENT, TEACHER, temperature=temperature)
    assert found.item() == pytest.approx(kl / 12, rel=1e-5)
    found = F.binary_soft_cross_entropy(STUDENT, TEACHER, temperature=temperature)
    assert found.item() == pytest.approx(cross / 12, rel=1e-5)


def test_the_softmax_of_two_classes_is_one_sigmoid():
    student, teacher = (torch.stack([z, torch.zeros_like(z)], -1) for z in (STUDENT, TEACHER))
    expected = F.soft_kl(student.flatten(0, 1), teacher.flatten(0, 1), temperature=2)
    found = F.binary_kl(STUDENT, TEACHER, temperature=2)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_certain_teacher_is_a_hard_label():
    certain = (LABELS - 0.5) * 80
    hard = F.binary_cross_entropy(STUDENT, LABELS).item()
    assert F.binary_soft_cross_entropy(STUDENT, certain).item() == pytest.approx(hard, rel=1e-6)
    assert F.binary_kl(STUDENT, certain).item() == pytest.approx(hard, rel=1e-6)


@pytest.mark.parametrize("loss", [F.binary_kl, F.binary_soft_cross_entropy])
def test_examples_count_as_they_are_weighed(loss):
    weights = torch.tensor([0.0, 2.0, 1.0, 0.25])
    each = [loss(STUDENT[[row]], TEACHER[[row]]).item() for row in range(4)]
    expected = sum(w * value for w, value in zip(weights.tolist(), each, strict=True)) / 4
    assert loss(STUDENT, TEACHER, weights=weights).item() == pytest.approx(expected, rel=1e-5)
