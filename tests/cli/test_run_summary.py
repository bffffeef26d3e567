"""The last lines of a run: right for every sort of run, no more than eight, and a next step that can be run."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from limbeck.cli.app import app
from limbeck.cli.finished import after_labelling, next_step, show_result
from limbeck.records.facts import (
    Best,
    ClassFacts,
    Examples,
    KeptFacts,
    Latency,
    OutputsFacts,
    TeamFacts,
    TeamMember,
)
from limbeck.run.distill import Result
from synthetic_records import a_run, a_teacher

KEPT = KeptFacts(share=0.9, low=0.85, high=0.934, rows=408)


def lines(record, path, capsys) -> list[str]:
    student = path / "student"
    student.mkdir(parents=True)
    (student / "model.safetensors").write_bytes(bytes(1_500_000))
    (path / "report.html").write_text("")
    show_result(Result(path, record))
    return capsys.readouterr().out.splitlines()


def test_a_student_and_its_teacher(tmp_path, capsys):
    teacher = a_teacher().model_copy(
        update={"latency_ms": Latency(median=20.0, spread=1.0, tokens=53, threads=1)}
    )
    record = a_run("kd", 1, 81.0, teacher=teacher, kept=KEPT, best=Best(epoch=2, primary=81.0))
    record.student.latency_ms = Latency(median=5.0, spread=0.1, tokens=53, threads=1)
    record.last = Best(epoch=3, primary=80.5)
    run = tmp_path / "my runs" / "kd"
    share = 100 * record.student.parameters / teacher.parameters
    said = lines(record, run, capsys)
    assert said == [
        "Score:   dev accuracy 81.0, f1 81.0 (best epoch, 2 of 3; the last has 80.5); teacher 90.0: 90.0 % kept "
        "(95 % interval 85.0 to 93.4, bootstrap over 408 dev rows)",
        f"Size:    1.5 MB, {share:.0f} % of the teacher's",
        "Speed:   4.0 × the teacher's (torch, batch 1, 53 tokens, 1 thread, timed in turns)",
        f"Files:   {run}/student (the student), {run}/report.html (the report)",
        f"Next:    limbeck export '{run}' --format onnx-int8",
    ]


def complete(**own):
    """A fine-tuned model with all layers of its encoder."""
    record = a_run("finetune", 1, 81.0, **own)
    record.recipe["student"]["layers"] = None
    return record


def test_a_model_of_some_layers_is_a_student_and_is_exported(tmp_path):
    assert next_step(a_run("finetune", 1, 81.0, layers=3), tmp_path / "run") == (
        f"limbeck export {tmp_path}/run --format onnx-int8"
    )


def test_a_static_student_is_exported_for_numpy(tmp_path):
    record = a_run("kd", 1, 81.0, teacher=a_teacher())
    record.recipe["student"]["static"] = True
    assert next_step(record, tmp_path / "run") == f"limbeck export {tmp_path}/run --format numpy"


def test_the_score_on_test_rows_names_their_number(tmp_path, capsys):
    record = a_run("kd", 1, 81.0, teacher=a_teacher())
    record.scores["test"] = {"accuracy": 76.5, "primary": 76.5}
    record.examples = record.examples.model_copy(update={"test": 1200})
    assert lines(record, tmp_path / "run", capsys)[1] == "Score:   test accuracy 76.5 (1,200 rows)"


def test_a_terminal_gets_whole_words_and_a_command_that_can_be_pasted(monkeypatch):
    """Lines of 80 columns; what the shell reads of the last ones is the command."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("limbeck.cli.console.output", lambda: console)
    record = complete(layers=6, data="/data/a file.csv", best=Best(epoch=2, primary=81.0))
    record.last = Best(epoch=3, primary=80.5)
    record.recipe |= {"text_columns": ["subject", "body"], "label_column": "queue"}
    run = Path("runs/questions")
    show_result(Result(run, record))
    said = terminal.getvalue()
    command = said[said.index("Next:") + len("Next:") :]
    assert command.count("\\\n") > 0
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(next_step(record, run))
    assert all(len(line) <= 80 for line in said.splitlines())
    words = " ".join(said.replace("\\\n", " ").split())
    assert "(best epoch, 2 of 3; the last has 80.5)" in words and "a file.csv" in words


def test_as_long_as_it_gets(tmp_path, capsys):
    rows = Examples(labelled=10, unlabelled=90)
    record = a_run(
        "kd", 1, 81.0, teacher=a_teacher(), kept=KEPT, examples=rows, best=Best(epoch=1, primary=1),
        last=Best(epoch=1, primary=1),
    )  # fmt: skip
    record.scores["dev_mismatched"] = {"accuracy": 80.0, "primary": 80.0}
    said = lines(record, tmp_path / "run", capsys)
    assert len(said) <= 8
    assert said[1] == "Score:   dev_mismatched accuracy 80.0"


