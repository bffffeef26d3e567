"""A recipe: from a name, a file and overrides to one checked value, or to every mistake at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from limbeck.recipe import Recipe, catalog
from limbeck.recipe.quick import training_for
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES
from limbeck.training import DistillationConfig

PKD_MAP = {"objectives.patience.mapping.layers": {1: 4, 2: 8}}


def load(method: str, **overrides: object) -> Recipe:
    """A shipped recipe; pkd with the map it leaves to the user."""
    return Recipe.load(method, **((PKD_MAP if method == "pkd" else {}) | overrides))


def write(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(*arguments: object, **overrides: object) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load(*arguments, **overrides)
    assert all(problem.fix for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


# What ships


@pytest.mark.parametrize("method", catalog.names())
def test_every_shipped_recipe_is_short_complete_and_loads(method):
    entry = catalog.find(method)
    lines = entry.text.splitlines()
    assert len(lines) <= 32
    assert lines[0].startswith("# limbeck ")
    assert all((entry.summary, entry.paper, entry.formula))
    assert entry.family in catalog.FAMILIES
    recipe = load(method)
    assert recipe.method == method
    assert (recipe.family, recipe.summary) == (entry.family, entry.summary)
    assert recipe.needs_teacher == (method != "finetune")


def test_weights_of_methods_that_weigh_labels_against_layers_add_up_to_one():
    weighing = ("baseline", "soft-label", "fixed-map", "combination", "random-map")
    shipped = [entry.method for entry in catalog.available() if entry.family in weighing]
    # Where the paper has the labels at full weight beside a loss of another scale.
    others = {"pkd-released", "dist", "dkd", "kd-standardized"}
    for method in set(shipped) - others:
        total = sum(term.weight for term in load(method).objectives.values())
        assert total == pytest.approx(1.0), method


def test_the_catalogue_is_sorted_by_family_then_by_name():
    families = [entry.family for entry in catalog.available()]
    assert set(families) == set(catalog.FAMILIES)
    assert families == sorted(families, key=list(catalog.FAMILIES).index)
    for family in catalog.FAMILIES:
        inside = [entry.method for entry in catalog.available() if entry.family == family]
        assert inside == sorted(inside)


def test_listing_methods_does_not_load_torch():
    script = (
        "import sys, limbeck, limbeck.recipe.catalog as c; c.names(); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# By name and override


@pytest.mark.parametrize("layers", [[1, 3], {"encoder": [1, 3], "decoder": [2]}])
def test_a_rule_for_listed_layers_is_refused(layers):
    given = {"student.layers": layers, "student.pick": "last"}
    with pytest.raises(LimbeckError, match=r"student\.pick: last has no effect"):
        Recipe.load("kd", teacher="t", task="mrpc", **given)


@pytest.mark.parametrize("settings", ["quick", "paper"])
def test_a_methods_own_rule_gives_way_to_listed_layers(settings, tmp_path):
    """Internal-KD picks the upper layers; a list needs no rule, nor does the recipe that a run has written."""
    given = {"teacher": "t", "task": "mrpc", "settings": settings}
    for layers in ([1, 3], {"encoder": 1, "decoder": [2]}, 2):
        recipe = Recipe.load("internal-kd", **given, **{"student.layers": layers})
        assert (recipe.student.layers, recipe.student.pick) == (layers, "upper")
        (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
        assert Recipe.load(tmp_path / "recipe.yaml") == recipe


def test_overrides_win_and_dots_reach_inside():
    recipe = Recipe.load(
        "rail-kd-l",
        teacher="runs/t",
        task="mrpc",
        epochs=None,  # the default
        **{"student.layers": 3, "objectives.rail.pool": "cls", "objectives.soft.temperature": 2},
    )
    assert (recipe.teacher, recipe.task, recipe.student.layers) == ("runs/t", "mrpc", 3)
    assert recipe.epochs == Recipe.load("rail-kd-l").epochs
    rail, soft = recipe.objectives["rail"], recipe.objectives["soft"]
    assert (rail.pool, rail.compare) == ("cls", "normalized_mse")
    assert (soft.temperature, soft.weight) == (2.0, 1 / 3)


def test_a_group_and_one_of_its_settings_may_be_given_in_any_order():
    group, single = {"student": {"init": "runs/s", "pick": "last"}}, {"student.layers": 3}
    for given in (group | single, single | group):
        student = Recipe.load("kd", task="mrpc", **given).student
        assert (student.init, student.pick, student.layers) == ("runs/s", "last", 3)


def test_fractions_and_scientific_notation_are_numbers(tmp_path):
    own = write(
        tmp_path,
        "method: kd\nlr: 2e-5\nobjectives:\n  hard: {weight: 1/3}\n"
        "  soft: {weight: {start: 1/4, end: 2 / 3, over: 1/10}}\n",
    )
    recipe = Recipe.load(own)
    assert recipe.lr == 2e-5
    assert recipe.objectives["hard"].weight == 1 / 3
    ramp = recipe.objectives["soft"].weight
    assert (ramp.start, ramp.end, ramp.over) == (1 / 4, 2 / 3, 1 / 10)


@pytest.mark.parametrize("dotted", [False, True])
def test_null_removes_a_term(tmp_path, dotted):
    if dotted:
        recipe = Recipe.load("pkd-skip", **{"objectives.soft": None})
    else:
        own = write(tmp_path, "method: pkd-skip\nobjectives:\n  soft: null\n")
        recipe = Recipe.load(own)
    assert list(recipe.objectives) == ["hard", "patience"]


# From a file


def test_a_file_inherits_from_its_method(tmp_path):
    own = write(
        tmp_path,
        "method: alp-kd\ntask: rte\nstudent: {layers: 4}\n"
        "objectives:\n  attention: {weight: 0.7, mapping: {teacher_layers: 1..L-1}}\n",
    )
    recipe = Recipe.load(own, task="mrpc")
    shipped = Recipe.load("alp-kd")
    assert (recipe.method, recipe.family, recipe.task) == ("alp-kd", "combination", "mrpc")
    assert recipe.student.layers == 4
    attention = recipe.objectives["attention"]
    assert attention.weight == 0.7
    assert attention.mapping.teacher_layers == "1..L-1"
    assert attention.mapping.student_layers == "1..M-1"
    assert attention.project == shipped.objectives["attention"].project
    assert recipe.objectives["soft"] == shipped.objectives["soft"]


def test_a_new_method_brings_its_own_objectives(tmp_path):
    own = write(
        tmp_path,
        "method: mine\nsummary: all tokens of the last layer\nobjectives:\n"
        "  hard: {compare: hard_label}\n"
        "  last: {compare: hidden_mse, mapping: {kind: last-to-last}}\n",
    )
    recipe = Recipe.load(own)
    assert (recipe.method, recipe.family) == ("mine", "own")
    assert list(recipe.objectives) == ["hard", "last"]


def test_a_shipped_recipe_copied_and_edited_stands_alone(tmp_path):
    text = catalog.find("kd").text
    without = "\n".join(line for line in text.splitlines() if "soft_cross_entropy" not in line)
    recipe = Recipe.load(write(tmp_path, without))
    assert list(recipe.objectives) == ["hard"]


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"task": "mrpc", "data": "pocket", "lr": 3e-5, "student.layers": [2, 4], "max_steps": 7},
        {"objectives.hard": None},
        {"objectives.soft.weight": {"end": "1/3", "over": 0.5}},
        {"student.config": {"hidden_size": 32}, "student.init": "fresh"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["kd", "distilbert", "pkd", "pkd-1", "alp-po", "rail-kd-c"])
def test_yaml_reads_back_as_the_same_recipe(tmp_path, method, overrides):
    recipe = load(method, **overrides)
    path = write(tmp_path, recipe.to_yaml())
    assert Recipe.load(path) == recipe
    # Every default is written out, so that another version's defaults change nothing.
    assert set(yaml.safe_load(path.read_text("utf-8"))) == set(Recipe.model_fields)


def test_a_replaced_map_reads_back_as_the_same_recipe(tmp_path):
    recipe = Recipe.load(
        "alp-kd", **{"objectives.attention.mapping": {"kind": "explicit", "layers": {2: [4, 6]}}}
    )
    assert Recipe.load(write(tmp_path, recipe.to_yaml())) == recipe


# Mistakes


def test_unknown_names_are_answered_with_the_nearest():
    (method,) = problems_of("rail-kd")
    assert "unknown method 'rail-kd'" in method and "did you mean 'rail-kd-l'" in method
    (task,) = problems_of("kd", task="mrcp")
    assert "unknown task 'mrcp'" in task and "did you mean 'mrpc'?" in task
    (key,) = problems_of("kd", epoch=3)
    assert "unknown key 'epoch'" in key and "did you mean 'epochs'?" in key
    (inner,) = problems_of("kd", **{"student.layer": 3})
    assert "unknown key in student: 'layer'" in inner and "did you mean 'layers'?" in inner
    (term,) = problems_of("kd", **{"objectives.soft.temprature": 3})
    assert "objectives.soft" in term and "did you mean 'temperature'?" in term
    (mapping,) = problems_of("pkd-skip", **{"objectives.patience.mapping.knd": "last"})
    assert "objectives.patience.mapping" in mapping and "did you mean 'kind'?" in mapping


def test_an_unknown_task_is_fine_for_data_of_one_s_own():
    assert Recipe.load("kd", task="spam", text_columns=["body"], label_column="spam").task == "spam"


def test_three_mistakes_are_reported_together(tmp_path):
    own = write(tmp_path, "method: kd\nepoch: 3\ntask: mrcp\nlr: -1\n")
    messages = problems_of(own)
    assert len(messages) == 3
    text = "\n".join(messages)
    assert all(word in text for word in ("'epoch'", "'mrcp'", "lr: Input should be greater"))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # A union's other branches are no mistakes of the user's.
        ({"objectives.hard.weight": "heavy"}, "objectives.hard.weight: "),
        ({"objectives.hard.weight": {"end": 1, "over": 2}}, "objectives.hard.weight.over: "),
        ({"student.layers": "three"}, "student.layers: "),
        ({"objectives.mse": {"compare": "hard_label", "weight": "x"}}, "objectives.mse.weight: "),
        ({"objectives.hard.compare": "hardlabel"}, "objectives.hard: "),
        ({"objectives.hard": 3}, "objectives.hard: "),
        ({"objectives": [1]}, "objectives: "),
        ({"lr": 0}, "lr: "),
        ({"precision": "fp16"}, "precision: "),
    ],
    ids=str,
)
def test_one_mistake_is_one_problem_under_the_name_the_user_wrote(overrides, expected):
    (message,) = problems_of("kd", **overrides)
    assert message.startswith(expected)


def test_pkd_asks_for_its_map():
    (message,) = problems_of("pkd")
    assert "objectives.patience.mapping.layers: Field required" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method: [", "is not YAML"),
        ("just words", "holds no keys"),
        ("method: mine\n", "unknown method 'mine'"),
        ("method: mine\nobjectives: {}\n", "unknown method 'mine'"),
        ("method: kd\nobjectives: {hard: null, soft: null}\n", "none are given"),
        ("method: kd\nobjectives: [hard]\n", "objectives: "),
        ("method: kd\n1: x\n", "1: Keys should be strings"),
    ],
)
def test_files_that_are_no_recipe(tmp_path, text, expected):
    (message,) = problems_of(write(tmp_path, text))
    assert expected in message


def test_a_file_that_is_not_there(tmp_path):
    (message,) = problems_of(tmp_path / "none.yaml")
    assert "no file" in message


def test_augmentation_names_its_model_and_refuses_what_it_does_not_know():
    recipe = Recipe.load("kd-soft", **{"augment.model": "runs/language", "augment.examples": 10})
    assert (recipe.augment.examples, recipe.augment.probability) == (10, 0.4)
    (missing,) = problems_of("kd", **{"augment.examples": 10})
    assert missing.startswith("augment.model: no model is named")
    (of_teacher,) = problems_of("kd", **{"augment.model": "teacher"})
    assert "proposes no words" in of_teacher and "replace_by=nearest" in of_teacher
    nearest = {"augment.replace_by": "nearest"}
    (whose,) = problems_of("kd", **nearest)
    assert "no source of word vectors" in whose
    own = {"augment.model": "x", "augment.embeddings": "y.txt", "augment.context": "edited"}
    both, context = problems_of("kd", **nearest, **own)
    assert "augment.model: x would have no effect" in both and "augment.context" in context
    assert Recipe.load("kd", **nearest, **{"augment.embeddings": "y.txt"}).augment.model is None
    (key,) = problems_of("kd", **{"augment.model": "x", "augment.example": 3})
    assert "unknown key in augment: 'example'" in key and "did you mean 'examples'?" in key


# Epochs and rate that nobody sets


def test_few_rows_are_read_more_often_and_shortened_students_learn_faster():
    # 648 rows in batches of 32: 200 steps are 9.9 passes. 120 rows need 53.3; 100 would need 64, and 60 are the most.
    assert training_for(648, 32, depth=1) == (10, 5e-5)
    assert training_for(648, 32, depth=1 / 2) == (10, 1e-4)
    assert training_for(120, 32, depth=1) == (54, 5e-5)
    assert training_for(100, 32, depth=4 / 6) == (60, 1e-4)
    assert training_for(67_000, 32, depth=5 / 6) == (3, 5e-5)


@pytest.mark.parametrize("kind", ["tokens", "embedding", "pair-score", "spans", "image"])
def test_every_type_but_language_models_is_trained_by_its_rows(kind):
    config = DistillationConfig("out", use_cpu=True, per_device_train_batch_size=8)
    found = config.for_rows(320, TASK_TYPES.get(kind), depth=1 / 2)
    # 40 steps a pass: five passes are 200.
    assert (found.num_train_epochs, found.learning_rate) == (5, 1e-4)
    masked = config.for_rows(320, TASK_TYPES.get("masked"), depth=1 / 2)
    assert (masked.num_train_epochs, masked.learning_rate) == (3, 5e-5)


def test_a_papers_settings_follow_no_rows():
    quick, paper = Recipe.load("kd"), Recipe.load("kd", settings="rail-kd")
    assert (quick.epochs, quick.lr, quick.student.pick) == (None, None, None)
    assert (paper.epochs, paper.lr, paper.student.pick) == (40, 5e-5, "first")
