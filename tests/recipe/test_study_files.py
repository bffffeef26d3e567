"""Studies as files: the shipped ones are whole and short, what is wrong is said all together."""

from __future__ import annotations

import math
import os
import re
from importlib import resources
from itertools import product
from pathlib import Path

import pytest

from limbeck.lab.study import load_study, shipped
from limbeck.lab.study.plan_builder import StudyPlan
from limbeck.support.errors import LimbeckError

SHIPPED = [
    pytest.param(name, scale, marks=[pytest.mark.slow] * (scale != one.scales[0]))
    for name, one in shipped().items()
    for scale in one.scales
]
GIVEN = {"small": {"data": "glue", "model": "encoder"}}
# Texts of the papers, where somebody has them: they are not ours to ship.
PAPERS = os.environ.get("LIMBECK_PAPERS")


@pytest.mark.parametrize(("name", "scale"), SHIPPED)
def test_shipped_studies_are_whole(name, scale) -> None:
    study = load_study(name, scale=scale, **GIVEN.get(scale, {}))
    tasks = study.tasks[:2]
    plan = StudyPlan.of(study.model_copy(update={"tasks": tasks}))
    # What says the same is one run, whatever rows it stands in.
    team = {} if study.teachers is None else {k: repr(v) for k, v in study.teachers.team.items()}
    seeds, runs = len(study.seeds), {}
    for label in study.methods:
        own = study.method_of(label)
        cells = cells_by_hand(own.grid or study.select.grid)
        taught = own.method in (None, "finetune") or sorted(
            {team[one] for one in own.teachers or team}
        )
        said = repr((own.method or label, sorted(own.settings.items()), own.grid, taught))
        # A method that sets the group of an axis' key, as first_stage, is the same on all of the axis.
        replaced = tuple(f"{key}." for key in own.settings)
        conditions = [len(axis) for key, axis in study.axes.items() if not key.startswith(replaced)]
        runs[said] = math.prod(conditions) * (
            seeds if cells == 1 else cells * study.select.seeds + seeds - study.select.seeds
        )
    teachers = 0
    for task in tasks if study.teachers is not None else ():
        # A member that is called otherwise and made the same is one run.
        grids = {repr(said): study.teachers.grids.get(name, {}) for name, said in team.items()}
        for own in grids.values() if team else [{}]:
            teachers += cells_by_hand(own.get(task, study.teachers.grid))
    assert plan.count == teachers + len(tasks) * sum(runs.values())
    assert study.figures or study.printed
    if study.printed is not None:
        team = () if study.teachers is None else study.teachers.team
        assert set(study.methods) == set(study.printed.rows) - {"teacher", *team}


@pytest.mark.slow
def test_runs_of_rail_kds_studies_are_in_mixed_precision_as_in_its_paper() -> None:
    """§4.2: "using mixed-precision training"; teachers too."""
    names = [name for name in shipped() if name.startswith("rail-kd")]
    assert names
    for name in names:
        study = load_study(name, scale="paper")
        plan = StudyPlan.of(study.model_copy(update={"tasks": study.tasks[:1]}))
        runs = [run for group in plan.groups for _, tried in group.tried for run in tried]
        asked = {run.settings["precision"] for run in [*runs, *plan.teachers.values()]}
        assert asked == {"auto"}, name


def test_t_tests_of_internal_kd_have_the_seeds_that_they_need() -> None:
    """Its Experimental Setup tests every internal method against standard KD: a paired test needs two runs."""
    for name in ("internal-kd-table-1", "internal-kd-table-2"):
        for scale in ("paper", "small", "pocket"):
            study = load_study(name, scale=scale, **GIVEN.get(scale, {}))
            assert study.table.baseline == "soft (2.0)"
            assert len(study.seeds) > 1, (name, scale)


def test_internal_kds_figure_11_is_the_first_head_of_every_layer() -> None:
    """Figure 11: "head 0 across all the student … and the … matching teacher layers"; heads count from 1 here."""
    for scale in ("paper", "small", "pocket"):
        study = load_study("internal-kd-figure-5", scale=scale, **GIVEN.get(scale, {}))
        figure = study.figures["figure-11"]
        assert (figure.draw, figure.of, figure.methods) == ("analysis", "attention-maps", None)
        # Heads count from 1 here; without pairs every layer stands beside its own of the teacher.
        assert figure.settings == {"head": 1}


