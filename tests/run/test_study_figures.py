"""Figures of studies: what is drawn of which runs, what is refused, and a whole study with an analysis."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from tiny_studies import plan_of, scored

from limbeck.lab.analysis import AnalysedRun
from limbeck.lab.measures.layer_probing import nobody
from limbeck.lab.study import SharedRuns, carry_out, estimate, load_study, write_study
from limbeck.lab.study.score_figures import (
    RunPoint,
    box_panels,
    curve_panels,
    heat_panels,
    line_panels,
    score_bars,
    share_panels,
)
from limbeck.lab.study.study_figures import MadeRun, study_figures
from limbeck.lab.study.study_output import gather_results
from limbeck.lab.views.analysis_views import read_numbers
from limbeck.records import Record
from limbeck.records.facts import Epoch, TeamFacts, TeamMember
from limbeck.support.errors import LimbeckError


def point(label, dev, task="sst2", **condition) -> RunPoint:
    record = scored(dev)
    record.student.parameters = 2_000_000
    record.epochs = [
        Epoch(epoch=1, step=5, train={"loss": dev / 10}, dev={"primary": dev - 5}),
        Epoch(epoch=2, step=10, train={"loss": dev / 20}, dev={"primary": dev}),
    ]
    return RunPoint(label, task, condition, record)


def test_lines_are_means_by_the_axis_with_bands_over_seeds() -> None:
    points = [point("kd", dev, train_rows=rows) for rows, dev in ((100, 60), (100, 70), (900, 80))]
    (panel,) = line_panels(
        [*points, point("none", 50, train_rows=100)],
        "train_rows",
        lambda one: float(one.condition["train_rows"]),
        {"sst2": 90.0},
    )
    lines = {line.get_label(): line for line in panel.axes[0].get_lines()}
    assert lines["kd"].get_xydata().tolist() == [[100, 65], [900, 80]]
    assert lines["none"].get_xydata().tolist() == [[100, 50]]
    band = panel.axes[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (60, 80)
    assert panel.axes[0].get_xscale() == "log"
    assert "teacher at 90.0" in panel.alt


def test_boxes_are_quartiles_by_method_and_condition() -> None:
    points = [point("kd", dev, label_noise=0.3) for dev in (60, 61, 62, 63, 90)]
    panels = box_panels([*points, point("kd", 50, "mrpc", label_noise=0.3)], {})
    assert [panel.title for panel in panels] == ["SST-2", "MRPC"]
    axes = panels[0].axes[0]
    box = axes.patches[0].get_path().vertices
    assert (box[:, 1].min(), box[:, 1].max()) == (61, 63)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["kd, label_noise 0.3"]
    # The run beyond one and a half boxes is a circle.
    assert [line.get_ydata().tolist() for line in axes.get_lines() if line.get_marker() == "o"] == [[90]]  # fmt: skip
    assert "median 62.0 (60.0 to 90.0)" in panels[0].alt


def test_bars_and_maps_are_means() -> None:
    points = [point("kd", 60), point("kd", 64), point("kd", 80, "mrpc")]
    bars = score_bars(points, {"sst2": 70.0})
    assert [bar.get_height() for bar in bars[0].axes[0].patches] == [62]
    (panel,) = heat_panels(points, ("method", "task"), (lambda p: p.label, lambda p: p.task))
    assert [text.get_text() for text in panel.axes[0].texts] == ["62.0", "80.0"]
    assert "kd, sst2 62.0" in panel.alt
    many = heat_panels(points, ("task", "task"), (lambda p: p.task, lambda p: p.task))
    assert [one.title for one in many] == ["kd"]
    assert [text.get_text() for text in many[0].axes[0].texts] == ["62.0", "–", "–", "80.0"]
    # A task in neither rows nor columns has a map of its own.
    apart = heat_panels(points, ("rows", "method"), (lambda p: "all", lambda p: p.label))
    assert [one.title for one in apart] == ["SST-2", "MRPC"]
    assert [one.axes[0].texts[0].get_text() for one in apart] == ["62.0", "80.0"]


def test_curves_are_by_epoch() -> None:
    points = [point("kd", 60), point("kd", 80)]
    (dev,) = curve_panels(points, "dev", {"sst2": 90.0})
    (loss,) = curve_panels(points, "loss", {"sst2": 90.0})
    assert dev.axes[0].get_lines()[0].get_xydata().tolist() == [[1, 65], [2, 70]]
    assert loss.axes[0].get_lines()[0].get_xydata().tolist() == [[1, 7], [2, 3.5]]
    assert loss.axes[0].get_ylabel() == "training loss"
    assert curve_panels(points, "no such term", {}) == []


FIGURES = """
axes: {train_rows: [30, 40]}
figures:
  size: {draw: lines, x: train_rows}
  spread: {draw: boxes, methods: kd, title: Spread}
  course: {draw: analysis, of: convergence}
