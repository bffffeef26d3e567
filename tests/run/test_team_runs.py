"""Runs with several teachers: who taught when, what is trained first, and that a stop changes nothing."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.data import load_task, rows_fingerprint
from limbeck.objectives import TeamObjectives
from limbeck.records import Record
from limbeck.run import Result, distill
from limbeck.run.distill import plan_run
from limbeck.run.prepare import prepare
from limbeck.run.run_folder import RunFolder
from limbeck.run.several_teachers import _alone, origin_problems, pretrained_form
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import SampledTeam, SamplingProbabilities, by_capacity, chain_links
from limbeck.training import DistillationConfig, DistillationTrainer
from limbeck.training.assistant_start import recorded_start

# The package's attribute of that name is the function.
module, starting = import_module("limbeck.run.train"), import_module("limbeck.run.distill")

RAIL = {
    "compare": "normalized_mse",
    "pool": "mean",
    "mapping": {"kind": "random", "student_layers": "1..M-1", "teacher_layers": "1..L-1"},
    "project": {"to": 8},
    "weight": 0.5,
}
# 54 rows in batches of 8: 7 steps an epoch.
STEPS = 7


@pytest.fixture(scope="module")
def teachers(place) -> list[str]:
    """Of 4, 6 and 3 layers, all right; the last is narrower, and its record knows a lower score."""
    tiny.save(tiny.knowing_teacher(6), place / "six")
    tiny.save(tiny.knowing_teacher(3, width=12, heads=4), place / "narrow")
    record = {"schema": 1, "task": "reviews", "scores": {"dev": {"primary": 83.0}}}
    own = {"text_columns": ["review"], "label_column": "verdict"}
    task, rows = load_task("reviews", place / "reviews.csv", **own)
    record["examples"] = {"fingerprints": {"dev": rows_fingerprint(task, rows["dev"])}}
    (place / "narrow" / "record.json").write_text(json.dumps(record))
    return [str(place / name) for name in ("teacher", "six", "narrow")]


@pytest.fixture(scope="module")
def several(recipe, teachers):
    """`several("skd-uniform", seed=4)`."""

    def make(method="skd-uniform", **changes):
        given = {"teacher": None, "teachers": teachers[:2]} | changes
        return recipe(method, **given)

    return make


def train(recipe, folder: Path, **settings) -> Result:
    return distill(recipe, out=folder, report=False, **settings)


def weights(run: Path) -> bytes:
    return (run / "student" / "model.safetensors").read_bytes()


def whom(record: Record) -> list[dict[str, int]]:
    return [epoch.sampled for epoch in record.epochs]


@pytest.fixture(scope="module")
def layered(several, teachers, tmp_path_factory):
    """A run of three teachers whose layers are matched; by step, whose maps moved and should not have, or not."""
    moved: list[set[int]] = []
    original = DistillationTrainer.training_step

    def watching(self, *args, **kwargs):
        assert isinstance(self.objectives, TeamObjectives)
        found = original(self, *args, **kwargs)
        touched = {
            number
            for number, terms in enumerate(self.objectives.each)
            if any(w.grad is not None and w.grad.abs().sum() > 0 for w in terms.parameters())
        }
        sampled = self.step_state_at(self.state.global_step).teacher
        moved.append({sampled} ^ touched)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistillationTrainer, "training_step", watching)
        given = several(teachers=teachers, **{"objectives.rail": RAIL})
        return train(given, tmp_path_factory.mktemp("layered") / "run"), moved


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Depth of the model in every pass of a live teacher in training."""
    seen: list[int] = []
    live = Teacher.__call__

    def counting(self, inputs, request):
        if self.model.config.num_hidden_layers and request == Request.of_logits():
            seen.append(self.model.config.num_hidden_layers)
        return live(self, inputs, request)

    monkeypatch.setattr(Teacher, "__call__", counting)
    return seen


# ---- who teaches ----


