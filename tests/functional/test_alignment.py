"""Tokens brought together by characters: numbers by hand, and explicit loops over characters."""

from __future__ import annotations

import random

import pytest
import torch

from limbeck.functional import (
    aligned_attention,
    aligned_scores,
    aligned_states,
    character_overlap,
)

# "unkind film end", as [CLS] un kind film end [SEP] and as [CLS] unk ind fil m end [SEP].
STUDENT = [(2, 0, 1), (0, 0, 2), (0, 2, 6), (0, 7, 11), (0, 12, 15), (3, 0, 1)]
TEACHER = [(2, 0, 1), (0, 0, 3), (0, 3, 6), (0, 7, 10), (0, 10, 11), (0, 12, 15), (3, 0, 1)]


def overlap(student, teacher, student_mask=None, teacher_mask=None):
    """Of one example, all of whose positions are valid unless masks say otherwise."""
    masks = [
        torch.ones(1, len(spans)) if mask is None else torch.tensor([mask])
        for spans, mask in ((student, student_mask), (teacher, teacher_mask))
    ]
    spans = [torch.tensor([given]) for given in (student, teacher)]
    return character_overlap(*spans, *(mask.bool() for mask in masks))


def test_three_words_in_other_pieces():
    shared = overlap(STUDENT, TEACHER)
    assert shared.tolist() == [
        [
            [1, 0, 0, 0, 0, 0, 0],
            [0, 2, 0, 0, 0, 0, 0],
            [0, 1, 3, 0, 0, 0, 0],
            [0, 0, 0, 3, 1, 0, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 0, 1],
        ]
    ]
    states = torch.tensor([1.0, 10.0, 20.0, 30.0, 50.0, 7.0, 3.0]).view(1, 7, 1)
    assert aligned_states(shared, states).flatten().tolist() == [1, 10, 17.5, 35, 7, 3]

    maps = torch.zeros(1, 1, 7, 7)
    maps[..., 0] = 1.0
    maps[0, 0, 1] = torch.tensor([0.1, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1])  # of unk
    maps[0, 0, 2] = torch.tensor([0.0, 0.6, 0.0, 0.2, 0.2, 0.0, 0.0])  # of ind
    found = aligned_attention(shared, maps)[0, 0]
    torch.testing.assert_close(found[1], torch.tensor([0.1, 0.2, 0.3, 0.2, 0.1, 0.1]))
    torch.testing.assert_close(found[2], torch.tensor([0.025, 0.35, 0.225, 0.35, 0.025, 0.025]))
    torch.testing.assert_close(found[3:], torch.eye(6)[:1].expand(3, 6))


def test_tokens_of_the_same_characters_meet_one_to_one():
    """Two bytes of one character, and a span without any: no sum of characters could tell them apart."""
    tokens = [
        (2, 0, 1),
        (0, 0, 1),
        (0, 0, 1),
        (0, 1, 1),
        (0, 1, 3),
        (0, 2, 3),
        (3, 0, 1),
        (3, 0, 1),
    ]
    assert torch.equal(overlap(tokens, tokens)[0], torch.eye(8))


def test_segments_and_roles_are_kept_apart():
    """Both texts begin at character 0; one side has one token between them, the other two."""
    student = [(2, 0, 1), (0, 0, 4), (3, 0, 1), (1, 0, 4), (4, 0, 1)]
    teacher = [(2, 0, 1), (0, 0, 4), (3, 0, 1), (3, 0, 1), (1, 0, 2), (1, 2, 4), (4, 0, 1)]
    found = overlap(student, teacher)[0]
    partners = [row.nonzero().flatten().tolist() for row in found]
    assert partners == [[0], [1], [2], [4, 5], [6]]


def test_a_token_without_a_partner_gets_nothing_and_others_get_its_attention():
    """The teacher was cut before "end"; and it has a token that the student lacks."""
    found = overlap(STUDENT, [*TEACHER[:5], (0, 20, 21), (3, 0, 1)])
    assert found.any(2).tolist() == [[True, True, True, True, False, True]]
    maps = torch.full((1, 1, 7, 7), 1 / 7)
    aligned = aligned_attention(found, maps)[0, 0]
    assert aligned[4].count_nonzero() == 0
    torch.testing.assert_close(aligned.sum(1), torch.tensor([1.0, 1, 1, 1, 0, 1]))


def cut(text: str, rng: random.Random) -> list[tuple[int, int, int]]:
    """A text in random pieces; spaces belong to none."""
    found, start = [], 0
    for at, sign in enumerate(text):
        if at > start and (sign == " " or rng.random() < 0.4):
            found.append((0, start, at))
            start = at
        if sign == " ":
            start = at + 1
    return [(2, 0, 1), *found, (0, start, len(text)), (3, 0, 1)]


TEXTS = ["a film of the year", "slow", "unkind to its viewers", "no end"]


