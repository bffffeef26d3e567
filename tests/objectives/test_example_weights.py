"""How much each example counts, by the teacher's confidence and the student's uncertainty: loops and refusals."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_pairs import batch, bert, build, terms

from limbeck.activations import Trace
from limbeck.objectives import (
    EXAMPLE_WEIGHTINGS,
    ExampleWeighting,
    ModelShape,
    Objectives,
    Shape,
    TeamObjectives,
    WeightingSettings,
)
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.training import DistillationConfig

NOW = StepState()


def shape(classes: int = 3) -> Shape:
    return Shape(ModelShape.of(bert(2, 8, 1, classes=classes)), ModelShape.of(bert(2, 8, 0)))


def objectives(compare: str = "soft_kl", classes: int = 3, **recipe) -> Objectives:
    recipe = Recipe.load("kd-soft", **({"objectives.soft.compare": compare} | recipe))
    return Objectives(recipe.loss, shape(classes))


def traces(seed: int, size: int = 6, scale: float = 2.0) -> tuple[Trace, Trace]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(size, 3, generator=generator) * scale for _ in range(2)]
    return Trace(logits=drawn[0]), Trace(logits=drawn[1])


def found(own: Objectives, student: Trace, teacher: Trace, step_state=NOW) -> dict[str, float]:
    examples = {"labels": torch.zeros(len(student.logits), dtype=torch.long)}
    values = own(student, teacher, examples, step_state)
    return {name: value.item() for name, value in values.items()}


def softmax(row: list[float]) -> list[float]:
    terms = [math.exp(z) for z in row]
    return [term / sum(terms) for term in terms]


def entropy(row: list[float]) -> float:
    return -sum(p * math.log(p) for p in softmax(row))


def kls(student: Trace, teacher: Trace) -> list[float]:
    return [
        sum(
            p * math.log(p / q)
            for p, q in zip(softmax(t.tolist()), softmax(s.tolist()), strict=True)
        )
        for s, t in zip(student.logits, teacher.logits, strict=True)
    ]


def test_examples_of_which_the_teacher_is_unsure_do_not_count():
    student, teacher = traces(0)
    sure = [max(softmax(row)) >= 0.7 for row in teacher.logits.tolist()]
    assert 0 < sum(sure) < 6
    values = found(objectives(min_confidence=0.7), student, teacher)
    expected = sum(kl for kl, own in zip(kls(student, teacher), sure, strict=True) if own) / 6
    assert values == {
        "soft": pytest.approx(expected, rel=1e-5),
        "counted": pytest.approx(sum(sure) / 6),
    }


def test_weights_are_the_teachers_confidence():
    student, teacher = traces(1)
    sure = [max(softmax(row)) for row in teacher.logits.tolist()]
    values = found(objectives(example_weights="confidence"), student, teacher)
    expected = sum(w * kl for w, kl in zip(sure, kls(student, teacher), strict=True)) / 6
    assert values["soft"] == pytest.approx(expected, rel=1e-5)
    assert values["counted"] == 1.0


class LlkdByLoop:
    """The equations of its docstring, example by example."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self.level, self.shares, self.unsure = 1 / 3, [1 / 3] * 3, [0.0] * 3

    def moved(self, old: float, new: float) -> float:
        return self.momentum * old + (1 - self.momentum) * new

    def __call__(self, student: Trace, teacher: Trace) -> list[float]:
        theirs = [softmax(row) for row in teacher.logits.tolist()]
        doubts = [entropy(row) / math.log(3) for row in student.logits.tolist()]
        classes = [p.index(max(p)) for p in theirs]
        self.level = self.moved(self.level, sum(map(max, theirs)) / len(theirs))
        for c in range(3):
            self.shares[c] = self.moved(self.shares[c], sum(p[c] for p in theirs) / len(theirs))
            own = [u for u, k in zip(doubts, classes, strict=True) if k == c]
            if own:
                self.unsure[c] = self.moved(self.unsure[c], sum(own) / len(own))
        weights = []
        for p, u, c in zip(theirs, doubts, classes, strict=True):
            enough = self.level * self.shares[c] / max(self.shares)
            weights.append(max(p) * u if max(p) >= enough and u >= self.unsure[c] else 0.0)
        return weights


def test_llkd_against_a_loop_over_a_run():
    own = objectives(example_weights={"use": "llkd", "momentum": 0.6})
    loop, shares = LlkdByLoop(0.6), []
    for step in range(6):
        student, teacher = traces(10 + step)
        weights = loop(student, teacher)
        values = found(own, student, teacher)
        expected = sum(w * kl for w, kl in zip(weights, kls(student, teacher), strict=True)) / 6
        assert values["soft"] == pytest.approx(expected, rel=1e-4)
        shares.append(sum(w > 0 for w in weights) / 6)
        assert values["counted"] == pytest.approx(shares[-1])
    assert len(set(shares)) > 1