def test_one_teacher_a_step_though_a_step_has_several_passes(tmp_path, asked):
    """Accumulation of two: both passes of a step ask the same teacher, as the draws say."""
    members = [Teacher(tiny.knowing_teacher(layers)) for layers in (4, 6)]
    probabilities = SamplingProbabilities([0.5, 0.5])
    trainer = DistillationTrainer(
        tiny.bert(2),
        SampledTeam(members, ("four", "six"), probabilities),
        DistillationConfig.like(
            tiny_arguments(tmp_path, gradient_accumulation_steps=2), method="kd-soft"
        ),
        train_dataset=tiny.rows(32),
        data_collator=tiny_collator(),
    )
    trainer.train()
    expected = [(4, 6)[probabilities.pick(trainer.args.seed, step)] for step in range(8)]
    assert asked == [depth for depth in expected for _ in range(2)]
    assert len(set(expected)) == 2


def tiny_arguments(folder, **changes):
    from transformers import TrainingArguments

    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "report_to": []}
    settings |= {"use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "seed": 5}
    return TrainingArguments(str(folder), **(settings | changes))


def tiny_collator():
    from limbeck.data import Collator

    return Collator(tiny.tokenizer())


def test_the_record_says_who_taught(layered):
    record = layered[0].record
    assert record.team.use == "sample" and record.team.by == "uniform"
    assert [member.name for member in record.team.members] == ["teacher", "six", "narrow"]
    assert [member.share for member in record.team.members] == pytest.approx([1 / 3] * 3)
    for epoch in record.epochs:
        assert sum(epoch.sampled.values()) == STEPS
        assert {name for name in epoch.train if name.startswith("loss (")} <= {
            "loss (teacher)",
            "loss (six)",
            "loss (narrow)",
        }
    totals = [sum(epoch.sampled[m.name] for epoch in record.epochs) for m in record.team.members]
    assert [member.sampled for member in record.team.members] == totals
    assert record.teacher.path.endswith("teacher") and record.teacher.layers == 4


def test_a_teacher_that_is_given_stands_for_itself_alone_among_several(several, teachers):
    live = Teacher.load(teachers[1])
    named = prepare(several(teacher=teachers[1]), live).named
    assert [one.teacher.model is live.model for one in named] == [False, True]
    assert [one.teacher.model.config.num_hidden_layers for one in named] == [4, 6]
    assert not any(one.teacher.model is live.model for one in prepare(several(), live).named)


@pytest.mark.slow
def test_the_ranks_are_of_the_dev_scores(several, teachers, tmp_path):
    """The narrow teacher is worst; the other two are equally right and share their ranks."""
    given = several("skd-teacher-rank", teachers=teachers, max_steps=1)
    members = train(given, tmp_path / "run").record.team.members
    assert [member.score for member in members] == [100.0, 100.0, 83.0]
    assert [member.share for member in members] == pytest.approx([2.5 / 6, 2.5 / 6, 1 / 6])


def test_teachers_of_other_depths_and_widths_teach_layers(layered):
    record = layered[0].record
    layers = record.epochs[0].active_layers
    assert set(layers) == {"rail (teacher)", "rail (six)", "rail (narrow)"}
    assert max(k for _, k in layers["rail (six)"]) > 3 or max(
        k for _, k in record.epochs[1].active_layers["rail (six)"]
    ) in range(1, 6)
    assert all(k <= 2 for _, k in layers["rail (narrow)"])


def test_each_teacher_has_maps_of_its_own(layered):
    """A step of one teacher leaves the other teachers' learned maps as they are."""
    _, moved = layered
    assert len(moved) == 2 * STEPS and all(not wrong for wrong in moved)


def test_a_folder_of_runs_names_them_all(several, recipe, tmp_path):
    """As `limbeck finetune --grid` leaves it, with a page beside the runs."""
    team = tmp_path / "team"
    train(recipe("finetune", max_steps=1), team / "small-10")
    shutil.copytree(team / "small-10", team / "small-2")
    (team / "team.html").write_text("")
    planned = plan_run(several(teachers=[str(team)]), tmp_path / "run").recipe
    assert planned.teachers == [str(team / f"small-{n}") for n in (2, 10)]


# ---- stopped and continued ----


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        pytest.param(
            "skd-uniform",
            {"objectives.rail": RAIL, "checkpoint_steps": 3},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "skd-adaptive",
            {"team.holdout": 6, "team.block": 2, "checkpoint_steps": 3},
            marks=pytest.mark.slow,
        ),
        pytest.param("mt-bert", {"checkpoint_steps": 3}, marks=pytest.mark.slow),
    ],
    ids=["skd with layers", "adaptive", "mt-bert"],
)
def test_a_killed_run_ends_as_an_unbroken_one(several, tmp_path, monkeypatch, method, changes):
    recipe = several(method, **changes)
    unbroken = train(recipe, tmp_path / "unbroken")
    display = module.Display
    for event, step in (("step_begin", 4), ("step_end", 11)):
        with monkeypatch.context() as patch:
            patch.setattr(
                module,
                "Display",
                lambda *args, killer=(event, step), **kwargs: Both(
                    display(*args, **kwargs), tiny.Kill(*killer)
                ),
            )
            with pytest.raises(tiny.KilledError):
                train(recipe, tmp_path / "killed")
    killed = train(recipe, tmp_path / "killed")
    assert weights(killed.path) == weights(unbroken.path)
    assert whom(killed.record) == whom(unbroken.record)
    learned = [[e.sampling_probabilities for e in run.record.epochs] for run in (killed, unbroken)]
    assert learned[0] == learned[1]
    assert [e.train for e in killed.record.epochs] == [e.train for e in unbroken.record.epochs]


