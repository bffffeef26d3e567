"""Runs of a study that are scored out of their domain: which they are, and that a kill before it is made good."""

from __future__ import annotations

import pytest

from limbeck.lab.study import SharedRuns, StudyPlan, load_study, shared_runs
from limbeck.records import RECORD_NAME
from limbeck.support.errors import LimbeckError
from synthetic_records import a_run

TABLE = "title: t\nmethods: {kd: }\nteachers: {}\nmodel: pocket\ntasks: [sst2, rte]\n"
ALONE = TABLE + "table: {profile: rail, out_of_domain: alone}\n"


def study_of(folder, text: str, data: str = "pocket"):
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_study(path, data=data)


def beyond(study) -> dict[str, set[str]]:
    plan = StudyPlan.of(study)
    runs = [*plan.teachers.values(), *(r for g in plan.groups for _, made in g.grid for r in made)]
    return {
        task: {run.beyond for run in runs if run.settings["task"] == task} for task in study.tasks
    }


def test_teachers_and_students_of_a_task_with_such_a_set_are_scored_on_it(tmp_path) -> None:
    assert beyond(study_of(tmp_path, ALONE)) == {"sst2": {"imdb"}, "rte": {""}}
    assert beyond(study_of(tmp_path, TABLE)) == {"sst2": {""}, "rte": {""}}
    with_it = StudyPlan.of(study_of(tmp_path, ALONE)).teachers
    without = StudyPlan.of(study_of(tmp_path, TABLE)).teachers
    assert with_it["sst2"].name != without["sst2"].name
    assert with_it["rte"].name == without["rte"].name


def test_a_folder_without_any_such_set_is_refused_before_the_first_run(tmp_path, caplog) -> None:
    (tmp_path / "glue").mkdir()
    with pytest.raises(
        LimbeckError, match=r"out_of_domain: alone .* imdb; .*glue has no folder of them"
    ):
        StudyPlan.of(study_of(tmp_path, ALONE, str(tmp_path / "glue")))
    assert "no score on imdb: " in caplog.text


def test_killed_before_it_was_scored_a_run_is_not_held(tmp_path, monkeypatch) -> None:
    run = StudyPlan.of(study_of(tmp_path, ALONE)).teachers["sst2"]
    runs = SharedRuns(tmp_path / "runs")
    done = []

    def trained(recipe, folder, **_) -> None:
        folder.mkdir(exist_ok=True)
        a_run("finetune", 1, 90.0, task="sst2").save(folder)
        done.append("trained")

    def scored(folder, task) -> None:
        done.append(task)
        assert (folder / RECORD_NAME).is_file()
        if done.count("imdb") == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(shared_runs, "distill", trained)
    monkeypatch.setattr(shared_runs, "evaluate", scored)
    with pytest.raises(KeyboardInterrupt):
        runs.carry_out(run)
    assert runs.held(run.name) is None
    for _ in range(2):
        assert not runs.carry_out(run).problems
    assert runs.held(run.name) is not None
    assert done == [
        "trained",
        "imdb",
        "trained",
        "imdb",
    ]  # in earnest the second training finds the first