def test_llkd_keeps_its_thresholds_in_a_checkpoint():
    settings = {"use": "llkd", "momentum": 0.5}
    whole, first = (objectives(example_weights=settings) for _ in range(2))
    expected = [found(whole, *traces(step)) for step in range(4)]
    begun = [found(first, *traces(step)) for step in range(2)]
    again = objectives(example_weights=settings)
    again.load_state_dict(first.state_dict())
    assert begun + [found(again, *traces(step)) for step in range(2, 4)] == expected


def test_a_moment_without_one_sides_outputs_weighs_nothing():
    own, (student, teacher) = objectives(example_weights="confidence"), traces(0)
    examples = {"labels": torch.zeros(6, dtype=torch.long)}
    for sides in ((student, Trace()), (Trace(), teacher)):
        assert own._weighed(*sides, examples, NOW) == (examples, {})


def test_both_may_be_asked_for_and_multiply():
    student, teacher = traces(0)
    sure = [max(softmax(row)) for row in teacher.logits.tolist()]
    weights = [p if p >= 0.7 else 0.0 for p in sure]
    values = found(objectives(min_confidence=0.7, example_weights="confidence"), student, teacher)
    expected = sum(w * kl for w, kl in zip(weights, kls(student, teacher), strict=True)) / 6
    assert values["soft"] == pytest.approx(expected, rel=1e-5)


def test_the_true_labels_count_in_full():
    student, teacher = bert(2, 8, 1), bert(3, 8, 0)
    examples = batch()
    plain = terms(build("kd", student, teacher), student, teacher, examples)
    own = build("kd", student, teacher, min_confidence=0.999)
    weighed = terms(own, student, teacher, examples)
    assert weighed["hard"] == plain["hard"]
    assert weighed["soft"].item() < plain["soft"].item()
    # A share is logged, and is no part of the loss.
    assert own.total(weighed, NOW) == 0.5 * weighed["hard"] + 0.5 * weighed["soft"]


def test_weights_have_no_gradient():
    student, teacher = traces(2)
    student.logits.requires_grad_()
    own = objectives("pseudo_label", example_weights="llkd")
    values = own(student, teacher, {"labels": torch.zeros(6)}, NOW)
    weights = LlkdByLoop(0.99)(*traces(2))
    values["soft"].backward()
    logs = traces(2)[0].logits.requires_grad_()
    classes = teacher.logits.argmax(-1)
    each = torch.nn.functional.cross_entropy(logs, classes, reduction="none")
    (torch.tensor(weights) * each).mean().backward()
    torch.testing.assert_close(student.logits.grad, logs.grad)


@pytest.mark.parametrize("compare", ["logit_mse", "dkd", "pseudo_label", "error_weighted"])
def test_other_terms_of_the_teachers_logits_weigh_examples_too(compare):
    student, teacher = traces(3)
    sure = top_of(teacher) >= 0.8
    own, plain = objectives(compare, min_confidence=0.8), objectives(compare)
    changed = Trace(logits=torch.where(sure[:, None], student.logits, student.logits + 9.0))
    values = found(own, student, teacher)
    assert found(own, changed, teacher)["soft"] == values["soft"]
    assert values["soft"] != found(plain, student, teacher)["soft"]


def top_of(teacher: Trace) -> torch.Tensor:
    return torch.tensor([max(softmax(row)) for row in teacher.logits.tolist()])


def test_each_of_several_teachers_that_take_turns_has_thresholds_of_its_own():
    recipe = Recipe.load("kd-soft", example_weights="llkd")
    team = TeamObjectives(recipe.loss, [shape()] * 2, ("a", "b"))
    examples = {"labels": torch.zeros(6)}
    team.of(0)(*traces(0), examples, StepState(teacher=0))
    ways = [team.of(number).example_weights.ways[0] for number in range(2)]
    assert ways[0].confidence != ways[1].confidence


# ---- what is refused ----


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_confidence": 1.5}, "less than or equal to 1"),
        ({"example_weights": "llkdd"}, "llkd"),
        ({"example_weights": {"use": "llkd", "momentum": 2}}, "momentum"),
        ({"example_weights": {"use": "confidence", "speed": 2}}, "speed"),
    ],
)
def test_a_recipe_says_what_is_wrong_with_its_weights(given, words):
    with pytest.raises(LimbeckError, match=words):
        Recipe.load("kd-soft", **given)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (lambda: objectives(min_confidence=0.3), "of 3 classes the likeliest has at least 0.33"),
        (lambda: objectives(classes=2, min_confidence=0.5), "0.5 leaves nothing out"),
        (lambda: objectives(classes=1, min_confidence=0.8), "a regression has no classes"),
        (lambda: objectives("dist", min_confidence=0.8), r"none of the terms .* \(dist\)"),
        (lambda: objectives("hard_label", example_weights="llkd"), "soft_cross_entropy"),
    ],
)
def test_weights_that_would_do_nothing_are_refused(own, words):
    with pytest.raises(LimbeckError, match=words):
        own()


