"""Whether a term looks at a teacher is the term's to say; a run asks for a teacher only then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from transformers import TrainingArguments

import tiny_runs as tiny
from limbeck.activations import Mixed, Trace
from limbeck.data import Collator
from limbeck.input_transforms import MixupSpec
from limbeck.objectives import (
    OBJECTIVES,
    HardSpec,
    ModelShape,
    Shape,
    SoftSpec,
)
from limbeck.objectives.consistency import ConsistencySpec
from limbeck.objectives.predictions import HardLabel
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE
from limbeck.training import DistillationTrainer

HARD = HardSpec(compare="hard_label")
CONSISTENT = ConsistencySpec(compare="hidden_consistency", layers="M")
SOFT = SoftSpec(compare="soft_cross_entropy")
CONSISTENT_FIRST = {
    "objectives": {"consistent": {"compare": "hidden_consistency"}},
    "mixup": {"alpha": 1},
}


def trainer(folder: Path, **changes) -> DistillationTrainer:
    arguments = TrainingArguments(
        str(folder),
        use_cpu=True,
        max_steps=2,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    settings = {"train_dataset": tiny.rows(8), "data_collator": Collator(tiny.tokenizer())}
    return tiny.trainer_of(tiny.bert(2), arguments, **(settings | changes))


def test_every_term_says_whether_it_needs_a_teacher():
    without = {name for name in OBJECTIVES if not OBJECTIVES.get(name).needs_teacher}
    consistency = {"attention_consistency", "hidden_consistency"}
    assert without == {"hard_label", "focal", "pair_contrast", *consistency}


def test_hard_label_with_consistency_trains_without_a_teacher(tmp_path):
    given = {"hard": HARD, "consistent": CONSISTENT}
    made = trainer(tmp_path, objectives=given, mixup=MixupSpec())
    made.train()
    logged = [entry for entry in made.state.log_history if "learning_rate" in entry]
    assert len(logged) == 2
    assert all(entry["term/hard"] > 0 for entry in logged)
    assert all(entry["term/consistent"] > 0 for entry in logged)


def test_a_term_that_needs_a_teacher_is_named_where_none_is_given(tmp_path):
    with pytest.raises(LimbeckError, match=r"objectives\.soft.*teacher") as caught:
        trainer(tmp_path, objectives={"hard": HARD, "soft": SOFT})
    assert "teacher=" in caught.value.problems[0].fix


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, False),
        ({"first_stage": CONSISTENT_FIRST}, False),
        ({"first_stage": {"objectives": {"soft": {"compare": "soft_kl"}}}}, True),
        ({"objectives.soft": {"compare": "soft_kl"}}, True),
    ],
)
def test_a_recipe_needs_a_teacher_if_a_term_of_any_stage_does(changes, needed):
    assert Recipe.load("finetune", **changes).needs_teacher == needed


def test_a_run_of_both_stages_without_a_teacher(tmp_path):
    start = tiny.save(tiny.bert(2), tmp_path / "start")
    result = distill(
        "finetune",
        out=tmp_path / "run",
        report=False,
        task="reviews",
        data=str(tiny.write_csv(tmp_path / "reviews.csv", 40)),
        text_columns=["review"],
        label_column="verdict",
        max_length=24,
        batch_size=8,
        epochs=1,
        first_stage=CONSISTENT_FIRST,
        **{"student.init": str(start)},
    )
    assert [set(epoch.train) for epoch in result.record.epochs] == [
        {"loss", "consistent"},
        {"loss", "hard"},
    ]
    assert result.record.teacher is None


def test_mixed_input_has_both_examples_labels_by_their_shares():
    """Zhang et al. 2018 (mixup): λ·CE(y_i) + (1 − λ)·CE(y_j), worked out example by example."""
    share, partner = 0.7, torch.tensor([2, 0, 1])
    logits = torch.tensor([[1.0, -1.0], [0.5, 0.25], [-2.0, 1.0]])
    labels = torch.tensor([0, 1, 1])
    term = HardLabel(
        HARD, Shape(*[ModelShape.of(tiny.bert(2))] * 2, kind=SENTENCE, rows=3), "objectives.hard"
    )
    student = Trace(logits=logits)
    student.mixed = Mixed(Trace(), {"labels": labels}, partner, share)
    found = term(student, Trace(), {"labels": labels}, StepState())
    # Partners may be examples of other processes, behind the batch's own.
    behind = {"labels": torch.tensor([0, 1, 1, 1, 0, 1])}
    student.mixed = Mixed(Trace(), behind, torch.tensor([3, 4, 5]), share)
    assert term(student, Trace(), {"labels": labels}, StepState()).item() == found.item()
    expected = 0.0
    for row in range(3):
        surprise = -F.log_softmax(logits[row], dim=0)
        other = labels[partner[row]]
        expected += (share * surprise[labels[row]] + (1 - share) * surprise[other]).item() / 3
    assert found.item() == pytest.approx(expected, rel=1e-6)
