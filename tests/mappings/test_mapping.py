"""Which layers: the maps of the papers, against the numbers they print."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats

from limbeck.mappings import MappingSpec, build_mapping, rounding_note
from limbeck.mappings.maps import concatenation, weighted_sum
from limbeck.mappings.spec import buckets, parse_layers, round_half_up
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState


def rows(teacher: int, student: int, **spec: object) -> list[tuple[int, ...]]:
    mapping = build_mapping(
        MappingSpec.model_validate(spec), teacher_depth=teacher, student_depth=student
    )
    return list(mapping.rows(StepState()))


@pytest.mark.parametrize(
    ("kind", "depths", "expected"),
    [
        # PKD (Sun et al.), as the spec prints it.
        ({"kind": "skip"}, (12, 6), [2, 4, 6, 8, 10]),
        ({"kind": "last", "teacher_layers": "1..L-1"}, (12, 6), [7, 8, 9, 10, 11]),
        ({"kind": "first"}, (12, 4), [1, 5, 9]),
        # RAIL-KD §4.2: RoBERTa-24 to DistilRoBERTa-6.
        ({"kind": "skip"}, (24, 6), [4, 8, 12, 16, 20]),
        ({"kind": "uniform", "student_layers": "1..M"}, (12, 6), [2, 4, 6, 8, 10, 12]),
        # 6 over 4: 1.5, 3, 4.5 round half up to 2, 3, 5.
        ({"kind": "skip"}, (6, 4), [2, 3, 5]),
        ({"kind": "last-to-last"}, (12, 6), [12]),
        ({"kind": "explicit", "layers": {1: 6}}, (12, 2), [6]),
    ],
)
def test_one_teacher_layer_each(kind, depths, expected):
    assert rows(*depths, **kind) == [(k,) for k in expected]


@pytest.mark.parametrize(
    ("depths", "overlap", "expected"),
    [
        # ALP-KD, Figure 3 and the spec: no overlap and overlap by one.
        ((12, 4), False, [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)]),
        ((12, 4), True, [(1, 2, 3, 4, 5), (5, 6, 7, 8, 9), (9, 10, 11, 12)]),
        ((12, 6), False, [(1, 2, 3), (4, 5, 6), (7, 8), (9, 10), (11, 12)]),
        ((12, 2), False, [tuple(range(1, 13))]),
    ],
)
def test_buckets(depths, overlap, expected):
    assert rows(*depths, kind="buckets", overlap=overlap) == expected
    assert rows(*depths, kind="attention", within="buckets", overlap=overlap) == expected


@pytest.mark.parametrize(
    ("depths", "expected"),
    [((6, 3), [1, 5]), ((12, 3), [4, 8]), ((6, 4), [2, 3, 5]), ((4, 3), [1, 3]), ((6, 2), [3])],
)
def test_layers_given_for_some_depths_serve_those_depths_alone(depths, expected):
    given = {"teacher": 6, "student": 3, "layers": {1: 1, 2: 5}}
    assert rows(*depths, kind="uniform", exceptions=[given]) == [(k,) for k in expected]


@pytest.mark.parametrize(
    ("depths", "expected"),
    [
        ((12, 6), [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8), (5, 10), (6, 12)]),
        ((6, 4), [(0, 0), (2, 3), (4, 6)]),
        ((12, 8), [(0, 0), (2, 3), (4, 6), (6, 9), (8, 12)]),
        ((4, 3), [(0, 0), (3, 4)]),
        ((12, 1), [(0, 0), (1, 12)]),
    ],
)
def test_layers_that_meet_no_whole_layer_may_be_left_out(depths, expected):
    spec = {"kind": "uniform", "student_layers": "0..M", "uneven": "leave out"}
    found = build_mapping(
        MappingSpec.model_validate(spec), teacher_depth=depths[0], student_depth=depths[1]
    )
    pairs = zip(found.student_layers, found.rows(StepState()), strict=True)
    assert [(layer, row) for layer, (row,) in pairs] == expected
    assert rounding_note(MappingSpec.model_validate(spec), teacher_depth=6, student_depth=4) is None
    alone = MappingSpec.model_validate(spec | {"student_layers": "1..M-1"})
    with pytest.raises(LimbeckError, match=r"no student layer j of 1\.\.M-1 has an integer"):
        build_mapping(alone, teacher_depth=4, student_depth=3)


def test_a_layer_list_and_ranges_are_read():
    depth = {"teacher_depth": 12, "student_depth": 4, "setting": "x"}
    assert parse_layers("1..M-1", **depth) == (1, 2, 3)
    assert parse_layers("L", **depth) == (12,)
    assert parse_layers("L-2..L", **depth) == (10, 11, 12)
    assert parse_layers([3, 7], **depth) == (3, 7)
    assert parse_layers(5, **depth) == (5,)
    with pytest.raises(LimbeckError, match="cannot read the layer 'Q'"):
        parse_layers("1..Q", **depth)


@pytest.mark.parametrize(
    ("value", "expected"), [((1, 2), 1), ((3, 2), 2), ((5, 4), 1), ((7, 4), 2)]
)
def test_halves_round_up(value, expected):
    assert round_half_up(*value) == expected


def test_buckets_cover_every_layer_once():
    for total in range(1, 25):
        for count in range(1, total + 1):
            split = buckets(tuple(range(1, total + 1)), count)
            assert [k for bucket in split for k in bucket] == list(range(1, total + 1))
            sizes = [len(bucket) for bucket in split]
            assert sizes == sorted(sizes, reverse=True)
            assert max(sizes) - min(sizes) <= 1


def test_rounding_is_said_once_and_only_when_it_happens():
    spec = MappingSpec.model_validate({"kind": "skip"})
    assert rounding_note(spec, teacher_depth=12, student_depth=6) is None
    assert "1←2, 2←3, 3←5" in rounding_note(spec, teacher_depth=6, student_depth=4)


def test_random_draws_follow_seed_and_epoch_alone():
    mapping = build_mapping(
        MappingSpec.model_validate({"kind": "random", "teacher_layers": "1..L-1"}),
        teacher_depth=24,
        student_depth=6,
    )
    draws = [mapping.rows(StepState(seed=3, epoch=e)) for e in range(40)]
    again = [mapping.rows(StepState(seed=3, epoch=e, step=7, progress=0.5)) for e in range(40)]
    assert draws == again
    assert draws != [mapping.rows(StepState(seed=4, epoch=e)) for e in range(40)]
    for draw in draws:
        layers = [k for (k,) in draw]
        assert layers == sorted(set(layers))
        assert len(layers) == 5
        assert set(layers) <= set(range(1, 24))


def test_random_draws_are_uniform_over_the_teacher():
    mapping = build_mapping(
        MappingSpec.model_validate({"kind": "random", "teacher_layers": "1..L-1"}),
        teacher_depth=12,
        student_depth=4,
    )
    counts = np.zeros(11)
    for epoch in range(2_000):
        for (layer,) in mapping.rows(StepState(seed=0, epoch=epoch)):
            counts[layer - 1] += 1
    assert counts.sum() == 6_000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_attention_weights_each_example_apart_and_stay_in_their_bucket():
    mapping = build_mapping(
        MappingSpec.model_validate({"kind": "attention", "within": "buckets"}),
        teacher_depth=4,
        student_depth=3,
    )
    generator = torch.Generator().manual_seed(0)
    student = [torch.randn(2, 3, generator=generator) for _ in range(2)]
    teacher = {k: torch.randn(2, 3, generator=generator) for k in range(1, 5)}
    weights = mapping.weights(StepState(), student, teacher)
    assert weights.shape == (2, 2, 4)
    for b in range(2):
        for j, bucket in enumerate([(1, 2), (3, 4)]):
            scores = [np.exp(float(student[j][b] @ teacher[k][b])) for k in bucket]
            for k in range(1, 5):
                expected = scores[bucket.index(k)] / sum(scores) if k in bucket else 0.0
                assert float(weights[b, j, k - 1]) == pytest.approx(expected, abs=1e-6)


def test_combinations_by_hand():
    teacher = {1: torch.tensor([[1.0, 2.0]]), 3: torch.tensor([[10.0, 20.0]])}
    assert weighted_sum(({1: 0.25, 3: 0.75},), teacher)[0].tolist() == [[7.75, 15.5]]
    assert weighted_sum(({3: 1.0},), teacher)[0] is teacher[3]
    assert weighted_sum(({3: 0.5},), teacher)[0].tolist() == [[5.0, 10.0]]
    assert concatenation(({3: 0.5, 1: 0.5},), teacher)[0].tolist() == [[1.0, 2.0, 10.0, 20.0]]
    tokens = {k: layer.unsqueeze(1).expand(1, 3, 2) for k, layer in teacher.items()}  # (B, T, H)
    (side_by_side,) = concatenation(({1: 0.5, 3: 0.5},), tokens)
    assert side_by_side.tolist() == [[[1.0, 2.0, 10.0, 20.0]] * 3]
    # Two examples would be (B=2); here B=1, S=2, T=2.
    per_example = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    mixed = weighted_sum(per_example, teacher)
    assert mixed[0].tolist() == [[5.5, 11.0]]
    assert mixed[1].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("spec", "depths", "message"),
    [
        ({"kind": "explicit", "layers": {1: 13}}, (12, 4), "the teacher has no layer 13"),
        ({"kind": "explicit", "layers": {5: 1}}, (12, 4), "the student has no layer 5"),
        ({"kind": "skip"}, (12, 1), "is empty: the student has 1 layer"),
        ({"kind": "random", "teacher_layers": "1..L-1"}, (3, 4), "3 student layers need"),
        ({"kind": "buckets"}, (2, 4), "3 student layers cannot each have a bucket of 2"),
    ],
)
def test_what_cannot_be_mapped_is_refused(spec, depths, message):
    with pytest.raises(LimbeckError, match=message):
        rows(*depths, **spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "explicit"},
        {"kind": "skip", "layers": {1: 2}},
        {"kind": "last-to-last", "teacher_layers": "1..L"},
        {"kind": "skip", "overlap": True},
        {"kind": "skip", "within": "buckets"},
        {"kind": "attention", "combine": "concat"},
        {"kind": "nearest"},
    ],
)
def test_keys_without_effect_are_refused(spec):
    with pytest.raises(ValidationError):
        MappingSpec.model_validate(spec)
