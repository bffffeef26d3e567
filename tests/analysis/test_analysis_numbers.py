"""Numbers of analyses against cases worked out by hand, loops and Hugging Face's own forward pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

import tiny_runs as tiny
from limbeck.evaluation.class_predictions import ClassPredictions
from limbeck.lab.measures import (
    agreement_of,
    filter_normalised_direction,
    layer_attention,
    loss_plane,
    loss_surface,
    noise_tolerance,
    noisy_embeddings,
    probe_layers,
    reliability_curve,
    run_course,
    state_points,
    weights_of,
)
from limbeck.lab.views.analysis_plots import point_panels
from limbeck.records import Record
from limbeck.records.facts import Epoch


def test_a_probe_reads_what_a_layer_holds_and_nothing_else() -> None:
    labels = np.array([0, 1] * 10 + [0] * 5)
    nothing, everything = np.zeros((25, 3)), np.stack([labels * 4.0 - 2, np.ones(25)], axis=1)
    backwards = -everything
    found = probe_layers([nothing, everything], labels, [nothing, backwards], labels, layers=[0, 3])
    # Constant states leave the most frequent class: 15 of 25; a turned axis has everything wrong.
    assert found.layers == (0, 3)
    assert found.scores == (60.0, 0.0)
    assert found.baseline == 60.0
    assert (found.train_rows, found.scored_rows, found.unconverged) == (25, 25, ())
    with pytest.raises(ValueError, match="two classes"):
        probe_layers([nothing[:1]], labels[:1], [nothing], labels)


def test_a_probe_of_numbers_is_a_ridge_regression_scored_by_ranks() -> None:
    """w = (XᵀX + I/C)⁻¹ Xᵀ(y − ȳ) on standardised states; ρ = 1 − 6 Σd² / (n(n² − 1)), no two alike."""
    draw = np.random.default_rng(3)
    states, others = draw.normal(2.0, 3.0, (30, 4)), draw.normal(2.0, 3.0, (9, 4))
    weights = np.array([1.0, -2.0, 0.0, 0.5])
    numbers, wanted = (one @ weights + draw.normal(0, 3, len(one)) for one in (states, others))
    found = probe_layers(
        [np.ones((30, 2)), states],
        numbers,
        [np.ones((9, 2)), others],
        wanted,
        numbers=True,
        strength=0.25,
    )
    centre, spread = states.mean(axis=0), states.std(axis=0)
    scaled, seen = (states - centre) / spread, (others - centre) / spread
    fitted = np.linalg.solve(
        scaled.T @ scaled + 4 * np.eye(4), scaled.T @ (numbers - numbers.mean())
    )
    ranks = [np.argsort(np.argsort(one)) for one in (seen @ fitted, wanted)]
    rho = 1 - 6 * np.sum((ranks[0] - ranks[1]) ** 2) / (9 * (81 - 1))
    assert found.scores == pytest.approx((0.0, 100 * rho))
    assert 0.2 < rho < 1
    assert (found.baseline, found.measure) == (0.0, "Spearman's ρ")


def test_the_most_frequent_class_is_that_of_the_fitted_rows() -> None:
    states = np.zeros((3, 2))
    found = probe_layers([states], np.array([0, 0, 1]), [states[:2]], np.array([1, 1]))
    assert found.baseline == 0.0


def test_noise_is_what_inputs_embeds_with_noise_would_be() -> None:
    model = tiny.bert(2).eval()
    ids = torch.tensor([[2, 4, 6, 3], [2, 5, 7, 3]])
    words = model.get_input_embeddings()(ids)
    noise = torch.randn(words.shape, generator=torch.Generator().manual_seed(7))
    with torch.no_grad(), noisy_embeddings(model, 0.5, 7):
        found = model(ids).logits
    with torch.no_grad():
        expected = model(inputs_embeds=words + 0.5 * noise).logits
        untouched = model(ids).logits
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, untouched)


def test_noise_is_scored_for_each_deviation_and_draw() -> None:
    model, seen = tiny.bert(1).eval(), []
    ids = torch.tensor([[2, 4, 3]])

    def scored() -> tuple[float, float]:
        with torch.no_grad():
            seen.append(model.get_input_embeddings()(ids))
        return 10.0 * len(seen), float(len(seen))

    told = []
    found = noise_tolerance(
        model, scored, [0.2, 0.0, 0.1], rows=1, metric="accuracy", repeats=2, seed=3,
        progressed=lambda *done: told.append(done),
    )  # fmt: skip
    assert [(p.deviation, p.scores, p.losses) for p in found.points] == [
        (0.0, (10.0,), (1.0,)),
        (0.1, (20.0, 30.0), (2.0, 3.0)),
        (0.2, (40.0, 50.0), (4.0, 5.0)),
    ]
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    clean, first, second, twice, _ = seen
    # A draw's noise is the same for every deviation, and another in the next draw.
    torch.testing.assert_close(twice - clean, 2 * (first - clean))
    assert not torch.allclose(first, second)


def test_agreement_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2])
    teacher = np.array([[.8, .1, .1], [.6, .3, .1], [.5, .4, .1], [.2, .7, .1], [.9, .1, 0], [.1, .8, .1]])  # fmt: skip
    student = np.array([[.7, .2, .1], [.2, .7, .1], [.1, .8, .1], [.1, .6, .3], [.6, .4, 0], [.6, .3, .1]])  # fmt: skip
    sides = [ClassPredictions(one.argmax(1), one) for one in (teacher, student)]
    found = agreement_of(
        ("a", "b", "c"), labels, *sides, texts={"text": list("uvwxyz")}, examples=1
    )
    # Rows 0 and 3 both right; 1 the teacher alone; 2 the student alone; 4 and 5 neither, 4 alike.
    assert [cell.count for cell in found.cells] == [2, 1, 1, 2]
    assert [(cell.teacher_right, cell.student_right) for cell in found.cells] == [
        (True, True), (True, False), (False, True), (False, False),
    ]  # fmt: skip
    assert (found.rows, found.alike) == (6, 1)
    # Distances: row 0 .1, row 3 .2 — row 4 .3, row 5 .5.
    assert [[one.row for one in cell.examples] for cell in found.cells] == [[3], [1], [2], [5]]
    last = found.cells[3].examples[0]
    assert (last.label, last.teacher, last.student, last.text) == ("c", "b", "a", {"text": "z"})
    assert last.student_probabilities == (0.6, 0.3, 0.1)


def test_agreement_of_words_that_are_no_class_and_of_no_rows() -> None:
    found = agreement_of(
        ("a", "b"), np.array([1]), ClassPredictions(np.array([2])), ClassPredictions(np.array([1]))
    )
    example = found.cells[2].examples[0]
    assert (example.teacher, example.teacher_probabilities, example.text) == (
        "no class", None, None,
    )  # fmt: skip
    nobody = ClassPredictions(np.array([], dtype=int))
    with pytest.raises(ValueError, match="0 labels"):
        agreement_of(("a",), np.array([]), nobody, nobody)


def test_calibration_by_hand() -> None:
    # Bins of a half: two at .6 of which one is right, one at 1.0 that is right, one at .4 that is wrong.
    found = reliability_curve(
        np.array([0.6, 0.6, 1.0, 0.4]), np.array([True, False, True, False]), bins=2
    )
    # (0, .5]: 1 row, sure .4, right 0. (.5, 1]: 3 rows, sure 2.2/3, right 2/3.
    assert found.error == pytest.approx(100 * (1 * 0.4 + 3 * abs(2 / 3 - 2.2 / 3)) / 4)
    assert [(p.rows, p.accuracy) for p in found.points] == [(1, 0.0), (3, pytest.approx(2 / 3))]
    assert (found.confidence, found.accuracy) == (pytest.approx(0.65), 0.5)
    empty = reliability_curve(np.array([0.9]), np.array([True]), bins=2).points[0]
    assert (empty.rows, empty.confidence, empty.accuracy) == (0, None, None)
    with pytest.raises(ValueError, match="probabilities"):
        reliability_curve(np.array([]), np.array([]))


def test_layer_attention_by_hand() -> None:
    weights = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]], [[0.0, 1.0]]])
    found = layer_attention("match", [2], [1, 4], [weights[:2], weights[2:]], shown=2)
    assert found.mean == ((0.5, 0.5),)
    assert found.deviation[0] == pytest.approx((math.sqrt(1 / 6), math.sqrt(1 / 6)))
    assert (found.rows, found.examples) == ((0, 1), (((1.0, 0.0),), ((0.5, 0.5),)))
    assert (found.student_layers, found.teacher_layers, found.count) == ((2,), (1, 4), 3)
    with pytest.raises(ValueError, match="for 2 student"):
        layer_attention("match", [1, 2], [1, 4], [weights])


def test_filters_of_a_direction_are_as_long_as_the_models_own() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(4, 2), nn.LayerNorm(2))
    found = filter_normalised_direction(model, torch.Generator().manual_seed(0))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            assert not found[name].any()
            continue
        for own, other in zip(weight.detach(), found[name], strict=True):
            assert float(other.norm()) == pytest.approx(float(own.norm()), rel=1e-5)
            assert not torch.allclose(own, other)


def test_a_loss_surface_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(3.0)
    told = []
    found = loss_surface(
        model, lambda: float(model.weight.detach() ** 2), rows=7, points=3, span=0.5, seed=1,
        progressed=lambda *done: told.append(done),
    )  # fmt: skip
    # A filter of one weight: either direction is 3 or −3, so that the weight is 3 + .5 (±a ± b) · 3.
    signs = torch.randn(1, generator=torch.Generator().manual_seed(1)).sign().item()
    generator = torch.Generator().manual_seed(1)
    first, second = (float(torch.randn((1, 1), generator=generator).sign()) for _ in range(2))
    assert signs == first
    for b, row in zip((-0.5, 0.0, 0.5), found.losses, strict=True):
        for a, loss in zip((-0.5, 0.0, 0.5), row, strict=True):
            assert loss == pytest.approx((3 + 3 * a * first + 3 * b * second) ** 2, rel=1e-5)
    assert (found.own, found.steps, found.rows) == (9.0, (-0.5, 0.0, 0.5), 7)
    assert float(model.weight.detach()) == 3.0
    assert told[-1] == (9, 9)
    with pytest.raises(ValueError, match="odd number"):
        loss_surface(model, lambda: 0.0, rows=1, points=4)


def test_a_plane_through_three_students_by_hand() -> None:
    """Two weights, loss (w₁ − 1)² + 3 w₂²: θ₀ (1, 0), θ₁ (3, 0), θ₂ (1, 2), so that w is (1 + 2 a, 2 b)."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0]]))

    def loss() -> float:
        first, second = model.weight.detach()[0].tolist()
        return (first - 1) ** 2 + 3 * second**2

    others = {
        "L": {"weight": torch.tensor([[3.0, 0.0]])},
        "U": {"weight": torch.tensor([[1.0, 2.0]])},
    }
    told = []
    found = loss_plane(
        model, others, loss, rows=7, name="KD", points=4, span=1.0,
        progressed=lambda *done: told.append(done),
    )  # fmt: skip
    assert found.steps == (-1.0, 0.0, 1.0, 2.0)
    # 4 a² along the first direction; 12 b² is added for each step along the second.
    assert found.losses == (
        (16.0, 12.0, 16.0, 28.0),
        (4.0, 0.0, 4.0, 16.0),
        (16.0, 12.0, 16.0, 28.0),
        (52.0, 48.0, 52.0, 64.0),
    )
    assert [(c.name, c.at, c.loss) for c in found.corners] == [
        ("KD", (0.0, 0.0), 0.0), ("L", (1.0, 0.0), 4.0), ("U", (0.0, 1.0), 12.0),
    ]  # fmt: skip
    assert (found.own, found.rows, told[-1]) == (0.0, 7, (19, 19))
    assert model.weight.detach().tolist() == [[1.0, 0.0]]
    # Steps that miss the students change nothing at the corners.
    coarse = loss_plane(model, others, loss, rows=7, points=3, span=0.3)
    assert [c.loss for c in coarse.corners] == [0.0, 4.0, 12.0]


