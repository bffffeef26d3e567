"""A search goes on where it was stopped, what scores chooses nothing, and wrong settings end before any work.

Trainings, exports and times are made up here, by rules that the tests know.
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import tiny_compression as tiny

import limbeck
from limbeck.compressing import compress, finals, trials
from limbeck.compressing.budget import Costs
from limbeck.compressing.costs import Probe
from limbeck.compressing.front import FrontPoint
from limbeck.data.text_rows import read_text_rows
from limbeck.records import RECORD_NAME
from limbeck.runtimes.manifest import EXPORT_NAME
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.workers import Workers


class Stopped(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Rows and a teacher, and in place of trainings and exports rules.

    Attributes:
        stop_at: the training at which the process ends.
        test_seed: of the scores on rows that choose nothing.
        now: the clock; a training adds `cost(recipe)` seconds to it, an export and each half's scores `exporting`.
        larger: how many bytes larger than predicted a student's exported file is.
    """
    rules = SimpleNamespace(
        stop_at=None, test_seed=0, trainings=[], exports=[], now=0.0, exporting=0.0,
        cost=lambda recipe: 0.0, larger=lambda name: 0,
    )  # fmt: skip
    known: dict[str, dict] = {}

    def probed(model, wanted, folder):
        rules.now += rules.exporting
        return [
            Probe(
                shape=shape,
                precision=precision,
                file=model.predicted(shape, precision).size
                - model.vocabularies[shape.vocabulary].bytes
                - 3_000,
                latency=0.1 + shape.layers,
                memory=1e6,
            )
            for shape, precision in wanted
        ]

    def distill(recipe, out, **_):
        if len(rules.trainings) == rules.stop_at:
            raise Stopped
        rules.trainings.append(recipe)
        spec = recipe.student
        quality = (
            60 + 8 * (spec.layers or 0) + (spec.ffn or 64) / 64 + random.Random(recipe.lr).random()
        )
        test = random.Random(f"{rules.test_seed} {out}").uniform(0, 100)
        seconds = rules.cost(recipe)
        rules.now += seconds + 2 * rules.exporting  # a run scores its rows
        cost = SimpleNamespace(
            preparation_seconds=0.0, student_seconds=seconds, teacher_seconds=None
        )
        usual = 30 if spec.static else 60  # of 60 rows
        record = SimpleNamespace(epochs=[None] * round(recipe.epochs or usual), cost=cost)
        scores = {"dev": {"primary": quality}, "test": {"primary": test}}
        known[str(out)] = scores
        return SimpleNamespace(path=Path(out), scores=scores, record=record)

    def export(model, out, **_):
        rules.now += rules.exporting
        rules.exports.append(str(out))
        out.mkdir(parents=True)
        (out / EXPORT_NAME).write_text("{}")
        size = 10_000 + (rules.larger(str(model)) if str(model) in known else 10**6)
        (out / "model.onnx").write_bytes(b"0" * size)
        known[str(out)] = known.get(
            str(model), {"dev": {"primary": 50.0}, "test": {"primary": 50.0}}
        )

    def scored(self, model, loaded):
        rules.now += rules.exporting
        found = known.get(str(model), {"dev": {"primary": 95.0}, "test": {"primary": 94.0}})
        return SimpleNamespace(results=SimpleNamespace(scores=found[loaded]))

    def timed(self):
        return [
            one.model_copy(update={"costs": replace(one.costs, latency=1.0, memory=1e6)})
            for one in self.points
        ]

    for module in (trials, finals):
        monkeypatch.setattr(module, "distill", distill)
    monkeypatch.setattr(trials, "probed", probed)
    monkeypatch.setattr(finals, "export", export)
    monkeypatch.setattr(finals.Measuring, "_scored", scored)
    monkeypatch.setattr(finals.Measuring, "timed", timed)
    monkeypatch.setattr(finals, "have_confidence", lambda _: False)
    opened = SimpleNamespace(rows=lambda asked: asked.split)
    monkeypatch.setattr(finals.ScoredModel, "open", lambda _: opened)
    monkeypatch.setattr(finals, "shipped", lambda point: point.path)
    monkeypatch.setattr(compress, "first_probes", lambda model, folder: [])
    monkeypatch.setattr(compress, "with_outputs", lambda rows, *_, **__: rows)
    monkeypatch.setattr(trials.time, "monotonic", lambda: rules.now)
    teacher = tiny.write_teacher(tmp_path / "teacher")
    rows = {
        "data": str(tiny.write_rows(tmp_path / "train.csv", 60)),
        "dev": str(tiny.write_rows(tmp_path / "dev.csv", 40, seed=4)),
    }

    def run(out: Path, **settings):
        asked = {"trials": 9, "finalists": 2, "seeds": 2, "precisions": ("int8",), **settings}
        budget = asked.pop("budget", "size=60KB")
        return compress.compress(teacher, budget, out, recipe=rows, **asked)

    rules.run = run
    return rules


