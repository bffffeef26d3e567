"""Whole studies of tiny models: made once, gone on with, chosen on dev, failures kept, one table."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tiny_studies import plan_of, scored

import tiny_runs as tiny
from limbeck.lab.study import (
    SharedRuns,
    StudyPlan,
    carry_out,
    estimate,
    load_study,
    study_table,
    write_study,
)
from limbeck.lab.study.study_fields import cells_of
from limbeck.lab.study.study_output import RECORDS, gather_results
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.records import RECORD_NAME
from limbeck.support import workers
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tables import build_table, collect
from limbeck.training import DistillationTrainer


@pytest.fixture(scope="module")
def made(place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    plan, runs = plan_of(place, folder), SharedRuns(folder / "runs", keep_students=False)
    assert carry_out(plan, runs) == []
    table, page = write_study(plan, runs, folder / "tiny")
    return plan, runs, folder, table, page


def test_a_study_is_a_run_for_each_method_task_and_seed(made) -> None:
    plan, runs, *_ = made
    records = collect([runs.path])
    assert sorted((record.method, record.seed) for record in records) == [
        ("finetune", 1), ("finetune", 1), ("finetune", 2), ("kd", 1), ("kd", 2),
    ]  # fmt: skip
    assert plan.count == 5
    # Only the teacher's weights stay.
    assert len(list(runs.path.glob("*/student/model.safetensors"))) == 1


def test_nothing_is_run_twice_not_even_for_another_study(
    made, place, tmp_path, no_training
) -> None:
    plan, runs, *_ = made
    assert carry_out(plan, runs) == []
    other = plan_of(place, tmp_path, "keep_students: false\n", tasks=["reviews"], seeds=[2, 1])
    known = {run.name for group in plan.groups for _, made in group.tried for run in made}
    wanted = {run.name for group in other.groups for _, made in group.tried for run in made}
    # Its teacher has another seed; rows that learn from the same one are the same runs.
    assert not known & wanted
    both = "plain: {method: finetune}, kd: , student of it: {method: kd}"
    same = plan_of(place, tmp_path, methods=both)
    (group,) = [one for one in same.groups if one.label == "student of it"]
    assert {run.name for run in group.tried[0][1]} <= known
    assert carry_out(same, runs) == []


def test_a_row_without_what_an_axis_sets_is_one_row(made, place, tmp_path, no_training) -> None:
    """`first_stage: null` replaces the axis' `first_stage.train_rows`: the same runs under every condition."""
    _, runs, *_ = made
    none = "{{method: {}, settings: {{first_stage: null}}}}"
    methods = ", ".join(f"{row}: {none.format(row)}" for row in ("finetune", "kd"))
    axes = "axes: {first_stage.train_rows: [20, 30]}\n"
    plan = plan_of(place, tmp_path, axes, methods=methods, **{"table.baseline": "finetune"})
    assert [len(group.tried[0][1]) for group in plan.groups] == [2] * 4
    assert plan.count == 5
    assert carry_out(plan, runs) == []
    results = gather_results(plan, runs)
    assert len(results.records) == 5
    table = study_table(plan, results)
    shown = {row.label: row.cells for row in table.rows if row.role == "student"}
    assert list(shown) == ["finetune", "kd"]
    assert {cell.n for cells in shown.values() for cell in cells.values()} == {2}
    # Figures have it under each.
    conditions = [run.point.condition["first_stage.train_rows"] for run in results.made]
    assert sorted(conditions) == [20] * 4 + [30] * 4


