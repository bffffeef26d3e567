"""What every registered term promises, whoever registered it: one sample a name, and none without.

Padding changes nothing, gradients reach the student and its own maps and nobody else, it asks for what it
reads and for what its traits allow, and steps of a training go on after its state was saved as if they had
not been broken off.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny_pairs import CLASSES, batch, bert
from torch import nn

from limbeck.activations import Mixed, Request, Trace, capture
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.objectives import OBJECTIVES, Loss, ModelShape, Objectives, Shape, TermSpec
from limbeck.objectives.predictions import LogitMseSpec
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import PAIR_SCORE, SENTENCE, get_task_type

LAST = {"kind": "last-to-last"}
ALL = {"kind": "uniform", "student_layers": "1..M"}
MAP = {"to": "teacher", "sides": "student"}
EMBEDDINGS = (
    "embedding_mse",
    "embedding_cosine",
    "similarity_mse",
    "similarity_kl",
    "pair_contrast",
)
LISTS = ("listwise_kl", "margin_mse", "ranked_pairs")
# Of each name what it needs besides.
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        name: {}
        for name in ("hard_label", "focal", "soft_cross_entropy", "soft_kl", "error_weighted")
    },
    **{
        name: {}
        for name in ("dist", "dkd", "generalized_jsd", "logit_mse", "pseudo_label", "skewed_kl")
    },
    **{
        name: {"mapping": LAST, "pool": "cls", "project": MAP} for name in ("mse", "normalized_mse")
    },
    **{name: {"mapping": LAST, "project": MAP} for name in ("cosine_distance", "hidden_mse")},
    **{
        name: {"mapping": LAST}
        for name in ("attention_kl", "attention_cross_entropy", "attention_mse")
    },
    **{name: {"mapping": LAST, "of": "value"} for name in ("relation_kl", "relation_mse")},
    **{name: {"mapping": ALL} for name in ("word_relation_kl", "word_relation_mse")},
    **{name: {"mapping": ALL} for name in ("layer_relation_kl", "layer_relation_mse")},
    "info_nce": {"mapping": LAST, "project": {"to": 8}},
    **{name: {} for name in ("attention_consistency", "hidden_consistency")},
    **{name: {} for name in (*LISTS, *EMBEDDINGS)},
}
every_term = pytest.mark.parametrize("name", SETTINGS)
NOW = StepState(seed=3, step=2, progress=0.5)


def test_every_registered_term_has_a_sample():
    own = {name for name in OBJECTIVES if OBJECTIVES.get(name).__module__.startswith("limbeck.")}
    assert set(SETTINGS) == own


class Watched(Trace):
    """A trace that knows what was read of it."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(dict(trace.values), trace.logits, masks=trace.masks)
        self.read: set[Any] = set()

    def __getitem__(self, seen):
        self.read.add(seen)
        return super().__getitem__(seen)


def list_batch(extra: int = 0, seed: int = 5) -> dict[str, torch.Tensor]:
    """The same texts as candidates of two queries."""
    return batch(extra, classes=1, seed=seed) | {"query_id": torch.tensor([5, 8, 5, 8])}


def tuple_batch(extra: int = 0, seed: int = 5) -> dict[str, torch.Tensor]:
    """The same texts as two pairs."""
    grades = torch.tensor([float("nan"), float("nan"), 1, 1])
    return list_batch(extra, seed) | {"grade": grades}


class Step:
    """One term between two tiny models; mixed inputs where it needs them."""

    def __init__(self, name: str) -> None:
        from pydantic import TypeAdapter

        term = {"compare": name, **SETTINGS[name]}
        lists = name in LISTS
        kind, classes = (PAIR_SCORE, 1) if lists else (SENTENCE, CLASSES)
        models = bert(3, 8, 1, classes), bert(4, 12, 0, classes)
        if name in EMBEDDINGS:
            kind = get_task_type("embedding")
            torch.manual_seed(1)
            models = tuple(SENTENCE_EMBEDDERS.from_config(one.config).eval() for one in models)
        self.student, self.teacher = copy.deepcopy(models[0]), models[1]
        self.batch = tuple_batch if name in EMBEDDINGS else list_batch if lists else batch
        shape = Shape(ModelShape.of(self.student), ModelShape.of(self.teacher), kind=kind, rows=8)
        torch.manual_seed(7)
        specs = TypeAdapter(dict[str, TermSpec]).validate_python({"term": term})
        self.settings = specs["term"]
        self.objectives = Objectives(Loss(specs), shape)

    def traces(self, examples) -> tuple[Watched, Watched]:
        asked = {s: self.objectives.request(s, NOW) for s in ("student", "teacher", "clean")}
        student = Watched(capture(self.student, examples, asked["student"]))
        if self.settings.needs_mixed:
            clean = capture(self.student, examples, asked["clean"])
            student.mixed = Mixed(clean, examples, torch.tensor([1, 0, 3, 2]), 0.7)
        with torch.no_grad():
            teacher = Watched(capture(self.teacher, examples, asked["teacher"]))
        return student, teacher

    def __call__(self, examples=None) -> torch.Tensor:
        examples = self.batch() if examples is None else examples
        return self.objectives(*self.traces(examples), examples, NOW)["term"]


