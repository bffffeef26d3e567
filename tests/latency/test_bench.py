"""Models timed in turns: who takes part, what is fed, what is said of the times, and where it is kept."""

from __future__ import annotations

import io
import json
import os
import re
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from rich.console import Console
from transformers import BertConfig, RobertaConfig, RobertaForSequenceClassification

import tiny_runs as tiny
from limbeck.latency import benching, worker
from limbeck.latency.benching import bench
from limbeck.latency.contenders import Contender, contenders
from limbeck.latency.report import (
    BenchCondition,
    BenchReport,
    Measurement,
    as_markdown,
    as_tables,
    keep_in_records,
)
from limbeck.latency.settings import BenchSettings
from limbeck.records import Record
from limbeck.records.facts import BenchFacts, BenchRow
from limbeck.report.sections import bench_section
from limbeck.runtimes.manifest import Conversion, ExportManifest, GateMeasure, GateRowsFacts
from limbeck.support.errors import LimbeckError
from limbeck.tables import build_table
from synthetic_records import a_run, a_teacher

SETTINGS = BenchSettings(lengths=(4, 8), passes=10, warm_up=2)


def exported(folder, name: str, score: float, repeats: int) -> str:
    """An exported folder whose model counts tokens, `repeats` times over, so that more take longer."""
    folder = folder / name
    folder.mkdir(parents=True)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    nodes = [helper.make_node("Cast", ["input_ids"], ["x0"], to=TensorProto.FLOAT)]
    nodes += [helper.make_node("Sin", [f"x{at}"], [f"x{at + 1}"]) for at in range(repeats)]
    nodes.append(helper.make_node("ReduceSum", [f"x{repeats}", "axis"], ["logits"], keepdims=1))
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "count", [ids], [out], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    BertConfig(vocab_size=50, max_position_embeddings=16, type_vocab_size=2).save_pretrained(folder)
    ExportManifest(
        format="onnx", file="model.onnx", kind="sentence", architecture="Counter", source=name,
        inputs=["input_ids"], outputs=["logits"], conversion=Conversion(name="fp32"),
        gate=GateRowsFacts(task="t", data="d", split="dev", rows=1, fingerprint="same"),
        measured=GateMeasure(
            scores={"primary": score}, torch_scores={"primary": score}, drop=0.0
        ),
        max_drop=0.5,
    ).write(folder)  # fmt: skip
    return str(folder)


def test_a_bench_times_every_model_under_every_condition(tmp_path):
    quick = exported(tmp_path, "quick", 80.0, 1)
    slow = exported(tmp_path, "slow", 90.0, 400)
    report = bench([quick, slow], SETTINGS, out=tmp_path / "out")
    found = {(one.model, one.condition.length): one for one in report.measurements}
    assert found.keys() == {(name, length) for name in ("quick", "slow") for length in (4, 8)}
    for one in report.measurements:
        assert one.error == ""
        assert one.passes == 10
        assert 0 < one.p50 <= one.p90 <= one.p95
        assert one.load_seconds > 0
        assert one.rows_per_second > 0
        assert one.disk_mib > 0
    for length in (4, 8):
        assert found["quick", length].p50 < found["slow", length].p50
    # What the process holds beyond its libraries is little: it has imported neither torch nor more.
    if os.path.exists("/proc/self/smaps_rollup"):  # noqa: PTH110
        assert found["quick", 4].memory_mib < 150
    assert BenchReport.model_validate_json((tmp_path / "out" / "bench.json").read_text()) == report
    said = (tmp_path / "out" / "bench.md").read_text()
    assert "## batch 1, 8 tokens, 1 thread" in said
    assert report.identity in said


