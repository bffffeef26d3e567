"""What Hugging Face's own eager models hold inside, in float64, and the papers' distances in loops.

An oracle: nothing here calls limbeck. Queries, keys and values are made from Hugging Face's hidden
states by the model's own linear maps; scores by dot products of single vectors.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog

Vectors = np.ndarray


@functools.cache
def eager(model: Any) -> Any:
    """A copy that shows its attention maps."""
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    return twin


@dataclass
class Inside:
    """One BERT on one batch. Layers count from 1; hidden[0] is the embedding output.

    `hidden[l]` (B, N, d), `maps[l]` (B, H, N, N), `logits` (B, C), `mask` (B, N).
    """

    hidden: list[Vectors]
    maps: dict[int, Vectors]
    logits: Vectors
    mask: Vectors
    layers: list[Any] = field(repr=False)
    heads: int = 2

    @classmethod
    def of(cls, model: Any, entry: torch.Tensor | None = None, **inputs: torch.Tensor) -> Inside:
        """Run it; `entry` takes the place of what the embeddings give."""
        twin = eager(model)
        put = lambda *_: entry  # noqa: E731
        hook = None if entry is None else twin.bert.embeddings.register_forward_hook(put)
        with torch.no_grad():
            out = twin(**inputs, output_hidden_states=True, output_attentions=True)
        if hook is not None:
            hook.remove()
        return cls(
            [state.double().numpy() for state in out.hidden_states],
            {layer: maps.double().numpy() for layer, maps in enumerate(out.attentions, 1)},
            out.logits.double().numpy(),
            inputs["attention_mask"].bool().numpy(),
            list(twin.bert.encoder.layer),
            twin.config.num_attention_heads,
        )

    @classmethod
    def of_examples(cls, model: Any, examples: dict[str, torch.Tensor]) -> Inside:
        return cls.of(model, **{key: examples[key] for key in ("input_ids", "attention_mask")})

    @property
    def examples(self) -> range:
        return range(len(self.mask))

    def real(self, example: int) -> list[int]:
        """The places of an example's tokens."""
        return [int(n) for n in np.flatnonzero(self.mask[example])]

    def of_head(self, what: str, layer: int, heads: int | None = None) -> Vectors:
        """`query`, `key` or `value` (B, heads, N, r): all features, split into `heads`."""
        linear = getattr(self.layers[layer - 1].attention.self, what)
        weight, bias = linear.weight.double().numpy(force=True), linear.bias.numpy(force=True)
        features = self.hidden[layer - 1] @ weight.T + bias
        parts = np.split(features, heads or self.heads, axis=-1)
        return np.stack(parts, axis=1)

    def score(self, layer: int, example: int, head: int, query: int, key: int) -> float:
        """q · k / √d_head."""
        q = self.of_head("query", layer)[example, head, query]
        k = self.of_head("key", layer)[example, head, key]
        return float(sum(a * b for a, b in zip(q, k, strict=True))) / math.sqrt(len(q))


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def kl(target: Iterable[float], given: Iterable[float]) -> float:
    return sum(t * math.log(t / g) for t, g in zip(target, given, strict=True) if t > 0)


def softmax(scores: Iterable[float]) -> list[float]:
    found = list(scores)
    powers = [math.exp(score - max(found)) for score in found]
    return [power / sum(powers) for power in powers]


def cosine(a: Vectors, b: Vectors) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def squares(a: Vectors, b: Vectors) -> float:
    """Mean squared difference of two vectors."""
    return sum(float(x - y) ** 2 for x, y in zip(a, b, strict=True)) / len(a)


# ---- one student layer against one teacher layer ----


def maps_kl(
    given: Callable[[int, int, int, int], float],
    target: Callable[[int, int, int, int], float],
    rows: list[list[int]],
    keys: list[list[int]],
    heads: int = 2,
) -> float:
    """KL(target ‖ given) of the rows (example, head, query, ·): mean of rows and heads, of examples."""
    total = []
    for b, queries in enumerate(rows):
        found = [
            kl([target(b, h, q, k) for k in keys[b]], [given(b, h, q, k) for k in keys[b]])
            for h in range(heads)
            for q in queries
        ]
        total.append(mean(found))
    return mean(total)