class Both(tiny.TrainerCallback):
    """A display that also kills."""

    def __init__(self, display, killer) -> None:
        self.display, self.killer = display, killer

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return object.__getattribute__(self, name)
        parts = [object.__getattribute__(self, part) for part in ("display", "killer")]

        def call(*args, **kwargs):
            for part in parts:
                getattr(part, name)(*args, **kwargs)

        return call

    def close(self) -> None:
        self.display.close()


@pytest.mark.slow
def test_held_out_rows_are_not_trained_on(several, tmp_path, watch_training):
    rows: list[set[int]] = []
    watch_training(lambda trainer, inputs: rows.append(set(inputs["index"].tolist())))
    record = train(
        several("skd-adaptive", **{"team.holdout": 10, "team.block": 2}), tmp_path / "run"
    ).record
    assert len(set().union(*rows)) == 44 == record.examples.train
    probabilities = record.epochs[-1].sampling_probabilities
    assert (
        sum(probabilities.values()) == pytest.approx(1)
        and probabilities["teacher"] != probabilities["six"]
    )


# ---- what is trained first ----


@pytest.mark.slow
def test_a_student_of_each_teacher_comes_first_and_is_kept(several, tmp_path, monkeypatch):
    shared = str(tmp_path / "shared")
    given = {"team.student_runs": shared, "team.student_epochs": 1, "epochs": 1}
    first = train(several("skd-student-rank", **given), tmp_path / "skd")
    runs = [Record.load(run) for run in first.record.team.runs]
    assert [Path(run).name for run in first.record.team.runs] == ["teacher", "six"]
    assert [run.status for run in runs] == ["finished"] * 2
    assert [len(run.epochs) for run in runs] == [1, 1]
    scores = [run.scores["dev"]["primary"] for run in runs]
    assert [member.student_score for member in first.record.team.members] == scores
    # Each of them is what distilling from that teacher alone comes to.
    alone = several("kd-soft", teachers=None, teacher=first.record.team.members[1].path, epochs=1)
    assert weights(train(alone, tmp_path / "alone").path) == weights(Path(shared) / "six")
    # Another method finds them.
    before = [run.path.stat().st_mtime_ns for run in runs]
    second = train(several("wkd-student-rank", **given), tmp_path / "wkd")
    assert second.record.team.runs == first.record.team.runs
    assert [run.path.stat().st_mtime_ns for run in runs] == before


