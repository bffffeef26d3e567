"""A mapping seen from some of its student layers alone, and the masses of transport."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from limbeck.functional import cheaper_layers_weigh_more
from limbeck.mappings import (
    Mapping,
    MappingSpec,
    TransportMapping,
    build_mapping,
)
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState


def build(teacher: int = 8, student: int = 4, **spec: object) -> Mapping:
    return build_mapping(
        MappingSpec.model_validate(spec), teacher_depth=teacher, student_depth=student
    )


KINDS = [
    {"kind": "uniform", "student_layers": "1..M"},
    {"kind": "explicit", "layers": {1: 5, 2: [1, 2], 3: 7}},
    {"kind": "buckets", "overlap": True},
    {"kind": "random", "teacher_layers": "1..L-1"},
    {"kind": "attention", "within": "buckets", "weigh": "sparsemax"},
    {"kind": "last-to-last"},
]


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec["kind"])
def test_some_layers_alone_see_what_they_see_among_all(spec):
    mapping = build(**spec)
    for epoch in range(3):
        step_state = StepState(seed=2, epoch=epoch)
        whole = dict(zip(mapping.student_layers, mapping.rows(step_state), strict=True))
        for kept in (
            mapping.student_layers,
            mapping.student_layers[:1],
            mapping.student_layers[1:],
            mapping.student_layers[-1:],
        ):
            part = mapping.only(kept)
            assert part.student_layers == kept
            seen = dict(zip(part.student_layers, part.rows(step_state), strict=True))
            assert seen == {slot: whole[slot] for slot in kept}
            assert part.active(step_state) == tuple(
                sorted({k for row in seen.values() for k in row})
            )


def test_a_draw_seen_twice_in_part_is_still_the_same():
    mapping = build(kind="random", student_layers="1..M")
    for epoch in range(5):
        step_state = StepState(epoch=epoch)
        (alone,) = mapping.only((2, 3)).only((3,)).rows(step_state)
        assert alone == mapping.rows(step_state)[2]


def test_attention_alone_keeps_its_kind_of_weights():
    mapping = build(kind="attention", weigh="sparsemax")
    student = [torch.tensor([[9.0, 0.0]])]
    teacher = {k: torch.tensor([[float(k == 3), 1.0]]) for k in range(1, 9)}
    weights = mapping.only((2,)).weights(StepState(), student, teacher)
    assert weights.tolist() == [[[0, 0, 1, 0, 0, 0, 0, 0]]]


def test_transport_cannot_be_seen_in_part():
    with pytest.raises(LimbeckError, match="cannot learn one after the other"):
        build(kind="transport").only((1,))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "uniform", "read": "cls"}, "read\n  Extra inputs"),
        ({"kind": "buckets", "weigh": "softmax"}, "weigh\n  Extra inputs"),
        ({"kind": "attention", "layer_weights": "uniform"}, "layer_weights\n  Extra inputs"),
        ({"kind": "transport", "combine": "sum"}, "should be 'costs'"),
        ({"kind": "transport", "weigh": "entmax"}, "weigh\n  Extra inputs"),
        ({"kind": "attention", "weigh": "max"}, "'softmax', 'sparsemax' or 'entmax'"),
        ({"kind": "attention", "read": "max"}, "'cls', 'mean' or 'last'"),
    ],
)
def test_keys_without_effect_are_refused(spec, message):
    with pytest.raises(ValidationError, match=message):
        MappingSpec.model_validate(spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "transport", "layer_weights": "learned"},
        {"kind": "attention", "weigh": "entmax", "read": "mean"},
        *KINDS,
    ],
    ids=str,
)
def test_a_written_mapping_is_read_as_the_same(spec):
    mapping = MappingSpec.model_validate(spec)
    assert MappingSpec.model_validate(mapping.model_dump()) == mapping


# ---- transport ----


def moved(mapping: TransportMapping, costs: list[list[float]]) -> torch.Tensor:
    return mapping.flow(torch.tensor(costs))


def test_equal_masses_that_stay():
    mapping = TransportMapping((1, 2), (1, 2), learned=False)
    # The diagonal is free: each layer's ½ goes there.
    for _ in range(2):
        assert moved(mapping, [[0.0, 1.0], [1.0, 0.0]]).tolist() == [[0.5, 0.0], [0.0, 0.5]]
        TransportMapping.learn([mapping])
    assert mapping.new_masses() is None


def test_learned_masses_by_hand():
    mapping = TransportMapping((1, 2), (1, 2), learned=True)
    assert moved(mapping, [[1.0, 9.0], [9.0, 3.0]]).tolist() == [[0.5, 0.0], [0.0, 0.5]]
    TransportMapping.learn([mapping])
    # Moved ½·1 and ½·3; costs 1 and 3; weights 4/1 and 4/3, of their sum ¾ and ¼.
    assert mapping.student_mass.tolist() == pytest.approx([0.75, 0.25])
    assert mapping.teacher_mass.tolist() == pytest.approx([0.75, 0.25])
    assert moved(mapping, [[1.0, 9.0], [9.0, 3.0]]).tolist() == [[0.75, 0.0], [0.0, 0.25]]
    TransportMapping.learn([mapping])
    # Moved .75 and .75; costs 1 and 3 again: the same masses.
    assert mapping.student_mass.tolist() == pytest.approx([0.75, 0.25])


def test_mappings_of_the_same_layers_share_their_mean():
    hidden, attention, other = (TransportMapping((1, 2), (1, 2), learned=True) for _ in range(3))
    other.student_layers = (2, 3)
    moved(hidden, [[1.0, 9.0], [9.0, 3.0]])  # ¾ and ¼
    moved(attention, [[1.0, 9.0], [9.0, 1.0]])  # ½ and ½
    moved(other, [[3.0, 9.0], [9.0, 1.0]])  # ¼ and ¾
    TransportMapping.learn([hidden, attention, other])
    for mapping in (hidden, attention):
        assert mapping.student_mass.tolist() == pytest.approx([0.625, 0.375])
    assert other.student_mass.tolist() == pytest.approx([0.25, 0.75])


def test_a_layer_without_any_cost_does_not_take_all_for_good():
    weights = cheaper_layers_weigh_more(torch.tensor([0.0, 0.5]), torch.tensor([0.5, 0.5]))
    assert weights.isfinite().all() and (weights > 0).all()
    assert weights.sum().item() == pytest.approx(1.0)