"""


def test_a_figure_of_what_no_run_recorded_says_so(tmp_path) -> None:
    figures = "figures: {a: {draw: curves, y: dev.lss}, b: {draw: curves}}\n"
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"title: t\ndata: pocket\nmodel: pocket\ntasks: [sst2]\nmethods: {{kd: }}\n{figures}"
    )
    made = [MadeRun(point("kd", 70), tmp_path)]
    empty, drawn = study_figures(load_study(path), made, {}, lambda name: nobody)
    assert (empty.panels, empty.notes) == ((), ("No run has recorded its data.",))
    assert drawn.panels
    assert not drawn.notes


def test_every_mistake_in_a_figure_is_said(place, tmp_path) -> None:
    wrong = """
figures:
  one: {draw: pie}
  two: {draw: lines, x: epochs, settings: {rows: 3}}
  three: {draw: heat, rows: task, methods: [kdd]}
  four: {draw: analysis, of: noises}
  five: {draw: analysis, of: noise, settings: {row: 3}}
  six: {draw: boxes, tasks: mrpc}
"""
    with pytest.raises(LimbeckError) as caught:
        plan_of(place, tmp_path, wrong)
    said = str(caught.value)
    for part in (
        "unknown figure in figures.one.draw: 'pie'",
        "unknown figures.two.x: 'epochs'",
        "figures.two: draw: lines does not read settings",
        "figures.three: columns is missing",
        "unknown method in figures.three: 'kdd'",
        "unknown analysis in figures.four.of: 'noises'",
        "figures.five.settings: unknown setting of analysis noise: 'row'",
        "figures.five: noise looks at students, whose weights are removed",
        "unknown task in figures.six: 'mrpc'",
    ):
        assert part in said
    with pytest.raises(LimbeckError, match=r"unknown key of a study figures.one.colour"):
        plan_of(place, tmp_path, "figures: {one: {draw: boxes, colour: red}}\n")
    with pytest.raises(
        LimbeckError,
        match=r"figures.one.methods: .*valid list \(got 3\)\n.*fix: give another value: rows",
    ):
        plan_of(place, tmp_path, "figures: {one: {draw: heat, methods: 3}}\n")


def test_probabilities_are_means_by_task_and_teacher_as_the_study_calls_them() -> None:
    points = []
    for task, shares in (("sst2", (0.25, 0.75)), ("sst2", (0.75, 0.25)), ("mrpc", (1.0, None))):
        one = point("SKD", 60, task)
        one.record.team = TeamFacts(
            use="sample",
            members=[
                TeamMember(name=name, path=f"/elsewhere/{name}", share=share)
                for name, share in zip(("run-a", "run-b"), shares, strict=True)
            ],
        )
        points.append(replace(one, members={"run-a": "T10", "run-b": "T11"}))
    (panel,) = share_panels([*points, point("kd", 60)])
    assert panel.title == "SKD"
    axes = panel.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.50", "0.50", "1.00", "–"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["T10", "T11"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["SST-2", "MRPC"]
    assert "SST-2, T10 0.50" in panel.alt


def test_an_analysis_of_what_a_recipe_lacks_is_refused_with_its_plan(place, tmp_path) -> None:
    extra = "keep_students: true\nfigures: {weights: {draw: analysis, of: layer-attention}}\n"
    with pytest.raises(LimbeckError) as caught:
        plan_of(place, tmp_path, extra, methods="plain: {method: finetune}, kd: , alp-kd: ")
    assert [problem.message for problem in caught.value.problems] == [
        "figures.weights: plain: no term of finetune has an attention mapping",
        "figures.weights: kd: no term of kd has an attention mapping",
    ]


def test_a_first_stage_that_no_run_keeps_is_refused_with_its_plan(place, tmp_path) -> None:
    extra = (
        "keep_students: true\n"
        "figures: {probes: {draw: analysis, of: probing, stage: first, methods: [kd, l-ild]}}\n"
    )
    own, kept = "plain: {method: finetune}, kd: ", "l-ild: {settings: {keep_first_stage: true}}"
    for methods, problems in ((f"{own}, {kept}", 1), (f"{own}, l-ild: ", 2)):
        with pytest.raises(LimbeckError) as caught:
            plan_of(place, tmp_path, extra, methods=methods)
        assert len(caught.value.problems) == problems
    assert [problem.message.partition(",")[0] for problem in caught.value.problems] == [
        "figures.probes: kd: kd trains in one stage",
        "figures.probes: l-ild: the student as it was after its first stage has not been kept",
    ]


def test_a_split_that_is_none_is_refused_before_a_run(place, tmp_path) -> None:
    extra = "keep_students: true\nfigures: {noise: {draw: analysis, of: noise, split: trian}}\n"
    plan = plan_of(place, tmp_path, extra)
    with pytest.raises(LimbeckError, match=r"split of reviews in figures.noise.split: 'trian'"):
        estimate(plan, SharedRuns(tmp_path / "runs"))


def test_what_a_run_names_and_is_gone_may_be_named_otherwise(copied) -> None:
    run = AnalysedRun(copied)
    run.recipe = run.recipe.model_copy(update={"teacher": str(copied / "gone")})
    with pytest.raises(LimbeckError) as caught:
        run.teacher  # noqa: B018
    assert "--teacher FOLDER" in caught.value.problems[0].fix
    run = AnalysedRun(copied)
    run.recipe = run.recipe.model_copy(update={"data": "gone/reviews.csv"})
    with pytest.raises(LimbeckError) as caught:
        run.rows()
    assert "--data" in caught.value.problems[0].fix


def test_a_student_that_is_gone_is_named_under_the_figure(place, copied, tmp_path) -> None:
    extra = "keep_students: true\nfigures: {noise: {draw: analysis, of: noise, methods: kd}}\n"
    study = plan_of(place, tmp_path, extra).study
    shutil.rmtree(copied / "student")
    record = Record.load(copied)
    made = [MadeRun(RunPoint(label, "reviews", {}, record), copied) for label in ("plain", "kd")]
    (figure,) = study_figures(study, made, {}, lambda name: nobody)
    assert (figure.panels, len(figure.notes)) == ((), 1)
    assert figure.notes[0].startswith("kd on ")
    assert "weights of the student are not there any more" in figure.notes[0]


@pytest.mark.slow
def test_a_plane_names_rows_of_the_study_and_finds_their_runs(
    place, tmp_path, no_analysis_twice
) -> None:
    """Corners are called as rows are; a row that is none is refused, one without a run is named."""
    extra = """
