"""Losses over a query's candidates: loops over lists and pairs, sentence-transformers' losses, and what is left out."""

import sys
from itertools import combinations, permutations
from math import exp, log, log1p, log2

import pytest
import torch

import limbeck.functional as functional

QUERIES = torch.tensor([5, 9, 5, 9, 5, 9, 1, 5])  # 1 has one candidate
GRADES = torch.tensor([0.0, 2.0, 1.0, 0.0, 0.0, 1.0, 1.0, 3.0])


def draw(seed: int) -> torch.Tensor:
    return torch.randn(8, generator=torch.Generator().manual_seed(seed)) * 2


def lists() -> list[list[int]]:
    return [[r for r in range(8) if QUERIES[r] == q] for q in (5, 9)]


def shares(values: list[float]) -> list[float]:
    return [exp(one) / sum(map(exp, values)) for one in values]


@pytest.mark.parametrize(("tau", "squared"), [(1.0, False), (2.5, False), (2.5, True)])
def test_listwise_kl(tau, squared) -> None:
    student, teacher = draw(0), draw(1)
    total = 0.0
    for rows in lists():
        p = shares([teacher[r].item() / tau for r in rows])
        q = shares([student[r].item() / tau for r in rows])
        total += sum(a * log(a / b) for a, b in zip(p, q, strict=True)) / 2
    found = functional.listwise_kl(student, teacher, QUERIES, temperature=tau, scale_by_t2=squared)
    assert found.item() == pytest.approx(total * (tau**2 if squared else 1), rel=1e-5)


def test_listwise_cross_entropy() -> None:
    scores, grades = draw(0), GRADES.clone()
    grades[4] = float("nan")  # nobody judged it: out of the list of query 5
    total = 0.0
    for rows in lists():
        judged = [r for r in rows if r != 4]
        q = shares([scores[r].item() for r in judged])
        whole = sum(grades[r].item() for r in judged)
        total -= sum(grades[r].item() / whole * log(b) for r, b in zip(judged, q, strict=True)) / 2
    found = functional.listwise_cross_entropy(scores, grades, QUERIES)
    assert found.item() == pytest.approx(total, rel=1e-5)


def test_a_list_without_anything_relevant_does_not_count() -> None:
    scores, grades = draw(0), GRADES.clone()
    grades[QUERIES == 9] = 0
    alone = QUERIES == 5
    expected = functional.listwise_cross_entropy(scores[alone], grades[alone], QUERIES[alone])
    torch.testing.assert_close(functional.listwise_cross_entropy(scores, grades, QUERIES), expected)


@pytest.mark.parametrize("graded", [True, False])
def test_margin_mse(graded) -> None:
    student, teacher = draw(0), draw(1)
    total = 0.0
    for rows in lists():
        pairs = permutations(rows, 2) if graded else combinations(rows, 2)
        kept = [(i, j) for i, j in pairs if not graded or GRADES[i] > GRADES[j]]
        errors = [
            ((student[i] - student[j]) - (teacher[i] - teacher[j])).item() ** 2 for i, j in kept
        ]
        total += sum(errors) / len(errors) / 2
    found = functional.margin_mse(student, teacher, QUERIES, GRADES if graded else None)
    assert found.item() == pytest.approx(total, rel=1e-5)


def weight(name: str, i: int, j: int, rows: list[int], scores, targets) -> float:
    """Of one pair, by sorting."""
    if name == "uniform":
        return 1.0
    least = min(targets[r].item() for r in rows)
    gains = {r: targets[r].item() - least for r in rows}
    ideal = sorted(gains.values(), reverse=True)
    best = sum(gain / log2(place + 2) for place, gain in enumerate(ideal))
    order = sorted(rows, key=lambda r: -scores[r].item())
    a, b = order.index(i) + 1, order.index(j) + 1
    apart = abs(gains[i] - gains[j]) / best
    first = apart * abs(1 / log2(1 + a) - 1 / log2(1 + b))
    gap = abs(a - b)
    second = apart * abs(1 / log2(1 + gap) - 1 / log2(2 + gap))
    return {"lambda_rank": first, "ndcg_loss2": second, "ndcg_loss2_plus": 10 * second + first}[
        name
    ]


@pytest.mark.parametrize("of", ["grades", "scores"])
@pytest.mark.parametrize("weighting", ["uniform", "lambda_rank", "ndcg_loss2", "ndcg_loss2_plus"])
def test_ranked_pairs(weighting, of) -> None:
    scores, targets = draw(0), GRADES if of == "grades" else draw(1)
    total = 0.0
    for rows in lists():
        losses = [
            weight(weighting, i, j, rows, scores, targets)
            * log1p(exp(scores[j].item() - scores[i].item()))
            for i, j in permutations(rows, 2)
            if targets[i] > targets[j]
        ]
        total += sum(losses) / len(losses) / 2
    found = functional.ranked_pairs(scores, targets, QUERIES, weighting=weighting)
    assert found.item() == pytest.approx(total, rel=1e-5)