def test_what_a_normalisation_has_counted_goes_along_in_a_plane() -> None:
    """At a corner everything is that student's, running means too."""
    models = [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval() for _ in range(3)]
    for number, one in enumerate(models):
        one[1].running_mean.fill_(float(number))
    rows = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    own = [float(one(rows).sum().detach()) for one in models]
    others = {name: weights_of(one) for name, one in zip("ab", models[1:], strict=True)}
    found = loss_plane(
        models[0], others, lambda: float(models[0](rows).sum().detach()), rows=2, points=3
    )
    # Absolute too: a sum of outputs may come out next to zero.
    assert [corner.loss for corner in found.corners] == pytest.approx(own, rel=1e-5, abs=1e-5)


def test_a_plane_needs_two_others_of_one_kind() -> None:
    model, wide = nn.Linear(2, 1), nn.Linear(3, 1)
    bare = {"weight": torch.zeros(1, 2)}
    with pytest.raises(ValueError, match="two others are needed, not 1"):
        loss_plane(model, {"a": weights_of(model)}, lambda: 0.0, rows=1)
    with pytest.raises(
        ValueError, match=r"b is another kind of model: weight is \(1, 3\) and not \(1, 2\)"
    ):
        loss_plane(model, {"a": weights_of(model), "b": weights_of(wide)}, lambda: 0.0, rows=1)
    with pytest.raises(ValueError, match="only one of the two has bias"):
        loss_plane(model, {"a": weights_of(model), "b": bare}, lambda: 0.0, rows=1)