def test_the_table_is_that_of_the_records(made) -> None:
    _, _, folder, table, page = made
    records = collect([folder / "tiny" / RECORDS])
    alone = build_table(records, baseline="plain")
    mine = {(row.role, row.label): (row.cells, row.average) for row in table.rows}
    assert mine == {(row.role, row.label): (row.cells, row.average) for row in alone.rows}
    with (folder / "tiny" / "table.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows] == ["teacher", "words alone", "plain", "kd"]
    text = page.read_text(encoding="utf-8")
    assert "Tiny" in text
    assert "5 finished runs" in text


def test_the_estimate_knows_what_is_held(made, tmp_path) -> None:
    plan, runs, *_ = made
    found = estimate(plan, runs)
    assert (found.runs, found.held, found.left) == (5, 5, 0)
    fresh = estimate(plan, SharedRuns(tmp_path / "elsewhere"))
    assert (fresh.runs, fresh.held) == (5, 0)
    assert fresh.left == pytest.approx(
        sum(
            seconds * (1 if role == "teacher" else 2)
            for (role, *_), seconds in fresh.seconds.items()
        )
    )
    assert 0 < fresh.left < 600
    assert not (tmp_path / "elsewhere").exists()


def test_a_teacher_is_asked_once_about_rows_that_runs_share(
    made, place, tmp_path, monkeypatch
) -> None:
    _, elsewhere, *_ = made
    given = {"students.train_rows": 40, "table.baseline": "kd"}
    plan = plan_of(place, tmp_path, methods="kd: ", **given)
    runs = SharedRuns(tmp_path / "runs", keep_students=False)
    teacher = plan.teachers["reviews"].name
    shutil.copytree(elsewhere.path / teacher, runs.path / teacher)
    learn, learned = RememberingTeacher._learn, []

    def count(self, rows, trace):
        learned.extend(rows)
        learn(self, rows, trace)

    monkeypatch.setattr(RememberingTeacher, "_learn", count)
    assert carry_out(plan, runs) == []
    assert len(learned) == 40  # by the first of the two runs


# ---- choosing on dev ----


def test_the_choice_is_that_of_dev_alone(place, tmp_path, monkeypatch) -> None:
    """Of records written by hand the better on dev, though others are better elsewhere."""
    plan = plan_of(place, tmp_path, "select: {grid: {lr: [0.01, 0.02, 0.03]}}\n")
    (group,) = [one for one in plan.groups if one.label == "kd"]
    teacher = plan.teachers["reviews"]
    dev = {0.01: 70.0, 0.02: 80.0, 0.03: 60.0}
    held = {teacher.name: scored(50.0, 50.0)}
    for cell, runs in group.tried:
        assert plan.choice(group, held.get, held.__contains__) is None
        held[runs[0].name] = scored(dev[cell["lr"]], 100 - dev[cell["lr"]])
    choice = plan.choice(group, held.get, held.__contains__)
    assert choice.settings == {"lr": 0.02}
    assert [score for _, score in choice.scores] == [70.0, 80.0, 60.0]
    # Of the other seeds only the chosen one is due.
    due = [run for run in plan.due(held.get, held.__contains__) if run.label == "kd"]
    assert due == [choice.runs[1]]
    assert due[0].settings["lr"] == 0.02


def test_a_cell_that_failed_is_not_chosen(place, tmp_path) -> None:
    plan = plan_of(place, tmp_path, "select: {grid: {lr: [0.01, 0.02]}, seeds: 2}\n")
    group = plan.groups[1]
    held = {
        name: scored(score, 0.0)
        for (_, runs), scores in zip(group.tried, [(90.0, None), (60.0, 50.0)], strict=True)
        for name, score in zip([run.name for run in runs], scores, strict=True)
        if score is not None
    }
    ended = {run.name for _, runs in group.tried for run in runs}
    assert plan.choice(group, held.get, ended.__contains__).settings == {"lr": 0.02}


def test_best_of_n_is_one_run_by_dev(made, place, tmp_path) -> None:
    _, runs, *_ = made
    plan = plan_of(place, tmp_path, "select: {keep: best}\n")
    results = gather_results(plan, runs)
    both = {
        group.label: max(runs.held(run.name).primary_score("dev") for run in group.tried[0][1])
        for group in plan.groups
    }
    kept = [r for r in results.records.values() if r.student.layers == 1]
    assert {record.method: record.primary_score("dev") for record in kept} == both
    assert len(kept) == 2


# ---- failures ----


def test_terms_that_do_not_fit_are_refused_before_a_run(place, tmp_path) -> None:
    layers = "{method: pkd, settings: {objectives.patience.mapping.layers: {1: %d}}}"
    methods = f"plain: {layers % 2}, far: {layers % 9}, none: {layers % 7}"
    plan, runs = plan_of(place, tmp_path, methods=methods), SharedRuns(tmp_path / "runs")
    with pytest.raises(LimbeckError) as caught:
        estimate(plan, runs)
    said = "{} on reviews: objectives.patience.mapping.layers: the teacher has no layer {}"
    assert [problem.message for problem in caught.value.problems] == [
        said.format("far", 9),
        said.format("none", 7),
    ]
    assert not runs.path.exists() or not list(runs.path.iterdir())


STAGE = (
    "far: {method: l-ild, settings: {student.init: %s, student.layers: 1, first_stage: {%s, epochs: 1, objectives: "
    "{attention: {compare: attention_kl, mapping: {kind: last-to-last}}}}}}, plain: {method: finetune}"
)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param("task: cola, data: pocket", marks=pytest.mark.slow),
        "train_rows: 8",
        "corpus: {{source: {text}, size: 4}}",
    ],
)
@pytest.mark.slow
def test_a_first_stage_on_rows_of_its_own_is_checked_before_a_run(place, tmp_path, rows) -> None:
    """Heads compared one by one, of a student that has another number of them."""
    tiny.save(tiny.bert(2, num_attention_heads=1), tmp_path / "one-head")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny.sentences(40)))
    own = rows.format(text=text)
    plan = plan_of(place, tmp_path, methods=STAGE % (tmp_path / "one-head", own))
    with pytest.raises(LimbeckError) as caught:
        estimate(plan, SharedRuns(tmp_path / "runs"))
    (problem,) = caught.value.problems
    assert problem.message.startswith("far on reviews: first_stage.objectives.attention")
    assert "heads" in problem.message


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("data: {folder}/none.csv", "none.csv"),
        pytest.param(
            "corpus: {{source: {folder}/none.txt, size: 4}}", "none.txt", marks=pytest.mark.slow
        ),
        ("corpus: {{source: {text}, size: 4000}}", "4000 are requested"),
    ],
)
def test_rows_of_a_first_stage_that_are_not_there_are_missed_before_a_run(
    place, tmp_path, rows, said
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny.sentences(40)))
    own = rows.format(folder=tmp_path, text=text)
    plan = plan_of(place, tmp_path, methods=STAGE % ("teacher", own))
    with pytest.raises(LimbeckError, match=said):
        estimate(plan, SharedRuns(tmp_path / "runs"))


