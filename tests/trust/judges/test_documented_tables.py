"""The results page and the README print what the committed records say, marks included."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from limbeck.lab import quickstart
from limbeck.records import read_collection
from limbeck.tables import Baseline, build_table, collect, render

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "benchmarks" / "records"
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and ":---" not in line]


@pytest.mark.parametrize("study", ["real_glue", "pocket_study", "distilled_start"])
def test_whole_tables(study):
    table = build_table(collect([RECORDS / f"{study}.jsonl.gz"]), baseline="finetune")
    printed = rows(render(table, "markdown"))
    assert len(printed) > 7
    assert [row for row in printed if row not in PAGE.splitlines()] == []


@pytest.mark.parametrize(
    ("study", "baseline", "marked"),
    [
        ("real_glue", "finetune", {"▼ pkd-skip 2 average"}),
        (
            "pocket_study",
            "finetune",
            {"▲ kd 6 average", *(f"▼ alp-kd 6 {title}" for title in ("CoLA", "SST-2", "average"))},
        ),
        ("team_study", "finetune", {"▼ takd all 3 SST-2", "▼ takd top-6 3 SST-2"}),
        ("team_study", "kd-soft wide-6", {"▼ takd all 3 SST-2", "▼ takd top-6 3 SST-2"}),
    ],
)
def test_what_the_page_states_of_pooled_variance(study, baseline, marked):
    table = build_table(
        collect([RECORDS / f"{study}.jsonl.gz"]), baseline=Baseline(baseline, variance="pooled")
    )
    cells = {
        f"{cell.marker} {row.label} {row.layers} {title}"
        for row in table.rows
        for title, cell in [
            *((column.title, row.cells[column.key]) for column in table.columns),
            ("average", row.average),
        ]
        if cell.marker
    }
    assert cells == marked


def test_the_rerankers_page_shows_its_runs():
    runs = collect([RECORDS / "rerankers.jsonl.gz"])
    printed = rows(render(build_table(runs, facts=("layers", "kept")), "markdown"))
    page = (ROOT / "docs" / "rerankers.md").read_text(encoding="utf-8").splitlines()
    assert len(printed) > 8
    assert [row for row in printed if row not in page] == []


def test_the_last_epoch_takes_the_gain_of_balanced_weights():
    """Accuracy of the runs' own epochs: above plain labels at the best one, below at the last."""
    found = {}
    for name, record in read_collection(RECORDS / "several_labels.jsonl.gz").items():
        if name.startswith("rare-"):
            accuracies = [epoch.dev["accuracy"] for epoch in record.epochs]
            found.setdefault(record.method, []).append((max(accuracies), accuracies[-1]))
    best, last = (
        {method: statistics.mean(run[at] for run in runs) for method, runs in found.items()}
        for at in (0, 1)
    )
    assert best["balanced"] - best["plain"] > 4
    assert last["balanced"] < last["plain"]


def test_the_methods_side_by_side():
    runs = read_collection(RECORDS / "methods_study.jsonl.gz").items()
    sst2 = [record for name, record in runs if name.startswith("sst2-")]
    printed = rows(render(build_table(sst2, baseline="finetune"), "markdown"))
    said = {row.split("|")[1].strip(): row.split("|")[3].strip() for row in printed[2:]}
    section = PAGE[PAGE.index("## Every method with one teacher") :]
    cells = dict(re.findall(r"`([a-z0-9-]+)` \| (\d+\.\d ± \d+\.\d(?: [▲▼])?) \|", section))
    assert said.keys() <= cells.keys()
    assert {method: cells[method] for method in said} == said


def test_the_readme_states_measured_times():
    record = json.loads((RECORDS / "end_to_end.json").read_text(encoding="utf-8"))
    run = record["tasks"]["sst2"]
    ratios = [run["ratios"][key] for key in ("trainer, bf16", "trainer", "textbrewer")]
    same, default, other = re.findall(r"(?:took|and) (0\.\d+) (?:of|with)", README)
    assert [same, default, other] == [f"{ratio:.2f}" for ratio in ratios]
    assert record["setting"]["rows"] == 10_000 and "10,000 rows of SST-2" in README
    assert abs(run["dev"]["ours"] - run["dev"]["trainer, bf16"]) < 0.26  # "a quarter point apart"


