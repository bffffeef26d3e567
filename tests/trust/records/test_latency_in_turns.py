"""Speed is compared only where both sides were timed in turns; nothing looks larger than it is."""

from __future__ import annotations

import pytest

from limbeck.records import Record
from limbeck.report import plots, write_report
from limbeck.report.page import Content
from limbeck.tables import build_table
from limbeck.tables.teachers import split_teachers
from synthetic_records import a_run, a_teacher


def timed(seed: int, student: float, teacher: float) -> Record:
    """The same two models as every other run of these tests, on a machine of another mood."""
    run = a_run("kd", seed, 80.0, teacher=a_teacher())
    assert run.teacher is not None
    run.student.latency_ms = run.student.latency_ms.model_copy(update={"median": student})
    run.teacher.latency_ms = run.teacher.latency_ms.model_copy(update={"median": teacher})
    return run


def slow_and_fast() -> list[Record]:
    """4.0 ×, 4.0 × and 4.2 × the teacher's speed; medians over runs of 5.18 and 80 would say 15.4."""
    return [timed(1, 5.0, 20.0), timed(2, 5.18, 80.0 * 5.18 / 20.0 * 0.2), timed(3, 20.0, 84.0)]


def test_the_speed_up_is_that_of_single_runs():
    runs = slow_and_fast()
    ratios = sorted(run.teacher.latency_ms.median / run.student.latency_ms.median for run in runs)
    table = build_table(runs, facts=["latency", "speedup"])
    row = next(row for row in table.rows if row.role == "student")
    assert row.facts["speedup"].value == pytest.approx(ratios[1])
    teacher = next(row for row in table.rows if row.role == "teacher")
    assert teacher.facts["speedup"].value is None


def test_a_reports_card_says_the_same():
    runs = [a_run("finetune", 1, 75.0), timed(1, 5.0, 20.0), timed(2, 10.0, 40.0)]
    # The listed teacher's latency is the first run's; by it the student of 7.5 ms would be 2.7 × as fast.
    _, students = split_teachers(runs, "glue")
    table = build_table(runs, facts=["layers", "parameters", "flops", "latency", "speedup"])
    cards = Content(runs, students, table).cards()
    lines = next(card["lines"] for card in cards if card["title"] == "Student")
    assert "(4.0 × the teacher's speed)" in lines


def test_a_run_without_a_teacher_has_no_speed_up():
    alone = a_run("finetune", 1, 75.0)
    table = build_table([alone, timed(1, 5.0, 20.0)], facts=["speedup"])
    found = {row.label: row.facts["speedup"].value for row in table.rows}
    assert found["finetune"] is None and found["kd"] == 4.0


def test_a_row_of_teachers_of_their_own_keeps_the_speed_that_its_runs_timed():
    """Of a team, as in SKDBERT's Table 2: no row and no share of the teacher that a run was timed with."""
    table = build_table(slow_and_fast(), facts=["kept", "speedup"], teachers_own=True)
    (row,) = table.rows
    assert row.facts["speedup"].value == pytest.approx(4.0)
    assert row.facts["kept"].value is None


def took(method: str, seed: int, seconds: float | None, task: str = "rte") -> Record:
    run = a_run(method, seed, 80.0, task=task)
    run.cost.total_seconds = seconds
    return run


def test_training_is_held_against_the_baselines_on_the_tasks_and_seeds_of_both():
    """RAIL-KD's Table 4: 300 + 90 seconds beside 150 + 45; the third seed and MNLI have no partner."""
    runs = [took("codir", 1, 300.0), took("codir", 2, 90.0), took("codir", 3, 9000.0)]
    runs += [took("rail", 1, 150.0), took("rail", 2, 45.0), took("rail", 1, 7.0, task="mnli")]
    runs += [took("untimed", 1, None)]
    facts = ["time", "training-speedup"]
    found = {row.label: row.facts for row in build_table(runs, baseline="codir", facts=facts).rows}
    ratios = {
        label: one["training-speedup"].value for label, one in found.items() if label != "teacher"
    }
    assert ratios == {"codir": 1.0, "rail": 2.0, "untimed": None}
    alone = build_table(runs, facts=facts)
    assert all(row.facts["training-speedup"].value is None for row in alone.rows)


def test_one_student_with_two_latencies_is_not_listed_without_a_word(tmp_path):
    other = a_run("pkd", 1, 81.0)
    other.student.latency_ms = other.student.latency_ms.model_copy(update={"median": 9.74})
    runs = [timed(1, 5.18, 20.0), other]
    notes = " ".join(build_table(runs, facts=["latency"]).notes)
    assert "not to be compared, also where their models are the same" in notes
    page = write_report(runs, tmp_path / "page.html", title="two").read_text(encoding="utf-8")
    assert "not to be compared, also where their models are the same" in page
    assert "not to be compared" not in " ".join(build_table(runs[:1], facts=["latency"]).notes)
    assert "not to be compared" not in " ".join(build_table(runs, facts=["kept"]).notes)


# Axes


@pytest.fixture
def axes(monkeypatch) -> list:
    seen = []
    enter = plots.Panel.__enter__

    def watching(self):
        seen.append(enter(self))
        return seen[-1]

    monkeypatch.setattr(plots.Panel, "__enter__", watching)
    return seen


def reach(limits) -> float:
    return limits[1] - limits[0]


def test_a_quarter_of_a_point_is_no_cliff(axes, tmp_path):
    runs = [a_run("kd", seed, 80.0 + seed / 4, epochs=2) for seed in (1, 2)]
    for run in runs:
        for epoch, score in zip(run.epochs, (80.0, 80.25), strict=True):
            epoch.dev["primary"] = score
    for run in runs:
        run.teacher.scores = {}
    write_report(runs, tmp_path / "page.html", title="small")
    dots = next(found for found in axes if found.get_xlabel() == "dev score")
    curve = next(found for found in axes if found.get_ylabel() == "primary dev score")
    for limits in (dots.get_xlim(), curve.get_ylim()):
        assert reach(limits) >= 5.0
        assert limits[0] < 80.0 and limits[1] > 80.5


def test_a_wide_axis_stays_as_it_is(axes):
    series = [plots.Series("kd", 0, (1.0, 2.0), (20.0, 80.0), (20.0, 80.0), (20.0, 80.0))]
    plots.line_panel("t", series, x_label="epoch", y_label="score", least_span=5.0)
    plots.line_panel("t", series, x_label="epoch", y_label="score")
    wide, free = (found.get_ylim() for found in axes)
    assert wide == pytest.approx(free)
