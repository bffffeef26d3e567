"""What is not needed is not computed: layers above those that learn, heads, clean passes."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_pairs import batch, bert, build, stage_recipe, terms

from limbeck.input_transforms import Mixture
from limbeck.support.step_state import StepState


def watched(layers: int, width: int, seed: int):
    """A model and the list of what runs in it: layers by number, `head` for the classifier."""
    model = copy.deepcopy(bert(layers, width, seed=seed))
    ran: list[int | str] = []
    for number, layer in enumerate(model.bert.encoder.layer, start=1):
        layer.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
    model.classifier.register_forward_pre_hook(lambda *_: ran.append("head"))
    return model, ran


def run(method: str, progress: float, stage: int = 1) -> tuple[list, list, dict]:
    """One step of a student of 3 layers and a teacher of 6."""
    student, of_student = watched(3, 8, seed=1)
    teacher, of_teacher = watched(6, 12, seed=0)
    objectives = build(method, student, teacher, stage=stage)
    mixup = stage_recipe(method, stage).mixup
    mixture = None if mixup is None else Mixture(torch.tensor([1, 2, 3, 0]), 0.4, mixup.at)
    # Making plans runs nothing; a second step would show it if it did.
    found = terms(objectives, student, teacher, batch(), StepState(progress=progress), mixture)
    return of_student, of_teacher, found


def layers(depth: int) -> list[int]:
    return list(range(1, depth + 1))


@pytest.mark.parametrize(("progress", "layer"), [(0.0, 1), (0.3, 2), (0.6, 3)])
@pytest.mark.parametrize("method", ["internal-kd-pid", "internal-kd-sid"])
def test_while_layer_k_learns_neither_model_goes_above_it(method, progress, layer):
    of_student, of_teacher, found = run(method, progress)
    assert of_student == layers(layer)
    assert of_teacher == layers(2 * layer)
    assert set(found) == {"attention", "cosine"}


@pytest.mark.parametrize("method", ["internal-kd-pid", "internal-kd-sid"])
def test_then_both_run_to_their_heads(method):
    of_student, of_teacher, found = run(method, 0.9)
    assert of_student == [*layers(3), "head"]
    assert of_teacher == [*layers(6), "head"]
    assert set(found) == {"soft"}


@pytest.mark.parametrize("method", ["internal-kd-pid-soft", "internal-kd-sid-soft-hard"])
def test_labels_all_the_time_need_the_whole_model(method):
    of_student, of_teacher, _ = run(method, 0.0)
    assert of_student == [*layers(3), "head"]
    assert of_teacher == [*layers(6), "head"]


@pytest.mark.parametrize(
    ("method", "of_student", "of_teacher"),
    [
        ("l-ild", [1, 2, 3], [1, 2, 3, 4, 5, 6]),
        ("tinybert", [1, 2, 3], [1, 2, 3, 4, 5, 6]),
        # Sampled: layers 1 and 2 of the student, two below the teacher's top.
        ("rail-tinybert", [1, 2], None),
        # Mixed once; the student on the clean batch only where it is compared with it.
        ("l-ild-mixup", [1, 2, 3], [1, 2, 3, 4, 5, 6]),
        ("cr-ild", [1, 2, 3] * 2, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_first_stage_runs_no_head_and_no_pass_in_vain(method, of_student, of_teacher):
    by_student, by_teacher, _ = run(method, 0.5)
    assert by_student == of_student
    if of_teacher is None:
        assert by_teacher == layers(max(by_teacher)) and len(by_teacher) < 6
    else:
        assert by_teacher == of_teacher


def test_the_release_s_mixture_needs_the_embeddings_of_the_teacher_s_clean_batch_alone():
    of_student, of_teacher, _ = run("cr-ild-released", 0.5)
    assert of_student == [1, 2, 3] * 2
    # The embedding output is seen as the first layer's input.
    assert of_teacher == [1, *layers(6)]
