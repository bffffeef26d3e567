"""`settings=paper`: what each paper states, typed here from its text, and what becomes of it."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from limbeck.recipe import Recipe, catalog, departures
from limbeck.recipe.checks import check_depth
from limbeck.recipe.paper_settings import flat, stated_of
from limbeck.recipe.quick import BY_ROWS, quick_settings
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS
from limbeck.training import Optimisation, training_arguments

GLUE = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
GIVEN = {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}
SETS = [(one.method, name) for one in catalog.available() for name in stated_of(one.method)]


def load(method: str, settings: str, task: str = "sst2", **given) -> Recipe:
    return Recipe.load(method, settings=settings, task=task, **(GIVEN.get(method, {}) | given))


def problems_of(*arguments, **given) -> str:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load(*arguments, **given)
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


def write(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# What the papers say

INTERNAL = [entry.method for entry in catalog.available() if entry.method.startswith("internal-kd")]
SKD = ["skd-uniform", "skd-teacher-rank", "skd-student-rank", "skd-best-of"]
WKD = ["wkd-uniform", "wkd-teacher-rank", "wkd-student-rank", "takd"]
SMALL, LARGE = ["mrpc", "rte", "stsb"], ["sst2", "qqp", "qnli", "mnli"]


@pytest.mark.parametrize("method", INTERNAL)
@pytest.mark.parametrize(
    ("task", "metric"),
    [("mrpc", "weighted_f1"), ("qqp", "weighted_f1"), ("cola", "primary"), ("rte", "primary")],
)
def test_internal_kd(method, task, metric):
    """Experimental Setup: 2e-5, 50 epochs, batches of 32, 64 tokens; "we optimize the models on F1 only"."""
    recipe = load(method, "paper", task)
    assert (recipe.epochs, recipe.lr, recipe.batch_size, recipe.max_length) == (50, 2e-5, 32, 64)
    assert (recipe.select_by, recipe.lr_schedule) == (metric, "linear")
    assert (recipe.student.init, recipe.student.pick) == ("pretrained", "upper")


@pytest.mark.parametrize("method", ["rail-kd-l", "rail-kd-c"])
@pytest.mark.parametrize("task", GLUE)
def test_rail_kd(method, task):
    """§4.2: 40 epochs; rates and batches from a grid; five runs; mixed precision."""
    recipe = load(method, "paper", task)
    assert recipe.precision == "auto"
    assert recipe.epochs == 40
    assert recipe.student.init == "distilled"
    stated = stated_of(method)["paper"]
    assert [float(lr) for lr in stated.grid["lr"]] == [1e-5, 2e-5, 5e-5, 4e-6]
    assert stated.grid["batch_size"] == [8, 16, 32]
    assert stated.runs == "5"


def test_rail_kds_tables_run_alp_kd_on_layers_below_the_top():
    assert load("alp-kd", "rail-kd").objectives["attention"].mapping.teacher_layers == "1..L-1"
    assert load("alp-kd", "rail-kd").epochs == 40
    assert load("alp-kd", "paper").objectives["attention"].mapping.teacher_layers == "1..L"


@pytest.mark.parametrize("method", ["alp-kd", "alp-no", "alp-po", "ckd-no", "ckd-po"])
def test_alp_kd(method):
    """Experimental Study: batch 32, 1e-5, 2e-5 or 5e-5; η, λ from 0, .2, .5, .7; first m layers."""
    recipe = load(method, "paper")
    assert (recipe.batch_size, recipe.student.init, recipe.student.pick) == (
        32,
        "pretrained",
        "first",
    )
    grid = stated_of(method)["paper"].grid
    assert [float(lr) for lr in grid["lr"]] == [1e-5, 2e-5, 5e-5]
    weights = [values for key, values in grid.items() if key.endswith(".weight")]
    assert weights == [[0, 0.2, 0.5, 0.7]] * 2


@pytest.mark.parametrize(
    ("task", "first_rate", "batch"),
    [
        ("rte", 2e-5, 32),
        ("mnli", 2e-5, 32),
        ("qnli", 2e-5, 32),
        ("stsb", 5e-5, 16),
        ("mrpc", 2e-5, 16),
        ("cola", 2e-5, 16),
    ],
)
def test_cr_ild(task, first_rate, batch):
    """App. D.1, D.2."""
    recipe = load("cr-ild", "paper", task)
    first = recipe.first_stage
    assert (first.epochs, first.lr, first.batch_size) == (20, first_rate, 32)
    assert (recipe.epochs, recipe.lr, recipe.batch_size) == (4, 2e-5, batch)
    assert (recipe.max_length, recipe.student.pick) == (128, "first")
    # "We choose the value of 1.0 by the result of our hyperparameter search."
    assert stated_of("cr-ild")["paper"].settings(task)["first_stage"]["mixup"]["alpha"] == 1
    assert first.mixup.alpha == 1.0
    ours = load("l-ild", "paper", task)
    assert (ours.first_stage.lr, ours.batch_size) == (5e-5, batch)


@pytest.mark.parametrize(("task", "weight"), [("mrpc", 0.2), ("rte", 0.3)])
def test_cr_ild_of_t5(task, weight):
    """App. F.2, F.3: w_MHA by task; "we only distill self-attention" with CR."""
    terms = load("cr-ild-t5", "paper", task).first_stage.objectives
    assert terms["attention_consistency"].weight.end == weight
    assert not {"hidden", "hidden_consistency"} & set(terms)


@pytest.mark.parametrize("method", SKD)
def test_skdbert(method):
    """Table 11."""
    for task in SMALL + LARGE:
        recipe = load(method, "paper", task)
        assert recipe.epochs == (15 if task in SMALL else 5)
        assert (recipe.weight_decay, recipe.adam_epsilon, recipe.warmup) == (1e-4, 1e-6, 0.1)
        if getattr(recipe.team, "by", None) in ("student-rank", "best-of"):
            assert recipe.team.student_epochs == (10 if task in SMALL else 3)
    grid = stated_of(method)["paper"].grid
    assert [float(lr) for lr in grid["lr"]] == [1e-5, 2e-5, 3e-5]
    assert grid["batch_size"] == [16, 32]


@pytest.mark.parametrize("method", WKD)
def test_skdberts_baselines(method):
    """Table 11: KD, WKD and TAKD have 10 epochs on the small tasks and 3 elsewhere."""
    epochs = {task: load(method, "paper", task).epochs for task in SMALL + LARGE}
    assert epochs == dict.fromkeys(SMALL, 10) | dict.fromkeys(LARGE, 3)
    soft = {task: load("kd-soft", "skdbert", task).epochs for task in SMALL + LARGE}
    assert soft == epochs


@pytest.mark.parametrize("method", [*SKD, *WKD])
def test_skdbert_on_cifar(method):
    """App. B."""
    recipe = Recipe.load(method, settings="paper", data="cifar100", **{"student.init": "resnet-20"})
    assert (recipe.epochs, recipe.batch_size, recipe.optimizer) == (240, 64, "sgd")
    assert (recipe.lr, recipe.weight_decay) == (0.05, 5e-4)
    assert [share * recipe.epochs for share in recipe.milestones] == [150, 180, 210]
    assert getattr(recipe.team, "student_epochs", None) is None


@pytest.mark.parametrize(
    ("settings", "task", "expected"),
    [
        ("internal-kd", "rte", {"epochs": 10, "lr": 2e-5, "batch_size": 32, "max_length": 64}),
        ("internal-kd", "mrpc", {"epochs": 10, "select_by": "weighted_f1"}),
        ("internal-kd-student", "rte", {"epochs": 50, "student.pick": "upper"}),
        ("cr-ild", "rte", {"epochs": 3, "lr": 2e-5, "batch_size": 32, "max_length": 128}),
        ("cr-ild-t5", "rte", {"epochs": 10, "lr": 1e-3, "batch_size": 8, "kind": "text"}),
        ("skdbert", "rte", {"epochs": 10, "batch_size": 32, "weight_decay": 1e-4}),
        ("skdbert", "sst2", {"epochs": 3, "adam_epsilon": 1e-6}),
        ("rail-kd-student", "rte", {"epochs": 40, "student.init": "distilled"}),
    ],
)
def test_teachers_and_students_alone(settings, task, expected):
    recipe = load("finetune", settings, task)
    assert {key: attrgetter(key)(recipe) for key in expected} == expected


@pytest.mark.parametrize(
    ("task", "epochs", "length"),
    [("mnli", 10, 128), ("cola", 50, 64), ("sst2", 20, 64), ("mrpc", 20, 128)],
)
def test_tinybert(task, epochs, length):
    """Jiao et al. 2020, §4.2 and its footnotes."""
    recipe = load("tinybert", "paper", task)
    first = recipe.first_stage
    assert (first.epochs, first.lr, first.batch_size) == (epochs, 5e-5, 32)
    assert (recipe.epochs, recipe.max_length) == (3, length)


def test_released_code():
    pkd, cr = load("pkd-skip", "released"), load("cr-ild", "released", "mnli")
    assert (pkd.epochs, pkd.lr, pkd.batch_size, pkd.max_length) == (4, 1e-5, 32, 128)
    assert (cr.lr, cr.batch_size, cr.weight_decay) == (3e-5, 16, 0.01)
    assert (cr.first_stage.epochs, cr.first_stage.lr) == (5, 3e-5)
    emd = load("bert-emd-released", "released", "qnli")
    assert (emd.lr, emd.objectives["hidden"].weight, emd.epochs) == (5e-5, 0.001, 10)
    context = load("contextual-kd-released", "released", "rte")
    assert context.objectives["word_pairs"].mapping.uneven == "leave out"
    assert (context.epochs, context.lr, context.objectives["soft"].temperature) == (6, 5e-5, 3)
    assert context.objectives["word_angles"].weight == 10


@pytest.mark.parametrize(
    ("layers", "task", "beta", "temperature", "lr"),
    [
        *((4, *row) for row in [("cola", 0.001, 1, 2e-5), ("mnli", 0.005, 3, 5e-5)]),
        *((4, *row) for row in [("mrpc", 0.001, 1, 2e-5), ("qqp", 0.005, 3, 2e-5)]),
        *((4, *row) for row in [("qnli", 0.005, 3, 2e-5), ("rte", 0.005, 1, 2e-5)]),
        *((4, *row) for row in [("sst2", 0.001, 1, 2e-5), ("stsb", 0.005, 1, 3e-5)]),
        *((6, *row) for row in [("cola", 0.001, 7, 2e-5), ("mnli", 0.005, 1, 5e-5)]),
        *((6, *row) for row in [("mrpc", 0.005, 1, 2e-5), ("qqp", 0.005, 1, 2e-5)]),
        *((6, *row) for row in [("qnli", 0.001, 1, 5e-5), ("rte", 0.005, 1, 2e-5)]),
        *((6, *row) for row in [("sst2", 0.001, 1, 2e-5), ("stsb", 0.005, 1, 3e-5)]),
    ],
)
def test_bert_emds_two_tables(layers, task, beta, temperature, lr):
    """The README's columns: layers, task, beta, T, learning rate; its loss is T² times the mean."""
    recipe = load("bert-emd-released", {4: "released-4", 6: "released"}[layers], task)
    soft, *others = recipe.objectives.values()
    assert {one.weight for one in others} == {beta} and recipe.lr == lr
    assert soft.temperature == temperature and (soft.scale_by_t2 or temperature == 1)