@pytest.mark.usefixtures("benchmarks")
def test_the_page_of_several_labels_prints_the_benchmarks_tables(capsys):
    # By its path: the tests have a module of that name.
    path = ROOT / "benchmarks" / "several_labels.py"
    found = importlib.util.spec_from_file_location("several_labels_benchmark", path)
    benchmark = importlib.util.module_from_spec(found)
    found.loader.exec_module(benchmark)
    benchmark.table()
    printed = rows(capsys.readouterr().out)
    page = (ROOT / "docs" / "several-labels.md").read_text(encoding="utf-8").splitlines()
    assert len(printed) > 12
    assert [row for row in printed if row not in page] == []


@pytest.mark.parametrize(
    ("benchmark", "page"),
    [
        ("static", "static-students"),
        ("parallel", "other-languages"),
        ("sizes", "smaller-students"),
        ("decoders", "decoders"),
        ("packing", "decoders"),
        ("first_student", "get-started"),
        ("beside_setfit", "results"),
    ],
)
def test_a_page_prints_its_benchmarks_tables(benchmarks, capsys, benchmark, page):
    benchmarks(benchmark).table()
    printed = rows(capsys.readouterr().out)
    lines = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").splitlines()
    assert len(printed) >= 3
    assert [row for row in printed if row not in lines] == []


def test_the_recommendations_are_of_the_table(benchmarks, capsys):
    benchmarks("which_method").table()
    table = capsys.readouterr().out
    page = (ROOT / "docs" / "which-method.md").read_text(encoding="utf-8")
    assert len(rows(table)) > 3 and set(rows(table)) <= set(page.splitlines())
    said = re.findall(
        r"[+-]\d+\.\d \([+-]\d+\.\d to [+-]\d+\.\d\)", page.split("## The evidence")[0]
    )
    assert len(said) > 6
    assert {*said} <= {*re.findall(r"[+-]\d+\.\d \([^)]*\)", table)}


def test_the_usual_method_is_as_good_as_logits_on_rows_with_text(benchmarks):
    """By SciPy, over the seeds; and what the page states of both."""
    kept = json.loads((RECORDS / "which_method.json").read_text(encoding="utf-8"))
    assert set(kept) == {"Questions", "SST-2"}
    for models in kept.values():
        ours, theirs = ({int(s): one["score"] for s, one in models[name].items()} for name in
            ("kd, text", "logit-mse, text"))  # fmt: skip
        assert len(ours) == 3 and paired_p(ours, theirs) > 0.05
        assert abs(statistics.mean(ours.values()) - statistics.mean(theirs.values())) < 1


def test_a_case_is_of_the_seeds_that_all_methods_have(benchmarks):
    which = benchmarks("which_method")
    draw = np.random.default_rng(0)
    right = {name: draw.random((4, 50)) < share for name, share in (("a", 0.9), ("b", 0.6))}
    kept = {
        name: {str(seed): {"right": row.tolist(), "tflop": 2.0} for seed, row in enumerate(rows)}
        for name, rows in right.items()
    }
    del kept["b"]["3"]
    arms = which.of_rows(kept, {"a": "A", "b": "B"})
    row = which.Case(("", "", "", "", ""), arms, "B").row()
    means = {name: 100 * rows[:3].mean() for name, rows in right.items()}
    assert row[5] == f"A {means['a']:.1f}, B {means['b']:.1f}"
    assert row[6] == row[7] and row[6].startswith(f"{means['a'] - means['b']:+.1f} (")
    assert row[9] == "3" and row[10] == "2 / 2"
    low, high = (float(end) for end in re.findall(r"[+-][\d.]+", row[6])[1:])
    assert low < means["a"] - means["b"] < high


@pytest.fixture
def few_labels(benchmarks):
    """`benchmarks/few_labels_table.py`."""
    return benchmarks("few_labels_table")


def first_table() -> list[list[str]]:
    """The README's first, above `make quickstart`: cells of each row, without the heading."""
    printed = rows(README.split("```sh\nmake quickstart")[0])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in printed[1:]]


