"""Bad input: each ends in a clear message and a non-zero exit, without a traceback or leftovers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from limbeck.cli import console
from limbeck.cli.app import SETTINGS, app
from limbeck.recipe.catalog import names

QUICK = "max_steps=1"  # should a mistake ever be missed, the test still ends soon


@pytest.fixture(autouse=True)
def _leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.setenv(name, "")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "run"


def refuse(*arguments: object) -> Result:
    """Run a command that must end with a message."""
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == 2, ended.output
    assert "error: " in ended.stderr
    assert "fix: " in ended.stderr
    assert "Traceback" not in ended.output
    return ended


def glue_folder(folder: Path, damaged: str) -> Path:
    """A GLUE folder with a small MRPC whose fourth training line is given."""
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    good = ["1\t1\t2\tThe cat sat .\tA cat sat .", "0\t3\t4\tIt rains .\tThe sun is out ."]
    (folder / "MRPC").mkdir(parents=True)
    for name, lines in (("train", [*good, damaged, *good]), ("dev", good)):
        text = "\n".join([header, *lines]) + "\n"
        (folder / "MRPC" / f"{name}.tsv").write_text(text, encoding="utf-8")
    return folder


def test_a_missing_data_folder(tmp_path: Path, out: Path) -> None:
    missing = tmp_path / "no-such-glue"
    line = ["finetune", "--model", "pocket", "--task", "mrpc", QUICK]
    ended = refuse(*line, "--data", missing, "--out", out)
    assert str(missing) in ended.stderr
    assert not out.parent.exists()


@pytest.mark.parametrize("command", ["finetune --model pocket", "distill kd --teacher pocket"])
def test_every_file_that_is_not_there_is_named_whatever_the_task(
    tmp_path: Path, out: Path, command: str
) -> None:
    """Not that a task is missing, which is called after a file of one's own."""
    for name in ("reviews.csv", "dev.csv", "more.txt"):
        (tmp_path / name).write_text("text,label\n")
    wrong = {name: tmp_path / name for name in ("review.csv", "dv.csv", "mor.txt")}
    data, dev, more = wrong.values()
    ended = refuse(
        *command.split(), "--data", data, "--dev", dev, f"unlabelled={more}", "--out", out
    )
    assert "3 things to fix" in ended.stderr and "task" not in ended.stderr
    for name in ("reviews.csv", "dev.csv", "more.txt"):
        assert re.search(f"did you mean .*{tmp_path / name}.*check", ended.stderr)


def test_columns_are_asked_for_by_the_files_own(tmp_path: Path, out: Path) -> None:
    (tmp_path / "reviews.csv").write_text("id,review,stars\n1,a film,2\n")
    ended = refuse(
        "finetune", "--model", "pocket", "--data", tmp_path / "reviews.csv", "--out", out
    )
    assert "columns of reviews.csv: id, review, stars" in ended.stderr
    assert "unknown task" not in ended.stderr


def test_without_a_method_a_few_to_start_with_are_named() -> None:
    """Not all of them."""
    for line in (
        ["distill", "--layers", "2"],
        ["distill", "--method", "rail", "--data", "x.csv"],
    ):
        said = refuse(*line).stderr
        assert "start with kd (" in said and "`limbeck methods` lists all" in said
        assert sum(f" {name} " in said or f" {name}," in said for name in names()) < 9


def test_rows_without_a_teacher_miss_the_teacher() -> None:
    """Which defines the method."""
    said = refuse("distill", "--data", "x.csv").stderr
    assert "teacher: none is given" in said and "add --teacher FOLDER" in said
    assert "method: none" in refuse("distill", "--data", "x.csv", "--outputs", "store").stderr


def test_a_folder_without_rows_is_named(tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "rows.csv").write_text("text,label\n")
    for task in ([], ["--task", "mine"]):
        ended = refuse("finetune", "--model", "pocket", "--data", folder, *task, "--out", out)
        assert "has no train file; it holds rows.csv" in ended.stderr


def test_a_missing_teacher(tmp_path: Path, out: Path) -> None:
    missing = tmp_path / "no-such-teacher"
    line = ["distill", "kd", "--task", "rte", "--data", "pocket", QUICK]
    ended = refuse(*line, "--teacher", missing, "--out", out)
    assert str(missing) in ended.stderr
    assert not out.parent.exists()


def test_a_missing_model(tmp_path: Path, out: Path) -> None:
    missing = tmp_path / "no-such-model"
    line = ["finetune", "--task", "rte", "--data", "pocket", QUICK]
    ended = refuse(*line, "--model", missing, "--out", out)
    assert str(missing) in ended.stderr
    assert not out.parent.exists()


