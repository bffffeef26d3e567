"""TinyBERT, BERT-EMD, MiniLM, PKD's release and the combinations, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from inside import (
    Inside,
    attention_kl,
    cheapest_flow,
    hard_label,
    hidden_mse,
    kl,
    mean,
    relation_rows,
    relations_kl,
    scores_mse,
    soft_label,
    softmax,
    squares,
)
from tiny_pairs import batch, bert, build, terms

from limbeck.objectives import Objectives
from limbeck.support.step_state import StepState

# Six teacher layers over three of the student: j ↔ 2j.
PAIRS = {1: 2, 2: 4, 3: 6}


class Both:
    """A student of 3 layers and a teacher of 6, and what Hugging Face says of both."""

    def __init__(self, method: str, *, width: int = 12, heads: int = 2, **given) -> None:
        self.student = bert(3, 8, seed=1)
        self.teacher = bert(6, width, seed=0, heads=heads)
        self.objectives: Objectives = build(method, self.student, self.teacher, **given)
        self.see(batch())

    def see(self, examples) -> None:
        self.examples = examples
        self.s = Inside.of_examples(self.student, examples)
        self.t = Inside.of_examples(self.teacher, examples)

    def found(self, step_state: StepState | None = None) -> dict[str, float]:
        values = terms(self.objectives, self.student, self.teacher, self.examples, step_state)
        return {name: value.item() for name, value in values.items()}

    def weights(self, name: str) -> list[np.ndarray]:
        """A term's learned maps, in their order."""
        return [w.detach().double().numpy() for w in self.objectives[name].parameters()]

    def hidden(self, name: str, pairs: dict[int, int]) -> float:
        (weight,) = self.weights(name)
        return sum(hidden_mse(self.s, self.t, j, k, weight) for j, k in pairs.items())


def test_tinybert():
    both = Both("tinybert", stage=1)
    assert both.found() == pytest.approx(
        {
            "attention": sum(scores_mse(both.s, both.t, j, k) for j, k in PAIRS.items()),
            "hidden": both.hidden("hidden", PAIRS),
            "embedding": both.hidden("embedding", {0: 0}),
        },
        rel=2e-5,
    )
    assert not np.array_equal(both.weights("hidden")[0], both.weights("embedding")[0])


def test_tinybert_released_counts_padding():
    """Masked scores are zeros that count; states of padding count; one W_h with bias."""
    both = Both("tinybert-released", stage=1)
    both.see(batch(extra=2))
    weight, bias = both.weights("hidden")
    assert bias.shape == (12,)
    attention = 0.0
    for j, k in PAIRS.items():
        scores = []
        for side, layer in ((both.s, j), (both.t, k)):
            query, key = side.of_head("query", layer), side.of_head("key", layer)
            table = np.zeros((4, 2, 9, 9))
            for b, h, q, n in np.ndindex(table.shape):
                if side.mask[b, n]:
                    table[b, h, q, n] = query[b, h, q] @ key[b, h, n] / math.sqrt(query.shape[-1])
            scores.append(table)
        attention += squares(scores[0].flatten(), scores[1].flatten())
    hidden = sum(
        mean(
            squares(weight @ both.s.hidden[j][b, n] + bias, both.t.hidden[2 * j][b, n])
            for b in range(4)
            for n in range(9)
        )
        for j in range(4)
    )
    assert both.found() == pytest.approx({"attention": attention, "hidden": hidden}, rel=2e-5)


def test_tinybert_released_divides_the_soft_label_by_classes_too():
    both = Both("tinybert-released")
    assert both.found() == pytest.approx({"soft": soft_label(both.s, both.t) / 3}, rel=2e-5)


