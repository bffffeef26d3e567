"""Learned maps: how they start, and which side they sit on."""

import pytest
import torch

from limbeck.mappings.maps import Projections, ProjectSpec, Unprojected


def build(student: int, teacher: int, student_layers: int = 2, **spec: object) -> Projections:
    return Projections(
        ProjectSpec(**spec),
        [student] * student_layers,
        [teacher] * student_layers,
        student_width=student,
        teacher_width=teacher,
    )


def test_both_sides_start_from_one_map_and_then_go_their_own_ways():
    both = build(6, 6, to=3)
    state = torch.randn(4, 6)
    for slot in range(2):
        assert torch.equal(both.student(state, slot), both.teacher(state, slot))
    assert not torch.equal(both.student(state, 0), both.student(state, 1))
    both.student(state, 0).sum().backward()
    assert both.student.maps[0].weight.grad is not None
    assert both.teacher.maps[0].weight.grad is None


def test_maps_of_different_widths_are_drawn_apart():
    both = build(6, 8, to=3)
    assert both.student(torch.randn(4, 6), 0).shape == (4, 3)
    assert both.teacher(torch.randn(4, 8), 0).shape == (4, 3)


@pytest.mark.parametrize(
    ("spec", "sides"),
    [
        ({"to": 3, "sides": "student"}, (False, True)),
        ({"to": 3, "sides": "teacher"}, (True, False)),
        ({"to": 3, "when": "widths-differ"}, (True, True)),
    ],
)
def test_which_side_is_left_alone(spec, sides):
    built = build(6, 6, **spec)
    unmapped = tuple(isinstance(m, Unprojected) for m in (built.student, built.teacher))
    assert unmapped == sides


def test_one_map_for_all_slots_when_shared():
    built = build(6, 6, to=3, share="all")
    state = torch.randn(4, 6)
    assert len(built.student.maps) == 1
    assert torch.equal(built.student(state, 0), built.student(state, 1))
