"""What `-released` recipes set, and the settings that they needed."""

from __future__ import annotations

import pytest
import torch

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.mappings import MappingSpec, build_mapping
from limbeck.objectives import Loss, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE


def shape(student: int = 2, teacher: int = 4, width: int = 8, labels: int = 2) -> Shape:
    sides = (
        ModelShape(depth, wide, 2, labels=labels, stacks={"main": ModelShape(depth, wide, 2)})
        for depth, wide in ((student, width), (teacher, 12))
    )
    return Shape(*sides, kind=SENTENCE, rows=8)


def problems_of(call, *arguments, **named) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        call(*arguments, **named)
    assert all(problem.fix for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


# ---- training settings ----


def test_training_settings():
    """Rate, epochs, batch, decay, optimiser and clipping of both stages, from the releases' scripts."""
    expected = {
        "pkd-released": [(1e-5, 4, 32, "linear", 0.1, 1.0)],
        "tinybert-released": [
            (5e-5, 10, 32, "constant_with_warmup", 0, 0.0),
            (3e-5, 3, 32, "linear", 0.1, 0.0),
        ],
        "cr-ild-released": [(3e-5, 20, 32, "linear", 0.1, 1.0), (3e-5, 4, 16, "linear", 0.1, 1.0)],
        "bert-emd-released": [(3e-5, 10, 32, "constant_with_warmup", 0, 0.0)],
    }
    for method, stages in expected.items():
        for stage, told in zip(Recipe.load(method).stages(), stages, strict=True):
            r = stage.recipe
            found = (r.lr, r.epochs, r.batch_size, r.lr_schedule, r.warmup, r.max_grad_norm)
            assert found == told, (method, stage.number)
            assert (r.optimizer, r.weight_decay) == ("bert_adam", 0.01)


def test_models_of_another_size_have_rates_and_the_optimiser_that_are_known_to_suit_them():
    pocket = Recipe.load("tinybert-released", data="pocket", task="mrpc")
    assert (pocket.lr, pocket.optimizer, pocket.max_grad_norm) == (1e-3, "adamw", 1.0)
    chosen = Recipe.load("kd", data="pocket", task="mrpc", optimizer="bert_adam")
    assert chosen.optimizer == "bert_adam"


# ---- which layers (PKD) ----


@pytest.mark.parametrize(
    ("teacher", "student", "given"),
    [
        (12, 3, [10, 11]),
        (12, 6, [2, 4, 6, 8, 10]),
        (24, 3, [8, 16]),
        (24, 6, [4, 8, 12, 16, 20]),
        (12, 4, [3, 6, 9]),
    ],
)
def test_pkd_s_layers(teacher, student, given):
    """--fc_layer_idx 9,10 and 1,3,5,7,9 counts from 0; of 24 layers every fourth is kept first."""
    spec = Recipe.load("pkd-released").objectives["patience"].mapping
    mapping = build_mapping(spec, teacher_depth=teacher, student_depth=student)
    assert mapping.student_layers == tuple(range(1, student))
    assert [row for (row,) in mapping.rows(StepState())] == given


def test_layers_given_outright_have_to_exist():
    spec = MappingSpec.model_validate(
        {"kind": "skip", "exceptions": [{"teacher": 4, "student": 2, "layers": {1: 9}}]}
    )
    (problem,) = problems_of(build_mapping, spec, teacher_depth=4, student_depth=2)
    assert problem.startswith("mapping.layers: the teacher has no layer 9")
    assert build_mapping(spec, teacher_depth=6, student_depth=2).rows(StepState()) == ((3,),)


def test_exceptions_are_of_maps_by_depth():
    (problem,) = problems_of(
        Recipe.load,
        "pkd-last",
        **{
            "objectives.patience.mapping.exceptions": [
                {"teacher": 4, "student": 2, "layers": {1: 1}}
            ]
        },
    )
    assert "unknown key in objectives.patience.mapping: 'exceptions'" in problem


# ---- numbers (TinyBERT, CR-ILD) ----


def test_labels_alone_teach_a_number_and_no_teacher_is_asked():
    recipe = Recipe.load("tinybert-released")
    number, classes = (Objectives(recipe.loss, shape(labels=labels))["soft"] for labels in (1, 2))
    assert number.request("teacher", StepState()) == Request()
    assert classes.request("teacher", StepState()) == Request.of_logits()
    assert number.request("student", StepState()) == Request.of_logits()


@pytest.mark.slow
def test_there_is_nothing_to_store_of_a_teacher_that_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    teacher = tiny.save(tiny.knowing_teacher(4, regression=True), tmp_path / "teacher")
    data = tiny.write_csv(tmp_path / "reviews.csv", 40, regression=True)
    settings = {"teacher": str(teacher), "task": "reviews", "data": str(data)}
    settings |= {"text_columns": ["review"], "label_column": "verdict", "student.layers": 2}
    settings |= {"max_length": 12, "max_steps": 1, "objectives.soft.regression": "labels"}
    result = distill("kd-soft", out=tmp_path / "run", **settings, report=False)
    assert result.record.status == "finished"
    (problem,) = problems_of(distill, "kd-soft", out=tmp_path / "b", cache="always", **settings)
    assert problem.startswith("cache: always, but no term asks the teacher anything")


# ---- maps of another term ----


def test_a_borrowed_map_is_its_lenders():
    recipe = Recipe.load("bert-emd-released")
    objectives = Objectives(recipe.loss, shape())
    names = [name for name, _ in objectives.named_parameters()]
    assert sorted(names) == [
        f"terms.hidden.projections.student.maps.0.{part}" for part in ("bias", "weight")
    ]
    assert list(objectives.terms) == ["soft", "embedding", "hidden", "attention"]
    assert objectives["embedding"].maps is objectives["hidden"].projections


def test_maps_start_as_bert_does():
    torch.manual_seed(0)
    terms = Recipe.load("tinybert-released").stages()[0].recipe.objectives
    big = Objectives(Loss(terms), shape(width=200))["hidden"].projections.student.maps[0]
    # 2,400 draws: their deviation is known to 1.5 %, three of which are allowed.
    assert big.weight.std().item() == pytest.approx(0.02, rel=0.045)
    assert abs(big.weight.mean().item()) < 4 * 0.02 / 2400**0.5
    assert big.bias.abs().max() == 0


@pytest.mark.parametrize(
    ("through", "said"),
    [
        ("hiden", "did you mean 'hidden'?"),
        ("attention", "choices: hidden"),
    ],
)
def test_a_term_without_a_map_lends_none(through, said):
    changes = {"first_stage.objectives.hidden_consistency.through": through}
    loss = Recipe.load("cr-ild-released", **changes).stages()[0].recipe.loss
    (problem,) = problems_of(Objectives, loss, shape())
    assert f"objectives.hidden_consistency.through: {through!r}" in problem and said in problem


def test_a_map_for_each_layer_serves_no_other():
    changes = {"objectives.hidden.mapping": {"kind": "uniform", "student_layers": "1..M"}}
    changes |= {"objectives.hidden.project": {"to": "teacher", "sides": "student"}}
    loss = Recipe.load("bert-emd-released", **changes).loss
    (problem,) = problems_of(Objectives, loss, shape())
    assert problem.startswith(
        "objectives.embedding.through: hidden has a map for each of its layers"
    )
    assert "set objectives.hidden.project.share: all" in problem


def test_a_map_of_ones_own_and_anothers_exclude_each_other():
    own = {"objectives.embedding.project": {"to": "teacher", "sides": "student"}}
    (problem,) = problems_of(Recipe.load, "bert-emd-released", **own)
    assert "`through` brings the other term's map" in problem
    (problem,) = problems_of(
        Recipe.load,
        "cr-ild-released",
        **{"first_stage.objectives.attention_consistency.through": "hidden"},
    )
    assert "`through` maps hidden states; leave it out" in problem


# ---- keys of mixed maps ----


def test_own_keys_need_a_mixture():
    (problem,) = problems_of(
        Recipe.load,
        "l-ild",
        **{
            "first_stage.objectives.attention.compare": "attention_cross_entropy",
            "first_stage.objectives.attention.keys": "own",
        },
    )
    assert problem.startswith(
        "first_stage.objectives.attention: keys: own separates partners' keys, and nothing is mixed"
    )
    (problem,) = problems_of(
        Recipe.load, "cr-ild", **{"first_stage.objectives.attention.keys": "own"}
    )
    assert "keys: own goes with attention_cross_entropy; leave it out" in problem
