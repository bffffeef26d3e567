"""Hard and soft labels of every kind: against Hugging Face's own losses, loops, and padding."""

from __future__ import annotations

import math

import pytest
import torch

import kind_models as tiny
from limbeck.activations import Request, capture
from limbeck.support.errors import LimbeckError
from limbeck.tasks import SENTENCE, SPANS, TASK_TYPES, TOKENS, SoftRule, task_type_of

PLAIN = SoftRule()


def logits_of(model, batch):
    return capture(model, batch, Request.of_logits()).logits


def batch_of(kind, extra=0):
    """Four examples of different lengths and numbers of labels, padded by `extra`."""
    if kind == "text":
        batch = tiny.ids(6, 4, 3, 5, extra=extra)
        targets = [[7, 3], [8, 9, 3], [5, 3], [6, 7, 8, 3]]
        return batch | {"labels": tiny.labels(targets, 4 + extra)}
    batch = tiny.ids(7, 5, 4, 6, extra=extra)
    if kind == "spans":
        batch["context_mask"] = batch["attention_mask"].clone()
        batch["context_mask"][:, 1:3] = 0
        positions = {"start_positions": [3, 0, 3, 4], "end_positions": [5, 0, 3, 5]}
        return batch | {name: torch.tensor(value) for name, value in positions.items()}
    none = -100
    rows = [[none, 0, 1, none, 3, 2, none], [none, 3, none, 1, none], [none, 2, none, none],
            [none, 1, none, none, 0, none]]  # fmt: skip
    return batch | {"labels": tiny.labels(rows, 7 + extra)}


@pytest.mark.parametrize("kind", ["tokens", "masked", "text", "causal-lm"])
def test_one_example_alone_has_hugging_faces_loss(kind):
    model, batch = tiny.model(kind), batch_of(kind)
    for row in range(4):
        length = int(batch["attention_mask"][row].sum())
        one = {
            "input_ids": batch["input_ids"][row : row + 1, :length],
            "attention_mask": batch["attention_mask"][row : row + 1, :length],
        }
        labels = batch["labels"][row : row + 1]
        one["labels"] = labels if kind == "text" else labels[:, :length]
        theirs = model(**one).loss
        ours = TASK_TYPES.get(kind).hard_label(logits_of(model, one), one)
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["tokens", "masked", "text"])
def test_examples_count_alike_whatever_their_number_of_labels(kind):
    model, batch = tiny.model(kind), batch_of(kind)
    logits = logits_of(model, batch)
    alone = []
    for row in range(4):
        chosen = [n for n, label in enumerate(batch["labels"][row].tolist()) if label != -100]
        shares = []
        for place in chosen:
            row_logits = logits[row, place].tolist()
            total = sum(math.exp(value) for value in row_logits)
            shares.append(-math.log(math.exp(row_logits[batch["labels"][row, place]]) / total))
        alone.append(sum(shares) / len(shares))
    loss = TASK_TYPES.get(kind).hard_label(logits, batch)
    assert loss.item() == pytest.approx(sum(alone) / 4, rel=1e-5)


def test_question_answering_has_hugging_faces_loss_where_every_token_may_answer():
    model = tiny.model("spans")
    batch = tiny.ids(6, 6, 6) | {
        "start_positions": torch.tensor([1, 0, 4]),
        "end_positions": torch.tensor([2, 0, 5]),
    }
    theirs = model(**{k: v for k, v in batch.items() if k != "index"}).loss
    ours = SPANS.hard_label(logits_of(model, batch), batch)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)


def test_only_context_tokens_share_the_probability_of_an_answer():
    # Two tokens may answer, with logits 0 and log 3: probabilities 1/4 and 3/4.
    batch = {
        "context_mask": torch.tensor([[1, 0, 1]]),
        "attention_mask": torch.ones(1, 3),
        "start_positions": torch.tensor([2]),
        "end_positions": torch.tensor([0]),
    }
    logits = torch.tensor([[[0.0, 0.0], [50.0, 50.0], [math.log(3), math.log(3)]]])
    expected = (math.log(4 / 3) + math.log(4)) / 2
    assert SPANS.hard_label(logits, batch).item() == pytest.approx(expected, rel=1e-6)
    teacher = torch.zeros(1, 3, 2)  # a half each
    cross = -(0.5 * math.log(1 / 4) + 0.5 * math.log(3 / 4))
    assert SPANS.soft_label(logits, teacher, batch, PLAIN).item() == pytest.approx(cross, rel=1e-6)
    kl = SPANS.soft_label(logits, teacher, batch, SoftRule("soft_kl"))
    assert kl.item() == pytest.approx(cross - math.log(2), rel=1e-5)