@pytest.mark.parametrize(("name", "layers", "fix"), [
    ("released", 6, None), ("released-4", 4, None), ("quick", 4, None),
    ("released", 4, "use settings=released-4"), ("released-4", 6, "use settings=released"),
    ("released", 3, "choose a depth with settings of its own: 6, 4"),
])  # fmt: skip
def test_settings_of_another_depth_are_a_warning(name, layers, fix):
    """In the released table a student of four layers has T = 3 on MNLI, QQP and QNLI, one of six has 1."""
    found = check_depth(load("bert-emd-released", name, "mnli"), layers)
    assert [(one.fix, one.severity) for one in found] == ([] if fix is None else [(fix, "warning")])


# What holds for all of them


@pytest.mark.parametrize(("method", "name"), SETS)
def test_every_set_makes_a_valid_recipe_for_every_task(method, name):
    for task in GLUE:
        recipe = load(method, name, task)
        assert recipe.settings == name
        assert departures(recipe) == []
        # A metric that the task has.
        assert recipe.select_by in ("primary", *TASKS[task].metrics)


@pytest.mark.parametrize(("method", "name"), SETS)
def test_every_value_that_was_searched_is_valid(method, name):
    for key, values in stated_of(method)[name].grid.items():
        for value in values:
            load(method, name, "mrpc", **{key: value})