def content(folder: Path) -> dict[str, str]:
    """All that a search wrote, without the name of its folder."""
    kept = [*folder.glob("trials/*.json"), folder / "front.json", folder / "front.html"]
    return {path.name: path.read_text().replace(str(folder), "OUT") for path in sorted(kept)}


@pytest.mark.slow
def test_a_killed_search_goes_on_and_ends_the_same(made_up, tmp_path):
    made_up.run(tmp_path / "whole")
    expected, trained = content(tmp_path / "whole"), len(made_up.trainings)
    assert len(expected) == 9 + 2 and trained == 9 + 2 * 2
    for stop_at in (0, 3, 7, 10):
        out = tmp_path / f"stopped-{stop_at}"
        made_up.trainings.clear()
        made_up.stop_at = stop_at
        with pytest.raises(Stopped):
            made_up.run(out)
        done = len([*(out / "trials").glob("*.json")])
        assert done == min(stop_at, 9)
        made_up.stop_at = None
        made_up.trainings.clear()
        made_up.run(out)
        assert len(made_up.trainings) == trained - done  # no finished trial is made again
        found = content(out)
        # Names of folders are in the scores of this test's rows that choose nothing.
        assert found.keys() == expected.keys()
        for name in expected:
            if name[0].isdigit():
                assert found[name] == expected[name]
        fronts = [json.loads(one["front.json"]) for one in (found, expected)]
        for front in fronts:
            for point in front["points"]:
                point.pop("score"), point.pop("seeds")
        assert fronts[0] == fronts[1]


def test_what_scores_chooses_nothing(made_up, tmp_path):
    chosen = []
    for seed in (1, 2):
        made_up.test_seed = seed
        made_up.trainings.clear()
        found = made_up.run(tmp_path / f"{seed}")
        chosen.append(
            [(one.name, one.on_front, one.recommended, one.chosen_on) for one in found.points]
        )
        # No run reads a row of the other half before its end.
        for recipe in made_up.trainings:
            dev, test = (
                {*read_text_rows(path).columns["sentence"].to_pylist()}
                for path in (recipe.dev, recipe.test)
            )
            assert not dev & test and len(dev) + len(test) == 40
    assert chosen[0] == chosen[1]
    scores = [
        json.loads((tmp_path / f"{seed}" / "front.json").read_text())["points"] for seed in (1, 2)
    ]
    assert [one["score"] for one in scores[0]] != [one["score"] for one in scores[1]]


def test_every_candidate_meets_the_budget_and_is_new(made_up, tmp_path):
    found = made_up.run(tmp_path / "out", trials=14)
    done = [*trials.numbered_trials(tmp_path / "out").values()]
    assert len(done) == 14
    assert all(one.costs.size <= 60_000 for one in done)
    assert len({one.candidate.words for one in done}) == 14
    assert {one.candidate.shape.is_static for one in done} == {True, False}
    best = found.recommended
    assert best is not None
    assert best.chosen_on == max(one.chosen_on for one in found.points if one.kind == "student")