def test_every_round_begins_with_another_model(monkeypatch, tmp_path):
    """The order of the turns against one written down by hand; the first pass of a turn is not counted."""
    asked = []

    class Process:
        def __init__(self, threads) -> None:
            self.error = ""

        def ask(self, **request):
            if request["do"] == "open":
                self.name = request["path"].name
                return {"load_seconds": 1.0, "bytes_before": 0}
            asked.append((self.name[0], request["passes"]))
            times = [1000.0] + [1.0] * (request["passes"] - 1)
            cpu = [0.25 * one for one in times]
            held = {"anonymous_bytes": 2**20, "mapped_bytes": 2**21}
            return {"ms": times, "cpu_ms": cpu, **held}

        def close(self) -> None:
            asked.append((self.name[0], "closed"))

    monkeypatch.setattr(benching, "BenchProcess", Process)
    condition = BenchCondition(batch=2, length=4, threads=1)
    given = [
        benching.Turn(Contender(name, "torch", "fp32", tmp_path / name, None), condition, tmp_path)
        for name in "abc"
    ]
    found = benching.time_in_turns(
        given, passes=4, warm_up=7, step=lambda done: None, passes_a_turn=2
    )
    assert asked == [
        ("a", 7), ("b", 7), ("c", 7),
        ("a", 3), ("b", 3), ("c", 3),
        ("b", 3), ("c", 3), ("a", 3),
        ("a", "closed"), ("b", "closed"), ("c", "closed"),
    ]  # fmt: skip
    assert [one.p95 for one in found] == [1.0] * 3
    assert [one.rows_per_second for one in found] == [2000.0] * 3
    assert [(one.memory_mib, one.mapped_mib) for one in found] == [(1, 2)] * 3
    assert [one.cold_ms for one in found] == [1000.0] * 3
    assert [(one.cpu_p50, one.waited) for one in found] == [(0.25, 0.75)] * 3
    assert any("for up to 75 % of their time" in note for note in benching._notes(found))


@pytest.mark.slow
def test_a_model_that_fails_is_said_and_the_others_go_on(tmp_path):
    whole = exported(tmp_path, "whole", 80.0, 1)
    broken = exported(tmp_path, "broken", 80.0, 1)
    (tmp_path / "broken" / "model.onnx").write_bytes(b"no model")
    report = bench([broken, whole], BenchSettings(lengths=(4,), passes=5, warm_up=1))
    by_name = {one.model: one for one in report.measurements}
    assert "ONNX Runtime cannot open" in by_name["broken"].error
    assert by_name["broken"].p50 is None
    assert by_name["whole"].passes == 5
    assert any("cannot open" in note for note in report.notes)


def test_the_worker_runs_torch_models(tmp_path, monkeypatch):
    """In this process, where torch is already imported: request by request."""
    path = tiny.save(tiny.bert(1), tmp_path / "model")
    feed = {"input_ids": np.array([[2, 4, 3]]), "attention_mask": np.ones((1, 3), np.int64)}
    np.savez(tmp_path / "feed.npz", **feed)
    run = worker._torch(path, torch.get_num_threads())()
    with torch.no_grad():
        expected = tiny.bert(1).eval()(**{k: torch.from_numpy(v) for k, v in feed.items()}).logits
    torch.testing.assert_close(run(feed).logits, expected)
    requests = [
        {"do": "open", "backend": "torch", "path": str(path), "threads": torch.get_num_threads(),
         "cores": None},
        {"do": "run", "inputs": str(tmp_path / "feed.npz"), "passes": 3},
        {"do": "run", "inputs": str(tmp_path / "nothing.npz"), "passes": 3},
    ]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, requests))))
    opened, ran, failed = worker.replies(sys.stdin)
    assert opened["load_seconds"] > 0
    assert len(ran["ms"]) == len(ran["cpu_ms"]) == 3
    assert "nothing.npz" in failed["error"]