def scores(values) -> str:
    """As the README prints the scores of several seeds: mean ± sample standard deviation."""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def test_the_readme_says_what_compress_found():
    found = json.loads((RECORDS / "compress_sst2.json").read_text(encoding="utf-8"))["points"]
    teacher = next(one for one in found if one["name"] == "teacher")
    best = next(one for one in found if one["recommended"])
    static = max(
        (one for one in found if one["kind"] == "student" and one["name"].startswith("static")),
        key=lambda one: one["score"],
    )
    for one, said in (
        (teacher, "Its accuracy is {score:.1f}, at {mb:.0f} MB and {ms:.1f} ms a text"),
        (best, "The recommended student (circled) has {score:.1f} at {mb:.1f} MB"),
        (static, "A static student has {score:.1f} at {mb:.1f} MB and {ms:.2f} ms"),
    ):
        costs = one["costs"]
        numbers = {"score": one["score"], "mb": costs["size"] / 1e6, "ms": costs["latency"]}
        assert said.format(**numbers) in README


def test_the_first_pages_quote_what_their_commands_printed():
    found = json.loads((RECORDS / "first_student.json").read_text(encoding="utf-8"))
    printed = {line.rstrip() for one in found.values() for line in one["lines"]}
    first = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
    for page in (README, first):
        blocks = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert blocks
        quoted = [line.rstrip() for block in blocks for line in block.splitlines()]
        assert [line for line in quoted if line not in printed] == []
    minutes, seconds = divmod(sum(one["seconds"] for one in found.values()), 60)
    assert f"took {minutes} minutes and {seconds} seconds" in first
    commands = [command.split("#")[0].strip() for command in found]
    assert [command for command in commands if command not in first] == []


def test_the_readme_states_what_the_first_student_gains():
    """By SciPy, over the samples of the rows."""
    kept = json.loads((RECORDS / "first_student_seeds.json").read_text(encoding="utf-8"))
    teacher, student, alone = (
        [100 * sum(one[name]) / 1000 for one in kept.values()]
        for name in ("teacher, 6 layers", "student, 3 layers, int8", "3 layers, labels alone")
    )
    gain, most = (statistics.mean(ours) - statistics.mean(alone) for ours in (student, teacher))
    low, high = ttest_rel(student, alone).confidence_interval()
    said = f"{gain:.1f} points better than fine-tuning the same layers (95 % interval {low:+.1f} to {high:+.1f}"
    assert said in README and f"its teacher: {most:.1f} better" in README
    assert len(kept) == 5 and low > 0


def test_the_readme_begins_with_few_labels_on_real_rows(few_labels):
    lines = few_labels.read_lines()
    *real, _ = first_table()
    for labels, printed in zip((200, 1000, 5000), real, strict=True):
        own = {line.condition: line for line in lines if line.place == ("sst2", labels)}
        alone, more, teacher = (own[name] for name in ("labels alone", "unlabelled", "teacher"))
        assert printed[1] == f"{labels:,} + {round(more.rows):,}"
        assert printed[2:] == [scores(line.scores.values()) for line in (alone, more, teacher)]
        assert alone.scores.keys() == more.scores.keys() == teacher.scores.keys()
        assert len(more.scores) == (7 if labels == 1000 else 5)
        assert all(more.scores[seed] > alone.scores[seed] for seed in more.scores)
        assert paired_p(more.scores, alone.scores) < 0.05
        assert paired_p(more.scores, teacher.scores) > 0.05


def test_the_readme_begins_with_the_quickstarts_own_table():
    records = read_collection(RECORDS / "quickstart.jsonl.gz").values()
    *_, pocket = first_table()
    dev = {}
    for record in records:
        dev.setdefault(record.method, {})[record.seed] = record.scores["dev"]["primary"]
    alone, more = dev[quickstart.ALONE], dev[quickstart.UNLABELLED]
    assert pocket[2:4] == [scores(alone.values()), scores(more.values())]
    assert pocket[4] == f"{dev['finetune'][1]:.1f}"
    assert len(alone) == len(more) == quickstart.SEEDS == 4
    counts = {(r.examples.labelled, r.examples.unlabelled) for r in records}
    assert counts == {(quickstart.LABELS, 0), (quickstart.LABELS, 16_000 - quickstart.LABELS)}
    assert pocket[1] == "{:,} + {:,}".format(*max(counts))
    assert paired_p(more, alone) < 0.05