@pytest.mark.parametrize(
    ("precision", "bits"), [("int4", 4), ("int8-embeddings4", 4), ("int8", None)]
)
def test_tables_are_trained_in_the_bits_that_they_ship_in(made_up, tmp_path, precision, bits):
    made_up.run(tmp_path / "out", trials=2, finalists=1, seeds=1, precisions=(precision,))
    layered = [one for one in made_up.trainings if not one.student.static]
    assert {one.student.embedding_bits for one in layered} == {bits}


def test_a_shape_that_is_too_slow_when_it_is_timed_is_not_trained(made_up, tmp_path, monkeypatch):
    asked = {"trials": 5, "finalists": 1, "seeds": 1, "precisions": ("int8",)}
    run = made_up.run
    probed = trials.probed

    def slow(model, wanted, folder):
        return [one.model_copy(update={"file": one.file + 10**6}) if one.shape.layers > 1 else one
                for one in probed(model, wanted, folder)]  # fmt: skip

    monkeypatch.setattr(trials, "probed", slow)
    run(tmp_path / "out", **asked)
    done = [*trials.numbered_trials(tmp_path / "out").values()]
    over = [one for one in done if one.candidate.shape.layers > 1]
    assert over and all("over the budget as measured: size" in one.error for one in over)
    assert all((recipe.student.layers or 0) <= 1 for recipe in made_up.trainings)


def test_what_ends_all_trials_is_shown_with_its_fix(made_up, tmp_path, monkeypatch):
    def constant(*_, **__):
        raise LimbeckError("teacher: it predicts one class", "train it longer")

    monkeypatch.setattr(trials, "distill", constant)
    said = r"with a score:\nteacher: it predicts one class\n +fix: train it longer\n +fix: correct"
    with pytest.raises(LimbeckError, match=said):
        made_up.run(tmp_path / "out", trials=2)


def test_time_ends_the_trials(made_up, tmp_path):
    """A training takes 10 s a row here, of 4,680 s."""
    made_up.cost = lambda recipe: 10.0 * rows_of_recipe(recipe)
    asked = {"hours": 1.3, "finalists": 1, "seeds": 1}
    # With the margin of a fifth, a trial takes 720 s and the finalist on the same rows as many. The sixth trial may
    # begin after 3,000 s, a seventh not after 3,600 s.
    made_up.run(tmp_path / "all", **asked)
    assert len(trials.numbered_trials(tmp_path / "all")) == 6
    # A trial on a sixth of the rows takes 100 s.
    made_up.run(tmp_path / "some", trial_rows=10, trials=50, **asked)
    assert 30 < len(trials.numbered_trials(tmp_path / "some")) <= 39
    assert made_up.now <= 2 * 4_680


def test_slow_finalists_get_the_time_that_fast_ones_leave(made_up, tmp_path):
    """A row takes 60 s of a student with layers, and 1 s of a static one."""
    made_up.cost = lambda recipe: rows_of_recipe(recipe) * (60.0 if recipe.student.layers else 1.0)
    asked = {"trials": 4, "finalists": 2, "seeds": 1, "trial_rows": 10, "hours": 1.2}
    made_up.run(tmp_path / "out", **asked)
    fast, slow = made_up.trainings[-2:]
    assert fast.student.static and rows_of_recipe(fast) == 60
    # Of 4,320 s trials leave about 2,500; half of it would be 17 rows, with the margin of a fifth.
    assert not slow.student.static and rows_of_recipe(slow) > 25


def rows_of_recipe(recipe) -> int:
    return 60 if recipe.train_rows is None else recipe.train_rows