def test_points_are_scikit_learns_components_of_all_states() -> None:
    generator = np.random.default_rng(3)
    student, teacher = generator.normal(size=(9, 5)), generator.normal(size=(9, 5)) + 1
    found = state_points(student, teacher, layers=(2, 4), labels=np.arange(9) % 2, names=("a", "b"))
    everything = np.concatenate([student, teacher])
    centred = everything - everything.mean(axis=0)
    # By singular values, with scikit-learn's own signs.
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    shares = values**2 / (values**2).sum()
    assert found.explained[0] == found.explained[1] == pytest.approx(tuple(shares[:2]))
    points = np.concatenate([found.student, found.teacher])
    assert np.abs(points) == pytest.approx(np.abs(centred @ directions[:2].T))
    expected = PCA(2).fit_transform(everything)
    assert points == pytest.approx(expected)
    for row, cosine in enumerate(found.cosines):
        dot = sum(a * b for a, b in zip(student[row], teacher[row], strict=True))
        lengths = math.hypot(*student[row]) * math.hypot(*teacher[row])
        assert cosine == pytest.approx(dot / lengths)
    assert (found.student_layer, found.teacher_layer, found.labels[:3]) == (2, 4, (0, 1, 0))


def test_points_of_different_widths_have_planes_of_their_own() -> None:
    line = np.arange(4.0)[:, None]
    found = state_points(line * [1, 0, 0], line * [0.0, 2.0])
    assert (found.together, found.cosines) == (False, None)
    assert found.explained[0][0] == pytest.approx(1.0)
    # On a line the first component is the distance from its middle.
    assert np.abs(np.array(found.student)[:, 0]) == pytest.approx([1.5, 0.5, 0.5, 1.5])
    assert np.abs(np.array(found.teacher)[:, 0]) == pytest.approx([3, 1, 1, 3])
    with pytest.raises(ValueError, match="1 states"):
        state_points(line[:1], line[:1])


