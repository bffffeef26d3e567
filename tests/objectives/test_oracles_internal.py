"""Internal-KD's and ILD's terms, and their order, against loops on Hugging Face's own states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from inside import (
    Inside,
    attention_kl,
    cheapest_flow,
    first_token_cosine,
    hard_label,
    hidden_mse,
    mean,
    scores_mse,
    soft_label,
    squares,
)
from tiny_pairs import batch, bert, build, terms

from limbeck.objectives import Objectives
from limbeck.objectives.curriculum import Curriculum, CurriculumSpec
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState

# Six teacher layers over three of the student: j ↔ 2j.
PAIRS = {1: 2, 2: 4, 3: 6}
WIDTHS = [8, 12]


class Both:
    """A student of 3 layers and a teacher of 6, and what Hugging Face says of both."""

    def __init__(self, teacher_width: int = 12, teacher_layers: int = 6) -> None:
        self.student = bert(3, 8, seed=1)
        self.teacher = bert(teacher_layers, teacher_width, seed=0)
        self.examples = batch()
        self.s = Inside.of_examples(self.student, self.examples)
        self.t = Inside.of_examples(self.teacher, self.examples)

    def build(self, method: str, **given) -> Objectives:
        return build(method, self.student, self.teacher, **given)

    def found(
        self, objectives: Objectives, step_state: StepState | None = None
    ) -> dict[str, float]:
        values = terms(objectives, self.student, self.teacher, self.examples, step_state)
        return {name: value.item() for name, value in values.items()}

    def soft(self) -> float:
        return soft_label(self.s, self.t)

    def hard(self) -> float:
        return hard_label(self.s, self.examples["labels"])

    def kl(self, *layers: int) -> float:
        """Summed over pairs."""
        return sum(attention_kl(self.s, self.t, j, PAIRS[j]) for j in layers)

    def cosines(self, objectives: Objectives, *layers: int) -> float:
        weight = student_map(objectives, "cosine", self.s)
        return sum(first_token_cosine(self.s, self.t, j, PAIRS[j], weight) for j in layers)


def student_map(objectives: Objectives, name: str, student: Inside) -> np.ndarray:
    """The one matrix that maps all the student's layers; the unit matrix where there is none."""
    found = list(objectives[name].parameters())
    if not found:
        return np.eye(student.hidden[0].shape[-1])
    (weight,) = found
    return weight.detach().double().numpy()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("internal-kd-soft", {"soft"}),
        ("internal-kd-soft-kl", {"soft", "attention"}),
        ("internal-kd-soft-cos", {"soft", "cosine"}),
        ("internal-kd", {"soft", "attention", "cosine"}),
    ],
)
def test_all_layers_at_once(method, names, width):
    """KL is a mean over pairs, cosines are a sum; every weight is 1."""
    both = Both(width)
    objectives = both.build(method)
    expected = {
        "soft": both.soft(),
        "attention": both.kl(1, 2, 3) / 3,
        "cosine": both.cosines(objectives, 1, 2, 3) if "cosine" in names else 0,
    }
    found = both.found(objectives)
    assert found == pytest.approx({name: expected[name] for name in names}, rel=2e-5)
    values = {name: torch.tensor(1.0) for name in names}
    assert objectives.total(values, StepState()).item() == len(names)


# Layers that learn at a moment, and whether the labels do: 0.8 of the run over three layers.
PHASES = [
    (0.0, 1),
    (0.26, 1),
    (0.2667, 2),
    (0.5, 2),
    (0.55, 3),
    (0.79, 3),
    (0.8, None),
    (1.0, None),
]


@pytest.mark.parametrize(("progress", "layer"), PHASES)
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("always", ["", "-soft", "-soft-hard"])
def test_layers_in_turn(stacked, always, progress, layer):
    both = Both()
    objectives = both.build(f"internal-kd-{'sid' if stacked else 'pid'}{always}")
    found = both.found(objectives, StepState(progress=progress))
    expected = {}
    if always or layer is None:
        expected["soft"] = both.soft()
    if always == "-soft-hard":
        expected["hard"] = both.hard()
    if layer is not None:
        layers = range(1, layer + 1) if stacked else (layer,)
        expected["attention"] = both.kl(*layers)
        expected["cosine"] = both.cosines(objectives, *layers)
    assert found == pytest.approx(expected, rel=2e-5)
    if always == "-soft-hard":
        assert objectives.weight("hard", StepState()) == 0.1