def test_every_cell_of_a_grid_is_checked_before_a_run(place, tmp_path) -> None:
    layers = "{method: pkd, grid: {objectives.patience.mapping.layers: [{1: 2}, {1: 9}]}}"
    plan = plan_of(place, tmp_path, methods="plain: {method: finetune}, best: " + layers)
    with pytest.raises(LimbeckError, match="the teacher has no layer 9"):
        estimate(plan, SharedRuns(tmp_path / "runs"))


@pytest.mark.slow
def test_one_that_fails_stays_visible_and_is_tried_again(
    made, place, tmp_path, monkeypatch
) -> None:
    train = DistillationTrainer.start_or_continue

    def fail_with_seed_2(trainer, checkpoint):
        if "finetune-s2" in trainer.args.output_dir:
            raise RuntimeError("out of memory\nand more")
        return train(trainer, checkpoint)

    _, elsewhere, *_ = made
    plan = plan_of(place, tmp_path, methods="plain: {method: finetune}")
    runs = SharedRuns(tmp_path / "runs")
    teacher = plan.teachers["reviews"].name
    shutil.copytree(elsewhere.path / teacher, runs.path / teacher)
    with monkeypatch.context() as patched:
        patched.setattr(DistillationTrainer, "start_or_continue", fail_with_seed_2)
        (failed,) = carry_out(plan, runs)
    assert failed.problems[0].message == "RuntimeError: out of memory"
    table = study_table(plan, gather_results(plan, runs))
    plain = next(row for row in table.rows if row.label == "plain")
    assert [(cell.n, cell.failed) for cell in plain.cells.values()] == [(1, 1)]
    assert any("plain on reviews, seed 2: RuntimeError: out of memory" in n for n in table.notes)
    assert carry_out(plan, runs) == []
    assert runs.failed(failed.name) is None
    table = study_table(plan, gather_results(plan, runs))
    assert all(cell.n == 2 for row in table.rows[1:] for cell in row.cells.values())


def test_students_of_a_teacher_that_failed_are_named(place, tmp_path, monkeypatch) -> None:
    def refuse(trainer, checkpoint):
        raise RuntimeError("no")

    monkeypatch.setattr(DistillationTrainer, "start_or_continue", refuse)
    plan, runs = plan_of(place, tmp_path), SharedRuns(tmp_path / "runs")
    (failed,) = carry_out(plan, runs)
    assert failed.name == plan.teachers["reviews"].name
    results = gather_results(plan, runs)
    assert results.open == 0
    assert {record.error for record in results.records.values()} == {
        f"its teacher failed ({failed.name})"
    }


