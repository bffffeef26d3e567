"""Labels at positions of a text, and labels of whole examples: hand-worked numbers, loops, torch's distributions."""

import math
import weakref
from functools import partial

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

import limbeck.functional as functional
from limbeck.functional import labelled_positions
from limbeck.functional.partial_logits import KeptTokens, partial_soft_label

LN2, LN3 = math.log(2), math.log(3)


def logits(*shape, seed=0):
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_labelled_tokens_by_hand():
    # Softmax of (0, ln 3) is (1/4, 3/4): a loss of ln 4 for class 0 and ln 4/3 for class 1.
    scores = torch.tensor([0.0, LN3]).expand(3, 4, 2)
    labels = torch.tensor([[0, 1, -100, 1], [-100, 0, -100, -100], [-100] * 4])
    first = (math.log(4) + 2 * math.log(4 / 3)) / 3
    expected = (first + math.log(4)) / 2  # the third example has no label, and does not count
    found = functional.token_cross_entropy(scores, labels)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    assert functional.token_cross_entropy(scores, torch.full((3, 4), -100)).item() == 0.0


def test_only_labelled_tokens_have_a_gradient():
    scores = logits(2, 3, 5).requires_grad_()
    labels = torch.tensor([[4, -100, 0], [-100, -100, 2]])
    poisoned = torch.where((labels == -100)[..., None], torch.nan, scores)
    functional.token_cross_entropy(poisoned, labels).backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad.abs().sum(-1) > 0).tolist() == (labels != -100).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("loss", ["token", "span"])
def test_soft_labels_against_torchs_distributions(loss, temperature):
    """Tokens: a distribution over the classes of each; spans: two over the tokens of each example."""
    classes = 5 if loss == "token" else 2
    student, teacher = logits(2, 4, classes), logits(2, 4, classes, seed=1)
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    kls, crosses = [], []
    for row in range(2):
        kept = [side[row][mask[row]] / temperature for side in (student, teacher)]
        ours, theirs = (Categorical(logits=x if loss == "token" else x.T) for x in kept)
        kl = kl_divergence(theirs, ours)
        kls.append(kl.mean().item())
        crosses.append((kl + theirs.entropy()).mean().item())
    at = {"temperature": temperature}
    found = getattr(functional, f"{loss}_soft_kl")(student, teacher, mask, **at)
    assert found.item() == pytest.approx(sum(kls) / 2, rel=1e-5)
    cross = getattr(functional, f"{loss}_soft_cross_entropy")
    assert cross(student, teacher, mask, **at).item() == pytest.approx(sum(crosses) / 2, rel=1e-5)
    scaled = cross(student, teacher, mask, **at, scale_by_t2=True)
    assert scaled.item() == pytest.approx(temperature**2 * sum(crosses) / 2, rel=1e-5)


def kl_of(one: list[float], other: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("beta", [0, 0.1, 0.5, 0.9, 1])
def test_the_jensen_shannon_divergence_by_a_loop(beta):
    """Probabilities and their mixture as Python floats, token by token; with a token that both sides rule out."""
    generator = torch.Generator().manual_seed(3)
    ours, theirs = torch.randn(2, 2, 3, 5, generator=generator) * 2
    mask = torch.tensor([[True, True, False], [False, True, False]])
    examples = []
    for row in range(2):
        distances = []
        for place in mask[row].nonzero().flatten().tolist():
            q, p = ([math.exp(v / 2) for v in side[row, place].tolist()] for side in (ours, theirs))
            q, p = [v / sum(q) for v in q], [v / sum(p) for v in p]
            m = [beta * a + (1 - beta) * b for a, b in zip(p, q, strict=True)]
            ends = {0: kl_of(p, q), 1: kl_of(q, p)}
            distances.append(ends.get(beta, beta * kl_of(p, m) + (1 - beta) * kl_of(q, m)))
        examples.append(sum(distances) / len(distances))
    found = functional.token_jsd(ours, theirs, mask, beta=beta, temperature=2)
    assert found.item() == pytest.approx(sum(examples) / 2, rel=1e-5)
    scaled = functional.token_jsd(ours, theirs, mask, beta=beta, temperature=2, scale_by_t2=True)
    assert scaled.item() == pytest.approx(4 * found.item())
    ours[..., 0], theirs[..., 0] = -math.inf, -math.inf
    student = ours.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        functional.token_jsd(student, theirs, mask, beta=beta), student
    )
    assert gradient.isfinite().all() and gradient[0, 0].any()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("skew", [0, 0.1, 0.7])