def test_pkd_released():
    """Mean over pairs and features; τ² KL over B·C; β = 500."""
    both = Both("pkd-released")
    student, teacher = both.weights("patience")[:2], both.weights("patience")[2:]

    def unit(vector: np.ndarray) -> np.ndarray:
        return vector / math.sqrt(vector @ vector)

    patience = mean(
        squares(
            unit(student[slot] @ both.s.hidden[j][b, 0]),
            unit(teacher[slot] @ both.t.hidden[k][b, 0]),
        )
        for slot, (j, k) in enumerate({1: 2, 2: 4}.items())
        for b in range(4)
    )
    soft = mean(
        kl(softmax(both.t.logits[b] / 10), softmax(both.s.logits[b] / 10)) for b in range(4)
    )
    hard = hard_label(both.s, both.examples["labels"])
    expected = {"hard": hard, "soft": 100 * soft / 3, "patience": patience}
    # At τ = 10 the KL is a ten-thousandth of its logarithms: float32 leaves it four digits.
    assert both.found() == pytest.approx(expected, rel=1e-3)
    weights = {name: both.objectives.weight(name, StepState()) for name in expected}
    assert weights == {"hard": 0.3, "soft": 0.7, "patience": 500}


@pytest.mark.parametrize("width", [8, 12])
def test_minilm(width):
    both = Both("minilm", stage=1, width=width)
    expected = {
        "attention": attention_kl(both.s, both.t, 3, 6),
        "value": relations_kl(both.s, both.t, "value", 3, 6, heads=2),
    }
    assert both.found() == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize(
    ("heads", "of_teacher", "number"), [(None, 3, 2), (4, 3, 4), ("teacher", 4, 4), (1, 2, 1)]
)
def test_minilmv2_splits_joined_heads_into_relation_heads(heads, of_teacher, number):
    """The student has 2 heads of 4 features, the teacher 12 features in all."""
    kinds = ("query", "key", "value")
    given = {f"first_stage.objectives.{kind}.heads": heads for kind in kinds if heads is not None}
    both = Both("minilmv2", stage=1, heads=of_teacher, **given)
    expected = {what: relations_kl(both.s, both.t, what, 3, 6, heads=number) for what in kinds}
    assert both.found() == pytest.approx(expected, rel=2e-5)


# ---- attention over teacher layers ----