SPEED_UPS = {
    "rail-kd-table-4": ("training-speedup", {"teacher": 1, "CoDIR": 1, "RAIL-KD c": 1.96}),
    "cr-ild-table-1": ("speedup", {"teacher": 1, "KD": 2, "CR-ILD": 2}),
    "cr-ild-table-1-bert-small": ("speedup", {"CKD": 2, "PKD": 2}),
    "cr-ild-table-2-few": ("speedup", {"teacher": 1, "BERT-EMD": 2}),
    "cr-ild-table-2-noise": ("speedup", {"teacher": 1, "TinyBERT": 2}),
    "cr-ild-table-6-10": ("speedup", {"teacher": 1, "CR-ILD": 2}),
    "cr-ild-table-6-20": ("speedup", {"teacher": 1, "CR-ILD": 2}),
    "skdbert-table-2": ("speedup", {"SKDBERT 4": 9.4, "SKDBERT 6": 2}),
}


@pytest.mark.parametrize("name", SPEED_UPS)
def test_speed_ups_that_a_paper_prints_are_a_column(name) -> None:
    column, printed = SPEED_UPS[name]
    study = load_study(name, scale="pocket")
    assert column in study.table.columns
    found = study.printed.numbers()
    assert {row: found[row][column] for row in printed} == printed


def test_rail_kds_test_halves_stand_behind_those_of_dev() -> None:
    """Tables 2 and 3, TEST, RAIL-KD c."""
    for name, numbers in {
        "rail-kd-table-2": [50.6, 92.5, 88.2, 81.4, 88.9, 82.8, 89.3, 61.3, 79.8],
        "rail-kd-table-3": [53.6, 63.8, 89.6, 84.8, 93.4, 83.9, 91.6, 89.6, 81.3],
    }.items():
        study = load_study(name, scale="paper")
        assert [*study.printed.test_numbers()["RAIL-KD c"].values()] == numbers
        assert [*study.printed.test] == [*study.printed.rows]


def cells_by_hand(grid) -> int:
    """Combinations of a grid; of weights whose rest is another's those that add up to 1 at most."""
    found = 0
    for values in product(*grid.values()):
        weights = [
            value
            for key, value in zip(grid, values, strict=True)
            if key.endswith("weight") and value != "rest"
        ]
        found += "rest" not in values or sum(weights) < 1 + 1e-6
    return found


def test_shipped_studies_are_short() -> None:
    for file in (resources.files("limbeck.lab.study") / "shipped").iterdir():
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 40, file.name
        assert max(map(len, lines)) <= 140, file.name


@pytest.mark.skipif(PAPERS is None, reason="LIMBECK_PAPERS names no folder of the papers' texts")
@pytest.mark.parametrize("name", [name for name, one in shipped().items() if "printed" in one.raw])
def test_printed_numbers_stand_in_the_paper(name) -> None:
    study = load_study(name, scale="pocket")
    text = (Path(PAPERS) / f"{name.partition('-table')[0]}.txt").read_text(encoding="utf-8")
    # Cells of two numbers, `70.3/82.7`: both of them, the first or the second.
    versions = (text, re.sub(r"/[0-9.]+", "", text), re.sub(r"[0-9.]+/", "", text))
    # Deviations stand in brackets behind their means, differences in small print.
    versions = (*versions, re.sub(r" \([0-9.]+\)| <small>[^<]*</small>", "", text))
    lines = [numbers_in(one) for one in versions]
    said = [*study.printed.rows.items(), *study.printed.test.items()]
    for label, row in said:
        assert any(is_within(row, line) for found in lines for line in found), label


def numbers_in(text: str) -> list[list[float | None]]:
    """Of each line of a text its numbers with a point in them, speed-ups as 1x, a lone dash being none."""
    found = re.compile(r"(?<![\w.])(?:\d+\.\d+x?|\d+x|-)(?![\w.])")
    return [
        [None if one == "-" else float(one.rstrip("x")) for one in found.findall(line)]
        for line in text.splitlines()
    ]