def place(progress: float = 0.0, passes: float = 0.0, *, moved=(), **spec) -> int:
    given = CurriculumSpec(terms=["cosine"], order="progressive", **spec)
    curriculum = Curriculum(given, (1, 2, 3), ("cosine", "soft"))
    for number, (at, epochs) in enumerate(moved):
        if at is not None:
            curriculum.moved_on[number] = torch.tensor([at, epochs], dtype=torch.double)
    return curriculum.place(StepState(progress=progress, passes=passes))


@pytest.mark.parametrize(
    ("spec", "moved", "places"),
    [
        # By progress: limits of .2 each.
        ({"share": 0.6}, (), {0.0: 0, 0.19: 0, 0.2: 1, 0.39: 1, 0.4: 2, 0.59: 2, 0.6: 3, 1.0: 3}),
        # Layer 1 was left at .1: layer 2 has its .2 from there.
        ({"share": 0.6}, [(0.1, 1)], {0.09: 0, 0.1: 1, 0.29: 1, 0.3: 2, 0.49: 2, 0.5: 3}),
        # Layer 1 had its time, layer 2 was left at .3.
        ({"share": 0.6}, [(None, 0), (0.3, 3)], {0.29: 1, 0.3: 2, 0.49: 2, 0.5: 3}),
        ({"share": "3/4"}, (), {0.24: 0, 0.25: 1, 0.5: 2, 0.74: 2, 0.75: 3}),
    ],
)
def test_places_by_share_of_the_run(spec, moved, places):
    assert {p: place(p, 99.0, moved=moved, **spec) for p in places} == places


@pytest.mark.parametrize(
    ("limits", "moved", "places"),
    [
        (2, (), {0.0: 0, 1.9: 0, 2.0: 1, 4.0: 2, 5.9: 2, 6.0: 3}),
        ([1, 3, 0.5], (), {0.9: 0, 1.0: 1, 3.9: 1, 4.0: 2, 4.4: 2, 4.5: 3}),
        # Left after 1 epoch of 2: the next has its 2 from there.
        (2, [(0.1, 1)], {0.9: 0, 1.0: 1, 2.9: 1, 3.0: 2, 4.9: 2, 5.0: 3}),
    ],
)
def test_places_by_epochs_a_layer(limits, moved, places):
    """Epochs count, however much of the run they are."""
    found = {e: place(0.5, e, moved=moved, epochs_per_layer=limits) for e in places}
    assert found == places


def test_rounding_keeps_no_layer_a_step_too_long():
    """240 steps, of which 0.8 / 3 are 64 exactly."""
    turns = [place(step / 240) for step in range(240)]
    assert turns == [0] * 64 + [1] * 64 + [2] * 64 + [3] * 48


def test_a_small_sum_over_an_epoch_moves_on():
    """Algorithm 1, line 24: `τ < T`, tested at an epoch's end, or the limit, what is first."""
    spec = CurriculumSpec(
        terms=["cosine"], order="progressive", epochs_per_layer=3, watch="cosine", below=1.0
    )
    curriculum = Curriculum(spec, (1, 2), ("cosine", "soft"))

    def learns(epoch: float) -> int:
        return curriculum.place(StepState(progress=epoch / 10, passes=epoch))

    sums = [1.0, 0.99, 5.0, 5.0, 5.0, 5.0]  # 1.0 is not under the threshold
    turns = []
    for epoch, total in enumerate(sums):
        turns.append(learns(epoch))
        last = StepState(progress=(epoch + 0.9) / 10, passes=epoch + 0.9)
        following = StepState(progress=(epoch + 1) / 10, passes=epoch + 1)
        curriculum.end_epoch({"cosine": total, "loss": 0.0}, last, following)
    # Layer 1 for two epochs, layer 2 for the three it has, then neither.
    assert turns == [0, 0, 1, 1, 1, 2]
    again = Curriculum(spec, (1, 2), ("cosine", "soft"))
    again.load_state_dict(curriculum.state_dict())
    assert [again.place(StepState(passes=epoch)) for epoch in range(6)] == turns