def paired_p(mine: dict[int, float], theirs: dict[int, float]) -> float:
    """SciPy's own paired t-test over the seeds that both have."""
    seeds = sorted(mine.keys() & theirs.keys())
    return ttest_rel([mine[s] for s in seeds], [theirs[s] for s in seeds]).pvalue


def test_the_table_of_few_labels(few_labels):
    printed = rows(few_labels.markdown(few_labels.cells(few_labels.read_lines())))
    assert len(printed) > 3
    assert [row for row in printed if row not in PAGE.splitlines()] == []


@pytest.mark.slow
def test_the_mean_of_the_classes_f1_of_mrpc(few_labels):
    """The sentence of the page, by the records' own fields and SciPy."""
    records = read_collection(RECORDS / "few_labels.jsonl.gz")
    found = {}
    for name, record in records.items():
        if name.startswith("mrpc-1000-"):
            own = record.classification["dev"].student.macro_f1
            found.setdefault(record.method, {})[record.seed] = own
    means = {method: round(statistics.mean(of.values()), 1) for method, of in found.items()}
    alone = found["labels alone"]
    rows = [name for name in found if name.startswith(("unlabelled", "pseudo"))]
    assert means["labels alone"] == 50.7 and means["augmented"] == 60.2
    assert [min(means[name] for name in rows), max(means[name] for name in rows)] == [57.2, 58.5]
    assert all(0.115 < paired_p(found[name], alone) < 0.155 for name in rows)
    assert paired_p(found["augmented"], alone) == pytest.approx(0.026, abs=5e-4)


def test_the_table_of_defaults(benchmarks):
    defaults = benchmarks("defaults")
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8").splitlines()
    lines = defaults.places_reached(defaults.measured_cells())
    assert lines
    assert [
        "| " + " | ".join(line) + " |"
        for line in lines
        if "| " + " | ".join(line) + " |" not in page
    ] == []


def test_what_the_page_says_of_the_first_five_seeds(few_labels):
    table = few_labels.cells(few_labels.read_lines(5))
    student, pseudo = (
        next(row for row in table if row[:4] == ("SST-2", "1,000", name, "65,978"))
        for name in ("unlabelled", "pseudo-labels")
    )
    assert student[4:6] == ("82.2 ± 1.3", "5") and student[7] == "0.053"
    assert student[6].startswith("101 (")
    assert pseudo[4].startswith("82.0") and pseudo[6].startswith("99 ")


def test_the_tables_of_shipping(benchmarks):
    """Both pages print the record, and the README's numbers follow from it by hand."""
    table = benchmarks("shipping_table")
    record = json.loads((RECORDS / "shipping.json").read_text(encoding="utf-8"))
    for page, printed in (
        (PAGE, table.lines(record)),
        (PAGE, table.parts(record)),
        (README, table.front(record)),
    ):
        assert len(printed) > 2
        assert "\n".join(printed) in page
        assert table.replaced(page, printed) == page
    at26, at128 = (
        {
            (one["model"], one["backend"], one["form"][:4]): one
            for one in record["mrpc"]["bench"]["measurements"]
            if one["condition"]["length"] == length
        }
        for length in (26, 128)
    )
    teacher, student = "mrpc-teacher", "mrpc-kd-3l"
    times = [
        found[teacher, "torch", "fp32"]["cpu_p50"]
        / found[student, "onnxruntime", "int8"]["cpu_p50"]
        for found in (at26, at128)
    ]
    small, own, whole = (
        at26[key]
        for key in (
            (student, "onnxruntime", "int8"),
            (student, "torch", "fp32"),
            (teacher, "torch", "fp32"),
        )
    )
    numbers = [
        *(f"{one:.1f}" for one in times),
        f"{100 * small['disk_mib'] / whole['disk_mib']:.0f}",
        f"{small['score']:.1f}",
        f"{own['score']:.1f}",
        f"{whole['score']:.1f}",
    ]
    assert f"| MRPC | {' | '.join(numbers)} |" in README


