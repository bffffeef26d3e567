"""FLOPs of a training are those that were run: torch's own counter around every step is the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tiny_runs as tiny
from limbeck.activations import Passes, Request, capture
from limbeck.evaluation.measuring import flops_of, flops_of_pass
from limbeck.objectives import Objectives
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationTrainer

OWN = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("flops")
    tiny.save(tiny.knowing_teacher(4), folder / "teacher")
    tiny.save(tiny.bert(2), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    return folder


def recipe_of(place: Path, method: str, **changes) -> Recipe:
    given = {"task": "reviews", "data": str(place / "reviews.csv"), "epochs": 1, **OWN}
    given |= {"teacher": str(place / "teacher"), "student.init": str(place / "start")}
    # The counter knows no fused attention of a CPU.
    given |= {"attention": "eager", "max_length": 24, "batch_size": 8, "cache": "never"}
    return Recipe.load(method, **(given | changes))


@pytest.fixture
def counted(monkeypatch) -> dict[str, int]:
    """FLOPs of all training steps, and in them of teachers' passes and of terms without their backward."""
    found = {"step": 0, "teacher": 0, "terms": 0}
    step, ask = DistillationTrainer.training_step, Teacher.__call__
    compare = Objectives.forward

    def counting_step(self, *args, **kwargs):
        with FlopCounterMode(display=False) as counter:
            loss = step(self, *args, **kwargs)
        found["step"] += counter.get_total_flops()
        return loss

    def counting_teacher(self, *args, **kwargs):
        with FlopCounterMode(display=False) as counter:
            trace = ask(self, *args, **kwargs)
        found["teacher"] += counter.get_total_flops()
        return trace

    def counting_terms(self, *args, **kwargs):
        with FlopCounterMode(display=False) as counter:
            terms = compare(self, *args, **kwargs)
        found["terms"] += counter.get_total_flops()
        return terms

    monkeypatch.setattr(Objectives, "forward", counting_terms)
    monkeypatch.setattr(DistillationTrainer, "training_step", counting_step)
    monkeypatch.setattr(Teacher, "__call__", counting_teacher)
    return found


@pytest.fixture
def in_training(monkeypatch, counted):
    """What each stage's training came to; what pre-flight asked of the teacher is none of it."""
    train, stages = DistillationTrainer.train, []

    def apart(self, *args, **kwargs):
        counted.update(dict.fromkeys(counted, 0))
        ended = train(self, *args, **kwargs)
        stages.append(dict(counted))
        return ended

    monkeypatch.setattr(DistillationTrainer, "train", apart)
    return stages


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("kd", {}),  # padding to the longest of each batch
        pytest.param("kd", {"group_by_length": True}, marks=pytest.mark.slow),
        pytest.param("finetune", {}, marks=pytest.mark.slow),
        pytest.param(
            "kd", {"max_steps": 3, "epochs": 1}, marks=pytest.mark.slow
        ),  # stops inside an epoch
        pytest.param("kd", {"accumulation": 2}, marks=pytest.mark.slow),
        # Two stages; the first runs no heads, and attention maps are made.
        pytest.param("tinybert", {"first_stage.epochs": 1}, marks=pytest.mark.slow),
        # Clean and mixed inputs, with gradients through both.
        pytest.param("cr-ild", {}, marks=pytest.mark.slow),
        # No gradient through the clean pass; mixed after the embeddings.
        pytest.param("cr-ild-released", {}, marks=pytest.mark.slow),
        pytest.param("skd-uniform", {}, marks=pytest.mark.slow),
    ],
)
def test_flops_of_a_run_are_those_of_its_steps(method, changes, place, tmp_path, in_training):
    if method == "skd-uniform":
        tiny.save(tiny.knowing_teacher(3), place / "other")
        changes = {"teacher": None, "teachers": [str(place / "teacher"), str(place / "other")]}
    recipe = recipe_of(place, method, **changes)
    record = distill(recipe, out=tmp_path / "run", report=False).record
    teacher = sum(stage["teacher"] for stage in in_training)
    # Projections and comparisons are the terms' own: up to two more products each in the backward pass.
    terms = sum(stage["terms"] for stage in in_training)
    student = sum(stage["step"] for stage in in_training) - teacher - terms
    assert record.cost.teacher_flops == teacher
    assert student - 2 * terms <= record.cost.student_flops <= student


