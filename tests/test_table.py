"""Oracles: means, deviations and p-values worked by hand from the synthetic records' numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from limbeck.records.facts import Best, Numbers, TeamFacts, TeamMember
from limbeck.support.errors import LimbeckError
from limbeck.tables import Baseline, build_table, collect, render
from synthetic_records import a_run, a_student, a_study, a_teacher


def row_of(table, label: str, layers: int | None = 3):
    return next(row for row in table.rows if row.label == label and row.layers == layers)


def cell_of(table, label: str, title: str, layers: int | None = 3):
    key = next(column.key for column in table.columns if column.title == title)
    return row_of(table, label, layers).cells[key]


# --- collecting ---------------------------------------------------------------------------------


def test_collect_finds_every_record_once_at_any_depth(tmp_path):
    for seed in (1, 2):
        a_run("kd", seed, 80.0).save(tmp_path / "study" / f"kd-{seed}")
    single = a_run("kd", 3, None, status="failed").save(tmp_path / "other")
    found = collect([tmp_path / "study", single, tmp_path])
    assert [record.seed for record in found] == [1, 2, 3]
    assert found[2].status == "failed"


def test_collect_names_everything_wrong_together(tmp_path):
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "record.json").write_text('{"schema": 1,')
    with pytest.raises(LimbeckError) as caught:
        collect([tmp_path / "absent", tmp_path / "empty", broken])
    assert len(caught.value.problems) == 3
    with pytest.raises(LimbeckError, match="no runs were named"):
        collect([])


# --- numbers ------------------------------------------------------------------------------------


def test_mean_and_deviation_over_seeds_by_hand():
    table = build_table(a_study())
    assert [column.title for column in table.columns] == ["SST-2", "RTE"]
    cell = cell_of(table, "kd", "RTE")
    assert (cell.mean, cell.deviation, cell.n) == (73.0, 2.0, 3)
    assert cell_of(table, "finetune", "SST-2").deviation == 0.0
    # Averages per seed: (71 + 81)/2, (73 + 80.5)/2, (75 + 81.5)/2 = 76, 76.75, 78.25
    average = row_of(table, "kd").average
    assert average.mean == pytest.approx(77.0)
    assert average.deviation == pytest.approx(math.sqrt((1 + 0.0625 + 1.5625) / 2))


def test_rows_in_order_and_the_teacher_once():
    table = build_table(a_study())
    assert [row.label for row in table.rows] == ["teacher", "finetune", "kd", "rail-kd-l"]
    teacher = row_of(table, "teacher", 12)
    assert teacher.average.mean == 90.0
    assert teacher.facts["parameters"].value == 66_400_000


def test_share_of_the_teachers_score_also_for_plain_students():
    table = build_table(a_study())
    # finetune: (100·71/90 + 100·80/90) / 2; its records name no teacher, the columns' only one is
    assert row_of(table, "finetune").facts["kept"].value == pytest.approx(83.888889)
    assert row_of(table, "kd").facts["kept"].value == pytest.approx(50 * (73 + 81) / 90)
    assert row_of(table, "teacher", 12).facts["kept"].value == 100


def test_share_is_unknown_when_teachers_disagree_or_a_task_is_missing():
    runs = [
        a_run("finetune", 1, 70.0),
        a_run("kd", 1, 72.0),
        a_run("pkd-skip", 1, 72.0, teacher=a_teacher(80.0, "runs/other")),
        a_run("kd", 1, 81.0, task="sst2"),
    ]
    table = build_table(runs)
    assert row_of(table, "finetune").facts["kept"].value is None
    assert row_of(table, "pkd-skip").facts["kept"].value is None  # no SST-2 run
    assert row_of(table, "pkd-skip").average.mean is None
    assert row_of(table, "kd").facts["kept"].value == pytest.approx(50 * (72 + 81) / 90)
    only_rte = build_table([run for run in runs if run.task == "rte"])
    assert row_of(only_rte, "pkd-skip").facts["kept"].value == pytest.approx(90.0)


def test_the_teachers_own_run_is_not_a_student_row(tmp_path):
    own = a_run("finetune", 1, 90.0, layers=12)
    own.save(tmp_path / "teacher")
    taught = a_run("kd", 1, 80.0, teacher=a_teacher(90.0, str(tmp_path / "teacher" / "student")))
    table = build_table([*collect([own.path or ""]), taught])
    assert [row.label for row in table.rows] == ["teacher", "kd"]
    # Moved: the folder is gone, but size, depth and every dev score agree.
    moved = a_run("finetune", 1, 90.0, layers=12)
    moved.student.parameters = 66_400_000
    table = build_table([moved, a_run("kd", 1, 80.0)])
    assert [row.label for row in table.rows] == ["teacher", "kd"]


@pytest.mark.parametrize("size", ["hidden_size", "embedding_parameters"])
def test_teachers_of_one_depth_and_other_sizes_are_rows_of_their_own(size):
    """Other models of one width differ in their vocabularies, and their mean was one row."""
    wide, narrow = a_teacher(90.0, "runs/wide"), a_teacher(70.0, "runs/narrow")
    narrow = narrow.model_copy(update={size: 128})
    table = build_table([a_run("kd", 1, 63.0, teacher=wide), a_run("pkd", 1, 63.0, teacher=narrow)])
    teachers = [row.average.mean for row in table.rows if row.role == "teacher"]
    assert teachers == [90.0, 70.0]
    assert row_of(table, "kd").facts["kept"].value == pytest.approx(70)
    assert row_of(table, "pkd").facts["kept"].value == pytest.approx(90)


def test_a_note_says_which_of_several_teachers_is_compared():
    said = "Teacher's score, and % of teacher, are of the best single teacher on dev, not of the team: "
    alone, team = a_run("kd", 1, 80.0), a_run("mt-bert", 1, 81.0)
    alone.team = TeamFacts(use="sample", members=[TeamMember(name="a", path="runs/a")])
    assert not [note for note in build_table([alone]).notes if "team" in note]
    members = [TeamMember(name=name, path=f"runs/{name}") for name in ("teacher", "other")]
    team.team = TeamFacts(use="mean", members=members)
    assert f"{said}mt-bert." in build_table([alone, team]).notes


def test_sizes_make_rows_of_their_own():
    runs = [
        a_run(m, s, 80.0 + s, layers=n) for m in ("kd", "finetune") for n in (2, 4) for s in (1, 2)
    ]
    table = build_table(runs)
    assert [(row.label, row.layers) for row in table.rows] == [
        ("teacher", 12),
        ("finetune", 4),
        ("kd", 4),
        ("finetune", 2),
        ("kd", 2),
    ]
    assert "kd (2 layers)" in render(build_table(runs, facts=()), "markdown")


def test_rows_split_by_a_recipe_setting():
    fast = a_run("kd", 1, 80.0)
    fast.recipe["lr"] = 1e-3
    table = build_table([fast, a_run("kd", 1, 70.0)], by=["lr", "student.pick"])
    assert [row.label for row in table.rows if row.role == "student"] == [
        "kd lr=0.001 student.pick=first",
        "kd lr=5e-05 student.pick=first",
    ]


def test_a_row_without_the_group_of_a_setting_has_no_word_of_it():
    two, one = a_run("kd", 1, 80.0), a_run("finetune", 1, 70.0)
    two.recipe["first_stage"] = {"task": "mnli"}
    one.recipe["first_stage"] = None
    table = build_table([two, one], by=["first_stage.task"], baseline="finetune")
    labels = [row.label for row in table.rows if row.role == "student"]
    assert labels == ["finetune", "kd first_stage.task=mnli"]


def test_out_of_domain_columns_stand_apart():
    run = a_run("kd", 1, 80.0, task="sst2")
    run.scores["imdb"] = {"accuracy": 66.0, "primary": 66.0}
    table = build_table([run, a_run("kd", 1, 70.0)])
    assert [c.title for c in table.columns] == ["SST-2", "RTE", "SST-2 → IMDb"]
    assert cell_of(table, "kd", "SST-2 → IMDb").mean == 66.0
    assert row_of(table, "kd").average.mean == 75.0
    assert len(build_table([run], out_of_domain="left out").columns) == 1


def test_the_same_task_of_other_data_is_another_column():
    table = build_table([a_run("kd", 1, 80.0), a_run("kd", 1, 60.0, data="/data/glue")])
    assert [c.title for c in table.columns] == ["RTE (glue)", "RTE (pocket)"]


def test_a_task_of_ones_own_uses_its_primary_score():
    table = build_table([a_run("kd", 1, 61.5, task="tickets")])
    assert cell_of(table, "kd", "tickets").mean == 61.5


def test_profiles_choose_the_number_and_leave_tasks_out():
    scores: dict[str, Numbers] = {"dev": {"accuracy": 80.0, "f1": 86.0, "primary": 83.0}}
    run = a_run("kd", 1, 80.0, task="mrpc", scores=scores)
    assert cell_of(build_table([run], profile="alp"), "kd", "MRPC").mean == 80.0
    assert cell_of(build_table([run], profile="cr-ild"), "kd", "MRPC").mean == 86.0
    assert cell_of(build_table([run], profile="skd-dev"), "kd", "MRPC").mean == 83.0
    cola = a_run("kd", 1, 50.0, task="cola", scores={"dev": {"matthews": 50.0, "primary": 50.0}})
    table = build_table([run, cola], profile="skd-dev")
    assert [c.title for c in table.columns] == ["MRPC"]
    assert "CoLA has no score under this profile." in table.notes
    with pytest.raises(LimbeckError, match="no run has a score"):
        build_table([cola], profile="skd-dev")


def test_a_profile_may_show_a_task_in_several_columns():
    def mrpc(method, seed, accuracy, f1):
        dev: Numbers = {"accuracy": accuracy, "weighted_f1": f1, "primary": (accuracy + f1) / 2}
        return a_run(method, seed, accuracy, task="mrpc", scores={"dev": dev})

    runs = [mrpc("finetune", s, 80.0, 85.0) for s in (1, 2)]
    runs += [mrpc("kd", 1, 82.0, 86.0), mrpc("kd", 2, 84.0, 89.0)]
    runs += [a_run(m, s, 60.0 + s) for m in ("finetune", "kd") for s in (1, 2)]
    table = build_table(
        runs, profile="internal", baseline=Baseline("finetune", correction="column")
    )
    assert [column.title for column in table.columns] == ["MRPC acc", "MRPC F1", "RTE"]
    kd = row_of(table, "kd")
    assert cell_of(table, "kd", "MRPC F1").mean == 87.5
    assert kd.average.mean == pytest.approx((83 + 87.5 + 61.5) / 3)
    assert kd.average.comparison is not None
    # Differences 2, 1, 0 and 4, 4, 0 over six values. Accuracy and F1 of a run flip together, so
    # there are four units, 3, 8, 0, 0: of 16 flips 4 are as high, 4 as low.
    assert kd.average.comparison.difference == pytest.approx(11 / 6)
    assert kd.average.comparison.p == pytest.approx(8 / 16)
    assert kd.average.comparison.pairs == 4


def test_a_score_that_was_not_finite_is_a_missing_one():
    broken = a_run("kd", 2, 80.0, scores={"dev": {"accuracy": None, "primary": None}})
    cell = cell_of(build_table([a_run("kd", 1, 80.0), broken]), "kd", "RTE")
    assert (cell.mean, cell.n) == (80.0, 1)


# --- failed and unfinished runs -----------------------------------------------------------------


def test_failed_and_unfinished_runs_stay_visible():
    runs = [
        a_run("kd", 1, 80.0),
        a_run("kd", 2, 82.0),
        a_run("kd", 3, None, status="failed", error="the loss is not finite\nlower lr"),
        a_run("pkd-skip", 1, None, status="failed", error="out of memory"),
        a_run("alp-kd", 1, None, status="running"),
    ]
    table = build_table(runs)
    cell = cell_of(table, "kd", "RTE")
    assert (cell.mean, cell.n, cell.failed) == (81.0, 2, 1)
    shown = render(table, "markdown")
    assert "81.0 ± 1.4 (1 failed)" in shown
    assert "| pkd-skip | 3 | failed |" in shown
    assert "– (1 unfinished)" in shown
    assert "Failed: kd on rte, seed 3: the loss is not finite" in shown
    assert "Not finished (running or stopped), not counted: alp-kd on rte, seed 1." in shown


def test_a_run_that_failed_before_it_was_measured_joins_its_row():
    early = a_run("kd", 2, None, status="failed", student=a_student().model_copy(update={}))
    early.student.layers = None
    table = build_table([a_run("kd", 1, 80.0), early])
    assert [row.layers for row in table.rows if row.role == "student"] == [3]


def test_repeated_seeds_count_once_and_say_so():
    table = build_table([a_run("kd", 1, 80.0), a_run("kd", 1, 82.0), a_run("kd", 2, 83.0)])
    cell = cell_of(table, "kd", "RTE")
    assert (cell.mean, cell.n) == (82.0, 2)
    assert "2 runs of kd on rte, seed 1 are averaged into one." in table.notes


def test_rows_of_other_data_that_a_run_was_trained_on_are_noted():
    runs = [a_run("kd", seed, 80.0) for seed in (1, 2)]
    for run in runs:
        run.examples.in_train = {"dev": 3, "test of other.csv": 128, "dev of new.csv": 0}
    notes = [note for note in build_table(runs).notes if "training" in note]
    assert notes == ["128 rows of test of other.csv are also training or dev rows."]


def test_one_seed_with_other_settings_is_a_row_of_its_own():
    runs = [a_run("kd", seed, 80.0 + seed) for seed in (1, 2)]
    faster = [a_run("kd", seed, 70.0 + seed) for seed in (1, 2)]
    for run, rate in [*((run, 5e-5) for run in runs), *((run, 1e-4) for run in faster)]:
        run.recipe |= {"lr": rate, "batch_size": 32, "log_steps": int(rate * 1e6)}
        run.recipe["student"] = {"layers": 3, "init": f"/tmp/{rate}/checkpoint"}
    table = build_table([*runs, *faster])
    means = {row.label: row.cells[table.columns[0].key].mean for row in table.rows}
    assert means["kd lr=5e-05"] == 81.5 and means["kd lr=0.0001"] == 71.5
    assert not any("averaged into one" in note for note in table.notes)
    assert "Not alike in RTE: learning rate 5e-05 (kd); 0.0001 (kd)." in table.notes


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("lr", (5e-5, 1e-4), "learning rate 5e-05 (finetune); 0.0001 (kd)"),
        ("batch_size", (16, 32), "batch size 16 (finetune); 32 (kd)"),
        ("accumulation", (1, 2), "batch size 32 (finetune); 64 (kd)"),
        (
            "lr_schedule",
            ("linear", "constant"),
            "course of the rate linear (finetune); constant (kd)",
        ),
        ("warmup", (0.0, 0.1), "warm-up 0 (finetune); 0.1 (kd)"),
    ],
)
def test_rates_and_batches_that_differ_are_noted(key, values, said):
    runs = [a_run("finetune", 1, 70.0), a_run("kd", 1, 71.0)]
    for run, value in zip(runs, values, strict=True):
        run.recipe |= {"batch_size": 32, key: value}
    assert f"Not alike in RTE: {said}." in build_table(runs).notes


# --- the paired test ----------------------------------------------------------------------------


def test_paired_test_by_hand_with_holm():
    table = build_table(a_study(), baseline=Baseline("finetune", correction="column"))
    # RTE: kd's differences 1, 2, 3: p = .0742 (t = 2√3 on 2 degrees of freedom). rail-kd-l's 5,
    # 5.1, 5.2: t = 5.1·√3/.1 = 88.335, p = 1 − t/√(t² + 2) = 1.2812e-4. Holm: ×2 and ×1.
    kd, rail = cell_of(table, "kd", "RTE").comparison, cell_of(table, "rail-kd-l", "RTE").comparison
    assert kd is not None
    assert kd.difference == pytest.approx(2.0)
    assert kd.p == pytest.approx(0.0741799, abs=1e-6)
    assert rail is not None
    assert rail.p == pytest.approx(2 * 1.2812e-4, rel=1e-3)
    assert cell_of(table, "kd", "RTE").marker == ""
    assert cell_of(table, "rail-kd-l", "RTE").marker == "▲"
    # SST-2: rail-kd-l is 3 above in every seed: without spread there is no test, hence no claim.
    flat = cell_of(table, "rail-kd-l", "SST-2")
    assert flat.comparison is not None
    assert flat.comparison.p is None
    assert flat.marker == ""
    # The average: six pairs, all in one direction: 2/64, doubled for the smaller of two by Holm.
    assert row_of(table, "rail-kd-l").average.comparison is not None
    assert row_of(table, "rail-kd-l").average.comparison.p == pytest.approx(4 / 64)
    assert row_of(table, "finetune").average.comparison is None


def test_differences_stand_with_their_intervals_and_what_a_column_could_reach():
    table = build_table(a_study(), baseline="finetune")
    kd = cell_of(table, "kd", "RTE").comparison
    # Differences 1, 2, 3: 2 ± 4.3027 · 1 / √3; at 90 %: 2 + 2.92 / √3.
    assert (kd.low, kd.high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)
    assert kd.margin == pytest.approx(2 + 1.68586, abs=1e-4)
    notes = " ".join(table.notes)
    assert "RTE +2.0 (−0.5 to +4.5), p 0.15" in notes
    # Six pairs: 2 / 64 at best; of the five tests one, in another column, is smaller.
    assert "average: the smallest p that it could reach is 0.12 (Holm-corrected), so that" in notes
    by_column = " ".join(
        build_table(a_study(), baseline=Baseline("finetune", correction="column")).notes
    )
    assert "the smallest p that it could reach is 0.062" in by_column


def test_pooled_variance_finds_what_few_seeds_alone_cannot():
    """Seven methods of one spread and one that is ten points below: three seeds of one pair could not tell."""
    rng = np.random.default_rng(2)
    runs = [
        a_run(f"m{number}", seed, 80 + rng.normal(0, 1.0) - 10 * (number == 6), task=task)
        for number in range(7) for seed in (1, 2, 3) for task in ("rte", "sst2", "cola")
    ]  # fmt: skip
    own = row_of(build_table(runs, baseline="m0"), "m6").average
    pooled = build_table(runs, baseline=Baseline("m0", variance="pooled"))
    assert own.marker == "" and row_of(pooled, "m6").average.marker == "▼"
    assert [row.label for row in pooled.rows if row.average.marker] == ["m6"]
    assert "pooled over all methods of the same layers" in " ".join(pooled.notes)
    with pytest.raises(LimbeckError, match="unknown variance 'pool'"):
        build_table(runs, baseline=Baseline("m0", variance="pool"))


def test_a_row_of_one_seed_leaves_the_others_pooled():
    """By an explicit loop over the residuals of methods and seeds."""
    rng = np.random.default_rng(5)
    scores = {
        (f"m{number}", seed): 80 + number + rng.normal()
        for number in range(4)
        for seed in (1, 2, 3)
    }
    runs = [a_run(method, seed, score) for (method, seed), score in scores.items()]
    table = build_table([*runs, a_run("once", 1, 60.0)], baseline=Baseline("m0", variance="pooled"))
    squares = 0.0
    for (method, seed), score in scores.items():
        own = [value for (name, _), value in scores.items() if name == method]
        same = [value for (_, at), value in scores.items() if at == seed]
        squares += (score - sum(own) / 3 - sum(same) / 4 + sum(scores.values()) / 12) ** 2
    error = (2 * squares / (3 * 2) / 3) ** 0.5
    found = cell_of(table, "m2", "RTE").comparison
    assert found.high - found.difference == pytest.approx(error * stats.t.ppf(0.975, 6))
    notes = " ".join(table.notes)
    assert "Too few shared seeds, or no spread, to test: RTE (once, 3 layers)." in notes
    assert "Not pooled" not in notes


@pytest.mark.parametrize("tasks", [("rte",), ("rte", "sst2")])
def test_a_cell_that_no_other_row_can_be_pooled_with_is_noted(tasks):
    rng = np.random.default_rng(5)
    runs = [
        a_run(method, seed, 80 + rng.normal(), task=task)
        for method, seeds in (("m0", 3), ("m1", 3), ("m2", 2), ("m3", 2)) for seed in range(seeds)
        for task in tasks
    ]  # fmt: skip
    table = build_table(runs, baseline=Baseline("m0", variance="pooled"))
    titles = ["SST-2", "RTE", "average"] if len(tasks) > 1 else ["RTE"]
    where = "; ".join(f"{title} (m1, 3 layers)" for title in titles)
    assert f"Not pooled, because no other row has the seeds: {where}." in table.notes
    found, own = (
        cell_of(build_table(runs, baseline=Baseline("m0", variance=how)), "m1", "RTE").comparison
        for how in ("pooled", "own")
    )
    assert (found.low, found.high) == pytest.approx((own.low, own.high))
    assert not any(
        cell_of(table, "m2", title).comparison.alone for title in titles if title != "average"
    )
    assert "Not pooled" not in " ".join(build_table(runs, baseline="m0").notes)


def test_below_the_baseline_is_marked_below():
    table = build_table(a_study(), baseline="rail-kd-l")
    assert cell_of(table, "finetune", "RTE").marker == "▼"


def test_notes_state_the_test_and_what_it_could_not_test():
    notes = " ".join(build_table(a_study(), baseline="finetune").notes)
    assert "▲ above, ▼ below finetune with the same layers, p < 0.05" in notes
    assert "paired t-test" in notes
    assert "Holm" in notes
    assert "to test: SST-2 (rail-kd-l, 3 layers)." in notes
    single = build_table([a_run("kd", 1, 80.0), a_run("finetune", 1, 70.0)], baseline="finetune")
    assert any("Too few shared seeds" in note and "RTE" in note for note in single.notes)
    assert "▲" not in render(single, "csv")


def test_the_note_on_the_test_says_nothing_of_dev_rows_in_a_table_of_test_rows():
    runs = [
        a_run(method, seed, 70.0 + seed).model_copy(
            update={"scores": {"dev": {"primary": 50.0}, "test": {"accuracy": 70.0 + seed}}}
        )
        for method in ("finetune", "kd")
        for seed in (1, 2)
    ]
    notes = " ".join(build_table(runs, baseline="finetune", split="test").notes)
    assert "The scored rows are held fixed" in notes
    assert "dev rows" not in notes


def test_only_runs_of_the_same_size_and_seed_pair():
    runs = [a_run("finetune", s, 70.0 + s, layers=4) for s in (1, 2, 3)]
    runs += [a_run("kd", s, 72.0 + s * s, layers=4) for s in (2, 3, 9)]
    runs += [a_run("kd", s, 90.0, layers=2) for s in (1, 2, 3)]
    table = build_table(runs, baseline="finetune")
    compared = cell_of(table, "kd", "RTE", layers=4).comparison
    assert compared is not None
    # Seeds 2 and 3: 76 − 72 and 81 − 73
    assert (compared.difference, compared.pairs) == (6.0, 2)
    assert cell_of(table, "kd", "RTE", layers=2).comparison is None
    assert any("No finetune run of the same layers" in note for note in table.notes)


# --- notes --------------------------------------------------------------------------------------


def test_runs_that_differ_in_more_than_the_method_are_noted():
    runs = [
        a_run("finetune", 1, 70.0, epochs=3),
        a_run("kd", 1, 71.0, epochs=10, rows=500),
        a_run("pkd-skip", 1, 71.0, epochs=10, teacher=a_teacher(85.0, "runs/small/student")),
    ]
    notes = build_table(runs).notes
    assert "Not alike in RTE: epochs 3 (finetune); 10 (kd, pkd-skip)." in notes
    assert "Not alike in RTE: training rows 1000 (finetune, pkd-skip); 500 (kd)." in notes
    assert (
        "Not alike in RTE: teacher teacher, 12 layers (kd); small, 12 layers (pkd-skip)." in notes
    )
    assert not any("Not alike" in note for note in build_table(a_study()).notes)


def test_a_note_names_the_exceptions_among_many_and_a_team_by_its_ends():
    usual = [a_run(f"method {number}", 1, 70.0) for number in range(7)]
    team = a_run("skd-uniform", 1, 70.0, rows=500)
    members = [TeamMember(name=name, path=f"runs/{name}") for name in ("small", "middle", "large")]
    team.team = TeamFacts(use="sample", members=members)
    notes = build_table([*usual, team]).notes
    assert "Not alike in RTE: training rows 500 (skd-uniform); 1000 (the others)." in notes
    said = "small to large, 3 of them (skd-uniform); teacher, 12 layers (the others)."
    assert f"Not alike in RTE: teacher {said}" in notes


def test_stages_and_noise_are_among_what_should_be_alike():
    runs = [a_run(method, seed, 70.0) for method in ("kd", "l-ild", "joint") for seed in (1, 2)]
    for run in runs:
        if run.method != "kd":
            run.recipe["first_stage"] = {"epochs": 5.0, "max_steps": None}
        run.recipe["joint"] = run.method == "joint"
        run.recipe["label_noise"] = 0.3 if run.method == "kd" else 0.0
    notes = build_table(runs).notes
    assert "Not alike in RTE: epochs 3 (kd, joint); 5 + 3 (l-ild)." in notes
    assert "Not alike in RTE: label noise 30 % (kd); 0 % (l-ild, joint)." in notes


def test_the_last_epochs_score_stands_beside_that_of_the_kept_one():
    runs = [run for run in a_study() if run.method == "kd"]
    for number, run in enumerate(runs):
        run.last = Best(epoch=3, primary=60.0 + number % 3)
    row = build_table(runs, facts=["last"]).rows[-1]
    assert row.facts["last"].value == pytest.approx(61.0)


def test_latency_says_how_it_was_measured():
    same = build_table(a_study(), facts=["latency"]).notes
    assert any("batch 1, 128 tokens, 2 threads, Sparrow 9000" in note for note in same)
    other = a_run("kd", 1, 70.0)
    assert other.student.latency_ms is not None
    other.student.latency_ms.threads = 8
    notes = build_table([*a_study(), other], facts=["latency"]).notes
    assert any("different conditions" in note for note in notes)


def test_a_teachers_own_run_says_what_it_was_scored_on_afterwards():
    teacher = a_teacher(path="runs/teacher")
    own = a_run("finetune", 1, 90.0, task="sst2")
    own.student = own.student.model_copy(
        update={"parameters": teacher.parameters, "layers": teacher.layers}
    )
    own.scores = {"dev": dict(teacher.scores["dev"]), "imdb": {"accuracy": 81.5, "primary": 81.5}}
    taught = a_run("kd", 1, 80.0, task="sst2", teacher=teacher)
    taught.scores |= {"imdb": {"accuracy": 70.25, "primary": 70.25}}
    table = build_table([own, taught], profile="rail", out_of_domain="alone")
    cells = [[cell.mean for cell in row.cells.values()] for row in table.rows]
    assert cells == [[81.5], [70.25]]