@pytest.mark.slow
def test_students_are_found_by_a_team_of_other_teachers(several, teachers, tmp_path):
    """A student that starts from weights of its own is the same whoever leads the team."""
    given = {
        "team.student_runs": str(tmp_path / "shared"),
        "team.student_epochs": 1,
        "epochs": 1,
        "student.init": teachers[0],
        "student.layers": 1,
    }
    small, large = teachers[:2]
    first = train(several("skd-student-rank", **given), tmp_path / "first").record
    made = Path(first.team.runs[1]) / "record.json"
    before = made.stat().st_mtime_ns
    given["teachers"] = [large, small]
    second = train(several("wkd-student-rank", **given), tmp_path / "second").record
    assert second.team.runs == first.team.runs[::-1]
    assert made.stat().st_mtime_ns == before


@pytest.mark.slow
def test_the_students_own_teacher_teaches_its_first_stage(several, tmp_path, watch_training):
    """Not the team's first, which the students take their layers from."""
    depths: list[int] = []

    def look(trainer, inputs):
        if isinstance(trainer.teacher, Teacher):  # no team: a first stage
            depths.append(trainer.teacher.model.config.num_hidden_layers)

    watch_training(look)
    stage = {"objectives": {"hidden": RAIL}, "epochs": 1}
    given = {"student.init": "teacher", "student.layers": 2, "epochs": 1, "cache": "never"}
    train(several("skd-student-rank", first_stage=stage, **given), tmp_path / "run")
    assert depths[: 2 * STEPS] == [4] * STEPS + [6] * STEPS


def test_what_is_made_before_a_team_runs_augments_by_the_runs_own_lead(several, teachers):
    own = {"augment.replace_by": "nearest", "augment.model": "teacher"}
    alone = _alone(several("skd-student-rank", **own), teachers[1], {})
    assert (alone.teachers, alone.augment.model) == ([teachers[1]], teachers[0])


@pytest.mark.slow
def test_the_best_of_three_distributions_is_taken(several, tmp_path):
    """All three are runs of their own; the chosen one's student is shipped, at the cost of all."""
    result = train(several("skd-best-of", epochs=1, **{"team.student_epochs": 1}), tmp_path / "run")
    team, runs = result.record.team, [Record.load(run) for run in result.record.team.runs]
    assert [Path(run).name for run in team.runs] == ["uniform", "teacher-rank", "student-rank"]
    scores = [run.scores["dev"]["primary"] for run in runs]
    chosen = scores.index(max(scores))
    assert team.chosen == team.runs[chosen] and team.by.endswith(Path(team.chosen).name)
    # It has a card of its own, and is whole to whoever loads it.
    assert evaluate(result.path)["primary"] == pytest.approx(result.record.scores["dev"]["primary"])
    assert weights(result.path) == weights(Path(team.chosen))
    assert result.scores == runs[chosen].scores
    assert result.record.cost.student_examples == sum(run.cost.student_examples for run in runs)
    assert train(several("skd-best-of", epochs=1, **{"team.student_epochs": 1}), tmp_path / "run")


@pytest.mark.slow
def test_a_chain_goes_from_the_largest_to_the_student(several, teachers, place, tmp_path):
    result = train(several("takd", teachers=teachers, epochs=1), tmp_path / "run")
    runs = [Record.load(run) for run in result.record.team.runs]
    assert [Path(run).name for run in result.record.team.runs] == ["01-teacher", "02-narrow"]
    assert [run.recipe["teachers"][0] for run in runs] == [teachers[1], str(runs[0].path.parent)]
    # The last of them is a teacher like any other.
    alone = several("kd-soft", teachers=None, teacher=str(runs[1].path.parent), epochs=1)
    assert weights(train(alone, tmp_path / "alone").path) == weights(result.path)


@pytest.mark.slow
def test_a_broken_chain_goes_on_at_the_broken_link(several, teachers, tmp_path, monkeypatch):
    recipe = several("takd", teachers=teachers, epochs=1)
    unbroken = train(recipe, tmp_path / "unbroken")
    started: list[str] = []
    original = starting.train_stages

    def breaking(prepared, folder, parts, **kwargs):
        started.append(folder.path.name)
        if started == ["01-teacher", "02-narrow"]:
            raise tiny.KilledError
        return original(prepared, folder, parts, **kwargs)

    monkeypatch.setattr(starting, "train_stages", breaking)
    with pytest.raises(tiny.KilledError):
        train(recipe, tmp_path / "broken")
    again = train(recipe, tmp_path / "broken")
    assert started == ["01-teacher", "02-narrow", "02-narrow", "broken"]
    assert weights(again.path) == weights(unbroken.path)