@pytest.mark.parametrize(("method", "name"), SETS)
def test_where_a_paper_searched_the_run_stays_inside_its_grid(method, name):
    recipe = load(method, name).model_dump()
    for key, values in stated_of(method)[name].grid.items():
        found = recipe
        for part in key.split("."):
            found = found[part]
        assert found in [float(value) for value in values], key


@pytest.mark.parametrize(("method", "name"), SETS)
def test_every_set_says_where_it_is_from_and_names_tasks_that_exist(method, name):
    stated = stated_of(method)[name]
    assert stated.source
    assert stated.start
    assert set(stated.tasks) <= set(GLUE)


@pytest.mark.parametrize("method", catalog.names())
def test_quick_settings_are_those_of_the_recipe_as_it_is(method):
    recipe = Recipe.load(method, **GIVEN.get(method, {}))
    assert recipe.settings == "quick"
    top = {"epochs", "lr", "batch_size", "max_length", "warmup", "weight_decay", "select_by"}
    for key, value in quick_settings(method).items():
        if key in BY_ROWS and value == BY_ROWS[key]:
            assert getattr(recipe, key) is None
        elif key in top and getattr(recipe, key) is not None:
            found = getattr(recipe, key)
            assert found == (type(found)(value) if isinstance(found, float) else value), key