def test_several_teachers_are_named(tmp_path, capsys):
    members = [TeamMember(name="large", path="runs/large"), TeamMember(name="small", path="b")]
    record = a_run("skd-uniform", 1, 81.0, teacher=a_teacher(path="runs/large"))
    record.team = TeamFacts(use="sample", members=members)
    said = lines(record, tmp_path / "run", capsys)
    assert "; best teacher of 2 (large) 90.0: 90.0 % kept" in said[0]


def test_a_teacher_of_stored_outputs_has_no_size_and_no_speed(tmp_path, capsys):
    record = a_run("kd-soft", 1, 81.0)
    record.teacher = None
    record.outputs = [
        OutputsFacts(name="teacher", path="s", what="logits", scores={"dev": {"primary": 90.0}})
    ]
    record.kept = KEPT.model_copy(update={"paired": False})
    said = lines(record, tmp_path / "run", capsys)
    assert "; teacher 90.0: 90.0 % kept (95 % interval" in said[0]
    assert said[0].endswith("408 dev rows, the teacher's score taken as exact)")
    assert said[1] == "Size:    1.5 MB"


def test_without_a_teacher_the_next_step_is_to_distil(tmp_path, capsys):
    record = complete(layers=6)
    record.teacher = None
    record.recipe |= {"text_columns": ["subject", "body"], "label_column": "queue"}
    said = lines(record, tmp_path / "run", capsys)
    assert said[0] == "Score:   dev accuracy 81.0, f1 81.0"
    assert f"{tmp_path}/run/student (the model)" in said[2]
    assert not any("(the student)" in line for line in said)
    assert said[-1] == (
        f"Next:    limbeck distill --method kd --teacher {tmp_path}/run --layers 3 --task rte --data "
        f"{record.data} --text-columns subject body --label-column queue --max-length 64"
    )


def test_the_next_step_has_all_settings_of_the_rows(tmp_path):
    """Those that are not the usual ones; what a run was trained by is its own."""
    record = complete(layers=6)
    record.recipe |= {
        "kind": "pair-score", "max_length": 32, "batch_size": 12, "candidates": 4, "dev": "a b.tsv", "lr": 0.1,
        "thresholds": "by_class", "unlabelled": ["x.txt", "y.txt"], "plugins": ["own.py"],
        "seed": 3, "stratified": False, "images": None,
    }  # fmt: skip
    said = next_step(record, tmp_path / "run")
    assert said == (
        f"limbeck distill --method listwise-kl --teacher {tmp_path}/run --layers 3 --task rte --data {record.data} "
        "--dev 'a b.tsv' --kind pair-score --max-length 32 'thresholds=\"by_class\"' --unlabelled x.txt y.txt "
        "--batch-size 12 candidates=4 --plugin own.py"
    )
    assert_understood(said)


class Store(SimpleNamespace):
    """As far as it is asked."""

    def __init__(
        self, kind: str = "sentence", outputs: str = "logits", source: tuple[str, ...] = ()
    ) -> None:
        files, rows = SimpleNamespace(url="s t"), SimpleNamespace(source=source)
        manifest, columns = SimpleNamespace(rows=rows), [SimpleNamespace(name=outputs)]
        super().__init__(kind=kind, files=files, manifest=manifest, columns=columns, rows=2000)

    def __len__(self) -> int:
        return int(self.rows)


def test_a_store_teaches_where_all_is_known(tmp_path):
    record = complete(layers=6, data=str(tmp_path / "rows"))
    record.recipe |= {"max_length": 32}
    run = tmp_path / "run"
    record.save(run)
    said = after_labelling(Store(), [str(run)], str(tmp_path / "rows"))
    assert said == (
        f"limbeck distill --method kd --teacher {run} --outputs 's t' --layers 3 --task rte "
        f"--data {tmp_path}/rows --max-length 32"
    )
    assert_understood(said)
    looked = "limbeck outputs show 's t'"
    for store, teachers, data in (
        (Store(), [str(run)], "other"),
        (Store(), [str(run), str(run)], str(tmp_path / "rows")),
        (Store(), ["a/checkpoint"], str(tmp_path / "rows")),
        (Store(), [], None),
        (Store(outputs="hidden-main-4"), [str(run)], str(tmp_path / "rows")),
        (Store("text"), [str(run)], str(tmp_path / "rows")),
    ):
        assert after_labelling(store, teachers, data) == looked
    assert_understood(looked)


def test_a_table_of_labels_teaches_a_student():
    store = Store()
    store.classes = ("bad", "good")
    store.manifest.rows = SimpleNamespace(columns=("a b", "c"))
    said = after_labelling(store, ["a/model"], "rows.csv", "my labels.csv")
    assert said == (
        "limbeck distill --method kd-soft --data 'my labels.csv' --text-columns 'a b' c --label-column label "
        "--outputs 's t' --student ENCODER --layers 3 --quality best"
    )
    assert_understood(said)
    store.rows = 100_000  # whose usual epochs are long
    assert after_labelling(store, ["a/model"], "rows.csv", "l.csv").endswith("--layers 3")
    store.classes = ()  # a table of numbers
    assert after_labelling(store, ["a/model"], "rows.csv", "l.csv").startswith("limbeck outputs")


