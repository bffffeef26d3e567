"""Recipes of two stages: what a first stage inherits, what it has for itself, what contradicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from limbeck.data import Conditions
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError

HIDDEN = {"compare": "hidden_mse", "mapping": {"kind": "last-to-last"}}
FIRST = {"objectives": {"hidden": HIDDEN}, "epochs": 20, "lr": "5e-5"}


def load(method: str = "kd-soft", **overrides: object) -> Recipe:
    return Recipe.load(method, **({"first_stage": FIRST, "task": "mrpc", "lr": 2e-5} | overrides))


def problems_of(**overrides: object) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        load(**overrides)
    assert all(problem.fix for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


# ---- what a stage is ----


def test_one_stage_is_the_recipe_itself():
    recipe = Recipe.load("kd")
    (stage,) = recipe.stages()
    assert stage.recipe is recipe
    assert (stage.number, stage.of, stage.last, stage.setting) == (1, 1, True, "")


def test_what_a_first_stage_leaves_out_is_as_at_the_top():
    own = {"epochs": 20, "lr": 5e-5}
    top = {
        "batch_size": 7,
        "accumulation": 3,
        "lr_schedule": "cosine",
        "warmup": 0.25,
        "weight_decay": 0.5,
        "max_steps": 9,
        "max_length": 64,
        "precision": "bf16",
        "train_rows": 100,
        "label_noise": 0.3,
    }
    first, last = load(**top).stages()
    for key, value in (top | own).items():
        assert getattr(first.recipe, key) == value, key
    for key, value in (top | {"epochs": None, "lr": 2e-5}).items():
        assert getattr(last.recipe, key) == value, key
    assert list(first.recipe.objectives) == ["hidden"]
    assert list(last.recipe.objectives) == ["soft"]
    assert (first.number, last.number, first.of, last.of) == (1, 2, 2, 2)
    assert (first.last, first.setting) == (False, "first_stage.")
    assert first.same_rows and not first.supplementary


def test_every_training_setting_may_be_the_first_stages_own():
    own = {
        "epochs": 5.0,
        "max_steps": 6,
        "lr": 0.5,
        "batch_size": 2,
        "accumulation": 4,
        "lr_schedule": "cosine",
        "warmup": 0.5,
        "weight_decay": 0.75,
    }
    first, last = load(**{f"first_stage.{key}": value for key, value in own.items()}).stages()
    for key, value in own.items():
        assert getattr(first.recipe, key) == value != getattr(last.recipe, key), key


def test_what_chooses_by_dev_scores_is_the_last_stages():
    first, last = load(patience=3, select_by="f1").stages()
    assert (first.recipe.patience, last.recipe.patience) == (None, 3)
    assert (first.recipe.select_by, last.recipe.select_by) == ("primary", "f1")


def test_a_teacher_is_needed_by_either_stage():
    assert load("finetune").needs_teacher
    first, last = load("finetune").stages()
    assert (first.recipe.needs_teacher, last.recipe.needs_teacher) == (True, False)
    assert not load("finetune", first_stage=None).needs_teacher


# ---- from names, files and the command line ----


def test_first_stages_inherit_and_read_back(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "method: own\ntask: mrpc\nepochs: 4\nobjectives: {soft: {compare: soft_kl}}\n"
        "first_stage:\n  epochs: 20\n  objectives:\n    hidden: "
        "{compare: hidden_mse, mapping: {kind: last-to-last}}\n    soft: {compare: soft_kl}\n",
        encoding="utf-8",
    )
    dotted = {"first_stage.epochs": 2, "epochs": 1, "first_stage.objectives.soft": None}
    recipe = Recipe.load(own, **dotted)
    assert (recipe.first_stage.epochs, recipe.epochs) == (2, 1)
    assert list(recipe.first_stage.objectives) == ["hidden"]
    again = tmp_path / "again.yaml"
    again.write_text(recipe.to_yaml(), encoding="utf-8")
    assert Recipe.load(again) == recipe
    assert Recipe.load(own, first_stage=None).first_stage is None
    # Falls back to the top level again.
    assert Recipe.load(own, **{"first_stage.epochs": None}).stages()[0].recipe.epochs == 4


def test_overrides_stay_as_they_are():
    first = {"objectives": {"hidden": HIDDEN}}
    load(first_stage=first, **{"first_stage.epochs": 2})
    assert first == {"objectives": {"hidden": HIDDEN}}


def test_null_gives_a_key_its_default_back(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "method: kd\ntrain_rows: 10\nepochs: 9\nmax_length: 64\npatience: null\n", encoding="utf-8"
    )
    assert (Recipe.load(own).train_rows, Recipe.load(own).patience) == (10, None)
    recipe = Recipe.load(own, train_rows=None, epochs=None, max_length=None)
    assert (recipe.train_rows, recipe.epochs, recipe.max_length) == (None, None, 128)
    # On pocket data the default is what is known to work there.
    pocket = {"task": "sst2", "data": "pocket"}
    assert Recipe.load("kd", lr=None, **pocket).lr == Recipe.load("kd", **pocket).lr


# ---- joint ----


def test_joint_merges_the_terms_under_the_top_levels_settings():
    (stage,) = load(joint=True).stages()
    assert list(stage.recipe.objectives) == ["hidden", "soft"]
    assert (stage.recipe.epochs, stage.recipe.lr) == (None, 2e-5)
    assert stage.recipe.first_stage is None
    assert stage.last


def test_joint_needs_a_first_stage_and_names_that_differ():
    (message,) = problems_of(joint=True, first_stage=None)
    assert message.startswith("joint: has an effect only with first_stage")
    clash = {"joint": True, "first_stage.objectives.soft": {"compare": "soft_kl"}}
    (message,) = problems_of(**clash)
    assert message.startswith("joint: both stages have a term named 'soft'")
    (message,) = problems_of(joint=True, **{"first_stage.train_rows": 5})
    assert "first_stage.train_rows: has an effect only with joint=false" in message


# ---- supplementary tasks ----


def test_a_supplementary_task_has_its_own_rows():
    conditions = {"train_rows": 100, "label_noise": 0.3, "train_rows_seed": 2}
    first, last = load(data="glue", **conditions, **{"first_stage.task": "mnli"}).stages()
    assert (first.recipe.task, first.recipe.data) == ("mnli", "glue")
    # The conditions are those of the target task's rows.
    assert first.recipe.conditions == Conditions(train_rows_seed=2)
    assert last.recipe.conditions == Conditions(100, 2, False, 0.3, 0)
    assert first.supplementary and not first.same_rows
    some = {"first_stage.task": "mnli", "first_stage.train_rows": 50}
    assert load(**some).stages()[0].recipe.train_rows == 50


def test_columns_belong_to_their_file():
    target = {"data": "own.csv", "text_columns": ["body"], "label_column": "spam"}
    first, _ = load(**target, **{"first_stage.task": "mnli", "first_stage.data": "hub"}).stages()
    assert (first.recipe.text_columns, first.recipe.label_column) == (None, None)
    own = {"first_stage.data": "other.csv", "first_stage.text_columns": ["title"]}
    first, _ = load(**target, **own).stages()
    assert first.recipe.text_columns == ["title"]


def test_fewer_rows_of_the_same_task_are_no_supplement():
    first, _ = load(train_rows=100, **{"first_stage.train_rows": 20}).stages()
    assert first.recipe.train_rows == 20
    assert not first.supplementary and not first.same_rows


def test_a_teacher_of_its_own():
    first, last = load(teacher="runs/t", **{"first_stage.teacher": "runs/other"}).stages()
    assert (first.recipe.teacher, last.recipe.teacher) == ("runs/other", "runs/t")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"objectives": {}}, "first_stage.objectives: none are given"),
        ({"epoch": 3}, "unknown key in first_stage: 'epoch'"),
        ({"epochs": 0}, "first_stage.epochs: "),
        ({"task": "mrcp"}, "unknown first_stage.task 'mrcp'"),
        ({"objectives.hidden.pool": "cls"}, "first_stage.objectives.hidden: "),
        ({"objectives.hidden.poool": 1}, "unknown key in first_stage.objectives.hidden: 'poool'"),
        ({"objectives.hidden.weight": "x"}, "first_stage.objectives.hidden.weight: "),
        ({"objectives.hidden.mapping.knd": 1}, "unknown key in first_stage.objectives.hidden.mapp"),
        ({"corpus": {"size": 5, "sze": 1}}, "unknown key in first_stage.corpus: 'sze'"),
        ({"corpus": {"size": 0}}, "first_stage.corpus.size: "),
        (
            {"corpus": {"size": 5}, "task": "rte"},
            "first_stage.task: has an effect only with rows of a task, not a corpus",
        ),
        (
            {"corpus": {"size": 5, "max_tokens": 400}},
            "first_stage.corpus.max_tokens: 400 tokens are more than max_length 128",
        ),
        (
            {"text_columns": ["a"]},
            "first_stage.text_columns: has an effect only with first_stage.data",
        ),
        (
            {"corpus": {"size": 5}, "objectives.hard": {"compare": "hard_label"}},
            "first_stage.objectives.hard: it reads labels, and this stage has no labels: it trains on a",
        ),
        (
            {"task": "mnli", "objectives.hard": {"compare": "hard_label"}},
            "first_stage.objectives.hard: it reads labels",
        ),
    ],
    ids=str,
)
def test_one_mistake_is_one_problem_under_the_name_the_user_wrote(changes, expected):
    (message,) = problems_of(**{f"first_stage.{key}": value for key, value in changes.items()})
    assert message.startswith(expected)


def test_a_decoder_reads_nothing_where_rows_have_no_answers():
    """An encoder–decoder's decoder input is made of the answers; its encoder needs none."""
    decoder, soft = {"stack": "decoder"}, {"compare": "soft_kl"}
    given = {"first_stage.corpus": {"size": 5}}
    given |= {"kind": "text", "first_stage.objectives.hidden": HIDDEN | decoder}
    given |= {"first_stage.objectives.soft": soft}
    message, other = problems_of(**given)
    assert message.startswith("first_stage.objectives.hidden: it looks at the decoder")
    assert "a corpus has none" in message
    assert "first_stage.objectives.hidden.stack=encoder" in message
    assert other.startswith("first_stage.objectives.soft: it looks at the decoder")
    assert "first_stage.objectives.soft=null" in other
    encoder = {
        "first_stage.objectives.soft": None,
        "first_stage.objectives.hidden.stack": "encoder",
    }
    assert load(**given | encoder).stages()[0].supplementary
    # A task's rows have answers; other kinds of model read the text alone.
    for own in ({"first_stage.task": "mnli"}, {"first_stage.train_rows": 5}):
        assert load(**given | {"first_stage.corpus": None} | own).first_stage.corpus is None
    assert load(**given | {"kind": None}).stages()[0].supplementary