def is_within(row: list, line: list) -> bool:
    return any(line[start : start + len(row)] == row for start in range(len(line)))


def problems_of(path: Path, text: str, **given) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LimbeckError) as caught:
        load_study(path, **given)
    assert all(problem.fix for problem in caught.value.problems)
    return [problem.message for problem in caught.value.problems]


def test_what_is_wrong_is_said_together(tmp_path) -> None:
    found = problems_of(
        tmp_path / "mine.yaml",
        """
title: mine
tasks: [sst2, sst2]
seeds: [1]
methods: {kd: , pkd-skip: {grid: {seed: [1]}}}
teachers: {settings: {epochs: 1}}
select: {seeds: 2}
table: {profile: rial, baseline: dk}
per_task: {mrpc: {epochs: 1}}
""",
    )
    assert [message.split(":")[0] for message in found] == [
        "data",
        "model",
        "tasks",
        "unknown task in per_task",
        "select.seeds",
        "methods.pkd-skip.grid",
        "unknown table.profile 'rial'",
        "unknown table.baseline 'dk'",
    ]


def test_values_of_another_type_are_said_together(tmp_path) -> None:
    found = problems_of(
        tmp_path / "mine.yaml", "title: 3\ntasks: []\nmethods: {kd: {gird: {}}}\nseedz: [1]\n"
    )
    assert len(found) == 4
    assert any("gird" in message for message in found)
    assert any("seedz" in message for message in found)


def test_wrong_recipes_name_the_methods_that_have_them(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "title: t\ndata: pocket\nmodel: pocket\ntasks: [sst2]\nteachers: {}\n"
        "methods: {kd: {settings: {epochz: 1}}, kdd: , finetune: }\n",
        encoding="utf-8",
    )
    with pytest.raises(LimbeckError) as caught:
        StudyPlan.of(load_study(path))
    messages = [problem.message for problem in caught.value.problems]
    assert messages[0].startswith("kd on sst2: ")
    assert "epochz" in messages[0]
    assert messages[1] == "kdd on sst2: unknown method 'kdd'"


def test_the_scale_has_to_be_one_of_the_studys() -> None:
    for scale, said in ((None, "has several scales"), ("poket", "unknown scale")):
        with pytest.raises(LimbeckError, match=said):
            load_study("rail-kd-table-2", scale=scale)
    with pytest.raises(LimbeckError, match="unknown study"):
        load_study("rail-kd-table-9")


def test_own_rows_are_named_at_the_top(tmp_path) -> None:
    """Where `data` stands, as in a recipe; they are settings of all runs, teachers' included."""
    rows = "".join(f"a film,the plot,{n % 2}\n" for n in range(40))
    (tmp_path / "tickets.csv").write_text("subject,body,queue\n" + rows)
    (tmp_path / "mine.yaml").write_text(
        f"""
title: t
data: {tmp_path}/tickets.csv
text_columns: [subject, body]
label_column: queue
train_rows: 30
model: bert-2-128-2:random
seeds: [1]
methods: {{labels alone: {{method: finetune}}, kd: }}
settings: {{train_rows: 20}}
students: {{student.layers: 1}}
""",
        encoding="utf-8",
    )
    study = load_study(tmp_path / "mine.yaml", label_column="other")
    assert study.tasks == ["tickets"]
    named = {"text_columns": ["subject", "body"], "label_column": "other", "train_rows": 20}
    assert study.settings == named
    plan = StudyPlan.of(load_study(tmp_path / "mine.yaml"))
    runs = [
        *plan.teachers.values(),
        *(run for g in plan.groups for _, tried in g.tried for run in tried),
    ]
    assert {run.settings["label_column"] for run in runs} == {"queue"}
    (tmp_path / "mine.yaml").write_text(
        "title: t\ndata: pocket\ntext_column: [a]\nmethods: {kd: }\n"
    )
    with pytest.raises(LimbeckError, match="did you mean 'text_columns'"):
        load_study(tmp_path / "mine.yaml")