def test_a_course_counts_steps_through_stages_and_says_when_a_layer_was_done() -> None:
    def epoch(stage, number, step, layers, dev, **train):
        return Epoch(
            epoch=number, stage=stage, step=step, train=train,
            dev={} if dev is None else {"primary": dev},
            active_layers={"match": [[layer, 2 * layer] for layer in layers]} if layers else {},
        )  # fmt: skip

    record = Record(kind="distill", method="m", task="t", data="d", seed=1)
    record.epochs = [
        epoch(1, 1, 10, [1], None, loss=3.0, match=3.0),
        epoch(1, 2, 20, [1, 2], 50.0, loss=2.0, match=2.0),
        epoch(2, 1, 5, [], 60.0, loss=1.0, soft=1.0),
    ]
    found = run_course(record)
    assert (found.steps, found.epochs) == ((10, 20, 25), (1, 2, 3))
    assert found.scores == (None, 50.0, 60.0)
    assert found.terms == {
        "loss": (3.0, 2.0, 1.0), "match": (3.0, 2.0, None), "soft": (None, None, 1.0),
    }  # fmt: skip
    assert found.learned == (1, 2, None)
    record.epochs = record.epochs[:1] * 2
    assert run_course(record).learned == (None, None)
    record.epochs = []
    with pytest.raises(ValueError, match="no epoch"):
        run_course(record)


def test_equal_states_are_drawn() -> None:
    """A model beside itself: all cosines are 1."""
    states = np.random.default_rng(1).normal(size=(6, 4))
    _, cosines = point_panels({"student": state_points(states, states)})
    assert "from 1.00 to 1.00" in cosines.alt