@pytest.mark.slow
def test_an_assistant_starts_from_its_pretrained_weights(several, recipe, place, tmp_path):
    """A teacher that a run made starts again from where that run started."""
    small = recipe("finetune", **{"student.layers": 2, "epochs": 1})
    teacher = train(small, tmp_path / "small").path
    form = pretrained_form(str(teacher))
    assert form["student"].init == str(place / "start") and form["student"].layers == 2
    assert pretrained_form(str(place / "six")) is None
    record = Record.load(teacher)  # nobody would learn from one that had so little to learn from
    record.scores["dev"]["primary"] = 100.0
    record.save(teacher)
    chain = several("takd", teachers=[str(place / "teacher"), str(teacher)])
    made = train(chain, tmp_path / "run").record.team.runs
    assert Record.load(made[0]).recipe["student"]["layers"] == 2


@pytest.mark.slow
def test_first_one_fixed_teacher_then_draws(several, teachers, tmp_path, asked):
    """SKDBERT §5.4: transformer distillation from one teacher, then soft labels of all."""
    hidden = {
        "compare": "hidden_mse",
        "mapping": {"kind": "last"},
        "project": {"to": "teacher", "sides": "student"},
    }
    first = {"objectives": {"hidden": hidden}, "epochs": 1, "teacher": teachers[2]}
    record = train(several(first_stage=first), tmp_path / "run").record
    assert [stage.teacher for stage in record.stages] == [teachers[2], ", ".join(teachers[:2])]
    assert not record.epochs[0].sampled and sum(record.epochs[1].sampled.values()) == STEPS


# ---- stored teacher outputs ----


@pytest.mark.parametrize(
    "method",
    [
        "skd-uniform",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("wkd-uniform", "mt-bert")),
    ],
)
@pytest.mark.slow
def test_stored_answers_teach_alike(several, tmp_path, monkeypatch, asked, method):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    live = train(several(method, cache="never", epochs=1), tmp_path / "live")
    stored = train(several(method, cache="always", epochs=1), tmp_path / "stored")
    assert stored.record.execution.teacher_outputs == {"1 teacher": "stored", "1 six": "stored"}
    assert whom(stored.record) == whom(live.record)
    for one, other in zip(stored.record.epochs, live.record.epochs, strict=True):
        assert one.train == pytest.approx(other.train, rel=1e-3)
    del asked[:]
    again = train(several(method, cache="always", epochs=1, seed=4), tmp_path / "again")
    # Only pre-flight looks at the models once their answers lie there.
    assert len(asked) < STEPS and again.record.cost.teacher_flops == 0