def attention_kl(student: Inside, teacher: Inside, j: int, k: int) -> float:
    """KL(A_T^k ‖ A_S^j) over each example's tokens."""
    tokens = [student.real(b) for b in student.examples]
    return maps_kl(
        lambda *place: float(student.maps[j][place]),
        lambda *place: float(teacher.maps[k][place]),
        tokens,
        tokens,
    )


def scores_mse(student: Inside, teacher: Inside, j: int, k: int) -> float:
    """TinyBERT's attention loss over each example's pairs of tokens."""
    q_s, k_s = student.of_head("query", j), student.of_head("key", j)
    q_t, k_t = teacher.of_head("query", k), teacher.of_head("key", k)
    total = []
    for b in student.examples:
        found = []
        for h in range(student.heads):
            for q in student.real(b):
                for key in student.real(b):
                    s = float(q_s[b, h, q] @ k_s[b, h, key]) / math.sqrt(q_s.shape[-1])
                    t = float(q_t[b, h, q] @ k_t[b, h, key]) / math.sqrt(q_t.shape[-1])
                    found.append((s - t) ** 2)
        total.append(mean(found))
    return mean(total)


def hidden_mse(student: Inside, teacher: Inside, j: int, k: int, weight: Vectors) -> float:
    """Squared error of W h_S and h_T: of features, of tokens, of examples."""
    return mean(
        mean(
            squares(weight @ student.hidden[j][b, n], teacher.hidden[k][b, n])
            for n in student.real(b)
        )
        for b in student.examples
    )


def first_token_cosine(student: Inside, teacher: Inside, j: int, k: int, weight: Vectors) -> float:
    """1 − cos of the first tokens."""
    return mean(
        1 - cosine(weight @ student.hidden[j][b, 0], teacher.hidden[k][b, 0])
        for b in student.examples
    )


def relation_rows(
    features: Vectors, example: int, head: int, tokens: list[int]
) -> list[list[float]]:
    """softmax(XXᵀ/√r) over an example's tokens."""
    x = features[example, head]
    return [softmax(float(x[q] @ x[k]) / math.sqrt(x.shape[-1]) for k in tokens) for q in tokens]


def relations_kl(student: Inside, teacher: Inside, what: str, j: int, k: int, heads: int) -> float:
    """KL(R_T ‖ R_S) of queries, keys or values in relation heads."""
    x_s, x_t = student.of_head(what, j, heads), teacher.of_head(what, k, heads)
    return mean(
        mean(
            kl(row_t, row_s)
            for h in range(heads)
            for row_t, row_s in zip(
                relation_rows(x_t, b, h, student.real(b)),
                relation_rows(x_s, b, h, student.real(b)),
                strict=True,
            )
        )
        for b in student.examples
    )


# ---- labels ----


def soft_label(student: Inside, teacher: Inside, temperature: float = 1.0) -> float:
    return mean(
        -sum(
            t * math.log(s)
            for t, s in zip(
                softmax(teacher.logits[b] / temperature),
                softmax(student.logits[b] / temperature),
                strict=True,
            )
        )
        for b in student.examples
    )


def hard_label(student: Inside, labels: Iterable[int]) -> float:
    rows = zip(student.logits, labels, strict=True)
    return mean(-math.log(softmax(row)[int(label)]) for row, label in rows)


# ---- transport ----


def cheapest_flow(costs: Vectors, supply: list[float], demand: list[float]) -> Vectors:
    """By linear programming: rows sum to the supply, columns to the demand."""
    rows, columns = costs.shape
    sums = np.vstack(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    )
    solved = linprog(costs.flatten(), A_eq=sums[:-1], b_eq=[*supply, *demand][:-1])
    return solved.x.reshape(rows, columns)