def test_names_of_a_file_and_of_its_scales_are_written_out(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
title: t
data: pocket
tasks: [sst2]
names: {teacher: [T1, T2], teacher.net: [pocket-2-32-2, pocket-4-32-2]}
teachers: {team: {"{teacher}": {student.init: "{teacher.net}"}}}
methods: {"by {teacher}": {method: kd-soft, teachers: ["{teacher}"]}, SKD: {method: skd-uniform}}
scales:
  a: {names: {teacher: [T2], teacher.net: {T2: pocket}}}
  b: {methods: {by T1: {settings: {student.init: "{model}"}}}}
""",
        encoding="utf-8",
    )
    a, b = load_study(path, scale="a"), load_study(path, scale="b", model="pocket")
    assert a.teachers.team == {"T2": {"student.init": "pocket"}}
    assert list(a.methods) == ["by T2", "SKD"]
    assert b.teachers.team["T2"] == {"student.init": "pocket-4-32-2"}
    assert list(b.methods) == ["by T1", "by T2", "SKD"]
    assert b.method_of("by T1").teachers == ["T1"]
    assert b.method_of("by T1").settings == {"student.init": "{model}"}
    with pytest.raises(LimbeckError, match="no value for T2"):
        load_study(path, scale="b", **{"names.teacher.net": {"T1": "pocket"}})


def test_given_keys_win_over_the_file() -> None:
    given = {"seeds": [7], "settings.batch_size": 8}
    study = load_study("rail-kd-table-2", scale="pocket", **given)
    assert study.seeds == [7]
    assert study.settings["batch_size"] == 8
    assert study.settings["precision"] == "fp32"


def test_fewer_tasks_take_what_the_file_says_of_the_others_along() -> None:
    small = GIVEN["small"]
    assert "sst2" in load_study("alp-kd-table-3", scale="small", **small).per_task
    few = load_study("alp-kd-table-3", scale="small", tasks=["mrpc"], **small)
    assert (few.tasks, few.per_task) == (["mrpc"], {})
    with pytest.raises(LimbeckError, match="unknown task in per_task: 'cola'"):
        own = {"per_task.cola": {"epochs": 1}}
        load_study("alp-kd-table-3", scale="small", tasks=["mrpc"], **own, **small)


OWN = "title: t\ndata: pocket\nmodel: pocket\nteachers: {}\nmethods: {kd: , pkd-skip: }\n"


@pytest.mark.parametrize(
    ("tasks", "table", "said"),
    [
        ("sst2, stsb", "{profile: internal, out_of_domain: left out}", "skd-dev"),
        ("stsb", "{profile: internal}", "rail"),
        ("cola, mrpc", "{out_of_domain: alone}", "sst2"),
    ],
)
def test_a_table_that_would_have_no_column_is_refused(tmp_path, tasks, table, said) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{OWN}tasks: [{tasks}]\ntable: {table}\n", encoding="utf-8")
    with pytest.raises(LimbeckError, match=f"no column for {tasks}: no run") as caught:
        load_study(path)
    assert said in caught.value.problems[0].fix


@pytest.mark.parametrize(
    ("tasks", "table"),
    [
        ("sst2, cola", "{profile: internal, out_of_domain: left out}"),
        ("reviews", "{profile: internal}"),
        ("sst2, mrpc", "{out_of_domain: alone}"),
    ],
)
def test_a_table_of_some_columns_is_allowed(tmp_path, tasks, table) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{OWN}tasks: [{tasks}]\ntable: {table}\n", encoding="utf-8")
    assert load_study(path).tasks == tasks.split(", ")


def test_figures_that_show_nothing_are_refused_with_choices(tmp_path) -> None:
    found = problems_of(
        tmp_path / "mine.yaml",
        f"""{OWN}tasks: [sst2]
keep_students: true
figures:
  a: {{draw: heat, rows: task, columns: task}}
  b: {{draw: boxes, tasks: [], methods: []}}
  c: {{draw: analysis, of: noise, settings: {{deviation: [0.1]}}}}
""",
    )
    assert found[:3] == [
        "figures.a: rows and columns are both task",
        "figures.b.methods: none are named",
        "figures.b.tasks: none are named",
    ]
    assert "noise: 'deviation'" in found[3]
    assert len(found) == 4
