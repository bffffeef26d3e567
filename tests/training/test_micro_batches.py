"""A step in micro-batches is the step of one large batch, also where few examples of it have a label."""

from __future__ import annotations

import math

import pytest
import torch
from datasets import Dataset
from tiny_trainers import first_gradients, still
from torch.nn.functional import cross_entropy

import several_labels as several
import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.functional.labels import NO_LABEL
from limbeck.tasks import MULTI_LABEL, PAIR_SCORE, TOKENS
from limbeck.training.feeding import BatchCounts, BatchWeights, StepCounts
from quick_cases import quick

NAN = math.nan
# Of micro-batches of two: none, one, both and one of the examples; of four: one and three.
LABELLED = (3, 4, 5, 6)
TERMS = {
    "hard": {"compare": "hard_label", "weight": 0.4},
    "soft": {"compare": "soft_kl", "temperature": 2, "weight": 0.35},
    "layers": {
        "compare": "hidden_mse",
        "mapping": {"kind": "uniform", "student_layers": "1..M"},
        "weight": 0.25,
    },
}
DECOUPLED = TERMS | {"decoupled": {"compare": "dkd", "weight": 0.5}}


def rows(absent, *, labelled=LABELLED, regression: bool = False, several_classes: bool = False):
    """Eight examples, of which some have a label."""
    found = tiny.rows(8, regression=regression)
    labels = found["labels"][:]
    if several_classes:
        labels = [[float(one), 1.0, float(row % 3 == 0)] for row, one in enumerate(labels)]
    labels = [label if row in labelled else absent for row, label in enumerate(labels)]
    return Dataset.from_dict({**found.to_dict(), "labels": labels})


def of_one_number() -> dict:
    student = still(3, num_labels=1, id2label={0: "LABEL_0"})
    return {"student": student, "teacher": tiny.knowing_teacher(3, regression=True)}


def of_several() -> dict:
    names = dict(enumerate(several.CLASSES))
    student = still(3, id2label=names, problem_type=several.SEVERAL)
    collator = Collator(tiny.tokenizer(), kind=MULTI_LABEL)
    return {
        "student": student,
        "teacher": several.knowing_teacher(3),
        "data_collator": collator,
        "train_dataset": rows([NAN] * 3, several_classes=True),
    }


CASES = {
    "labels, outputs and layers": dict,
    "none has a label": lambda: {"train_dataset": rows(NO_LABEL, labelled=())},
    "all have one": lambda: {"train_dataset": rows(NO_LABEL, labelled=range(8))},
    "examples weighed": lambda: {
        "objectives": DECOUPLED,
        "unlabelled_weight": 0.5,
        "min_confidence": 0.6,
        "example_weights": {"use": "confidence"},
    },
    "numbers": lambda: of_one_number() | {"train_dataset": rows(NAN, regression=True)},
    "several labels": of_several,
}


def in_parts(folder, batch: int, case: str):
    """Gradients of one step over the eight examples, in their order, and what was logged of it."""
    given = {"objectives": TERMS, "train_dataset": rows(NO_LABEL)} | CASES[case]()
    return first_gradients(
        folder, batch, 8 // batch, args={"train_sampling_strategy": "sequential"}, **given
    )


@pytest.mark.parametrize("case", quick("examples weighed", "several labels", of=CASES))
def test_a_step_in_parts_is_that_of_one_large_batch(tmp_path, case):
    whole, logged = in_parts(tmp_path / "whole", 8, case)
    assert {"student.classifier.weight", "student.bert.embeddings.word_embeddings.weight"} < {
        *whole
    }
    for batch in (4, 2):
        parts, entry = in_parts(tmp_path / str(batch), batch, case)
        assert parts.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, atol=1e-7, rtol=1e-4, msg=name)
        assert entry.keys() == logged.keys()
        means = [name for name in logged if name.startswith("term/")]
        assert {"term/soft", "term/layers"} <= {*means}
        for name in ("loss", "grad_norm", *means):
            assert entry[name] == pytest.approx(logged[name], rel=1e-4, abs=1e-7), name
        assert entry.get("labelled") == logged.get("labelled")


def test_the_labels_gradient_is_torchs_own_over_the_labelled(tmp_path):
    """By PyTorch: the mean of the cross-entropies of the examples with a label, whichever part they are in."""
    only_hard = {"hard": {"compare": "hard_label"}}
    given = {"objectives": only_hard, "train_dataset": rows(NO_LABEL)}
    found, entry = first_gradients(
        tmp_path, 2, 4, args={"train_sampling_strategy": "sequential"}, **given
    )
    student = still(3).train()
    batch = Collator(tiny.tokenizer())(list(rows(NO_LABEL)))
    labels = batch.pop("labels")
    batch.pop("index")
    loss = cross_entropy(student(**batch).logits, labels, ignore_index=NO_LABEL)
    loss.backward()
    for name, weight in student.named_parameters():
        own = found[f"student.{name}"]
        torch.testing.assert_close(own, weight.grad, atol=1e-7, rtol=1e-4, msg=name)
    assert entry["loss"] == pytest.approx(loss.item(), rel=1e-6)


# ---- counts and weights ----


@pytest.mark.parametrize(
    ("kind", "labels", "labelled"),
    [
        (MULTI_LABEL, [[1.0, 0.0], [NAN, NAN], [0.0, 0.0]], 2),
        (PAIR_SCORE, [1.0, NAN, 0.0], 2),
        (TOKENS, [[2, -100], [-100, -100], [1, 1]], 2),
        (TOKENS, [[-100], [-100], [-100]], 0),
    ],
)
def test_examples_with_a_label_are_counted_whatever_a_label_is(kind, labels, labelled):
    batch = {"input_ids": torch.zeros(3, 2), "labels": torch.tensor(labels)}
    assert BatchCounts.of(batch, kind.label_names[0]) == (3, labelled)


def test_without_a_column_of_labels_all_examples_count():
    assert BatchCounts.of({"input_ids": torch.zeros(3, 2)}, "labels") == (3, 3)


def test_numbers_that_the_device_alone_knows_are_not_asked_for():
    batch = {"labels": torch.zeros(3, dtype=torch.int64, device="meta")}
    counts = BatchCounts.of(batch, "labels")
    assert counts.examples == 3 and counts.labelled.device.type == "meta"
    total = BatchCounts.together([counts, counts]).on(torch.device("meta"))
    assert total.shape == (1, 2)
    weights = StepCounts(2, BatchCounts(*total[0])).weights_of(counts)
    assert not weights.even
    assert weights.weighed({"hard": torch.ones(())}, frozenset({"hard"}))["hard"].shape == ()


def test_weights_by_hand():
    """Of 6 examples 3 with a label, in three parts of 3, 1 and 2 with 0, 1 and 2."""
    own = [BatchCounts(3, 0), BatchCounts(1, 1), BatchCounts(2, 2)]
    step = StepCounts(3, BatchCounts.together(own))
    assert step.total == (6, 3)
    found = [step.weights_of(one) for one in own]
    assert found == [(1.5, 0.0), (0.5, 1.0), (1.0, 2.0)]
    terms = {"hard": torch.tensor(4.0), "soft": torch.tensor(3.0)}
    assert found[0].weighed(terms, frozenset({"hard"})) == {"hard": 0.0, "soft": 4.5}
    assert StepCounts(1, BatchCounts(4, 0)).weights_of(BatchCounts(4, 0)) == (1.0, 0.0)
    assert BatchWeights().even and not found[1].even
