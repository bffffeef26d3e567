"""What is kept of a teacher's distribution over a vocabulary, held against loops and against all of it."""

import dataclasses
import math
from functools import partial

import pytest
import torch

from limbeck import functional as F
from limbeck.functional import labelled_positions
from limbeck.functional.labelled_positions import (
    cross_entropies,
    divergences,
    jensen_shannon,
    skewed,
)
from limbeck.functional.partial_logits import KeptTokens, outcomes, partial_soft_label
from limbeck.support.errors import LimbeckError
from limbeck.tasks import SoftRule

V = 12
DISTANCES = {"soft_kl": divergences, "soft_cross_entropy": cross_entropies}


def tokens_at_positions(student, kept, valid, rule):
    return partial_soft_label(student, kept, valid, distance=DISTANCES[rule.compare], **rule.at)


def soft_at_positions(student, teacher, valid, rule):
    whole = {"soft_kl": F.token_soft_kl, "soft_cross_entropy": F.token_soft_cross_entropy}
    return whole[rule.compare](student, teacher, valid, **rule.at)


def random(*shape, seed=0, scale=2.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


VALID = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
STUDENT, TEACHER = random(3, 4, V), random(3, 4, V, seed=1)


def softmax(logits, temperature):
    terms = [math.exp(z / temperature) for z in logits]
    return [term / sum(terms) for term in terms]


@pytest.mark.parametrize("compare", ["soft_kl", "soft_cross_entropy"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_likeliest_with_a_tail_by_a_loop(compare, temperature):
    total = 0.0
    for example in range(3):
        places = [n for n in range(4) if VALID[example, n]]
        for place in places:
            p = softmax(TEACHER[example, place].tolist(), temperature)
            q = softmax(STUDENT[example, place].tolist(), temperature)
            top = sorted(range(V), key=lambda token: -p[token])[:4]
            pairs = [(p[token], q[token]) for token in top]
            pairs.append((1 - sum(a for a, _ in pairs), 1 - sum(b for _, b in pairs)))
            cross = -sum(a * math.log(b) for a, b in pairs)
            entropy = -sum(a * math.log(a) for a, _ in pairs)
            total += (cross - entropy * (compare == "soft_kl")) / len(places) / 3
    kept = KeptTokens("top", 4, temperature).of(TEACHER, [0, 1, 2])
    rule = SoftRule(compare, temperature)
    value = tokens_at_positions(STUDENT, kept, VALID, rule)
    assert value.item() == pytest.approx(total, rel=1e-5)
    squared = tokens_at_positions(STUDENT, kept, VALID, rule._replace(scale_by_t2=True))
    assert squared.item() == pytest.approx(total * temperature**2, rel=1e-5)


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a)


def mixed(share, one, other):
    return [share * a + (1 - share) * b for a, b in zip(one, other, strict=True)]


# Name → a divergence of rows, that of lists of probabilities (teacher, student), and that of the vocabulary.
MIXTURES = {
    "jsd": (
        partial(jensen_shannon, beta=0.3),
        lambda p, q: 0.3 * kl(p, mixed(0.3, p, q)) + 0.7 * kl(q, mixed(0.3, p, q)),
        partial(F.token_jsd, beta=0.3),
    ),
    "reverse": (
        partial(jensen_shannon, beta=1),
        lambda p, q: kl(q, p),
        partial(F.token_jsd, beta=1),
    ),
    "skewed": (
        partial(skewed, skew=0.1, reverse=False),
        lambda p, q: kl(p, mixed(0.1, p, q)),
        partial(F.token_skewed_kl, skew=0.1),
    ),
    "skewed back": (
        partial(skewed, skew=0.2, reverse=True),
        lambda p, q: kl(q, mixed(0.2, q, p)),
        partial(F.token_skewed_kl, skew=0.2, reverse=True),
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_divergences_from_a_mixture_with_a_tail_by_a_loop(name):
    """Over four tokens and the rest; at most the vocabulary's divergence, and over all of its tokens the same."""
    distance, by_loop, whole = MIXTURES[name]
    total = 0.0
    for example, place in VALID.nonzero().tolist():
        p = softmax(TEACHER[example, place].tolist(), 2.5)
        q = softmax(STUDENT[example, place].tolist(), 2.5)
        top = sorted(range(V), key=lambda token: -p[token])[:4]
        sides = [[side[token] for token in top] for side in (p, q)]
        outcomes = [[*side, 1 - sum(side)] for side in sides]
        total += by_loop(*outcomes) / VALID[example].sum().item() / 3
    at = {"temperature": 2.5, "scale_by_t2": True}
    student, found = STUDENT.clone().requires_grad_(), {}
    for k in (4, V):
        kept = KeptTokens("top", k, 2.5).of(TEACHER, [0, 1, 2])
        value = partial_soft_label(student, kept, VALID, distance=distance, **at)
        found[k] = (value, *torch.autograd.grad(value, student))
    expected = whole(student, TEACHER, VALID, **at)
    assert found[4][0].item() == pytest.approx(total * 2.5**2, rel=1e-4)
    assert found[4][0] < expected
    same = (expected, *torch.autograd.grad(expected, student))
    torch.testing.assert_close(found[V], same, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_need_more_of_sampled_tokens_than_their_counts(name):
    kept = KeptTokens("sample", 4).of(TEACHER, [0, 1, 2])
    with pytest.raises(LimbeckError, match="needs the teacher's probability of each"):
        partial_soft_label(STUDENT, kept, VALID, distance=MIXTURES[name][0])


@pytest.mark.parametrize("compare", ["soft_kl", "soft_cross_entropy"])
def test_the_whole_vocabulary_is_the_plain_term(compare):
    student = STUDENT.clone().requires_grad_()
    rule = SoftRule(compare, 2.0, scale_by_t2=True)
    kept = KeptTokens("top", V, 2.0).of(TEACHER, [0, 1, 2])
    part = tokens_at_positions(student, kept, VALID, rule)
    whole = soft_at_positions(student, TEACHER, VALID, rule)
    torch.testing.assert_close(part, whole)
    gradients = (torch.autograd.grad(value, student)[0] for value in (part, whole))
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("compare", ["soft_kl", "soft_cross_entropy"])
def test_the_gradient_of_sampled_tokens_is_unbiased(compare):
    """The mean over draws, within 6 standard errors of the gradient over the vocabulary, everywhere."""
    draws, n = 3000, 3
    teacher, row = TEACHER[:1, :2], STUDENT[:1, :2]
    valid = torch.ones(draws, 2, dtype=torch.bool)
    student = row.expand(draws, 2, V).clone().requires_grad_()
    kept = KeptTokens("sample", n).of(teacher.expand(draws, 2, V), range(draws))
    assert bool((kept.values.sum(-1) == n).all())
    value = tokens_at_positions(student, kept, valid, SoftRule(compare))
    (each,) = torch.autograd.grad(value * draws, student)
    alone = row.clone().requires_grad_()
    exact = soft_at_positions(alone, teacher, valid[:1], SoftRule(compare))
    (expected,) = torch.autograd.grad(exact, alone)
    error = each.std(0) / draws**0.5
    assert bool(((each.mean(0) - expected[0]).abs() <= 6 * error + 1e-7).all())
    # A draw's share of a token at a position deviates by at most ½ from its mean, over √n: Hoeffding's bound.
    assert abs(value.item() - exact.item()) < 0.2


def test_a_sample_follows_from_the_number_of_the_example_alone():
    rule = KeptTokens("sample", 5)
    alone = rule.of(TEACHER[1:2, :2], [17])
    among = rule.of(TEACHER, [3, 17, 4])
    assert torch.equal(among.ids[1, :2], alone.ids[0])
    assert torch.equal(among.values[1, :2], alone.values[0])
    assert not torch.equal(among.ids[1], rule.of(TEACHER, [3, 18, 4]).ids[1])


@pytest.mark.parametrize("sure", range(3))
def test_a_sample_of_one_certain_token_is_that_token(sure):
    """The first and the last among them."""
    logits = torch.zeros(1, 1, 3)
    logits[..., sure] = 200.0
    kept = KeptTokens("sample", 4).of(logits, [0])
    counts = torch.zeros(3).index_add(
        0, kept.ids[0, 0].clamp(min=0).long(), kept.values[0, 0].float()
    )
    assert counts.argmax() == sure and counts[sure] == counts.sum() > 0


def test_an_impossible_token_is_a_finite_number_without_probability():
    teacher = TEACHER.clone()
    teacher[..., 3:] = float("-inf")
    for rule in (KeptTokens("top", 5), KeptTokens("top", V), KeptTokens("sample", 4)):
        kept = rule.of(teacher, [0, 1, 2])
        assert kept.values.isfinite().all() and kept.rest.isfinite().all()
        student = STUDENT.clone().requires_grad_()
        tokens_at_positions(student, kept, VALID, SoftRule("soft_kl")).backward()
        for distance, *_ in MIXTURES.values() if rule.how == "top" else ():
            partial_soft_label(student, kept, VALID, distance=distance).backward()
        assert student.grad is not None and student.grad.isfinite().all()


def test_what_cannot_be_is_said():
    kept = KeptTokens("top", 2, 2.0).of(TEACHER, [0, 1, 2])
    with pytest.raises(LimbeckError, match=r"temperature is 1, and .* kept at 2"):
        tokens_at_positions(STUDENT, kept, VALID, SoftRule())
    with pytest.raises(LimbeckError, match="one label set, or one vocabulary"):
        tokens_at_positions(STUDENT[..., :5], kept, VALID, SoftRule("soft_kl", 2.0))
    for word in ("top", "best5", "top0", "top5@0", "sample3@x"):
        with pytest.raises(LimbeckError, match="sampleN"):
            KeptTokens.parse(word)
    assert KeptTokens.parse("top3@0.5") == KeptTokens("top", 3, 0.5)
    assert str(KeptTokens.parse("top64@2")) == "top64@2" and KeptTokens.parse("sample8").count == 8


@pytest.mark.parametrize("temperature", [2.0, 0.5, 2.3456789, 1e-5, 2e6, 1 / 3, 1e22])
def test_a_temperature_is_read_as_it_was_written(temperature):
    kept = KeptTokens("sample", 6, temperature)
    assert KeptTokens.parse(str(kept)) == kept


def test_sampled_tokens_have_the_papers_gradient_and_the_vocabularys_value():
    """Anshumann et al.: KL(c/n || P_S) over a dense c/n, by PyTorch's own `kl_div`."""
    kept = KeptTokens("sample", 6).of(TEACHER, [0, 1, 2])
    rows = {name: getattr(kept, name).flatten(0, 1)[None] for name in ("ids", "values", "rest")}
    kept = dataclasses.replace(kept, **rows)
    dense = torch.zeros(12, V).scatter_add_(-1, kept.ids[0], kept.values[0].float()) / 6
    ours, theirs = (STUDENT.reshape(12, V).clone().requires_grad_() for _ in range(2))
    kl = torch.nn.functional.kl_div(theirs.log_softmax(-1), dense, reduction="none").sum(-1)
    found = kept.distances(ours[None], divergences, torch.ones(1, 12).bool())
    found.sum().backward()
    kl.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=0)
    whole = torch.special.entr(TEACHER.reshape(12, V).softmax(-1)).sum(-1)
    entropy = torch.special.entr(dense).sum(-1)
    torch.testing.assert_close(kl - found, whole - entropy, atol=1e-5, rtol=0)
    assert (kl - found).mean() > 0.1


@pytest.mark.parametrize("temperature", [1, 2.5])
def test_gradients_of_outcomes_are_those_of_differences(temperature, monkeypatch):
    """Two rows a piece, of which the last has one; torch's numeric gradient."""
    monkeypatch.setattr(labelled_positions, "PIECE", 2 * 6)
    ours = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[0, 3], [5, 1], [2, 4], [1, 0], [4, 5]])
    of = partial(outcomes, temperature=temperature)
    assert torch.autograd.gradcheck(of, (ours.requires_grad_(), ids))
    assert of(ours, ids).exp().sum(-1).tolist() == pytest.approx([1] * 5)


def test_positions_that_do_not_count_may_hold_anything():
    valid = torch.tensor([[True, False]])
    ours = torch.tensor([[[1.0, 2, 3], [float("nan"), 0, 0]]]).requires_grad_()
    kept = KeptTokens("top", 2).of(torch.tensor([[[3.0, 2, 1], [3, 2, 1]]]), [0])
    kept.distances(ours, divergences, valid).sum().backward()
    assert ours.grad[0, 1].tolist() == [0, 0, 0]
    assert ours.grad[0, 0].abs().sum() > 0.1