@pytest.mark.parametrize("rule", [PLAIN, SoftRule("soft_kl", 2.0, True), SoftRule("soft_kl")])
@pytest.mark.parametrize("kind", ["tokens", "masked", "text", "causal-lm"])
def test_soft_labels_by_a_loop(kind, rule):
    batch = batch_of(kind)
    student, teacher = (logits_of(tiny.model(kind, seed=seed), batch) for seed in (0, 1))
    examples = []
    for row in range(4):
        distances = []
        # A causal model's logits are of the token behind.
        behind = int(kind == "causal-lm")
        for place, label in enumerate(batch["labels"][row].tolist()[behind:]):
            if label == -100:
                continue
            ours, theirs = (
                [math.exp(v / rule.temperature) for v in side[row, place].tolist()]
                for side in (student, teacher)
            )
            ours = [value / sum(ours) for value in ours]
            theirs = [value / sum(theirs) for value in theirs]
            cross = -sum(t * math.log(s) for t, s in zip(theirs, ours, strict=True))
            if rule.compare == "soft_kl":
                cross += sum(t * math.log(t) for t in theirs)
            distances.append(cross * (rule.temperature**2 if rule.scale_by_t2 else 1))
        examples.append(sum(distances) / len(distances))
    loss = TASK_TYPES.get(kind).soft_label(student, teacher, batch, rule)
    assert loss.item() == pytest.approx(sum(examples) / 4, rel=1e-4)


@pytest.mark.parametrize("kind", ["tokens", "spans", "masked", "text", "causal-lm"])
def test_padding_changes_nothing(kind):
    student, teacher = tiny.model(kind), tiny.model(kind, seed=1)
    found = []
    for extra in (0, 5):
        batch = batch_of(kind, extra)
        ours, theirs = logits_of(student, batch), logits_of(teacher, batch)
        found.append(
            [
                TASK_TYPES.get(kind).hard_label(ours, batch).item(),
                TASK_TYPES.get(kind).soft_label(ours, theirs, batch, PLAIN).item(),
            ]
        )
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("kind", ["tokens", "masked", "text", "causal-lm"])
def test_an_example_without_labels_counts_in_soft_terms_alone(kind):
    batch = batch_of(kind)
    logits = logits_of(tiny.model(kind), batch).detach().requires_grad_()
    batch["labels"][1] = -100
    three = {"labels": batch["labels"][[0, 2, 3]]}
    hard = TASK_TYPES.get(kind).hard_label(logits, batch)
    soft = TASK_TYPES.get(kind).soft_label(logits, logits.detach() + 1, batch, PLAIN)
    assert hard.item() == pytest.approx(
        TASK_TYPES.get(kind).hard_label(logits[[0, 2, 3]], three).item(), rel=1e-6
    )
    assert soft.item() == pytest.approx(
        0.75
        * TASK_TYPES.get(kind)
        .soft_label(logits[[0, 2, 3]], logits[[0, 2, 3]].detach() + 1, three, PLAIN)
        .item(),
        rel=1e-6,
    )
    (gradient,) = torch.autograd.grad(hard + soft, logits)
    assert torch.isfinite(gradient).all()
    assert not gradient[1].any()


def test_gradients_stay_finite_where_no_answer_may_stand():
    batch = batch_of("spans", extra=2)
    student = logits_of(tiny.model("spans"), batch).detach().requires_grad_()
    teacher = logits_of(tiny.model("spans", seed=1), batch).detach()
    for rule in (PLAIN, SoftRule("soft_kl", 3.0, True)):
        loss = SPANS.soft_label(student, teacher, batch, rule) + SPANS.hard_label(student, batch)
        (gradient,) = torch.autograd.grad(loss, student)
        assert torch.isfinite(gradient).all()
        assert not gradient[batch["context_mask"] == 0].any()


def test_bfloat16_logits_are_compared_in_float32():
    batch = batch_of("tokens")
    logits = logits_of(tiny.model("tokens"), batch).bfloat16()
    for loss in (
        TOKENS.hard_label(logits, batch),
        TOKENS.soft_label(logits, logits.flip(0), batch, PLAIN),
    ):
        assert loss.dtype == torch.float32


def test_the_kind_is_read_off_a_model():
    for kind in ("tokens", "spans", "masked", "text", "causal-lm"):
        assert task_type_of(tiny.model(kind)) is TASK_TYPES.get(kind)
    import tiny_runs

    assert task_type_of(tiny_runs.bert(1)) is SENTENCE


def test_what_is_missing_or_does_not_fit_is_said():
    batch = batch_of("tokens")
    logits = logits_of(tiny.model("tokens"), batch)
    with pytest.raises(LimbeckError, match="no labels"):
        TOKENS.hard_label(logits, {"index": batch["index"]})
    with pytest.raises(LimbeckError, match="no start_positions and no end_positions"):
        SPANS.hard_label(logits, batch)