@pytest.mark.slow
def test_a_compiled_model_is_timed_beside_the_eager_one(tmp_path):
    """Compiling falls into the passes that do not count, for every length, and is said."""
    path = str(tiny.save(tiny.bert(2), tmp_path / "model"))
    settings = BenchSettings(lengths=(4, 8), backends=("torch", "compiled"), passes=10, warm_up=3)
    report = bench([path], settings)
    found = {(one.backend, one.condition.length): one for one in report.measurements}
    assert found.keys() == {(name, length) for name in ("torch", "compiled") for length in (4, 8)}
    for one in report.measurements:
        assert one.error == "" and one.passes == 10
        assert one.disk_mib > 0 and one.load_seconds > 0
    first = found["compiled", 4]
    assert first.cold_ms > 20 * first.p50
    assert first.cold_ms > found["torch", 4].cold_ms


def test_what_is_wrong_is_said_at_once(tmp_path):
    with pytest.raises(LimbeckError) as wrong:
        BenchSettings.checked({"lengths": [0], "passes": 1})
    assert len(wrong.value.problems) == 2
    model = exported(tmp_path, "one", 1.0, 1)
    with pytest.raises(LimbeckError, match="fewer cores"):
        bench([model], BenchSettings(threads=(4096,)))
    with pytest.raises(LimbeckError, match=r"'torhc'"):
        contenders([model], ["torhc"])
    with pytest.raises(LimbeckError, match="none of the models runs on torch"):
        contenders([model], ["onnxruntime", "torch"])
    with pytest.raises(LimbeckError, match="named twice"):
        contenders([model, model])
    with pytest.raises(LimbeckError, match=r"reads 16 tokens, not 17[\s\S]*--lengths 16"):
        bench([model], BenchSettings(lengths=(17,)))


def test_the_usual_lengths_end_with_the_models_positions(tmp_path):
    found = bench([exported(tmp_path, "one", 1.0, 1)], BenchSettings(passes=5, warm_up=1))
    assert {one.condition.length for one in found.measurements} == {16}


