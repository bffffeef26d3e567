"""Class weights and the focal loss as terms: from settings to weights, and what does not fit."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from pydantic import TypeAdapter, ValidationError
from tiny_pairs import batch, bert

from limbeck.activations import Trace
from limbeck.objectives import Loss, TermSpec
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE, SPANS, TOKENS
from limbeck.training.objectives import objectives_for

NOW = StepState(seed=0)
LOGITS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
ROWS = (0, 0, 0, 2, 0)
LABELS = torch.tensor(ROWS)


def terms(settings, *, kind=SENTENCE, names=("bad", "fair", "good"), labels=ROWS):
    specs = TypeAdapter(dict[str, TermSpec]).validate_python({"hard": settings})
    student = bert(3, 8, 1)
    student.config.id2label = dict(enumerate(names))
    examples = None if labels is None else Dataset.from_dict({"labels": [*labels]})
    return objectives_for(student, None, Loss(specs), examples, kind=kind)


def value(found, labels=LABELS):
    trace = Trace()
    trace.logits = LOGITS
    return found["hard"](trace, Trace(), {"labels": labels}, NOW).item()


def torchs(weights):
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor(weights), reduction="sum")
    return loss(LOGITS, LABELS).item() / 5


def test_weights_by_name():
    found = terms({"compare": "hard_label", "class_weights": {"good": 3, "bad": 0.5}})
    assert value(found) == pytest.approx(torchs([0.5, 1.0, 3.0]), rel=1e-6)


def test_balanced_by_the_training_rows():
    # 5 rows of 2 classes that have any: 5 / (2·4) and 5 / (2·1).
    found = terms({"compare": "hard_label", "class_weights": "balanced"})
    assert value(found) == pytest.approx(torchs([0.625, 1.0, 2.5]), rel=1e-6)
    (note,) = found.remarks()
    assert "bad 0.625, fair 1, good 2.5" in note.message and note.severity == "note"


def test_balanced_tags_are_counted_by_word():
    rows = [[0, -100, 0], [2, 0, -100], [0, -100, -100]]
    found = terms({"compare": "hard_label", "class_weights": "balanced"}, kind=TOKENS, labels=rows)
    assert found["hard"].class_weights.tolist() == pytest.approx([0.625, 1.0, 2.5])


def test_focal_with_weights():
    found = terms({"compare": "focal", "gamma": 3, "class_weights": {"good": 2}})
    p = LOGITS.softmax(-1)[torch.arange(5), LABELS]
    weights = torch.tensor([1.0, 1.0, 1.0, 2.0, 1.0])
    assert value(found) == pytest.approx(
        (-weights * (1 - p) ** 3 * p.log()).mean().item(), rel=1e-5
    )
    assert found["hard"].settings.gamma == 3


def test_plain_labels_stay_what_they_were():
    found = terms({"compare": "hard_label"})
    assert value(found) == torch.nn.functional.cross_entropy(LOGITS, LABELS).item()
    assert "class_weights" not in found["hard"].settings.model_dump()
    assert not [name for name, _ in found.named_buffers()]


def test_a_checkpoint_holds_no_weights():
    found = terms({"compare": "hard_label", "class_weights": "balanced"})
    assert not found.state_dict()


REFUSED = {
    "unknown class": ({"class_weights": {"goood": 2}}, {}, "goood"),
    "all nothing": ({"class_weights": dict.fromkeys(("bad", "fair", "good"), 0)}, {}, "weighs 0"),
    "a number": ({"class_weights": {"LABEL_0": 2}}, {"names": ("LABEL_0",)}, "regression"),
    "spans": ({"class_weights": "balanced"}, {"kind": SPANS}, "task type spans"),
    "unknown rows": ({"class_weights": "balanced"}, {"labels": None}, "cannot be counted"),
    "focal number": ({"compare": "focal"}, {"names": ("LABEL_0",)}, "focal is for classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    settings, changes, said = REFUSED[name]
    with pytest.raises(LimbeckError, match=said):
        terms({"compare": "hard_label"} | settings, **changes)


@pytest.mark.parametrize("weights", [{"bad": -1}, {"bad": float("inf")}, "even", {"bad": "x"}])
def test_weights_that_are_none(weights):
    with pytest.raises(ValidationError):
        terms({"compare": "hard_label", "class_weights": weights})


def test_numbers_as_names():
    found = terms({"compare": "hard_label", "class_weights": {2: 4}}, names=("0", "1", "2"))
    assert found["hard"].class_weights.tolist() == [1, 1, 4]


def test_it_reads_a_real_batch():
    examples = batch()
    found = terms({"compare": "focal", "class_weights": "balanced"}, names=("a", "b", "c"))
    trace = Trace()
    trace.logits = bert(3, 8, 1)(**{k: examples[k] for k in ("input_ids", "attention_mask")}).logits
    assert found["hard"](trace, Trace(), examples, NOW).requires_grad