@pytest.mark.slow
def test_a_continued_run_has_the_flops_of_an_unbroken_one(place, tmp_path):
    from importlib import import_module

    module = import_module("limbeck.run.train")
    recipe = recipe_of(place, "rail-kd-l", epochs=2, checkpoint_steps=2)
    unbroken = distill(recipe, out=tmp_path / "a", report=False).record.cost

    class Killed(module.Display):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 9:
                raise tiny.KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "Display", Killed)
        with pytest.raises(tiny.KilledError):
            distill(recipe, out=tmp_path / "b", report=False)
    continued = distill(recipe, out=tmp_path / "b", report=False).record.cost
    assert continued.student_flops == unbroken.student_flops > 0
    assert continued.teacher_flops == unbroken.teacher_flops > 0


# Passes


def test_one_pass_by_hand():
    """Two layers of width 16, feed-forward 24, 2 heads, over 5 tokens: products of a, b and c count 2abc."""
    tokens, width, inner = 5, 16, 24
    layer = 4 * 2 * tokens * width * width + 2 * 2 * tokens * width * inner
    layer += 2 * 2 * tokens * tokens * width
    pooler, head = 2 * width * width, 2 * width * 2
    model = tiny.bert(2).eval()
    assert flops_of_pass(model, Request.of_logits(), (tokens,)) == 2 * layer + pooler + head
    assert flops_of_pass(model, Request.hidden([1]), (tokens,)) == layer + pooler
    # A map that is asked for is multiplied out once more.
    asked = Request.attention([1])
    again = 2 * tokens * tokens * width
    assert flops_of_pass(model, asked, (tokens,)) == layer + pooler + again


@pytest.mark.parametrize("lengths", [[7], [5, 9], range(3, 21)])
def test_padded_lengths_count_one_by_one(lengths):
    """Few lengths are measured and many lie on a polynomial: the sums are the same."""
    model, request, passes = tiny.bert(2).eval(), Request.of_logits(), Passes()
    for rows, length in enumerate(lengths, start=1):
        ids = torch.ones(rows, length, dtype=torch.long)
        passes.add(model, {"input_ids": ids}, request, gradient=False)
    expected = sum(
        rows * flops_of_pass(model, request, (length,))
        for rows, length in enumerate(lengths, start=1)
    )
    assert flops_of(model, passes) == expected


@pytest.mark.slow
def test_both_lengths_of_an_encoder_decoder_count():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "vocab_size": 20,
    }
    config = T5Config(**sizes, decoder_start_token_id=0, attn_implementation="eager")
    model = T5ForConditionalGeneration(config).eval()
    request, passes, expected = Request.of_logits(), Passes(), 0
    for source in (3, 5, 6, 9):
        for target in (2, 4, 5, 7):
            ids = torch.ones(3, source, dtype=torch.long)
            labels = torch.ones(3, target, dtype=torch.long)
            passes.add(model, {"input_ids": ids, "labels": labels}, request, gradient=True)
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                capture(model, {"input_ids": ids, "labels": labels}, request)
            expected += 3 * counter.get_total_flops()
    assert flops_of(model, passes) == expected


def test_a_gradient_that_comes_back_late_is_noted_once():
    model, passes = tiny.bert(2), Passes()
    batch = {"input_ids": torch.ones(4, 6, dtype=torch.long)}
    request = Request.hidden([1, 2])
    for used in (False, True):
        trace = capture(model, batch, request)
        kind = passes.add(model, batch, request, gradient=False)
        passes.watch(trace, kind, 4)
        if used:
            sum(value.sum() for value in trace.values.values()).backward()
    found = {entry["gradient"]: entry["examples"] for entry in passes.state()}
    assert found == {False: 4, True: 4}
    assert Passes.of(passes.state()).examples == +passes.examples