def test_a_layer_whose_time_is_up_anyway_is_not_left_twice():
    spec = CurriculumSpec(
        terms=["cosine"], order="stacked", epochs_per_layer=1, watch="cosine", below=1.0
    )
    curriculum = Curriculum(spec, (1, 2), ("cosine", "soft"))
    curriculum.end_epoch({"cosine": 0.0}, StepState(passes=0.9), StepState(passes=1.0))
    assert curriculum.place(StepState(passes=1.0)) == 1
    assert torch.isinf(curriculum.moved_on).all()


# ---- intermediate layers as CR-ILD studies them ----


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("method", "layers"), [("l-ild", {3: 6}), ("u-ild", PAIRS)])
def test_ild_s_first_stage(method, layers, width):
    both = Both(width)
    objectives = both.build(method, stage=1)
    weight = student_map(objectives, "hidden", both.s)
    assert weight.shape == (width, 8)  # always applied
    assert (width != 8) or (weight == np.eye(8)).all()
    expected = {
        "attention": sum(attention_kl(both.s, both.t, j, k) for j, k in layers.items()),
        "hidden": sum(hidden_mse(both.s, both.t, j, k, weight) for j, k in layers.items()),
    }
    assert both.found(objectives) == pytest.approx(expected, rel=2e-5)
    assert both.found(both.build(method)) == pytest.approx({"soft": both.soft()}, rel=2e-5)


def test_ild_s_options():
    """Attention scores in place of maps, first tokens (patience) in place of all (pool)."""
    both = Both(8)
    given = {"compare": "normalized_mse", "pool": "cls"}
    objectives = both.build(
        "u-ild",
        stage=1,
        **{f"first_stage.objectives.hidden.{key}": value for key, value in given.items()},
        **{"first_stage.objectives.attention.compare": "attention_mse"},
    )
    weight = student_map(objectives, "hidden", both.s)

    def unit(vector: np.ndarray) -> np.ndarray:
        return vector / math.sqrt(vector @ vector)

    expected = {
        "attention": sum(scores_mse(both.s, both.t, j, k) for j, k in PAIRS.items()),
        "hidden": sum(
            8 * squares(unit(weight @ both.s.hidden[j][b, 0]), unit(both.t.hidden[k][b, 0])) / 4
            for j, k in PAIRS.items()
            for b in range(4)
        ),
    }
    assert both.found(objectives) == pytest.approx(expected, rel=2e-5)


def test_a_joint_stage_has_the_terms_of_both():
    both = Both()
    joint = both.build("l-ild", joint=True)
    apart = both.found(both.build("l-ild", stage=1)) | {"soft": both.soft()}
    assert both.found(joint) == pytest.approx(apart, rel=2e-5)


def test_emd_ild_moves_layers_at_least_cost():
    both = Both()
    fixed = {
        f"first_stage.objectives.{name}.mapping.layer_weights": "uniform"
        for name in ("attention", "hidden")
    }
    objectives = both.build("emd-ild", stage=1, **fixed)
    weight = student_map(objectives, "hidden", both.s)
    costs = {
        "attention": [[attention_kl(both.s, both.t, j, k) for k in range(1, 7)] for j in PAIRS],
        "hidden": [[hidden_mse(both.s, both.t, j, k, weight) for k in range(1, 7)] for j in PAIRS],
    }
    expected = {}
    for name, table in costs.items():
        flow = cheapest_flow(np.array(table), [1 / 3] * 3, [1 / 6] * 6)
        expected[name] = float((flow * table).sum())
        # The least cost is less than that of an even flow.
        assert expected[name] < mean(cost for row in table for cost in row)
    for _ in range(2):  # masses stay as they are
        assert both.found(objectives) == pytest.approx(expected, rel=1e-4)
        objectives.after_step()


def test_no_layer_can_go_first_where_mass_is_shared():
    both = Both()
    with pytest.raises(LimbeckError, match="cannot learn one after the other"):
        both.build(
            "emd-ild",
            stage=1,
            **{"first_stage.curriculum": {"terms": ["hidden"], "order": "stacked"}},
        )