# ---- killed and gone on with; side by side ----

SCRIPT = """
import sys
from pathlib import Path
from limbeck.lab.study import SharedRuns, StudyPlan, carry_out, load_study

if __name__ == "__main__":
    study, runs, jobs = sys.argv[1:]
    carry_out(StudyPlan.of(load_study(study)), SharedRuns(Path(runs)), jobs=int(jobs))
"""


@pytest.mark.slow  # another process loads torch
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_and_gone_on_with(jobs, place, tmp_path) -> None:
    """Killed as soon as the teacher has finished and a student has begun: what was done stays."""
    plan, runs = plan_of(place, tmp_path), SharedRuns(tmp_path / "runs")
    (tmp_path / "go.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, tmp_path / "go.py", tmp_path / "tiny.yaml", runs.path, str(jobs)]
    students = [run.name for group in plan.groups for _, made in group.tried for run in made]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stderr=said)
    deadline = time.monotonic() + 300
    while not any((runs.path / name / "recipe.yaml").exists() for name in students):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    teacher = runs.path / plan.teachers["reviews"].name / RECORD_NAME
    before = teacher.read_bytes()
    stamps = {name: stamp(runs, name) for name in students if runs.held(name) is not None}
    # Workers end with their parent: a run that one of them was at is free again.
    while not all_free(runs, students):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "leaked" not in (tmp_path / "said").read_text(encoding="utf-8")
    assert carry_out(plan, runs) == []
    assert teacher.read_bytes() == before
    assert {name: stamp(runs, name) for name in stamps} == stamps
    assert all(runs.held(name) is not None for name in students)


ENDING = """
import sys, time
from pathlib import Path
from limbeck.lab.study import SharedRuns, StudyPlan, load_study
from limbeck.support.workers import SideBySide

if __name__ == "__main__":
    study, folder, midway = sys.argv[1:]
    plan, runs = StudyPlan.of(load_study(study)), SharedRuns(Path(folder))
    maker = SideBySide(runs, 2)
    begun = plan.groups[0].tried[0][1]
    for run in begun:
        maker.start(run)
    if midway == "True":
        while not all((runs.path / run.name / "checkpoints").exists() for run in begun):
            time.sleep(0.01)
    else:
        print([outcome.problems for ended in iter(maker.finished, []) for _, outcome in ended])
    maker.close()
    print([worker.process.exitcode for worker in maker._workers])
"""


