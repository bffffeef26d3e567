"""A search goes on where it was stopped, what scores chooses nothing, and wrong settings end before any work.

Trainings, exports and times are made up here, by rules that the tests know.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_compression as tiny

import limbeck
from limbeck.compressing import compress, finals, trials
from limbeck.compressing.budget import Costs
from limbeck.compressing.costs import Probe
from limbeck.compressing.front import FrontPoint
from limbeck.data.text_rows import read_text_rows
from limbeck.support.errors import LimbeckError


class Stopped(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Rows and a teacher, and in place of trainings and exports rules; `stop_at` a training, `test_seed` of scores."""
    rules = SimpleNamespace(stop_at=None, test_seed=0, trainings=[])

    def probed(model, wanted, folder):
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
        return SimpleNamespace(
            path=Path(out), scores={"dev": {"primary": quality}, "test": {"primary": test}}
        )

    def measured(found, trainings, budget, place, say):
        points = []
        for one, rows in found:
            runs = finals.trained(one, rows, trainings, place / "students" / one.words)
            score = runs[0].scores
            points.append(
                FrontPoint(
                    name=one.words,
                    kind="student",
                    precision=one.precision,
                    costs=Costs(1e4 * one.shape.layers + 1e4, 1.0 + one.shape.layers, 1e4, 1e6),
                    chosen_on=score["dev"]["primary"],
                    score=score["test"]["primary"],
                    path=str(runs[0].path),
                )
            )
        whole = Costs(10**6, 9.0, 10**6, 10**6)
        teacher = FrontPoint(
            name="teacher", kind="teacher", precision="float", costs=whole, chosen_on=95, score=94
        )
        return [*points, teacher], []

    monkeypatch.setattr(trials, "probed", probed)
    monkeypatch.setattr(trials, "distill", distill)
    monkeypatch.setattr(finals, "distill", distill)
    monkeypatch.setattr(finals, "measured", measured)
    monkeypatch.setattr(compress, "first_probes", lambda model, folder: [])
    monkeypatch.setattr(compress, "with_outputs", lambda rows, *_, **__: rows)
    # Time stands still, so that it decides nothing.
    monkeypatch.setattr(trials.time, "monotonic", lambda: 0.0)
    teacher = tiny.write_teacher(tmp_path / "teacher")
    rows = {
        "data": str(tiny.write_rows(tmp_path / "train.csv", 60)),
        "dev": str(tiny.write_rows(tmp_path / "dev.csv", 40, seed=4)),
    }

    def run(out: Path, **settings):
        asked = {"trials": 9, "finalists": 2, "seeds": 2, "precisions": ("int8",), **settings}
        return compress.compress(teacher, "size=60KB", out, recipe=rows, **asked)

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
                point.pop("score")
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
    done = trials.finished_trials(tmp_path / "out")
    assert len(done) == 14
    assert all(one.costs.size <= 60_000 for one in done)
    assert len({one.candidate.words for one in done}) == 14
    assert {one.candidate.shape.is_static for one in done} == {True, False}
    best = found.recommended
    assert best is not None
    assert best.chosen_on == max(one.chosen_on for one in found.points if one.kind == "student")


def test_a_shape_that_is_too_slow_when_it_is_timed_is_not_trained(made_up, tmp_path, monkeypatch):
    asked = {"trials": 5, "finalists": 1, "seeds": 1, "precisions": ("int8",)}
    run = made_up.run
    probed = trials.probed

    def slow(model, wanted, folder):
        return [one.model_copy(update={"file": one.file + 10**6}) if one.shape.layers > 1 else one
                for one in probed(model, wanted, folder)]  # fmt: skip

    monkeypatch.setattr(trials, "probed", slow)
    run(tmp_path / "out", **asked)
    done = trials.finished_trials(tmp_path / "out")
    over = [one for one in done if one.candidate.shape.layers > 1]
    assert over and all("over the budget as measured: size" in one.error for one in over)
    assert all((recipe.student.layers or 0) <= 1 for recipe in made_up.trainings)


def test_time_ends_the_trials(made_up, tmp_path, monkeypatch):
    """The setup and each trial take 600 s here, of 4,680 s: 4,080 s are left."""
    clock = iter(range(0, 10**9, 600))
    monkeypatch.setattr(trials.time, "monotonic", lambda: next(clock))
    asked = {"hours": 1.3, "finalists": 1, "seeds": 1}
    # The finalist on the same 60 rows takes 600 s, and two exports 60 s: trials have to end by 3,420 s.
    made_up.run(tmp_path / "all", **asked)
    assert len(trials.finished_trials(tmp_path / "all")) == 5
    # On six times the rows of a trial it takes 3,600 s: it gets half of the time, and trials end by 2,040 s.
    made_up.run(tmp_path / "some", trial_rows=10, **asked)
    assert len(trials.finished_trials(tmp_path / "some")) == 3


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