@pytest.mark.parametrize("slower", [1, 2, 4])
def test_the_hours_hold_on_a_machine_that_gets_busy(made_up, tmp_path, slower):
    """After the trials everything takes so many times as long. What would not end is not begun, and is named."""
    made_up.exporting = 20.0

    def cost(recipe):
        busy = slower if len(made_up.trainings) > 6 else 1
        made_up.exporting = 20.0 * busy
        return 5.0 * busy * rows_of_recipe(recipe)

    made_up.cost = cost
    found = made_up.run(
        tmp_path / "out", hours=1.5, trials=6, seeds=2, finalists=3, precisions=("int8", "int4")
    )
    # Trials 6 × 300 s of 5,400: six trainings of 300 s are too many when they take four times as long.
    assert made_up.now <= 5_400
    trained = len(made_up.trainings) - 6
    assert 1 <= trained <= 6
    skipped = [one for one in found.about["notes"] if one.startswith("not trained, for the time")]
    assert len(skipped) == 6 - trained
    assert found.recommended is not None
    # The same again reads what was made.
    again = made_up.run(
        tmp_path / "out", hours=1.5, trials=6, seeds=2, finalists=3, precisions=("int8", "int4")
    )
    assert len(made_up.trainings) == 6 + trained and again.points == found.points


def test_files_above_the_budget_are_not_recommended_and_smaller_ones_are_tried(made_up, tmp_path):
    larger = []

    def oversized(name):
        larger.append(name)
        return 10**5 if len(larger) <= 2 else 0

    made_up.larger = oversized
    found = made_up.run(tmp_path / "out", seeds=1)
    students = [one for one in found.points if one.kind == "student"]
    assert [one.fits for one in students] == [False, False, True]
    assert found.recommended == students[2]
    done = [*trials.numbered_trials(tmp_path / "out").values()]
    sizes = {f"{one.candidate.shape.words}, {one.candidate.method}": one.costs.size for one in done}
    first, second, third = (sizes[one.name] for one in students)
    assert third < min(first, second)
    # Where all are too large none is.
    made_up.larger = lambda name: 10**5
    none = made_up.run(tmp_path / "none", seeds=1)
    assert none.recommended is None and not any(one.fits for one in none.points)
    assert "No model fits" in none.about["reason"]


def test_limits_that_arithmetic_does_not_know_are_not_part_of_it(made_up, tmp_path, capsys):
    """It took no memory and no time for every shape, and said that all of them fit."""
    made_up.run(tmp_path / "out", show=True, trials=1, budget="memory=2MB")
    assert "by arithmetic" not in capsys.readouterr().err
    with pytest.raises(LimbeckError) as caught:
        made_up.run(tmp_path / "small", budget="size=1KB,latency=1ms")
    assert "latency" not in str(caught.value)


def test_the_best_trial_is_trained_and_fewer_rows_and_more_time_are_named(made_up, tmp_path):
    """The fastest one alone was, a static student that is much worse."""
    made_up.exporting = 100.0
    made_up.cost = lambda recipe: rows_of_recipe(recipe) * (60.0 if recipe.student.layers else 1.0)
    asked = {"trials": 2, "finalists": 2, "seeds": 1, "trial_rows": 10, "hours": 0.6}
    found = made_up.run(tmp_path / "out", **asked)
    best = max(trials.numbered_trials(tmp_path / "out").values(), key=lambda one: one.score)
    assert best.candidate.shape.layers
    (trained,) = [one for one in made_up.trainings[2:] if one.student.layers]
    notes = "\n".join(found.about["notes"])
    assert (
        f"trained on {rows_of_recipe(trained)} of 60 rows, for the time: {best.candidate.words}"
        in notes
    )
    assert f"the steps took {made_up.now / 3600:.2g} hours, more than the 0.6 given" in notes


def test_what_is_wrong_is_said_together_before_any_work(tmp_path):
    with pytest.raises(LimbeckError) as caught:
        limbeck.compress(
            tmp_path / "nothing",
            "size=6XB,speed=2",
            tmp_path / "out",
            hours=-1,
            methods=("kd-sofd",),
            precisions="int9",
        )
    said = "\n".join(f"{one.message} {one.fix}" for one in caught.value.problems)
    for part in ("size=6XB", "'speed'", "hours", "int9", "nothing"):
        assert part in said
    assert not (tmp_path / "out").exists()