@every_term
def test_padding_changes_nothing(name):
    step = Step(name)
    step.objectives.eval()
    torch.testing.assert_close(step(step.batch(extra=6)), step(), rtol=1e-4, atol=1e-5)


@every_term
def test_gradients_reach_the_student_and_only_it(name):
    step = Step(name)
    value = step()
    assert value.shape == () and value.dtype == torch.float32
    if name == "info_nce":  # nothing is remembered before the first step
        value = step()
    value.backward()
    reached = [weight.grad for weight in step.student.parameters() if weight.grad is not None]
    assert reached and all(gradient.isfinite().all() for gradient in reached)
    assert any(gradient.abs().max() > 0 for gradient in reached)
    assert all(weight.grad is None for weight in step.teacher.parameters())


@every_term
def test_it_asks_for_what_it_reads_and_no_more_than_its_traits_allow(name):
    step = Step(name)
    asked = {side: step.objectives.request(side, NOW) for side in ("student", "teacher")}
    examples = step.batch()
    student, teacher = step.traces(examples)
    step.objectives(student, teacher, examples, NOW)
    assert student.read == set(asked["student"].items)
    assert teacher.read == set(asked["teacher"].items)
    term, settings = OBJECTIVES.get(name), step.settings
    assert bool(asked["teacher"] != Request()) == settings.needs_teacher
    assert any(one.logits for one in asked.values()) == settings.reads_logits
    assert any(one.items for one in asked.values()) == settings.needs_layers
    without = {key: value for key, value in examples.items() if key != "labels"}
    if settings.reads_labels:
        with pytest.raises(Exception, match="label"):
            step.objectives(student, teacher, without, NOW)
    else:
        step.objectives(student, teacher, without, NOW)
    assert issubclass(type(step.objectives["term"]), term)


@every_term
def test_steps_after_its_state_was_saved_equal_unbroken_ones(name):
    """Maps, memories and masses are parameters or buffers."""

    def steps(step: Step, count: int, first: int) -> list[float]:
        found = []
        for number in range(first, first + count):
            value = step(step.batch(seed=number))
            found.append(value.item())
            weights = [*step.student.parameters(), *step.objectives.parameters()]
            gradients = torch.autograd.grad(value, weights, allow_unused=True)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    if gradient is not None:
                        weight -= 0.01 * gradient
            step.objectives.after_step()
        return found

    whole, first = Step(name), Step(name)
    expected = steps(whole, 4, 0)
    begun = steps(first, 2, 0)
    again = Step(name)
    again.student.load_state_dict(first.student.state_dict())
    again.objectives.load_state_dict(first.objectives.state_dict())
    assert begun + steps(again, 2, 2) == expected


@pytest.mark.parametrize("name", ["dist", "dkd", "logit_mse", "pseudo_label"])
@pytest.mark.parametrize(("classes", "words"), [(1, "a regression has one number"), (2, None)])
def test_terms_of_classes_say_what_they_need(name, classes, words):
    sides = [ModelShape.of(bert(2, 8, 1, classes=classes))] * 2
    settings = OBJECTIVES.get(name).settings_class(compare=name)
    if words is not None:
        with pytest.raises(Exception, match=words):
            settings.build(Shape(*sides), "objectives.x")
        return
    told = [str(one) for one in settings.build(Shape(*sides), "objectives.x").remarks()]
    assert ("objectives.x: the task has two classes" in "".join(told)) == (name in ("dist", "dkd"))


def test_centered_logits_are_compared_as_at_a_high_temperature():
    """2·T²·KL(p_T ‖ p_S) tends to the mean over C classes of the squared centered differences."""
    pair = Shape(*[ModelShape.of(bert(2, 8, 1, classes=3))] * 2)
    term = LogitMseSpec(compare="logit_mse", centered=True)
    assert not term.shifts_matter
    ours = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -4.0]], dtype=torch.float64)
    theirs = torch.tensor([[2.0, 0.0, 1.5], [-1.0, 3.0, 0.2]], dtype=torch.float64)
    sides = [nn.functional.log_softmax(side / 1e4, -1) for side in (ours, theirs)]
    limit = 2e8 * nn.functional.kl_div(*sides, log_target=True, reduction="batchmean")
    built = term.build(pair, "objectives.x")
    assert built.compare(ours, theirs, {}).item() == pytest.approx(limit.item(), rel=1e-3)
    shifted = built.compare(ours + 7, theirs - 9, {}).item()
    assert shifted == pytest.approx(built.compare(ours, theirs, {}).item(), rel=1e-12)
    several = Shape(pair.student, pair.teacher, get_task_type("multi-label"))
    with pytest.raises(LimbeckError, match=r"objectives\.x\.centered: a sigmoid's logits"):
        term.build(several, "objectives.x")
