"""Attention and relation losses against hand-worked numbers and plain loops."""

import math

import pytest
import torch

from limbeck.functional import attention_kl, attention_mse, relation_kl
from limbeck.support.errors import LimbeckError

ALL = torch.ones(1, 2).bool()


def random_maps(batch, heads, queries, keys, seed=0):
    return torch.randn(
        2, batch, heads, queries, keys, generator=torch.Generator().manual_seed(seed)
    ).unbind()


def test_attention_kl_hand_worked():
    teacher = torch.tensor([[[[0.5, 0.5], [0.25, 0.75]]]])
    student = torch.tensor([[[[0.25, 0.75], [0.5, 0.5]]]])
    # row 0: ½·ln 2 + ½·ln ⅔ = 0.1438410; row 1: ¼·ln ½ + ¾·ln 1.5 = 0.1308120; mean 0.1373265
    assert attention_kl(student, teacher, ALL).item() == pytest.approx(0.1373265, abs=1e-6)
    # The second token padded away: row 0 and key 0 remain, ½·ln 2.
    first = torch.tensor([[True, False]])
    assert attention_kl(student, teacher, first).item() == pytest.approx(0.3465736, abs=1e-6)
    # Both keys, one query row.
    assert attention_kl(student, teacher, first, ALL).item() == pytest.approx(0.1438410, abs=1e-6)


def test_attention_kl_floors_probabilities_at_1e_12():
    teacher = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    student = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]], requires_grad=True)
    # row 0: 1·(ln 1 − ln 1e-12) = 27.6310; row 1: 0; mean 13.8155
    value = attention_kl(student, teacher, ALL)
    assert value.item() == pytest.approx(13.8155, abs=1e-3)
    value.backward()
    assert student.grad.isfinite().all()


def test_attention_kl_for_cross_attention_against_a_loop():
    student, teacher = (x.softmax(-1) for x in random_maps(3, 2, 4, 6))
    query_mask = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).bool()
    key_mask = torch.tensor([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0]]).bool()
    examples = []
    for b in range(3):
        rows = []
        for h in range(2):
            for q in range(4):
                if query_mask[b, q]:
                    row = 0.0
                    for k in range(6):
                        if key_mask[b, k]:
                            t, s = teacher[b, h, q, k].item(), student[b, h, q, k].item()
                            row += t * math.log(t / s)
                    rows.append(row)
        examples.append(sum(rows) / len(rows))
    value = attention_kl(student, teacher, query_mask, key_mask)
    assert value.item() == pytest.approx(sum(examples) / 3, rel=1e-5)


def test_cross_attention_without_key_mask_is_refused():
    maps, mask = torch.ones(1, 1, 2, 3), torch.ones(1, 2).bool()
    for loss in (attention_kl, attention_mse):
        with pytest.raises(LimbeckError, match="2 queries over 3 keys has no key mask"):
            loss(maps, maps, mask)


def test_attention_kl_gives_both_sides_a_gradient():
    """CR-ILD's consistency term compares the student with itself and stops no gradient."""
    student, teacher = (x.softmax(-1).requires_grad_() for x in random_maps(1, 1, 2, 2))
    attention_kl(student, teacher, ALL).backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad.abs().sum() > 0


def test_attention_mse_hand_worked():
    # Squared differences 1, 4 / 9, 16, over two heads the second of which agrees.
    student = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]])
    teacher = torch.zeros(1, 2, 2, 2)
    assert attention_mse(student, teacher, ALL).item() == pytest.approx(30 / 4 / 2)
    # causal: pairs (0,0), (1,0), (1,1): (1 + 9 + 16) / 3 / 2, a mean over pairs, not over rows
    assert attention_mse(student, teacher, ALL, causal=True).item() == pytest.approx(26 / 3 / 2)
    # the second token padded away: the pair (0,0) alone
    first = torch.tensor([[True, False]])
    assert attention_mse(student, teacher, first).item() == pytest.approx(1 / 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [4, 6])
def test_attention_mse_against_a_loop(keys, causal):
    student, teacher = random_maps(3, 2, 4, keys)
    query_mask = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).bool()
    key_mask = torch.tensor([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]]).bool()
    key_mask = key_mask[:, :keys]
    total = 0.0
    for b in range(3):
        for h in range(2):
            pairs = []
            for q in range(4):
                for k in range(keys):
                    if query_mask[b, q] and key_mask[b, k] and (k <= q or not causal):
                        pairs.append((student[b, h, q, k] - teacher[b, h, q, k]).item() ** 2)
            total += sum(pairs) / len(pairs) / 2 / 3
    value = attention_mse(student, teacher, query_mask, key_mask, causal=causal)
    assert value.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("masked", [float("-inf"), torch.finfo(torch.float32).min, -65504.0])