def test_a_latency_that_cannot_be_measured_is_refused(made_up, tmp_path, monkeypatch):
    with pytest.raises(LimbeckError, match="length 129: the teacher reads 128 tokens at most"):
        made_up.run(tmp_path / "out", length=129)
    monkeypatch.setattr("limbeck.support.cores.cores", lambda: 2)
    with pytest.raises(LimbeckError, match="threads 3: there are fewer cores"):
        made_up.run(tmp_path / "out", threads=3)


def test_rows_are_files_whose_paths_may_be_objects(made_up, tmp_path):
    """Both ended in a traceback."""
    rows = {"data": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}
    found = compress.compress(
        tmp_path / "teacher", "size=60KB", tmp_path / "out", recipe=rows, trials=1
    )
    assert found.recommended is not None
    with pytest.raises(LimbeckError, match="data: compress reads files, not objects"):
        compress.compress(
            tmp_path / "teacher",
            "size=60KB",
            tmp_path / "out",
            recipe=rows | {"data": [{"text": "a"}] * 90},
        )


def test_the_run_ships_the_precision_that_is_recommended_now(tmp_path, monkeypatch):
    """The 8-bit file of an earlier, shorter search stayed: both precisions are of one format."""
    run, refreshed = tmp_path / "run", []
    run.mkdir()
    (run / RECORD_NAME).write_text("{}")
    monkeypatch.setattr(finals, "read_export", lambda _: SimpleNamespace(format="onnx-int8"))
    monkeypatch.setattr(finals, "refresh", refreshed.append)
    costs = Costs(1, 1, 1, 1)
    for precision in ("int8", "int8-embeddings4"):
        (tmp_path / precision).mkdir()
        (tmp_path / precision / "model.onnx").write_text(precision)
        point = FrontPoint(
            name="a", kind="student", precision=precision, costs=costs, chosen_on=1, score=1,
            path=str(tmp_path / precision), run=str(run),
        )  # fmt: skip
        place = Path(finals.shipped(point))
        assert (place / "model.onnx").read_text() == precision
    assert place == run / "exported/onnx-int8" and refreshed == [run, run]