def test_the_optimiser_has_the_papers_epsilon(tmp_path):
    def epsilon(recipe: Recipe) -> float:
        return training_arguments(recipe, tmp_path).adam_epsilon

    assert epsilon(load("skd-uniform", "paper")) == 1e-6
    assert epsilon(load("kd", "quick")) == 1e-8
    berts = Recipe.load("kd", optimizer="bert_adam", adam_epsilon=1e-4)
    assert Optimisation.of(berts).optimizer(1e-5)[1] == {"lr": 1e-5, "eps": 1e-4}
    its_own = Recipe.load("kd", optimizer="bert_adam")
    assert Optimisation.of(its_own).optimizer(1e-5)[1] == {"lr": 1e-5}
    said = problems_of("kd", optimizer="sgd", adam_epsilon=1e-6)
    assert "adam_epsilon: has an effect only with optimizer=adamw" in said


# Who wins


def test_a_file_and_single_values_win_over_the_paper(tmp_path):
    own = write(
        tmp_path,
        "method: cr-ild\nsettings: paper\ntask: stsb\nfirst_stage: {epochs: 7}\nbatch_size: 4\n",
    )
    recipe = Recipe.load(own, **{"first_stage.batch_size": 9})
    assert (recipe.settings, recipe.first_stage.epochs, recipe.batch_size) == ("paper", 7, 4)
    assert (recipe.first_stage.lr, recipe.first_stage.batch_size) == (5e-5, 9)
    assert sorted(departures(recipe)) == [
        "batch_size",
        "first_stage.batch_size",
        "first_stage.epochs",
    ]