def test_the_skewed_divergence_by_a_loop(skew, reverse):
    """DistiLLM: of one distribution from its mixture with the other; finite where both rule a token out."""
    ours, theirs = logits(1, 3, 5), logits(1, 3, 5, seed=1)
    distances = []
    for place in range(2):
        q, p = ([math.exp(v / 2) for v in side[0, place].tolist()] for side in (ours, theirs))
        q, p = [v / sum(q) for v in q], [v / sum(p) for v in p]
        one, other = (q, p) if reverse else (p, q)
        mixture = [skew * a + (1 - skew) * b for a, b in zip(one, other, strict=True)]
        distances.append(kl_of(one, mixture))
    mask, given = torch.tensor([[True, True, False]]), {"skew": skew, "reverse": reverse}
    found = functional.token_skewed_kl(ours, theirs, mask, temperature=2, **given)
    assert found.item() == pytest.approx(sum(distances) / 2, rel=1e-5)
    ours[..., 0], theirs[..., 0] = -math.inf, -math.inf
    student = ours.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        functional.token_skewed_kl(student, theirs, mask, **given), student
    )
    assert gradient.isfinite().all() and gradient[0, 0].any()


@pytest.mark.parametrize("loss", ["token_soft_kl", "token_soft_cross_entropy"])
def test_a_class_that_both_sides_rule_out_plays_no_part(loss):
    student, teacher = logits(1, 3, 4).requires_grad_(), logits(1, 3, 4, seed=1)
    mask, ruled_out = torch.ones(1, 3).bool(), torch.tensor([False, False, True, False])
    distance = getattr(functional, loss)
    sides = [side.masked_fill(ruled_out, -torch.inf) for side in (student, teacher)]
    value = distance(*sides, mask)
    value.backward()
    without = distance(student.detach()[..., ~ruled_out], teacher[..., ~ruled_out], mask)
    assert value.item() == pytest.approx(without.item(), rel=1e-6)
    assert student.grad.isfinite().all()


def test_spans_by_hand():
    # Two tokens may answer, at odds of 1:3 for the start and even ones for the end.
    scores = torch.tensor([[[0.0, 1.0], [50.0, 50.0], [LN3, 1.0]]])
    mask = torch.tensor([[1, 0, 1]])
    found = functional.span_cross_entropy(scores, torch.tensor([2]), torch.tensor([0]), mask)
    assert found.item() == pytest.approx((math.log(4 / 3) + LN2) / 2, rel=1e-6)
    # A second example whose end alone is known counts for the end alone.
    two = functional.span_cross_entropy(
        scores.expand(2, 3, 2), torch.tensor([2, -100]), torch.tensor([0, 2]), mask.expand(2, 3)
    )
    assert two.item() == pytest.approx(found.item(), rel=1e-6)


def test_classes_by_hand():
    scores = torch.tensor([[0.0, LN3], [0.0, LN3], [7.0, torch.nan]])
    labels = torch.tensor([0, 1, -100])
    expected = (math.log(4) + math.log(4 / 3)) / 2
    found = functional.hard_cross_entropy(scores, labels)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    shares = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    mixed = math.log(4) / 2 + (math.log(4) + math.log(4 / 3)) / 4
    found = functional.hard_cross_entropy(scores[:2], shares)
    assert found.item() == pytest.approx(mixed, rel=1e-6)