def test_positions_begin_behind_the_padding_as_roberta_counts_them(tmp_path):
    """Of 18 positions padding and what stands before it take two: Hugging Face reads 16 tokens, and not 17."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(vocab_size=20, max_position_embeddings=18, num_hidden_layers=1, **sizes)
    model = RobertaForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    report = bench([tmp_path], BenchSettings(passes=5, warm_up=1))
    assert {one.condition.length for one in report.measurements} == {16}
    with pytest.raises(LimbeckError, match="reads 16 tokens, not 17"):
        bench([tmp_path], BenchSettings(lengths=(17,)))


def test_scores_of_different_rows_are_not_compared():
    condition = BenchCondition(batch=1, length=4, threads=1)
    found = [
        Measurement(
            model=name, backend="torch", form="fp32", condition=condition, score=80.0, rows=name
        ).with_times([1.0, 2.0])
        for name in "ab"
    ]
    notes = benching._notes(found)
    assert any("different rows" in note for note in notes)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_table_fits_its_terminal_and_says_what_it_leaves_out(width):
    condition = BenchCondition(batch=1, length=128, threads=1)
    found = [
        Measurement(
            model="teacher", backend=backend, form=form, condition=condition, load_seconds=0.3,
            cold_ms=12345.6, memory_mib=93.0, mapped_mib=87.0, disk_mib=66.4, score=74.8,
        ).with_times([31.2, 35.0], [31.0, 31.0])
        for backend, form in (("torch", "fp32"), ("onnxruntime", "int8 dynamic, per channel, 7-bit weights"))
    ]  # fmt: skip
    report = BenchReport(identity="x", when="now", passes=2, measurements=found)
    console = Console(width=width, file=io.StringIO())
    (table,), left_out = as_tables(report, console)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    for word in ("teacher", "onnxruntime", "p50 ms", "disk MiB", "score"):
        assert any(word in line for line in lines), word
    assert (left_out == ()) == (width == 200)
    assert not any(column in "".join(lines) for column in left_out)
    assert "cold ms" in as_markdown(report) and "12346" in as_markdown(report)


@pytest.mark.drawn
def test_a_pages_drawing_is_wider_than_its_labels():
    """A form of many words has a line of its own; what is read aloud stays in one."""
    record = a_run("kd", 1, 70.0)
    shared = {
        "model": "student",
        "backend": "onnxruntime",
        "batch_size": 1,
        "tokens": 32,
        "threads": 1,
    }
    record.bench = BenchFacts(
        identity="x", when="now", waited=0.5,
        rows=[BenchRow(role="export", form=form, p50=at + 1.0, **shared)
              for at, form in enumerate(("fp32, fused", "int8 dynamic, per channel"))],
    )  # fmt: skip
    section = bench_section([record])
    (panel,) = section.drawings
    drawing = panel.svg
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawing)[1])
    ticks = [float(x) for x in re.findall(r'<text[^>]* x="([\d.]+)"[^>]*>[\d.]+<', drawing)]
    assert len(ticks) > 1 and min(ticks) < width / 2
    assert "student · onnxruntime · int8 dynamic, per channel 2.0" in drawing
    assert "waited for a core for up to 50 %" in section.lead


def test_percentiles_by_hand():
    condition = BenchCondition(batch=3, length=4, threads=1)
    one = Measurement(model="m", backend="torch", form="fp32", condition=condition)
    times = [float(number) for number in range(1, 102)]  # the p-th percentile of 1..101 is 1 + p
    timed = one.with_times(times)
    assert (timed.p50, timed.p90, timed.p95, timed.spread) == (51.0, 91.0, 96.0, 50.0)
    assert timed.rows_per_second == pytest.approx(3 * 101 / (sum(times) / 1000))


def runs_of(tmp_path) -> list[Contender]:
    """Two runs on disk and their teacher, as contenders."""
    found = []
    for name in ("kd", "finetune"):
        record = a_run(name, 1, 70.0, teacher=a_teacher(path=str(tmp_path / "teacher")))
        (tmp_path / name / "student").mkdir(parents=True)
        record.save(tmp_path / name)
        found.append(
            Contender(name, "torch", "fp32", tmp_path / name / "student", None, run=tmp_path / name)
        )
    (tmp_path / "teacher").mkdir()
    return [*found, Contender("teacher", "torch", "fp32", tmp_path / "teacher", None)]


def test_tables_show_one_benchs_times_and_say_so(tmp_path):
    who = runs_of(tmp_path)
    condition = BenchCondition(batch=1, length=26, threads=1)
    times = {"kd": 4.0, "finetune": 2.0, "teacher": 12.0}
    report = BenchReport(
        identity="abc", when="now", passes=3,
        measurements=[
            Measurement(model=one.model, backend="torch", form="fp32", condition=condition)
            .with_times([times[one.model]] * 3)
            for one in who
        ],
    )  # fmt: skip
    before = [Record.load(one.run) for one in who if one.run is not None]
    own = build_table(before, facts=["latency"])
    assert any("are not to be compared" in note for note in own.notes)
    assert keep_in_records(report, who) == [tmp_path / "kd", tmp_path / "finetune"]
    after = [Record.load(one.run) for one in who if one.run is not None]
    assert [one.student.latency_ms for one in after] == [one.student.latency_ms for one in before]
    table = build_table(after, facts=["latency", "speedup"])
    shown = {row.label: row.facts["latency"].value for row in table.rows}
    assert shown == times
    # Fine-tuning names no teacher to be faster than.
    assert {row.label: row.facts["speedup"].value for row in table.rows[1:]} == {
        "kd": 3.0, "finetune": None
    }  # fmt: skip
    assert any("One bench (abc) timed all of them in turns" in note for note in table.notes)
    # A run that took no part sends all back to what each run measured.
    mixed = build_table([*after, a_run("rail-kd-l", 1, 70.0)], facts=["latency"])
    assert any("are not to be compared" in note for note in mixed.notes)
    assert {row.facts["latency"].value for row in mixed.rows} == {5.0, 20.0}
