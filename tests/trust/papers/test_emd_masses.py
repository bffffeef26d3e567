"""CR-ILD's EMD-ILD is Li et al.'s: after a step a layer weighs the inverse of what moving it cost.

Oracle: costs from Hugging Face's own outputs, the flow by scipy's linear programme, the masses by
the paper's cost attention in plain loops.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "objectives"))
from test_oracles_internal import (
    PAIRS,
    Both,
    attention_kl,
    cheapest_flow,
    hidden_mse,
    student_map,
)


def new_masses(flow: np.ndarray, costs: np.ndarray, weights, axis: int) -> list[float]:
    """c_i = Σ_j f_ij d_ij / w_i; w_i ← (Σ_k c_k) / c_i, then brought to sum 1."""
    count = len(weights)
    paid = []
    for i in range(count):
        row = flow[i] * costs[i] if axis == 1 else flow[:, i] * costs[:, i]
        paid.append(float(sum(row)) / weights[i])
    inverse = [sum(paid) / one for one in paid]
    return [one / sum(inverse) for one in inverse]


def test_masses_follow_the_costs_of_both_flows_averaged():
    both = Both()
    objectives = both.build("emd-ild", stage=1)
    weight = student_map(objectives, "hidden", both.s)
    tables = {
        "attention": np.array(
            [[attention_kl(both.s, both.t, j, k) for k in range(1, 7)] for j in PAIRS]
        ),
        "hidden": np.array(
            [[hidden_mse(both.s, both.t, j, k, weight) for k in range(1, 7)] for j in PAIRS]
        ),
    }
    student, teacher = [1 / 3] * 3, [1 / 6] * 6
    for _ in range(3):
        flows = {name: cheapest_flow(table, student, teacher) for name, table in tables.items()}
        expected = {name: float((flows[name] * table).sum()) for name, table in tables.items()}
        assert both.found(objectives) == pytest.approx(expected, rel=1e-3)
        objectives.after_step()
        found = [new_masses(flows[n], tables[n], student, 1) for n in tables]
        others = [new_masses(flows[n], tables[n], teacher, 0) for n in tables]
        student = [float(x) for x in np.mean(found, axis=0)]
        teacher = [float(x) for x in np.mean(others, axis=0)]
        for name in tables:
            mapping = objectives[name].mapping
            assert mapping.student_mass.tolist() == pytest.approx(student, rel=1e-3)
            assert mapping.teacher_mass.tolist() == pytest.approx(teacher, rel=1e-3)
    assert max(teacher) > 1.01 * min(teacher)