def sparsemax(scores: list[float]) -> list[float]:
    """Weights max(s − t, 0) that sum to 1; t by bisection."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(100):
        middle = (low + high) / 2
        total = sum(max(score - middle, 0) for score in scores)
        low, high = (middle, high) if total > 1 else (low, middle)
    return [max(score - low, 0) for score in scores]


@pytest.mark.parametrize("width", [8, 12])
def test_alp_sparse(width):
    both = Both("alp-sparse", width=width)
    weights = both.weights("attention") or [np.eye(8), np.eye(8)]
    zeros, total = 0, 0.0
    for j in (1, 2):
        for b in range(4):
            s = weights[0] @ both.s.hidden[j][b, 0]
            layers = [weights[1] @ both.t.hidden[k][b, 0] for k in range(1, 7)]
            alpha = sparsemax([float(s @ t) for t in layers])
            zeros += alpha.count(0)
            total += squares(s, sum(a * t for a, t in zip(alpha, layers, strict=True))) / 4
    assert zeros > 0
    assert both.found()["attention"] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("width", [8, 12])
def test_alp_minilmv2_mixes_relations_by_first_tokens(width):
    both = Both("alp-minilmv2", stage=1, width=width, heads=2 if width == 8 else 3)
    expected = {}
    for what in ("query", "key", "value"):
        maps = both.weights(what) or [np.eye(8), np.eye(8)]
        x_s = both.s.of_head(what, 3, 2)
        x_t = {k: both.t.of_head(what, k, 2) for k in range(1, 7)}
        total = []
        for b in range(4):
            tokens = both.s.real(b)
            anchor = maps[0] @ both.s.hidden[3][b, 0]
            alpha = softmax(anchor @ (maps[1] @ both.t.hidden[k][b, 0]) for k in range(1, 7))
            rows = []
            for h in range(2):
                mixture = sum(
                    a * np.array(relation_rows(x_t[k], b, h, tokens))
                    for k, a in enumerate(alpha, start=1)
                )
                own = relation_rows(x_s, b, h, tokens)
                rows += [kl(t, s) for t, s in zip(mixture, own, strict=True)]
            total.append(mean(rows))
        expected[what] = mean(total)
    assert both.found() == pytest.approx(expected, rel=5e-5)


# ---- sampled layers ----


def test_rail_tinybert_draws_once_for_both_terms():
    both = Both("rail-tinybert", stage=1)
    seen = set()
    for epoch in range(6):
        step_state = StepState(seed=4, epoch=epoch)
        drawn = both.objectives.active_layers(step_state)
        assert drawn["attention"] == drawn["hidden"]
        pairs = dict(drawn["hidden"])
        assert list(pairs) == [1, 2] and list(pairs.values()) == sorted(pairs.values())
        assert max(pairs.values()) <= 5
        seen.add(tuple(pairs.values()))
        expected = {
            "attention": sum(scores_mse(both.s, both.t, j, k) for j, k in pairs.items()),
            "hidden": both.hidden("hidden", pairs),
            "embedding": both.hidden("embedding", {0: 0}),
        }
        if epoch < 3:
            assert both.found(step_state) == pytest.approx(expected, rel=2e-5)
    assert len(seen) > 1


# ---- transport with learned masses ----


def test_bert_emd_learns_its_masses():
    """Several steps: flows by linear programs, c_i = Σ f d / w_i, w_i ← Σc / c_i, both flows' mean."""
    both = Both("bert-emd")
    masses = [1 / 3] * 3, [1 / 6] * 6
    for step in range(4):
        both.see(batch(seed=5 + step))
        (weight,) = both.weights("hidden")
        tables = {
            "hidden": [
                [hidden_mse(both.s, both.t, j, k, weight) for k in range(1, 7)] for j in PAIRS
            ],
            "attention": [[scores_mse(both.s, both.t, j, k) for k in range(1, 7)] for j in PAIRS],
        }
        expected = {
            "hard": hard_label(both.s, both.examples["labels"]),
            "soft": soft_label(both.s, both.t),
            "embedding": both.hidden("embedding", {0: 0}),
        }
        proposed = []
        for name, table in tables.items():
            flow = cheapest_flow(np.array(table), *masses)
            moved = flow * table
            expected[name] = float(moved.sum())
            proposed.append(
                (
                    inverse_cost([sum(row) for row in moved], masses[0]),
                    inverse_cost([sum(column) for column in moved.T], masses[1]),
                )
            )
        assert both.found() == pytest.approx(expected, rel=1e-4), step
        both.objectives.after_step()
        (s_hidden, t_hidden), (s_attention, t_attention) = proposed
        masses = averaged(s_hidden, s_attention), averaged(t_hidden, t_attention)
        for name in tables:
            mapping = both.objectives[name].mapping
            assert mapping.student_mass.tolist() == pytest.approx(masses[0], rel=1e-3)
            assert mapping.teacher_mass.tolist() == pytest.approx(masses[1], rel=1e-3)
    assert max(masses[0]) > 1.1 * min(masses[0])
    weights = {name: both.objectives.weight(name, StepState()) for name in expected}
    assert weights == {"hard": 0.5, "soft": 0.5} | dict.fromkeys(
        ("embedding", "hidden", "attention"), 0.005
    )


def inverse_cost(moved: list[float], mass: list[float]) -> list[float]:
    cost = [m / w for m, w in zip(moved, mass, strict=True)]
    weight = [sum(cost) / c for c in cost]
    return [w / sum(weight) for w in weight]


def averaged(one: list[float], other: list[float]) -> list[float]:
    return [(a + b) / 2 for a, b in zip(one, other, strict=True)]


def test_masses_rest_in_evaluation_and_add_up_over_micro_batches():
    both = Both("bert-emd")
    mapping = both.objectives["hidden"].mapping
    both.objectives.eval()
    both.found()
    both.objectives.after_step()
    assert mapping.student_mass.tolist() == pytest.approx([1 / 3] * 3)
    both.objectives.train()
    both.found()
    both.objectives.after_step()
    once = mapping.student_mass.tolist()
    again = Both("bert-emd")
    for _ in range(2):  # the same micro-batch twice: costs double, their proportions stay
        again.found()
    again.objectives.after_step()
    assert again.objectives["hidden"].mapping.student_mass.tolist() == pytest.approx(once)