def test_shares_that_are_no_numbers_reach_no_gradient():
    scores = logits(2, 3).requires_grad_()
    shares = torch.tensor([[0.2, 0.3, 0.5], [torch.nan] * 3])
    value = functional.hard_cross_entropy(scores, shares)
    value.backward()
    alone = functional.hard_cross_entropy(scores.detach()[:1], shares[:1])
    assert value.item() == pytest.approx(alone.item())
    assert scores.grad.isfinite().all()
    assert not scores.grad[1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.long])
def test_numbers_by_hand(dtype):
    labels = torch.tensor([1, 3, -2]).to(dtype)
    outputs = torch.tensor([0.5, 3.0, 1.0], requires_grad=True)
    value = functional.hard_mse(outputs, labels)
    assert value.item() == pytest.approx((0.25 + 0 + 9) / 3)
    if dtype.is_floating_point:
        labels[2] = torch.nan
        functional.hard_mse(outputs, labels).backward()
        assert outputs.grad.tolist() == pytest.approx([-0.5, 0.0, 0.0])  # over two examples


def test_half_precision_logits_are_compared_in_float32():
    scores, labels = logits(2, 3, 5).bfloat16(), torch.tensor([[4, -100, 0], [1, -100, 2]])
    starts = torch.tensor([0, 2])
    found = [
        functional.token_cross_entropy(scores, labels),
        functional.span_cross_entropy(scores[..., :2], starts, starts, torch.ones(2, 3).bool()),
        functional.hard_cross_entropy(scores[:, 0], starts),
        functional.hard_mse(scores[:, 0, 0], starts),
    ]
    assert {value.dtype for value in found} == {torch.float32}


def test_thresholds_and_means_of_classes_by_hand():
    found = functional.class_thresholds(torch.tensor(0.8), torch.tensor([0.2, 0.5, 0.3]))
    assert found.tolist() == pytest.approx([0.32, 0.8, 0.48])
    values, classes = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2, 0, 2])
    means = functional.class_means(values, classes, torch.tensor([9.0, 9.0, 9.0]))
    assert means.tolist() == [3.0, 9.0, 3.0]


def test_who_counts_is_sure_and_not_yet_known():
    sure, unsure = torch.tensor([0.9, 0.9, 0.6, 0.7]), torch.tensor([0.5, 0.1, 0.5, 0.2])
    weights = functional.sure_and_unsure(sure, unsure, torch.full((4,), 0.7), torch.full((4,), 0.2))
    assert weights.tolist() == pytest.approx([0.45, 0.0, 0.0, 0.14])


def test_a_memory_moves_by_hand():
    old, new = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 5.0], [0.0, 5.0]])
    found = functional.moved_unit(old, new, torch.tensor([True, False]), momentum=0.75)
    # (¾, ¼) of length √(10)/4, and what was not known before is new.
    assert found[0].tolist() == pytest.approx([3 / math.sqrt(10), 1 / math.sqrt(10)])
    assert found[1].tolist() == [0.0, 1.0]


def test_masses_are_inverse_to_the_cost_of_a_unit_of_mass():
    moved, mass = torch.tensor([0.2, 0.3]), torch.tensor([0.5, 0.25])
    # Units cost 0.4 and 1.2, so the first layer gets three times the second's mass.
    found = functional.cheaper_layers_weigh_more(moved, mass)
    assert found.tolist() == pytest.approx([0.75, 0.25])


def _of_kept_tokens(rule, distance=labelled_positions.divergences):
    def loss(student, teacher, mask, labels):
        part = KeptTokens.parse(rule).of(teacher, [*range(len(teacher))])
        return partial_soft_label(student, part, mask, distance=distance)

    return loss


