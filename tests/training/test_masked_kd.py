"""Inputs that depend on the student: the teacher reads what the student attends to."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny_trainers import arguments

import tiny_runs as tiny
from image_sets import vit
from limbeck.activations import Passes, Request, Trace, capture
from limbeck.data import Collator
from limbeck.input_transforms import MaskedKD, MaskedKDSettings, StepInputs
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationTrainer

CPU = torch.device("cpu")
LOGITS = Request.of_logits()


def pictures(count: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        "pixel_values": torch.randn(count, 3, 8, 8, generator=generator),
        "labels": torch.arange(count),
        "index": torch.arange(count),
    }


def bert(layers: int, seed: int = 0) -> Any:
    """Without dropout; wide enough weights that attention is no mean."""
    return tiny.bert(layers, seed=seed, initializer_range=0.3).eval()


def texts() -> dict[str, torch.Tensor]:
    return Collator(tiny.tokenizer())(list(tiny.rows(5)))


def masked(batch: dict[str, torch.Tensor], student: Any, keep: float = 0.5) -> StepInputs:
    """The inputs of a step in which this student has been seen."""
    transform = MaskedKD(MaskedKDSettings(use="masked-kd", keep=keep))
    inputs = StepInputs.of(batch, transform, StepState(), CPU)
    run = functools.partial(capture, student)
    asked = LOGITS | inputs.sees_first(student)
    return inputs.after(inputs.of_student(student, asked, Request(), run, Passes()))


def class_attention(student: Any, batch: dict[str, torch.Tensor]) -> list[list[float]]:
    """Hugging Face's own last map, from the class token to each other token, mean over the heads."""
    student.set_attn_implementation("eager")
    read = {
        name: batch[name]
        for name in ("pixel_values", "input_ids", "attention_mask")
        if name in batch
    }
    with torch.no_grad():
        last = student(**read, output_attentions=True).attentions[-1]
    student.set_attn_implementation("sdpa")
    heads = last.shape[1]
    return [
        [
            float(sum(last[b, h, 0, k] for h in range(heads)) / heads)
            for k in range(1, last.shape[3])
        ]
        for b in range(len(last))
    ]


def test_a_teacher_of_pictures_reads_the_patches_that_the_student_attends_to():
    """By a loop over the examples: embed, leave out, and go on with Hugging Face's own layers."""
    student, teacher, batch = vit(2, seed=1), vit(3, seed=0), pictures()
    found = Teacher(teacher)(masked(batch, student), LOGITS).logits
    own = class_attention(student, batch)
    with torch.no_grad():
        embedded = teacher.vit.embeddings(batch["pixel_values"])
        for b in range(len(embedded)):
            best = sorted(range(4), key=lambda k: own[b][k], reverse=True)[:2]
            states = torch.stack([embedded[b, 0], *(embedded[b, 1 + k] for k in sorted(best))])[
                None
            ]
            for layer in teacher.vit.layers:
                states = layer(states)
            expected = teacher.classifier(teacher.vit.layernorm(states)[:, 0])
            torch.testing.assert_close(found[b], expected[0], rtol=1e-5, atol=1e-6)


def test_a_teacher_of_texts_reads_the_tokens_that_the_student_attends_to():
    """Of an example's own tokens; a shorter text that ends where attention does is another one."""
    student, teacher, batch = bert(2, seed=1), bert(3), texts()
    found = Teacher(teacher)(masked(batch, student), LOGITS).logits
    own = class_attention(student, batch)
    for b, length in enumerate(batch["attention_mask"].sum(1).tolist()):
        places = sorted(range(length - 1), key=lambda k: own[b][k], reverse=True)
        mask = torch.zeros(1, batch["input_ids"].shape[1], dtype=torch.long)
        mask[0, 0] = 1
        for place in places[: max(1, round((length - 1) * 0.5))]:
            mask[0, 1 + place] = 1
        with torch.no_grad():
            expected = teacher(input_ids=batch["input_ids"][b : b + 1], attention_mask=mask).logits
        torch.testing.assert_close(found[b], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("make", "batch"), [(vit, pictures()), (bert, texts())])
def test_a_teacher_that_is_left_everything_answers_as_ever(make, batch):
    student, teacher = make(2), Teacher(make(3))
    found = teacher(masked(batch, student, keep=1), LOGITS).logits
    torch.testing.assert_close(found, teacher(batch, LOGITS).logits, rtol=1e-6, atol=1e-6)


def test_what_the_teacher_reads_has_no_gradient():
    inputs = masked(pictures(), vit(2).train())
    assert inputs.sampled.dtype == torch.bool
    assert inputs.sampled.sum(1).tolist() == [3] * 5  # the class token and two of four patches


def test_tokens_of_such_a_teacher_are_not_compared():
    inputs = masked(texts(), bert(2, seed=1))
    with pytest.raises(LimbeckError, match="pool: cls"):
        Teacher(bert(3))(inputs, Request.hidden([1], pool="mean"))
    Teacher(bert(3))(inputs, Request.hidden([1], pool="cls"))


# ---- in a training step ----


def trained(folder, monkeypatch, **changes) -> tuple[DistillationTrainer, list[str]]:
    """A training of one step, and in which order the models ran."""
    order: list[str] = []
    student, teacher = vit(2, seed=1), vit(3, seed=0)
    of_student, of_teacher = StepInputs.of_student, StepInputs.of_teacher
    for name, method in (("of_student", of_student), ("of_teacher", of_teacher)):

        def watching(self, *told, name=name, method=method) -> Trace:
            order.append(name)
            return method(self, *told)

        monkeypatch.setattr(StepInputs, name, watching)
    rows = Dataset.from_dict({name: values.tolist() for name, values in pictures(4).items()})
    trainer = tiny.trainer_of(
        student,
        arguments(folder, max_steps=1),
        teacher=teacher,
        train_dataset=rows.with_format("torch"),
        **changes,
    )
    trainer.train()
    return trainer, order


def test_the_student_runs_first_where_the_teacher_s_inputs_depend_on_it(tmp_path, monkeypatch):
    recipe = Recipe.load("kd-soft", input_transform={"use": "masked-kd", "keep": 0.5})
    trainer, order = trained(tmp_path, monkeypatch, method=recipe)
    assert order == ["of_student", "of_teacher"]
    batch = pictures(4)
    student, teacher = vit(2, seed=1), Teacher(vit(3, seed=0))
    answer = teacher(masked(batch, student), LOGITS)
    with torch.no_grad():
        own = capture(student, batch, LOGITS)
        objectives = trainer.objectives
        expected = objectives.total(objectives(own, answer, batch, StepState()), StepState())
    logged = next(entry for entry in trainer.state.log_history if "learning_rate" in entry)
    assert logged["loss"] == pytest.approx(expected.item(), rel=1e-4)


def test_otherwise_the_teacher_runs_first(tmp_path, monkeypatch):
    assert trained(tmp_path, monkeypatch, method="kd-soft")[1] == ["of_teacher", "of_student"]
