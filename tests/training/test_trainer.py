"""`DistillationTrainer` in the place of `transformers.Trainer`, on a user's own rows and models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from tiny_trainers import arguments, make
from transformers import DataCollatorWithPadding, Qwen3Config, Qwen3ForSequenceClassification

import tiny_runs as tiny
from fresh_process import printed_by
from limbeck.activations import Request, capture
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationConfig, DistillationTrainer

# ---- in the Trainer's place ----


def test_it_takes_the_trainers_place_on_a_users_own_rows(tmp_path):
    words = tiny.tokenizer()
    mine = Dataset.from_dict(
        {"review": tiny.sentences(12), "label": [1 - row % 2 for row in range(12)]}
    ).map(lambda row: words(row["review"]))
    teacher, student = tiny.knowing_teacher(3), tiny.bert(2, initializer_range=0.2)
    trainer = DistillationTrainer(
        student,
        teacher,
        DistillationConfig.like(
            arguments(tmp_path, num_train_epochs=6, eval_strategy="epoch"), method="rail-kd-l"
        ),
        train_dataset=mine,
        eval_dataset=mine,
        processing_class=words,
        compute_metrics=lambda answer: {
            "accuracy": float((answer.predictions.argmax(1) == answer.label_ids).mean())
        },
    )
    before = trainer.evaluate()
    result = trainer.train()
    after = trainer.evaluate()
    assert result.global_step == 18
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_accuracy"] == 1.0
    assert trainer.student is student
    assert trainer.predict(mine).predictions.shape == (12, 2)
    assert isinstance(trainer.data_collator, DataCollatorWithPadding)


@pytest.mark.parametrize("with_padding", ["neither", "the student"])
def test_decoders_without_a_padding_token_get_the_tokenizers(tmp_path, with_padding):
    models = []
    for _ in range(2):
        config = Qwen3Config(
            vocab_size=len(tiny.tokenizer()), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
        )  # fmt: skip
        models.append(Qwen3ForSequenceClassification(config))
    student, teacher = models
    assert student.config.pad_token_id is None
    if with_padding == "the student":
        student.config.pad_token_id = tiny.tokenizer().pad_token_id
    make(tmp_path, student=student, teacher=teacher).train()
    assert {one.config.pad_token_id for one in models} == {tiny.tokenizer().pad_token_id}


def test_it_reads_a_recipe_file_and_a_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("method: kd\nobjectives: {soft: {temperature: 4}}\n", encoding="utf-8")
    for method in (file, Recipe.load(file)):
        trainer = make(tmp_path / "out", method=method)
        assert trainer.objectives["soft"].rule.temperature == 4


def test_without_a_teacher_only_fine_tuning_is_left(tmp_path):
    with pytest.raises(LimbeckError, match=r"teacher=, or use method finetune"):
        make(tmp_path, method="kd", teacher=None)
    make(tmp_path, method="finetune", teacher=None)


def test_a_multi_label_head_wants_a_number_for_each_class(tmp_path):
    student = tiny.bert(2, problem_type="multi_label_classification")
    trainer = make(tmp_path, student=student)
    assert trainer.kind.name == "multi-label"
    with pytest.raises(LimbeckError, match="of which a row may have several"):
        trainer.train()  # these rows have a class each


def test_length_grouping_needs_something_to_measure(tmp_path):
    rows = [dict(row) for row in tiny.rows(4)]
    trainer = make(tmp_path, group_by_length=True, train_dataset=rows)
    with pytest.raises(LimbeckError, match="input_ids"):
        trainer.train()


def test_length_grouping_makes_batches_of_similar_length(tmp_path):
    def spread(**changes) -> float:
        trainer = make(tmp_path, count=60, **changes)
        lengths = [
            batch["attention_mask"].sum(1).float() for batch in trainer.get_train_dataloader()
        ]
        assert sum(len(batch) for batch in lengths) == 60
        return float(sum((batch.max() - batch.min()) for batch in lengths))

    assert spread(group_by_length=True) < 0.5 * spread()


# ---- the teacher ----


def test_the_teacher_is_frozen_and_stays_in_eval_mode(tmp_path):
    teacher = tiny.knowing_teacher(3).train()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    modes = []

    class Watch(tiny.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            modes.append((teacher.training, trainer.student.training))

    trainer = make(tmp_path, teacher=teacher, callbacks=[Watch()])
    trainer.train()
    assert modes == [(False, True)] * 3
    assert not any(weight.requires_grad for weight in teacher.parameters())
    assert all(weight.grad is None for weight in teacher.parameters())
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_teacher_is_no_part_of_what_is_trained_or_saved(tmp_path):
    teacher = tiny.knowing_teacher(3)
    trainer = make(tmp_path, method="rail-kd-l", teacher=teacher, args={"save_strategy": "epoch"})
    trainer.train()
    theirs = {weight.data_ptr() for weight in teacher.state_dict().values()}
    kept = {weight.data_ptr() for weight in trainer.model.state_dict().values()}
    stepped = {
        weight.data_ptr() for group in trainer.optimizer.param_groups for weight in group["params"]
    }
    assert not theirs & (kept | stepped)
    saved = load_file(tmp_path / "checkpoint-3" / "distiller.safetensors")
    own = set(trainer.student.state_dict())
    projections = {name for name in saved if name.startswith("objectives.")}
    assert {name.removeprefix("student.") for name in set(saved) - projections} == own
    # One slot: a map of each side, from the models' width to 128.
    assert {saved[name].shape for name in projections} == {(128, tiny.WIDTH)}
    assert len(projections) == 2


def test_a_teacher_may_be_given_as_one(tmp_path):
    teacher = Teacher(tiny.knowing_teacher(3))
    assert make(tmp_path, teacher=teacher).teacher is teacher


# ---- projections and the shipped student ----


def test_projections_are_trained_saved_and_not_shipped(tmp_path):
    trainer = make(tmp_path, method="rail-kd-c", layers=3, args={"save_strategy": "epoch"})
    before = {name: value.clone() for name, value in trainer.objectives.state_dict().items()}
    assert before
    trainer.train()
    saved = load_file(tmp_path / "checkpoint-3" / "distiller.safetensors")
    for name, value in trainer.objectives.state_dict().items():
        assert not torch.equal(value, before[name]), name
        assert torch.equal(saved[f"objectives.{name}"], value), name
    trainer.save_model(str(tmp_path / "shipped"))
    shipped = load_file(tmp_path / "shipped" / "model.safetensors")
    assert set(shipped) == set(trainer.student.state_dict())


def test_projections_start_from_the_seed_alone(tmp_path):
    def maps(seed: int, noise: int) -> list[torch.Tensor]:
        torch.manual_seed(noise)
        trainer = make(tmp_path, method="rail-kd-l", args={"seed": seed})
        return list(trainer.objectives.parameters())

    for one, two, other in zip(maps(1, 5), maps(1, 6), maps(2, 5), strict=True):
        assert torch.equal(one, two)
        assert not torch.equal(one, other)


ALONE = """
import sys
assert "limbeck" not in sys.modules
sys.modules["limbeck"] = None  # any import of it fails
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()
words = AutoTokenizer.from_pretrained(sys.argv[1])
batch = words(["good film", "bad a very long plot"], padding=True, return_tensors="pt")
with torch.no_grad():
    torch.save(model(**batch).logits, sys.argv[2])
"""


@pytest.mark.own_arithmetic
@pytest.mark.slow
def test_the_shipped_student_needs_no_limbeck(tmp_path):
    words = tiny.tokenizer()
    trainer = make(tmp_path, method="rail-kd-l", processing_class=words)
    trainer.train()
    trainer.save_model(str(tmp_path / "shipped"))
    printed_by(ALONE, tmp_path / "shipped", tmp_path / "logits.pt")
    batch = words(["good film", "bad a very long plot"], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = trainer.student.eval()(**batch).logits
    assert torch.equal(torch.load(tmp_path / "logits.pt"), expected)


def test_capturing_a_student_leaves_its_own_output_alone(tmp_path):
    """What is shipped gives outside the trainer what it gave inside."""
    trainer = make(tmp_path, eval_dataset=tiny.rows(4))
    trainer.train()
    batch = Collator(tiny.tokenizer())(list(tiny.rows(4)))
    inside = trainer.predict(tiny.rows(4)).predictions
    outside = capture(trainer.student.eval(), batch, Request.of_logits()).logits
    np.testing.assert_array_equal(inside, outside.detach().numpy())