def test_a_term_may_not_have_the_name_of_the_share():
    recipe = Recipe.load("kd-soft", **{"objectives.counted.compare": "soft_kl"})
    with pytest.raises(LimbeckError, match=r"objectives\.counted"):
        Objectives(recipe.loss, shape())


# ---- where it is said ----


def test_a_recipe_reads_back_what_it_wrote(tmp_path):
    recipe = Recipe.load("llkd", **{"example_weights.momentum": 0.5, "min_confidence": 0.6})
    path = tmp_path / "own.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    again = Recipe.load(path)
    assert (again.example_weights, again.min_confidence) == (recipe.example_weights, 0.6)
    assert float(again.example_weights.momentum) == 0.5


def test_the_trainers_configuration_takes_them_too():
    config = DistillationConfig(
        "o", objectives={"soft": {"compare": "soft_kl"}}, min_confidence=0.9, example_weights="llkd"
    )
    recipe = DistillationConfig(**config.to_dict()).recipe()
    assert (recipe.min_confidence, recipe.example_weights.use) == (0.9, "llkd")


def test_a_first_stage_counts_all_examples_alike():
    recipe = Recipe.load("tinybert", min_confidence=0.9)
    assert [stage.recipe.min_confidence for stage in recipe.stages()] == [None, 0.9]


def test_a_way_of_weighing_of_ones_own():
    class HalfSettings(WeightingSettings):
        share: float = 0.5

    class Half(ExampleWeighting):
        settings_class = HalfSettings

        def forward(self, student, teacher, step_state):
            return torch.full((len(student),), self.settings.share)

    EXAMPLE_WEIGHTINGS.register("test-half")(Half)
    student, teacher = traces(0)
    try:
        own = objectives(example_weights={"use": "test-half", "share": 0.25})
    finally:  # known to this test alone
        del EXAMPLE_WEIGHTINGS._known["test-half"]
    plain = found(objectives(), student, teacher)["soft"]
    assert found(own, student, teacher)["soft"] == pytest.approx(plain / 4)


# ---- examples without a label ----


def by_label(labels, weight, compare="soft_kl", **recipe):
    """A term of some examples, and its gradient by the student's logits, at a weight of those without a label."""
    student, teacher = traces(4, size=len(labels))
    student.logits.requires_grad_()
    own = Recipe.load(
        "kd-soft", **({"objectives.soft.compare": compare, "unlabelled_weight": weight} | recipe)
    )
    terms = Objectives(own.loss, shape())
    value = terms(student, teacher, {"labels": torch.tensor(labels)}, NOW)["soft"]
    return value.item(), torch.autograd.grad(value, student.logits)[0], kls(student, teacher)


@pytest.mark.parametrize("weight", [0.0, 0.25, 3.0])
def test_examples_without_a_label_have_a_weight_of_their_own(weight):
    labels = [1, -100, -100, 0, 2, -100]
    value, gradient, each = by_label(labels, weight)
    shares = [weight if label < 0 else 1.0 for label in labels]
    expected = sum(w * kl for w, kl in zip(shares, each, strict=True)) / 6
    assert value == pytest.approx(expected, rel=1e-5)
    _, plain, _ = by_label(labels, 1.0)
    torch.testing.assert_close(gradient, plain * torch.tensor(shares)[:, None])


def test_the_weight_changes_nothing_where_all_have_a_label_and_scales_all_where_none_has():
    known, unknown = [0, 1, 2, 0, 1, 2], [-100] * 6
    assert by_label(known, 0.3)[0] == by_label(known, 1.0)[0]
    assert by_label(unknown, 0.3)[0] == pytest.approx(0.3 * by_label(unknown, 1.0)[0], rel=1e-5)
    # It is linear in the weight, and multiplies with confidence.
    some = [0, -100, 1, -100, 2, -100]
    low, middle, high = (by_label(some, w, min_confidence=0.5)[0] for w in (0.0, 0.5, 1.0))
    assert middle == pytest.approx((low + high) / 2, rel=1e-5)


@pytest.mark.parametrize("rule", ["teacher", "tempered"])
def test_the_soft_label_of_a_regression_counts_an_example_by_its_weight(rule):
    student, teacher = (torch.tensor([[n], [2.0 * n], [5.0]]) for n in (1.0, 3.0))
    recipe = Recipe.load(
        "kd-soft",
        **{
            "objectives.soft.regression": rule,
            "objectives.soft.temperature": 2.0,
            "unlabelled_weight": 0.25,
        },
    )
    terms = Objectives(recipe.loss, shape(1))
    labels = torch.tensor([0.5, float("nan"), float("nan")])
    found = terms(Trace(logits=student), Trace(logits=teacher), {"labels": labels}, NOW)["soft"]
    # (1 − 3)², a quarter of (2 − 6)² and of (5 − 5)².
    expected = (4 + 16 / 4 + 0) / 3
    assert found.item() == pytest.approx(expected if rule == "teacher" else expected / 4)