class GivesScores(torch.nn.Module):
    """A cross-encoder whose scores are known."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def preprocess(self, pairs, **settings):
        return {}

    def forward(self, tokens):
        return {"scores": self.scores}


@pytest.mark.parametrize(
    ("weighting", "scheme"),
    [
        ("uniform", "NoWeightingScheme"),
        ("lambda_rank", "LambdaRankScheme"),
        ("ndcg_loss2", "NDCGLoss2Scheme"),
        ("ndcg_loss2_plus", "NDCGLoss2PPScheme"),
    ],
)
def test_sentence_transformers_lambda_loss_gives_the_same_of_one_list(weighting, scheme) -> None:
    from sentence_transformers.cross_encoder import losses

    rows = lists()[0]
    scores, grades = draw(0)[rows], GRADES[rows]
    loss = losses.LambdaLoss(
        GivesScores(scores), getattr(losses, scheme)(), reduction_log="natural", mini_batch_size=-1
    )
    # There a gain is 2^y − 1.
    theirs = loss((["q"], [["p"] * len(rows)]), [torch.log2(grades + 1)])
    ours = functional.ranked_pairs(scores, grades, torch.zeros(4).long(), weighting=weighting)
    torch.testing.assert_close(ours, theirs)


def test_sentence_transformers_margin_mse_gives_the_same(monkeypatch) -> None:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import losses

    # One positive and one negative a query: the mean over pairs is that over queries.
    student, teacher = draw(0), draw(1)
    queries, grades = torch.arange(8) // 2, torch.tensor([1.0, 0.0] * 4)

    sides = iter((student[::2, None], student[1::2, None]))
    # Its class has to be CrossEncoder's.
    model = CrossEncoder.__new__(CrossEncoder)
    torch.nn.Module.__init__(model)
    monkeypatch.setattr(CrossEncoder, "num_labels", 1)
    monkeypatch.setattr(CrossEncoder, "device", torch.device("cpu"), raising=False)
    monkeypatch.setattr(CrossEncoder, "preprocess", lambda *args, **settings: {})
    monkeypatch.setattr(CrossEncoder, "forward", lambda *args: {"scores": next(sides)})
    texts = ["t"] * 4
    theirs = losses.MarginMSELoss(model)([texts] * 3, teacher[::2] - teacher[1::2])
    torch.testing.assert_close(functional.margin_mse(student, teacher, queries, grades), theirs)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sentence_transformers_kl_of_candidates_gives_the_same(temperature) -> None:
    from sentence_transformers.sentence_transformer import losses

    # Four columns, a query and three candidates: the inner products are the student's scores.
    columns = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
    teacher = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    student = (columns[0] * columns[1:]).sum(-1).T
    queries = torch.arange(15) // 3
    ours = functional.listwise_kl(
        student.flatten(), teacher.flatten(), queries, temperature=temperature, scale_by_t2=True
    )
    loss = losses.DistillKLDivLoss(torch.nn.Identity(), temperature=temperature)
    theirs = loss.compute_loss_from_embeddings(list(columns), teacher)
    torch.testing.assert_close(ours, theirs)


LOSSES = {
    "listwise_kl": functional.listwise_kl,
    "listwise_cross_entropy": lambda s, t, q: functional.listwise_cross_entropy(s, GRADES, q),
    "margin_mse": lambda s, t, q: functional.margin_mse(s, t, q, GRADES),
    "ranked_pairs": functional.ranked_pairs,
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
class TestEachLoss:
    def test_lists_that_say_nothing_give_0_and_no_gradient(self, loss) -> None:
        scores = draw(0).requires_grad_()
        value = loss(scores, draw(1), torch.arange(8))
        value.backward()
        assert value.item() == 0 and (scores.grad == 0).all()

    def test_the_order_of_the_rows_plays_no_part(self, loss, monkeypatch) -> None:
        order = torch.randperm(8, generator=torch.Generator().manual_seed(4))
        expected = loss(draw(0), draw(1), QUERIES)
        monkeypatch.setattr(sys.modules[__name__], "GRADES", GRADES[order])
        found = loss(draw(0)[order], draw(1)[order], QUERIES[order])
        torch.testing.assert_close(found, expected)

    def test_a_number_added_to_all_scores_of_a_query_changes_nothing(self, loss) -> None:
        scores = draw(0)
        torch.testing.assert_close(
            loss(scores + 3.0 * QUERIES, draw(1), QUERIES), loss(scores, draw(1), QUERIES)
        )

    def test_a_step_along_the_gradient_lowers_it(self, loss) -> None:
        scores = draw(0).requires_grad_()
        value = loss(scores, draw(1), QUERIES)
        (gradient,) = torch.autograd.grad(value, scores)
        assert gradient.isfinite().all() and gradient[6] == 0
        assert loss(scores.detach() - 1e-2 * gradient, draw(1), QUERIES) < value

    def test_half_precision_and_autocast(self, loss) -> None:
        scores, targets = draw(0).bfloat16(), draw(1).bfloat16()
        value = loss(scores, targets, QUERIES)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss(scores.float(), targets.float(), QUERIES))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(loss(scores.float(), targets.float(), QUERIES), value)


def test_what_nobody_judged_has_no_gradient() -> None:
    scores, grades = draw(0).requires_grad_(), GRADES.clone()
    grades[2] = float("nan")
    functional.listwise_cross_entropy(scores, grades, QUERIES).backward()
    (pairs,) = torch.autograd.grad(
        functional.ranked_pairs(scores, grades, QUERIES, weighting="lambda_rank"), scores
    )
    assert scores.grad.isfinite().all() and pairs.isfinite().all()
    assert scores.grad[2] == 0 and pairs[2] == 0