keep_students: true
figures:
  plane: {draw: analysis, of: loss-surface, methods: plain, settings: {through: [kd, pkd], points: 3, rows: 6}}
"""
    methods = "plain: {method: finetune}, kd: , pkd: {method: kd, settings: {lr: 0.001}}"
    with pytest.raises(
        LimbeckError, match=r"unknown method in figures.plane.settings.through: 'pkd'"
    ):
        plan_of(place, tmp_path, extra, methods="plain: {method: finetune}, kd: ")
    plan = plan_of(place, tmp_path, extra, methods=methods, seeds=[1])
    runs = SharedRuns(tmp_path / "runs", keep_students=True)
    assert carry_out(plan, runs) == []
    made = gather_results(plan, runs).made
    (figure,) = study_figures(plan.study, made, {}, lambda name: nobody)
    assert figure.notes == ()
    (panel,) = figure.panels
    assert (panel.axes[0].get_xlabel(), panel.axes[0].get_ylabel()) == ("towards kd", "towards pkd")
    (kept,) = (tmp_path / "runs").glob("*/analysis/loss-surface-*.json")
    corners = read_numbers(kept)["student"].corners
    own = {}
    for one in made:
        opened = AnalysedRun(one.folder)
        own[one.point.label] = opened.loss(opened.student, opened.rows(count=6))
    assert [corner.loss for corner in corners] == pytest.approx(
        [own["plain"], own["kd"], own["pkd"]], abs=1e-5
    )
    # What is kept names runs and no folder of this machine.
    assert str(tmp_path) not in kept.read_text(encoding="utf-8")
    no_analysis_twice()
    study_figures(plan.study, made, {}, lambda name: nobody)
    (lost,) = study_figures(
        plan.study, [one for one in made if one.point.label != "pkd"], {}, lambda name: nobody
    )
    assert lost.notes == ("plain on reviews: pkd has no finished run to go with it.",)


@pytest.mark.slow
def test_panels_of_one_title_and_several_tasks_have_files_of_their_own(
    place, copied, tmp_path
) -> None:
    study = plan_of(place, tmp_path, "figures: {course: {draw: analysis, of: convergence}}\n").study
    record = Record.load(copied)
    made = [MadeRun(RunPoint("kd", task, {}, record), copied) for task in ("sst2", "mrpc")]
    (both,) = study_figures(study, made, {}, lambda name: nobody)
    (one,) = study_figures(study, made[:1], {}, lambda name: nobody)
    titles = [panel.title for panel in one.panels]
    assert [panel.title for panel in both.panels] == titles * 2
    assert both.files == [
        f"course-{task} {title}" for task in ("SST-2", "MRPC") for title in titles
    ]
    assert one.files == (["course"] if len(titles) == 1 else [f"course-{t}" for t in titles])


@pytest.mark.slow
def test_a_study_writes_its_figures(place, tmp_path, no_analysis_twice) -> None:
    extra = (
        FIGURES
        + "  noise: {draw: analysis, of: noise, settings: {deviations: [0.0, 0.1], repeats: 1}}\n"
        "  more: {draw: analysis, of: noise, settings: {deviations: [0.2], repeats: 1}}\n"
    )
    plan = plan_of(place, tmp_path, extra + "keep_students: true\n")
    runs = SharedRuns(tmp_path / "runs", keep_students=True)
    assert carry_out(plan, runs) == []
    _, page = write_study(plan, runs, tmp_path / "tiny")
    there = {path.name for path in (tmp_path / "tiny").glob("*.*")}
    for name in ("size", "spread", "course-Convergence", "noise-Score-under-noise"):
        assert {f"{name}.svg", f"{name}.png"} <= there
    text = page.read_text(encoding="utf-8")
    assert re.search(r"<h2[^>]*>Spread</h2>", text)
    alone = "plain, train_rows 30"
    assert f"{alone} from" in text
    no_analysis_twice()
    # Drawn of one task, or one analysis, a figure has other panels and so other files.
    for name in ("spread-MRPC.png", "size.old.svg", "course.svg"):
        (tmp_path / "tiny" / name).write_text("drawn before")
    write_study(plan, runs, tmp_path / "tiny")
    assert {path.name for path in (tmp_path / "tiny").glob("*.*")} == there | {"size.old.svg"}


@pytest.fixture
def no_analysis_twice(monkeypatch):
    """After a call no model is looked at any more."""
    from limbeck.lab.analysis import AnalysedRun

    def refuse(*args, **kwargs):
        raise AssertionError("measured again")

    return lambda: monkeypatch.setattr(AnalysedRun, "results", refuse)