def test_a_decoder_learns_the_labels_of_another_tasks_rows():
    """They are its targets; of a corpus there are none, and other kinds leave them out."""
    given = {"kind": "text", "first_stage.objectives.hard": {"compare": "hard_label"}}
    given |= {"first_stage.objectives.hidden.stack": "encoder"}
    assert load(**given, **{"first_stage.task": "mnli"}).stages()[0].supplementary
    for changes, what in (
        (
            {"kind": None, "first_stage.task": "mnli"},
            "the text of another task",
        ),
        ({"first_stage.corpus": {"size": 5}}, "a corpus"),
    ):
        (message,) = problems_of(**given | changes)
        assert message.startswith(
            "first_stage.objectives.hard: it reads labels, and this stage has"
        )
        assert f"it trains on {what}\n" in message


def test_a_key_without_effect_is_refused():
    (message,) = problems_of(stratified=True)
    assert message.startswith("stratified: has an effect only with train_rows")
    assert load(stratified=True, train_rows=5).stratified


@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_label_noise_is_a_share(value):
    (message,) = problems_of(label_noise=value)
    assert message.startswith("label_noise: ")


def test_descriptions_of_the_first_stage_are_there():
    fields = type(load().first_stage).model_fields
    assert all(field.description for field in fields.values())
    assert all(Path(name).name == name for name in fields)