@pytest.fixture(scope="module")
def batch():
    """Spans of both sides, and masks: the student's padding on the right, the teacher's on the left."""
    rng = random.Random(3)
    sides = []
    for left in (False, True):
        spans = [cut(text, rng) for text in TEXTS]
        longest = max(map(len, spans))
        filled = torch.zeros(len(TEXTS), longest, 3, dtype=torch.long)
        mask = torch.zeros(len(TEXTS), longest + 2, dtype=torch.bool)
        for row, one in enumerate(spans):
            filled[row, : len(one)] = torch.tensor(one)
            mask[row, slice(-len(one), None) if left else slice(len(one))] = True
        sides.append((spans, filled, mask))
    return sides


def characters(spans):
    return [{(segment, at) for at in range(start, end)} for segment, start, end in spans]


def test_explicit_loops_over_characters_agree(batch):
    (ours, student, student_mask), (theirs, teacher, teacher_mask) = batch
    shared = character_overlap(student, teacher, student_mask, teacher_mask)
    width = teacher_mask.shape[1]
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(len(TEXTS), width, 5, generator=generator)
    scores = torch.randn(len(TEXTS), 2, width, width, generator=generator)
    maps = scores.masked_fill(~teacher_mask[:, None, None], -torch.inf).softmax(-1)
    found = aligned_states(shared, states)
    found_maps, found_scores = aligned_attention(shared, maps), aligned_scores(shared, scores)
    for row in range(len(TEXTS)):
        own = characters(ours[row])
        other = characters(theirs[row])
        first = width - len(other)  # padding stands on the left
        share = [[len(a & b) / sum(len(a & c) for c in other) for b in other] for a in own]
        given = [[len(a & b) / sum(len(c & b) for c in own) for b in other] for a in own]
        for i in range(len(own)):
            expected = sum(share[i][j] * states[row, first + j] for j in range(len(other)))
            torch.testing.assert_close(found[row, i], expected)
            for k in range(len(own)):
                for head in range(2):
                    at_maps = at_scores = 0.0
                    for j in range(len(other)):
                        for m in range(len(other)):
                            place = row, head, first + j, first + m
                            at_maps += share[i][j] * maps[place].item() * given[k][m]
                            at_scores += share[i][j] * scores[place].item() * share[k][m]
                    assert found_maps[row, head, i, k].item() == pytest.approx(at_maps, abs=1e-6)
                    assert found_scores[row, head, i, k].item() == pytest.approx(
                        at_scores, abs=1e-5
                    )
        assert found[row, len(own) :].count_nonzero() == 0


@pytest.mark.parametrize("fill", [7.0, float("inf"), float("nan")])
def test_padding_and_the_order_of_a_batch_change_nothing(batch, fill):
    (_, student, student_mask), (_, teacher, teacher_mask) = batch
    states = torch.randn(*teacher_mask.shape, 5, generator=torch.Generator().manual_seed(1))
    plain = aligned_states(character_overlap(student, teacher, student_mask, teacher_mask), states)
    order = [2, 0, 3, 1]
    wider = torch.nn.functional.pad(teacher_mask, (0, 3))[order]
    dirty = torch.nn.functional.pad(states, (0, 0, 0, 3))[order]
    dirty = dirty.masked_fill(~wider[..., None], fill)
    left = torch.nn.functional.pad(student_mask, (4, 0))[order]
    again = aligned_states(character_overlap(student[order], teacher[order], left, wider), dirty)
    for place, row in enumerate(order):
        assert torch.equal(again[place][left[place]], plain[row][student_mask[row]])
        assert again[place][~left[place]].count_nonzero() == 0


def test_equal_tokens_are_the_identity_to_the_bit(batch):
    (_, spans, mask), _ = batch
    shared = character_overlap(spans, spans, mask, mask)
    assert torch.equal(shared, torch.diag_embed(mask.float()))
    generator = torch.Generator().manual_seed(2)
    for dtype in (torch.float32, torch.bfloat16):
        states = torch.randn(*mask.shape, 8, generator=generator).to(dtype)
        maps = torch.randn(len(mask), 2, mask.shape[1], mask.shape[1], generator=generator)
        maps = maps.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1).to(dtype)
        with torch.autocast("cpu", torch.bfloat16):
            found, found_maps = aligned_states(shared, states), aligned_attention(shared, maps)
        assert torch.equal(found[mask], states.float()[mask])
        assert torch.equal(found_maps.transpose(1, 2)[mask], maps.float().transpose(1, 2)[mask])
        assert found.dtype == found_maps.dtype == torch.float32


def test_nothing_waits_for_the_device(batch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    (_, student, student_mask), (_, teacher, teacher_mask) = batch
    with FakeTensorMode() as mode:
        given = map(mode.from_tensor, (student, teacher, student_mask, teacher_mask))
        shared = character_overlap(*given)
        width = teacher_mask.shape[1]
        aligned_states(shared, torch.randn(len(TEXTS), width, 3))
        aligned_attention(shared, torch.rand(len(TEXTS), 2, width, width))