def test_the_line_wins_over_the_files_choice(tmp_path):
    own = write(tmp_path, "method: rail-kd-l\nsettings: paper\ntask: rte\n")
    assert Recipe.load(own).epochs == 40
    assert Recipe.load(own, settings="quick").epochs is None
    assert Recipe.load(own, settings=None).epochs is None


def test_a_removed_term_stays_removed():
    recipe = load("alp-kd", "rail-kd", **{"objectives.attention": None})
    assert list(recipe.objectives) == ["hard", "soft"]
    assert departures(recipe) == ["objectives.attention.mapping.teacher_layers"]


def test_a_start_of_the_teachers_layers_departs_from_the_paper():
    assert departures(load("alp-kd", "paper", **{"student.init": "teacher"})) == ["student.init"]
    assert departures(load("alp-kd", "paper", **{"student.init": "runs/other"})) == []


def test_a_written_recipe_keeps_its_settings_and_takes_no_others(tmp_path):
    recipe = load("cr-ild", "paper", "stsb")
    path = write(tmp_path, recipe.to_yaml())
    assert Recipe.load(path) == recipe
    said = problems_of(path, settings="released")
    assert "written out with settings paper" in said and "name the method" in said


def test_a_method_of_ones_own_may_state_settings(tmp_path):
    own = write(
        tmp_path,
        "method: mine\nobjectives: {soft: {compare: soft_cross_entropy}}\n"
        "stated:\n  paper: {source: mine, epochs: 20, tasks: {rte: {epochs: 40}}}\n"
        "  rail-kd: {from: rail-kd.student}\n",
    )
    assert Recipe.load(own, task="rte").epochs is None
    assert Recipe.load(own, settings="paper", task="sst2").epochs == 20
    assert Recipe.load(own, settings="paper", task="rte").epochs == 40
    assert Recipe.load(own, settings="rail-kd", task="rte").epochs == 40


# Mistakes


def test_settings_that_a_method_has_not_are_answered_with_those_it_has():
    said = problems_of("cr-ild", settings="papers")
    assert "unknown settings of cr-ild: 'papers'" in said
    assert "did you mean 'paper'?" in said
    assert "choices: quick, paper, released" in said
    assert "choices: quick" in problems_of("codir", settings="paper")
    assert "internal-kd" in problems_of("finetune", settings="paper")
    assert "unknown settings" in problems_of("kd", settings=["paper"])


def test_papers_without_images_say_nothing_of_nets():
    said = problems_of("kd", settings="rail-kd", data="cifar100", **{"student.init": "resnet-20"})
    assert "does not mention named CNNs" in said


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("3", "stated: 3 holds no keys"),
        ("{paper: soon}", "stated.paper: 'soon' holds no keys"),
        ("{paper: {tasks: [rte]}}", "stated.paper.tasks: ['rte'] holds no keys"),
        ("{paper: {from: rail}}", "unknown paper 'rail'"),
        ("{paper: {from: rail-kd.studnt}}", "did you mean 'student'?"),
        ("{paper: {epoch: 3}}", "did you mean 'epochs'?"),
    ],
)
def test_what_is_no_set_of_settings(tmp_path, stated, expected):
    head = "method: mine\nobjectives: {soft: {compare: soft_cross_entropy}}\n"
    assert expected in problems_of(write(tmp_path, f"{head}stated: {stated}\n"), settings="paper")


def test_every_key_that_is_stated_is_a_recipes():
    """Keys of a set reach the recipe: none is dropped on the way."""
    for method, name in SETS:
        dumped = load(method, name, "sst2").model_dump()
        for key, value in flat(stated_of(method)[name].settings("sst2")):
            found = dumped
            for part in key.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            assert (found is None) == (value is None), (method, name, key)