def test_a_missing_recipe_file(out: Path) -> None:
    assert "no-such.yaml" in refuse("distill", "no-such.yaml", "--out", out).stderr
    assert not out.parent.exists()


def test_a_missing_run(tmp_path: Path) -> None:
    missing = tmp_path / "no-such-run"
    assert str(missing) in refuse("evaluate", missing).stderr
    assert str(missing) in refuse("table", missing).stderr


def test_an_unknown_task(out: Path) -> None:
    line = ["finetune", "--model", "pocket", "--data", "pocket", "--task", "mrcp", QUICK]
    ended = refuse(*line, "--out", out)
    assert "unknown task 'mrcp'" in ended.stderr
    assert "did you mean 'mrpc'?" in ended.stderr
    assert not out.parent.exists()


@pytest.mark.parametrize("line", [["distill", "--method", "rail-kd"], ["methods", "rail-kd"]])
def test_an_unknown_method(line: list[str]) -> None:
    ended = refuse(*line)
    assert "unknown method 'rail-kd'" in ended.stderr
    assert "rail-kd-l" in ended.stderr


def test_an_unknown_key(out: Path) -> None:
    ended = refuse("distill", "kd", "--task", "rte", "epoch=3", "--out", out)
    assert "unknown key 'epoch'" in ended.stderr
    assert "did you mean 'epochs'?" in ended.stderr
    assert not out.parent.exists()


def test_an_unknown_profile_baseline_or_format(tmp_path: Path) -> None:
    # Each is refused before any record is looked for, or because there is none.
    refuse("table", tmp_path, "--profile", "rial")


@pytest.mark.parametrize(
    "damaged",
    ["1\t5\t6\tonly one sentence", "maybe\t5\t6\tThe cat sat .\tA cat sat ."],
    ids=["column missing", "label unknown"],
)
def test_a_corrupt_tsv_line(tmp_path: Path, out: Path, damaged: str) -> None:
    folder = glue_folder(tmp_path / "glue", damaged)
    line = ["finetune", "--model", "pocket", "--task", "mrpc", QUICK]
    ended = refuse(*line, "--data", folder, "--out", out)
    assert "train.tsv" in ended.stderr
    assert "line 4" in ended.stderr
    assert not out.parent.exists()


def test_a_recipe_with_three_mistakes(tmp_path: Path, out: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("method: kd\ntask: mrcp\nepochs: -1\nlearning_rate: 0.1\n")
    ended = refuse("distill", recipe, "--out", out)
    assert "3 things to fix" in ended.stderr
    for mistake in ("'mrcp'", "epochs", "'learning_rate'"):
        assert mistake in ended.stderr
    assert not out.parent.exists()


def test_a_recipe_that_is_no_yaml(tmp_path: Path, out: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("method: [kd\n")
    assert "mine.yaml" in refuse("distill", recipe, "--out", out).stderr


def test_an_out_folder_that_cannot_be_made(tmp_path: Path) -> None:
    # A file in its place refuses every user, root included.
    file = tmp_path / "file"
    file.write_text("mine")
    line = ["finetune", "--model", "pocket", "--task", "rte", "--data", "pocket", QUICK]
    ended = refuse(*line, "--out", file / "run")
    assert str(file) in ended.stderr
    assert file.read_text() == "mine"


def test_an_out_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    line = ["finetune", "--model", "pocket", "--task", "rte", "--data", "pocket", QUICK]
    assert str(tmp_path) in refuse(*line, "--out", tmp_path).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_process_ends_with_the_code_and_without_a_traceback(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "limbeck", "distill", "kd", "--layers", "2", "student.layers=3"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[1].startswith("error: --layers 2 and student.layers=3 disagree")
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_every_process_is_printed_by_the_first(tmp_path: Path) -> None:
    """The test ends the other process when the first has ended, as launchers do."""
    command = [sys.executable, "-m", "limbeck", "table", str(tmp_path / "nowhere")]
    other, first = (
        subprocess.Popen(
            command, env=os.environ | {"RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in ("1", "0")
    )
    assert first.communicate(timeout=60)[1].count("error: ") == 1
    other.terminate()
    assert other.communicate(timeout=60)[1] == ""
    assert first.returncode == 2


def test_an_error_of_another_process_alone_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(console.time, "sleep", waited.append)
    assert "process" not in refuse("table", "nowhere").stderr
    assert waited == []
    monkeypatch.setenv("RANK", "3")
    assert refuse("table", "nowhere").stderr.startswith("process 3:\nerror: ")
    assert waited[0] > 1