OVER_A_VOCABULARY = {
    "labels": lambda student, teacher, mask, labels: functional.token_cross_entropy(
        student, labels
    ),
    "cross-entropy": lambda *sides: functional.token_soft_cross_entropy(*sides[:3], temperature=2),
    "kl": lambda *sides: functional.token_soft_kl(*sides[:3]),
    "jsd": lambda *sides: functional.token_jsd(*sides[:3], beta=0.3),
    "skewed": lambda *sides: functional.token_skewed_kl(*sides[:3]),
    "top": _of_kept_tokens("top3"),
    "sample": _of_kept_tokens("sample5"),
    "skewed, top": _of_kept_tokens(
        "top3", partial(labelled_positions.skewed, skew=0.1, reverse=True)
    ),
}


@pytest.mark.parametrize("name", OVER_A_VOCABULARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pieces_of_a_large_vocabulary_give_the_plain_loss_and_gradients(name, dtype, monkeypatch):
    student, teacher = (logits(3, 7, 11, seed=seed).to(dtype) for seed in (0, 1))
    labels = torch.arange(21).reshape(3, 7) % 11
    labels[0, :5], labels[2] = -100, -100  # pieces without a position, and an example
    found = []
    for rows in (21, 4, 1):
        monkeypatch.setattr(labelled_positions, "PIECE", rows * 11)
        ours = student.clone().requires_grad_()
        loss = OVER_A_VOCABULARY[name](ours, teacher, labels != -100, labels)
        with torch.no_grad():
            same = OVER_A_VOCABULARY[name](ours, teacher, labels != -100, labels)
        assert same == loss
        found.append((loss, *torch.autograd.grad(loss, ours)))
    plain, *pieces = found
    assert plain[1].abs().sum() > 0
    # In pieces a gradient is rounded twice: of its value, and multiplied by the loss's.
    bounds = (1e-6, 1e-8) if dtype == torch.float32 else (2**-7, 1e-6)
    for piece in pieces:
        torch.testing.assert_close(piece, plain, rtol=bounds[0], atol=bounds[1])


def test_pieces_give_gradients_to_every_side_that_wants_them_and_can_be_asked_twice(monkeypatch):
    found = []
    for rows in (21, 4):
        monkeypatch.setattr(labelled_positions, "PIECE", rows * 11)
        sides = [logits(3, 7, 11, seed=seed).requires_grad_() for seed in (0, 1)]
        loss = functional.token_soft_kl(*sides, torch.ones(3, 7).bool())
        once = torch.autograd.grad(loss, sides, retain_graph=True)
        twice = torch.autograd.grad(3 * loss, sides)
        found.append([*once, *twice])
    torch.testing.assert_close(found[1], found[0])


def test_pieces_of_fp16_keep_gradients_that_only_the_loss_scale_makes_numbers(monkeypatch):
    monkeypatch.setattr(labelled_positions, "PIECE", 2 * 3)
    ours = torch.tensor([[[20.0, 0, 0]] * 4], dtype=torch.float16).requires_grad_()
    loss = functional.token_cross_entropy(ours, torch.zeros(1, 4, dtype=torch.long))
    (gradient,) = torch.autograd.grad(2.0**16 * loss, ours)
    # e⁻²⁰ = 2.06e-9 of each other token, a quarter of it by the mean over four tokens.
    assert gradient[0, :, 1].float() == pytest.approx([2**14 * 2.06e-9] * 4, rel=0.01)


def test_in_pieces_as_much_is_kept_for_gradients_as_the_logits_get(monkeypatch):
    monkeypatch.setattr(labelled_positions, "PIECE", 4 * 50)
    student, teacher = logits(2, 8, 50).requires_grad_(), logits(2, 8, 50, seed=1)
    mask, kept = torch.ones(2, 8).bool(), []

    def keep(saved):
        kept.append(weakref.ref(saved))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        loss = functional.token_soft_kl(student, teacher, mask)
    held = [side.untyped_storage() for saved in kept if (side := saved()) is not None]
    places = {storage.data_ptr(): storage.nbytes() for storage in held}
    own = {side.untyped_storage().data_ptr() for side in (student, teacher)}
    assert sum(size for place, size in places.items() if place not in own) < 1.1 * student.nbytes
    assert loss.requires_grad