@pytest.mark.slow  # three processes load torch
@pytest.mark.parametrize("midway", [False, True])
def test_workers_end_without_leaving_semaphores(midway, made, tmp_path) -> None:
    """Also in the middle of a run, which is free again and left as Ctrl-C leaves one."""
    _, elsewhere, folder, *_ = made
    text = (folder / "tiny.yaml").read_text(encoding="utf-8")
    if midway:  # students long enough to be in the middle of
        text = text.replace("student.layers: 1", "student.layers: 1, epochs: 500")
    study = tmp_path / "study.yaml"
    study.write_text(text, encoding="utf-8")
    plan, runs = StudyPlan.of(load_study(study)), SharedRuns(tmp_path / "runs")
    teacher = plan.teachers["reviews"].name
    shutil.copytree(elsewhere.path / teacher, runs.path / teacher)
    (tmp_path / "end.py").write_text(ENDING, encoding="utf-8")
    command = [sys.executable, tmp_path / "end.py", study, runs.path, str(midway)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "leaked" not in ended.stderr
    *problems, codes = ended.stdout.splitlines()
    assert problems == ([] if midway else ["[(), ()]"])
    assert codes == str([128 + signal.SIGTERM] * 2)
    assert all_free(runs, [run.name for run in plan.groups[0].tried[0][1]])


def stamp(runs: SharedRuns, name: str) -> int:
    return (runs.path / name / RECORD_NAME).stat().st_mtime_ns


def all_free(runs: SharedRuns, names: list[str]) -> bool:
    for name in names:
        with runs.claimed(name) as ours:
            if not ours:
                return False
    return True


def test_a_run_that_another_process_makes_is_left_to_it(made) -> None:
    plan, runs, *_ = made
    run = plan.groups[0].tried[0][1][0]
    with runs.claimed(run.name):
        assert SharedRuns(runs.path).carry_out(run).busy


def test_a_process_that_dies_takes_one_run_with_it(made, tmp_path) -> None:
    plan, *_ = made
    run = plan.teachers["reviews"]
    runs = SharedRuns(tmp_path / "runs")
    maker = workers.SideBySide(runs, 1)
    try:
        first = maker._workers[0].process
        maker.start(run)
        first.kill()
        ((said, outcome),) = maker.finished()
        assert said == run
        assert outcome.problems == (
            Problem("its process ended by signal SIGKILL", outcome.problems[0].fix),
        )
        assert runs.failed(run.name).error == "its process ended by signal SIGKILL"
        assert maker.free == 1
        assert maker._workers[0].process.pid != first.pid
    finally:
        maker.close()


@pytest.mark.slow  # two processes load torch
def test_two_side_by_side_keep_to_cores_of_their_own(made, tmp_path) -> None:
    plan, elsewhere, *_ = made
    runs = SharedRuns(tmp_path / "runs", keep_students=False)
    teacher = plan.teachers["reviews"].name
    shutil.copytree(elsewhere.path / teacher, runs.path / teacher)
    parts = workers.parts_of_cores(2)
    maker = workers.SideBySide(runs, 2)
    try:
        for run in plan.groups[0].tried[0][1]:
            maker.start(run)
        assert maker.free == 0
        ended = list(iter(maker.finished, []))
        pinned = [sorted(os.sched_getaffinity(one.process.pid)) for one in maker._workers]
    finally:
        maker.close()
    assert pinned == parts
    assert [outcome.problems for several in ended for _, outcome in several] == [(), ()]
    found = [runs.held(run.name).hardware["threads"] for several in ended for run, _ in several]
    assert found == [len(parts[0])] * 2


def test_cores_are_shared_out(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 5, 7}, raising=False)
    assert workers.parts_of_cores(1) == [[0, 1, 2, 5, 7]]
    assert workers.parts_of_cores(2) == [[0, 1], [2, 5]]
    assert workers.parts_of_cores(7) == [[0], [1], [2], [5], [7], [0], [1]]


# ---- weights that add up to 1 ----


def test_one_weight_is_what_the_others_leave():
    """ALP-KD's grid: η and λ of {0, .2, .5, .7}, β = 1 − η − λ where that is not below 0."""
    values = [0, 0.2, 0.5, 0.7]
    grid = {
        "objectives.hard.weight": ["rest"], "lr": [1e-5, 2e-5],
        "objectives.soft.weight": values, "objectives.attention.weight": values,
    }  # fmt: skip
    cells = cells_of(grid)
    assert len(cells) == 2 * 13
    found = {
        tuple(cell[f"objectives.{one}.weight"] for one in ("hard", "soft", "attention"))
        for cell in cells
    }
    assert found == {
        (1, 0, 0), (0.8, 0, 0.2), (0.5, 0, 0.5), (0.3, 0, 0.7), (0.8, 0.2, 0), (0.6, 0.2, 0.2),
        (0.3, 0.2, 0.5), (0.1, 0.2, 0.7), (0.5, 0.5, 0), (0.3, 0.5, 0.2), (0, 0.5, 0.5),
        (0.3, 0.7, 0), (0.1, 0.7, 0.2),
    }  # fmt: skip
    assert list(cells[0]) == list(grid)


def test_a_rest_that_is_none_is_refused(place, tmp_path):
    for grid, said in (
        ("{lr: [rest]}", "remainder of 1"),
        ("{objectives.hard.weight: [rest, 0.5]}", "as its only value"),
        ("{objectives.hard.weight: [rest], objectives.soft.weight: [rest]}", "are both the rest"),
        ("{objectives.hard.weight: [rest], objectives.soft.weight: [a]}", "are not all numbers"),
        ("{objectives.hard.weight: [rest], objectives.soft.weight: [2]}", "above 1"),
    ):
        with pytest.raises(LimbeckError, match=said):
            plan_of(
                place,
                tmp_path,
                f"select: {{grid: {grid}}}\n",
                methods="plain: {method: finetune, grid: {}}, kd: ",
            )