# ---- refusals ----


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "kd"}, "kd learns from one"),
        ({"teachers": None}, "learns from several, and none are given"),
        ({"team.by": [1, 2, 3]}, "3 numbers for 2 teachers"),
        ({"team.by": [0, 0]}, "not all 0"),
        ({"team.block": 3}, "by: adaptive"),
        ({"team.student_epochs": 3}, "by: student-rank"),
        ({"method": "wkd-uniform", "objectives.rail": RAIL}, "have none in common"),
        ({"team.by": "adaptive", "team.holdout": 54}, "54 of 54 training rows"),
        ({"team.by": "finest"}, "team.by: "),
    ],
)
def test_what_makes_no_sense_is_refused(several, tmp_path, changes, words):
    method = changes.pop("method", "skd-uniform")
    with pytest.raises(LimbeckError, match=words):
        train(several(method, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_same_teacher_twice_is_refused(several, teachers, tmp_path):
    with pytest.raises(LimbeckError, match="named twice"):
        several(teachers=[teachers[0], teachers[0]])


def test_a_term_that_one_teacher_cannot_teach_is_refused(several, teachers, tmp_path):
    heads = {"compare": "attention_kl", "mapping": {"kind": "last"}}
    with pytest.raises(LimbeckError) as caught:
        train(several(teachers=teachers, **{"objectives.heads": heads}), tmp_path / "run")
    assert "teacher narrow" in str(caught.value) and "relation" in str(caught.value)
    assert not RunFolder(tmp_path / "run").path.exists()


def test_capacity_is_counted_in_parameters(teachers):

    sizes = (4, 6, 2)
    members = [Teacher(tiny.bert(layers)) for layers in sizes]
    assert by_capacity(members) == [1, 0, 2]
    assert chain_links(members) == [(1, 0), (0, 2)]


def test_of_teachers_of_one_size_the_best_on_dev_is_first_in_a_chain():
    members = [Teacher(tiny.bert(layers)) for layers in (2, 4, 4, 4)]
    assert by_capacity(members, [99.0, 70.0, None, 80.0]) == [3, 1, 2, 0]
    # Whatever the scores are: each of the equals may teach the others and the smaller one.
    equals = [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]
    assert sorted(chain_links(members)) == sorted([*equals, (1, 0), (2, 0), (3, 0)])


@pytest.mark.slow
def test_the_strongest_of_two_largest_teachers_is_not_distilled_again(several, place, tmp_path):
    """As BERT-large with and without whole-word masking: equal sizes, and the better one is named last."""
    for name, score in (("weaker", 60.0), ("stronger", 90.0)):
        tiny.save(tiny.knowing_teacher(4), place / name)
        record = json.loads((place / "narrow" / "record.json").read_text())
        record["scores"]["dev"]["primary"] = score
        (place / name / "record.json").write_text(json.dumps(record))
    members = [str(place / name) for name in ("narrow", "weaker", "stronger")]
    chain = train(several("takd", teachers=members, max_steps=1), tmp_path / "run").record.team
    assert [Path(run).name for run in chain.runs] == ["01-weaker", "02-narrow"]
    assert Record.load(chain.runs[0]).recipe["teachers"] == [str(place / "stronger")]


@pytest.mark.parametrize(
    ("init", "teacher"), [("teacher", "large"), ("fresh", "large"), ("bert-base-uncased", None)]
)
def test_a_recorded_start_names_a_teacher_only_where_the_student_takes_something_from_it(
    tmp_path, init, teacher
):
    recipe = {"student": {"init": init}, "teacher": "large"}
    (tmp_path / "record.json").write_text(json.dumps({"recipe": recipe}))
    (tmp_path / "student").mkdir()
    for folder in (tmp_path, tmp_path / "student"):
        spec, found = recorded_start(str(folder))
        assert (spec.init, found) == (init, teacher)
    assert recorded_start(str(tmp_path / "elsewhere")) is None
    (tmp_path / "record.json").write_text('{"recipe": {}}')
    with pytest.raises(LimbeckError, match="does not name its student's initial checkpoint"):
        recorded_start(str(tmp_path))


@pytest.mark.parametrize("init", ["pocket-4-32-2", "bert-4-64-4:random", "resnet-20"])
def test_an_assistant_of_a_named_shape_starts_from_that_shape(tmp_path, init):
    student = {"init": init, "layers": 2}
    Record(
        kind="finetune", method="finetune", task="t", data="d", seed=1, recipe={"student": student}
    ).save(tmp_path / "run")
    (tmp_path / "run" / "student").mkdir()
    for path in (tmp_path / "run", tmp_path / "run" / "student"):
        assert pretrained_form(str(path))["student"].init == init


def test_an_assistant_without_pretrained_weights_is_warned_of(several, teachers):
    recipe = several("takd", teachers=teachers[:2])
    (warning,) = origin_problems(recipe, prepare(recipe).named)
    assert warning.severity == "warning"
    assert warning.message.startswith(f"assistant teacher: starts from {teachers[0]} as it is")
    assert origin_problems(several("wkd-uniform"), prepare(recipe).named) == []