def test_attention_mse_leaves_out_what_a_model_masked_itself(masked):
    """A causal model's own mask on either side equals `causal=True`."""
    student, teacher = random_maps(2, 2, 4, 4)
    mask = torch.ones(2, 4).bool()
    expected = attention_mse(student, teacher, mask, causal=True).item()
    above = torch.ones(4, 4).triu(1).bool()
    hidden_student = student.masked_fill(above, masked)
    hidden_teacher = teacher.masked_fill(above, masked)
    for s, t in [(hidden_student, hidden_teacher), (hidden_student, teacher)]:
        s = s.clone().requires_grad_()
        value = attention_mse(s, t, mask)
        assert value.item() == pytest.approx(expected, rel=1e-6)
        value.backward()
        assert s.grad.isfinite().all()
        assert (s.grad[..., above] == 0).all()


def test_attention_mse_does_not_hide_a_nan_at_a_valid_pair():
    student = torch.zeros(1, 1, 2, 2)
    student[0, 0, 0, 0] = float("nan")
    assert attention_mse(student, torch.zeros(1, 1, 2, 2), ALL).isnan()


def test_relation_kl_hand_worked():
    # r = 1 on the student's side: X = (0, 1), XXᵀ = [[0, 0], [0, 1]].
    # r = 4 on the teacher's: rows 0 and (1, 1, 1, 1), XXᵀ/√4 = [[0, 0], [0, 2]].
    student = torch.tensor([[[[0.0], [1.0]]]])
    teacher = torch.tensor([[[[0.0] * 4, [1.0] * 4]]])
    # Row 0: both (½, ½). Row 1: teacher p = e²/(1+e²) = .8807971, student q = e/(1+e) = .7310586;
    # ln p = −.1269280, ln q = −.3132617, ln(1−p) = −2.1269280, ln(1−q) = −1.3132617:
    # p·.1863337 − (1−p)·.8136663 = .1641222 − .0969914 = .0671308, halved by the mean of rows.
    assert relation_kl(student, teacher, ALL).item() == pytest.approx(0.0335654, abs=1e-6)


def test_relation_kl_against_a_loop():
    generator = torch.Generator().manual_seed(5)
    student = torch.randn(2, 3, 4, 2, generator=generator)
    teacher = torch.randn(2, 3, 4, 5, generator=generator)
    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]]).bool()

    def relation(x, b, h, q):
        valid = [k for k in range(4) if mask[b, k]]
        width = x.shape[-1]
        scores = [
            sum(x[b, h, q, i].item() * x[b, h, k, i].item() for i in range(width)) for k in valid
        ]
        exponentials = [math.exp(score / math.sqrt(width)) for score in scores]
        return [e / sum(exponentials) for e in exponentials]

    total = 0.0
    for b in range(2):
        queries = [q for q in range(4) if mask[b, q]]
        for h in range(3):
            for q in queries:
                pairs = zip(relation(teacher, b, h, q), relation(student, b, h, q), strict=True)
                total += sum(t * math.log(t / s) for t, s in pairs) / len(queries) / 3 / 2
    assert relation_kl(student, teacher, mask).item() == pytest.approx(total, rel=1e-4)


def test_relation_kl_sees_relations_only():
    """A rotation of the features, or zero features added with √r restored, is the same relation."""
    generator = torch.Generator().manual_seed(6)
    student = torch.randn(2, 2, 3, 4, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator))
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    assert relation_kl(student, student @ rotation, mask).item() == pytest.approx(0, abs=1e-6)
    # 4 → 16 features doubles √r, so the features grow by √2.
    wide = torch.nn.functional.pad(student * 2**0.5, (0, 12))
    assert relation_kl(student, wide, mask).item() == pytest.approx(0, abs=1e-6)


def test_relation_kl_stays_finite_for_large_features():
    student = (torch.eye(3) * 100).view(1, 1, 3, 3).requires_grad_()
    value = relation_kl(student, torch.zeros(1, 1, 3, 2), torch.ones(1, 3).bool())
    # Teacher ⅓ each; the student's other two keys are at the floor: −⅔·ln 1e-12 − ln 3 = 17.3221
    assert value.item() == pytest.approx(17.3221, abs=1e-3)
    value.backward()
    assert student.grad.isfinite().all()