def test_a_store_beside_more_rows_without_labels_is_looked_at(tmp_path):
    record = complete(layers=6, data=str(tmp_path / "rows"))
    record.recipe |= {"unlabelled": [str(tmp_path / "*.txt")]}
    record.save(tmp_path / "run")
    said = after_labelling(Store(), [str(tmp_path / "run")], str(tmp_path / "rows"))
    assert said == "limbeck outputs show 's t'"


def test_a_teacher_with_no_correlation_keeps_nothing(tmp_path, capsys):
    record = a_run("kd", 1, 5.0, teacher=a_teacher(0.0))
    assert lines(record, tmp_path / "run", capsys)[0].endswith("; teacher 0.0")


@pytest.mark.parametrize("method", ["kd", "finetune"])
def test_the_next_step_is_a_line_that_is_understood(method, tmp_path):
    record = a_run(method, 1, 81.0, layers=4)
    assert_understood(next_step(record, tmp_path / "a run"))


def assert_understood(line: str) -> None:
    import typer.main

    words = shlex.split(line)
    command = typer.main.get_command(app).commands[words[1]]
    command.make_context(words[1], words[2:])  # raises for what it does not know


def facts(rows: dict[str, int], answers: dict[str, int], right: dict[str, int]) -> list[ClassFacts]:
    return [
        ClassFacts(
            name=name,
            rows=rows[name],
            recall=100 * right.get(name, 0) / rows[name],
            precision=100 * right.get(name, 0) / answers[name] if name in answers else None,
        )
        for name in rows
    ]


@pytest.mark.parametrize(
    ("settings", "advised"),
    [
        ({"epochs": 3.0, "lr": 5e-5, "max_steps": None}, "--epochs 6 --lr 0.0001"),
        ({"epochs": 3.0, "lr": 1e-3, "max_steps": 40}, "--max-steps 80 --lr 0.0005"),
        ({"epochs": 1.0, "lr": 1.0, "max_steps": None}, "--epochs 2 --lr 0.001"),
        ({"epochs": 1.0, "lr": 0.1, "optimizer": "sgd"}, "--epochs 2 --lr 0.05"),
    ],
)
@pytest.mark.parametrize("method", ["kd", "finetune"])
def test_a_constant_student_is_not_exported(method, settings, advised, tmp_path, capsys):
    classes = facts({"no": 30, "yes": 70}, {"yes": 100}, {"yes": 70})
    record = a_run(method, 1, 70.0, teacher=a_teacher(), classes=classes)
    record.recipe |= settings
    warned, said = lines(record, tmp_path / "run", capsys)[-2:]
    assert warned.startswith("Warning:") and "predicts 'yes' for every dev row" in warned
    command = next_step(record, tmp_path / "run")
    assert said == f"Next:    {command}"
    assert command == (
        f"limbeck distill {tmp_path}/run/recipe.yaml {advised} --out {tmp_path}/run-longer"
    )
    assert_understood(command)
    record.data = "given:rows@1"
    assert lines(record, tmp_path / "other", capsys)[-1].endswith("another rate or on more rows")


@pytest.mark.parametrize(
    "classes",
    [
        facts({"no": 30, "yes": 70}, {"yes": 99, "no": 1}, {"yes": 70, "no": 1}),
        facts({"no": 30, "yes": 70}, {"yes": 99}, {"yes": 69}),  # one row as a third class
        facts({"yes": 70}, {"yes": 70}, {"yes": 70}),
        [],
    ],
)
def test_a_student_that_tells_rows_apart_is(classes, tmp_path):
    record = a_run("kd", 1, 70.0, teacher=a_teacher(), classes=classes)
    assert next_step(record, tmp_path).startswith("limbeck export")


def test_no_advice_that_cannot_be_followed(tmp_path):
    assert next_step(complete(layers=1), tmp_path) is None
    assert next_step(complete(data="given:rows@1"), tmp_path) is None


def test_a_store_of_other_columns_is_looked_at(tmp_path):
    """Pairs in another order are other rows."""
    record = complete(layers=6, data=str(tmp_path / "rows"))
    record.recipe |= {"text_columns": ["a", "b"]}
    record.save(tmp_path / "run")
    store, found = Store(), []
    for columns in (("a", "b"), ("b", "a"), ("a",)):
        store.manifest.rows = SimpleNamespace(columns=columns)
        found.append(after_labelling(store, [str(tmp_path / "run")], str(tmp_path / "rows")))
    assert "--text-columns a b" in found[0]
    assert found[1:] == ["limbeck outputs show 's t'"] * 2