def test_a_folder_that_was_moved_says_so_at_once(made_up, tmp_path):
    """Minutes later a run in it was called another's: its rows and outputs are named by their paths."""
    made_up.run(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(LimbeckError, match="was begun as") as refused:
        made_up.run(tmp_path / "moved")
    assert f"move it back to {tmp_path / 'out'}" in str(refused.value)


def test_another_compressions_folder_is_refused(made_up, tmp_path):
    made_up.run(tmp_path / "out")
    with pytest.raises(LimbeckError, match="holds another compression"):
        made_up.run(tmp_path / "out", seeds=1)
    made_up.run(tmp_path / "out", trials=10)  # more of the same is no other one
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    with pytest.raises(LimbeckError, match="holds no compression"):
        made_up.run(tmp_path / "mine")
    with pytest.raises(LimbeckError, match="unknown method 'kd-sofd'"):
        made_up.run(tmp_path / "other", methods=("kd-sofd",))


def test_what_no_trial_can_train_with_is_refused_before_any_export(made_up, tmp_path):
    """Methods that read hidden states, and rows of other classes, failed in every trial."""
    for name in ("pkd", "rail-kd-c", "tinybert", "skd-uniform"):
        with pytest.raises(LimbeckError, match=f"{name} reads more than the outputs") as caught:
            made_up.run(tmp_path / "out", methods=("kd", name))
        assert "choose among finetune, dist, dkd, kd, kd-soft" in caught.value.problems[0].fix
    rows = pd.read_csv(tmp_path / "dev.csv")
    rows["label"] = [("good", "bad", "neither")[place % 3] for place in range(len(rows))]
    for name in ("train.csv", "dev.csv"):
        rows.to_csv(tmp_path / name, index=False)
    with pytest.raises(LimbeckError, match=r"teacher: it has 2 outputs .* needs 3"):
        made_up.run(tmp_path / "out")
    assert not made_up.exports and not (tmp_path / "out" / "costs").exists()


def test_other_rows_under_the_same_name_are_another_compression(made_up, tmp_path):
    """The old table came back in silence."""
    made_up.run(tmp_path / "out")
    tiny.write_rows(tmp_path / "dev.csv", 30, seed=5)
    with pytest.raises(LimbeckError, match=r"these have changed: dev \S*dev.csv"):
        made_up.run(tmp_path / "out")
    before = len(made_up.trainings)
    made_up.run(tmp_path / "out", overwrite=True)
    assert len(made_up.trainings) > before


# ---- several at the same time ----


class AtOnce(Workers):
    """Tasks that take their time beside each other, on the fixture's clock; of some the process dies."""

    def __init__(self, rules, work, jobs):
        self.rules, self.work, self.jobs, self.busy = rules, work, jobs, []

    @property
    def free(self):
        return self.jobs - len(self.busy)

    def start(self, task):
        began = self.rules.now
        if len(self.rules.trainings) in self.rules.dies_at:
            self.rules.trainings.append(None)
            ended = self.work.lost(task, Problem("its process ended", "again"))
        else:
            ended = self.work.carry_out(task)
        self.busy.append((self.rules.now, task, ended))
        self.rules.now = began

    def finished(self):
        if not self.busy:
            return []
        first = min(self.busy, key=lambda one: one[0])
        self.busy.remove(first)
        self.rules.now = max(self.rules.now, first[0])
        return [first[1:]]

    def close(self):
        self.busy.clear()


@pytest.fixture
def at_once(made_up, monkeypatch):
    """The same rules where `jobs` trainings run at the same time.

    Attributes:
        dies_at: the trainings whose process dies.
    """
    made_up.dies_at = ()

    @contextmanager
    def workers(work, jobs, *_):
        yield AtOnce(made_up, work, jobs)

    monkeypatch.setattr(compress, "workers", workers)
    return made_up


def trials_of(folder: Path) -> list[dict]:
    """The trials without their times."""
    found = [one.model_dump() for one in trials.numbered_trials(folder).values()]
    return [{key: one[key] for key in ("candidate", "rows", "score", "error")} for one in found]


@pytest.mark.parametrize(
    ("jobs", "ended"), [(2, {0, 1, 2, 3, 5}), (4, {0, 1, 2, 3, 4}), (4, {0, 1, 2, 3, 5, 7})]
)
def test_a_search_killed_in_a_batch_goes_on_and_ends_the_same(at_once, tmp_path, jobs, ended):
    """Some trials of the batch had ended, in any order."""
    at_once.cost = lambda recipe: 10.0 + 3.0 * (recipe.student.layers or 0)
    whole, out = tmp_path / "whole", tmp_path / "out"
    expected = at_once.run(whole, jobs=jobs)
    trained = len(at_once.trainings)
    assert len(trials_of(whole)) == 9 and trained == 9 + 2 * 2
    (out / "trials").mkdir(parents=True)
    for name in ["compress.json", *(f"trials/{number:03}.json" for number in ended)]:
        (out / name).write_text((whole / name).read_text().replace(str(whole), str(out)))
    at_once.trainings.clear()
    found = at_once.run(out, jobs=jobs)
    assert len(at_once.trainings) == trained - len(ended)
    assert trials_of(out) == trials_of(whole)
    kept = [
        [(one.name, one.chosen_on, one.recommended) for one in each.points]
        for each in (found, expected)
    ]
    assert kept[0] == kept[1]


def test_proposals_of_a_batch_do_not_know_its_results(at_once, tmp_path, monkeypatch):
    """Trials 6 to 8 are a batch: another score of trial 7 changes what comes after it, and nothing in it."""
    plain, found = trials.distill, []
    for better in (0, 50):

        def distill(recipe, out, *, better=better, **options):
            made = plain(recipe, out, **options)
            made.scores["dev"]["primary"] += better * (Path(out).name == "run-007")
            return made

        monkeypatch.setattr(trials, "distill", distill)
        at_once.run(tmp_path / f"{better}", trials=16, jobs=3)
        found.append([one["candidate"] for one in trials_of(tmp_path / f"{better}")])
    one, other = found
    assert one[:9] == other[:9] and one[9:] != other[9:]
    assert len({str(each) for each in one}) == 16


def test_time_is_counted_as_it_passes(at_once, tmp_path):
    """Two students at the same time take as long as the slower one, and their exports come before, one by one."""
    at_once.exporting = 5.0
    at_once.cost = lambda recipe: 100.0 * (1 + (recipe.student.layers or 0))
    at_once.run(tmp_path / "out", trials=6, jobs=2)
    spent = json.loads((tmp_path / "out" / "spent.json").read_text())
    assert sum(spent.values()) == pytest.approx(at_once.now)
    layers = [one["candidate"]["shape"]["layers"] for one in trials_of(tmp_path / "out")]
    batches = [layers[at : at + 2] for at in range(0, 6, 2)]
    # A run scores its rows too, which takes two exports' time.
    expected = sum(5.0 * 2 + 100.0 * (1 + max(batch)) + 2 * 5.0 for batch in batches)
    assert sum(spent[f"trial {at}"] for at in range(6)) == pytest.approx(expected)
    seconds = [one.seconds for one in trials.numbered_trials(tmp_path / "out").values()]
    assert seconds == pytest.approx([5.0 + 100.0 * (1 + one) + 10.0 for one in layers])


def test_the_hours_hold_with_several_jobs(at_once, tmp_path):
    """A training takes 300 s; in one case four times as many after six. Twice as many trials fit otherwise."""

    def cost(recipe):
        busy = at_once.busy if len(at_once.trainings) > 6 else 1
        at_once.exporting = 20.0 * busy
        return 5.0 * busy * rows_of_recipe(recipe)

    at_once.cost, at_once.busy = cost, 4
    asked = {"hours": 1.5, "seeds": 2, "finalists": 3}
    found = at_once.run(tmp_path / "busy", jobs=2, trials=6, **asked)
    assert at_once.now <= 5_400 and found.recommended is not None
    counts, at_once.busy = [], 1
    for jobs in (1, 2):
        at_once.now, out = 0.0, tmp_path / f"{jobs}"
        at_once.run(out, jobs=jobs, trials=30, **asked)
        assert at_once.now <= 5_400
        counts.append(len(trials_of(out)))
    assert counts[1] >= 2 * counts[0]


def test_a_process_that_dies_costs_a_trial_or_a_finalist(at_once, tmp_path):
    at_once.dies_at = (4, 10)  # of nine trials and two finalists by two seeds
    found = at_once.run(tmp_path / "out", jobs=2)
    errors = [one["error"].partition("\n")[0] for one in trials_of(tmp_path / "out")]
    assert errors == [""] * 4 + ["its process ended"] + [""] * 4
    lost = [one for one in found.about["notes"] if "its process ended" in one]
    assert len(lost) == 1 and lost[0].startswith("not trained: ")
    assert found.recommended is not None and len(at_once.trainings) == 9 + 4
    at_once.trainings.clear()
    at_once.dies_at = range(9, 20)
    with pytest.raises(LimbeckError, match="its process ended"):
        at_once.run(tmp_path / "all", jobs=2)
    at_once.dies_at = ()
    assert at_once.run(tmp_path / "all", jobs=2).recommended is not None


def test_a_search_goes_on_with_other_jobs(at_once, tmp_path):
    at_once.run(tmp_path / "out", trials=5, jobs=3)
    before = trials_of(tmp_path / "out")
    at_once.run(tmp_path / "out", trials=9, jobs=2)
    after = trials_of(tmp_path / "out")
    assert after[:5] == before and len(after) == 9