def test_what_makes_a_shipped_student_faster(benchmarks):
    """SST-2's `kd` at 128 tokens, worked by hand, and the sentences of both pages."""
    table = benchmarks("shipping_table")
    record = json.loads((RECORDS / "shipping.json").read_text(encoding="utf-8"))
    printed = table.parts(record)[2:]
    # 35.739 / 4.8379, 35.739 / 18.411, 18.411 / 9.9127, 9.9127 / 4.8379
    assert "| SST-2 | `kd`, 3 layers | 128 | 7.4 | 1.9 | 1.9 | 2.0 |" in printed
    cells = [[cell.strip() for cell in row.strip("| ").split("|")] for row in printed]
    assert len(cells) == 12
    short, long = ([row for row in cells if row[2] == tokens] for tokens in ("26", "128"))
    for page in (PAGE, README):
        for found in (short, long):
            speeds = sorted(float(row[3]) for row in found)
            assert f"{speeds[0]} to {speeds[-1]} ×" in page
    assert {tuple(row[4:]) for row in long} == {("1.9", "1.9", "2.0")}
    said = " ".join(README.split())
    assert "At 128 tokens half of the layers gives 1.9 ×, ONNX Runtime 1.9 × and int8 2.0 ×" in said


def test_what_is_said_of_shipping():
    """Each sentence under the results page's table, of every task."""
    record = json.loads((RECORDS / "shipping.json").read_text(encoding="utf-8"))
    small = [one for task in record.values() for one in task["bars"]]
    assert len(small) == 6
    for one in small:
        assert round(100 * one["share_of_size"]) == 19
        assert one["points_lost"] < 0.5
        assert one["faster"] / one["faster_by_the_clock"] == pytest.approx(1, abs=0.01)
    for task in record.values():  # at 128 tokens too, of every model in every form
        for one in task["bench"]["measurements"]:
            assert one["p50"] / one["cpu_p50"] == pytest.approx(1, abs=0.01)
    sst2 = {
        (one["model"], one["backend"], one["form"][:4]): one["score"]
        for one in record["sst2"]["bench"]["measurements"]
    }
    teacher = sst2["sst2-teacher", "torch", "fp32"]
    for method in ("kd", "rail-kd-l"):
        assert sst2[f"sst2-{method}-3l", "onnxruntime", "int8"] / teacher >= 0.98


def test_the_record_of_shipping_reads_as_it_was_written(benchmarks):
    shipping = benchmarks("shipping")
    record = shipping.read_record()
    assert json.loads(shipping.written(record)) == record
    assert shipping.rounded({"a": [1.234567, 12]}) == {"a": [1.2346, 12]}


def test_the_table_of_predictions(benchmarks):
    """The page prints the record, whose ratios are of the seconds in it."""
    speed = benchmarks("predict_speed")
    record = json.loads(speed.RECORD.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")
    assert "\n".join(speed.table(record)) in page
    ways = record["ways"]
    seconds = [ways[name]["seconds"] for name in (speed.PIPELINE, speed.TORCH)]
    turns = sorted(theirs / ours for theirs, ours in zip(*seconds, strict=True))
    middle = f"{turns[len(turns) // 2]:.1f}"
    rate = f"{record['rows'] / sorted(seconds[1])[len(turns) // 2]:.0f}"
    assert f"| {speed.TORCH} | {rate} | {middle} |" in page


def test_the_table_of_sizes(benchmarks):
    """The page prints the rates of other records; two of them again, by hand."""
    sizes = benchmarks("past_one_machine")
    page = (ROOT / "docs" / "past-one-machine.md").read_text(encoding="utf-8")
    assert "\n".join(sizes.table()) in page
    rows = json.loads((RECORDS / "many_rows.json").read_text())
    rate = rows["rows"] / rows["reading_seconds"]
    assert f"| {1e9 / rate / 60:.1f} minutes |" in page
    speed = json.loads((RECORDS / "predict_speed.json").read_text())
    rate = speed["ways"]["limbeck, torch"]["rows_per_second"]
    assert f"| {1e9 / rate / 86_400:.0f} days |" in page
    assert [sizes.said(seconds) for seconds in (0.58, 59, 61, 3_700, 90_000_000)] == [
        "0.6 seconds", "59 seconds", "1.0 minutes", "1.0 hours", "1,000 days",
    ]  # fmt: skip
