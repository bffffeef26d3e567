"""The commands of docs/cli.md do what the page says, as they are printed, on files of the names it gives them."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.data import Labelling, load_task
from limbeck.recipe import Recipe

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
# What needs the Hub (named shapes, and the team made of them), a language model, a tokenizer by pieces, a bucket, runs
# of all tasks, or minutes.
NEEDS_MORE = (
    "quickstart",
    "bert-8-128-2",
    "runs/team",
    "causal-lm",
    "limbeck shrink",
    "limbeck compress",
    "s3://bucket",
    "limbeck study",
    "limbeck submit",
)
# Seconds each: a graph is traced, and what is timed is loaded in processes of its own.
SLOW = ("limbeck export", "--backend onnxruntime", "limbeck bench")


def commands() -> list[str]:
    fences = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for fence in fences for line in fence.splitlines() if line.strip()]
    runnable = [line for line in lines if not any(word in line for word in NEEDS_MORE)]
    # A table needs all runs.
    return sorted(runnable, key=lambda line: line.startswith("limbeck table"))


def knowing_model():
    """Right about praise, with room for 128 tokens, its outputs without names."""
    right = tiny.knowing_teacher(6)
    model = tiny.bert(6, max_position_embeddings=128, id2label={0: "LABEL_0", 1: "LABEL_1"})
    state = right.state_dict()
    places = "bert.embeddings.position_embeddings.weight"
    state[places] = torch.cat([state[places], torch.zeros(104, tiny.WIDTH)])
    model.load_state_dict(state)
    return model


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr(logging.getLogger("limbeck"), "handlers", [])
    tiny.save(knowing_model(), tmp_path / "DIR")
    texts = tiny.sentences(40)
    for name in ("MRPC", "PAWS"):
        (tmp_path / "glue" / name).mkdir(parents=True)
    for split, part in (("train", slice(0, 24)), ("dev", slice(24, 40)), ("test", slice(24, 40))):
        rows = [(1 - n % 2, n, texts[n]) for n in range(40)[part]]
        mrpc = [f"{label}\t{n}\t{n}\t{text}\tthe end" for label, n, text in rows]
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        (tmp_path / "glue" / "MRPC" / f"{split}.tsv").write_text("\n".join([head, *mrpc]) + "\n")
        paws = [f"{n}\t{text}\tthe end\t{label}" for label, n, text in rows]
        head = "id\tsentence1\tsentence2\tlabel"
        (tmp_path / "glue" / "PAWS" / f"{split}.tsv").write_text("\n".join([head, *paws]) + "\n")
    tickets = [f"{text},the end,{1 - n % 2}" for n, text in enumerate(texts)]
    (tmp_path / "tickets.csv").write_text("\n".join(["subject,body,queue", *tickets]) + "\n")
    reviews = [f"{text},the end" for text in texts[:8]]
    (tmp_path / "reviews.csv").write_text("\n".join(["sentence1,sentence2", *reviews]) + "\n")
    (tmp_path / "mine.yaml").write_text(
        "method: kd\nteacher: runs/teacher\ntask: mrpc\ndata: glue\nstudent: {layers: 2}\n"
    )
    return tmp_path


def run(line: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line, comments=True)[1:])


@pytest.mark.slow
@pytest.mark.parametrize("exports", [False, True])
def test_every_command_of_the_page_that_can_run_runs(place, exports):
    lines = [line for line in commands() if exports or not any(word in line for word in SLOW)]
    assert len(lines) >= (18 if exports else 15)
    for line in lines:
        ended = run(line)
        assert ended.exit_code == 0, f"{line}\n{ended.output}"
    assert (place / "runs" / "tickets" / "student").is_dir()
    assert "kd" in (place / "table.md").read_text()


def test_the_last_lines_say_what_the_student_came_to(place):
    teacher = "limbeck finetune --model DIR --data tickets.csv --text-columns subject body"
    ended = run(f"{teacher} --label-column queue --max-steps 1 --out T")
    assert ended.exit_code == 0, ended.output
    line = "limbeck distill --method kd --teacher T --layers 3 --data tickets.csv --out S"
    ended = run(f"{line} --text-columns subject body --label-column queue --max-steps 4")
    assert ended.exit_code == 0, ended.output
    record = json.loads((place / "S" / "record.json").read_text())
    own, theirs = record["scores"]["dev"]["primary"], record["teacher"]["scores"]["dev"]["primary"]
    size = (place / "S" / "student" / "model.safetensors").stat().st_size / 1e6
    faster = record["teacher"]["latency_ms"]["median"] / record["student"]["latency_ms"]["median"]
    said = ended.stdout.splitlines()
    kept, share = record["kept"], record["student"]["parameters"] / record["teacher"]["parameters"]
    assert (kept["paired"], kept["method"]) == (True, "score")  # four dev rows
    score, floor, size_said, speed, files, command = said[-6:]
    assert floor.startswith("Floor:   dev ")
    assert f"accuracy {own:.1f}" in score and score.startswith("Score:   dev ")
    assert score.endswith(
        f"; teacher {theirs:.1f}: {100 * own / theirs:.1f} % kept (95 % interval "
        f"{100 * kept['low']:.1f} to {100 * kept['high']:.1f}, score interval over {kept['rows']} dev rows)"
    )
    assert size_said == f"Size:    {size:.1f} MB, {100 * share:.0f} % of the teacher's"
    assert speed.startswith(f"Speed:   {faster:.1f} × the teacher's (torch, ")
    assert files == "Files:   S/student (the student), S/report.html (the report)"
    assert (place / "S" / "report.html").is_file()
    assert command == "Next:    limbeck export S --format onnx-int8"
    # Steps were asked for, not epochs.
    assert "step 4/4" in ended.output and not re.search(r"epoch [\d.]+/", ended.output)
    # A user's own rows follow no profile of GLUE.
    page = (place / "S" / "report.html").read_text("utf-8")
    assert "rofile" not in page
    table = run("limbeck table T S")
    assert "rofile" not in table.output and "average" not in table.output


# ---- parts ----


def test_own_data_are_called_as_their_file(place):
    columns = {"text_columns": ["subject"], "label_column": "queue"}
    assert Recipe.load("finetune", data="tickets.csv", **columns).task == "tickets"
    named = Recipe.load("finetune", data="tickets.csv", task="mine", **columns)
    assert named.task == "mine"
    (place / "tickets.csv").rename(place / "imdb.csv")
    # A known task's name would bring its columns and classes.
    assert Recipe.load("finetune", data="imdb.csv", **columns).task == "own-imdb"
    assert Recipe.load("finetune", data="glue").task is None


@pytest.mark.parametrize("command", ["finetune", "distill"])
def test_the_help_has_every_default_and_flag_of_training(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")
    said = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
    for flag in ("--patience", "--warmup", "--accumulation"):
        assert flag in said
    for default in ("batch_size 32", "warmup 0.1", "seed 42"):
        key, value = default.split()
        assert Recipe.model_fields[key].default == float(value)
        assert re.search(rf"--{key.replace('_', '-')} .{{0,200}}?\[default: {value}\]", said)


def test_a_checkpoint_of_anybodys_is_scored(place):
    model = knowing_model().eval()
    words = tiny.tokenizer()
    _, splits = load_task("mrpc", "glue", labelling=Labelling())
    dev = splits["dev"]
    batch = words(dev["sentence1"][:], dev["sentence2"][:], padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        right = model(**batch).logits.argmax(1).tolist() == dev["label"][:]
    ended = run("limbeck evaluate DIR --task mrpc --data glue")
    assert ended.exit_code == 0, ended.output
    assert right and "accuracy 100.0" in ended.output
    own = "--data tickets.csv --text-columns subject body --label-column queue"
    assert "accuracy 100.0" in run(f"limbeck evaluate DIR {own}").output
    assert not (place / "DIR" / "record.json").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DIR", "does not name rows to score it on"),
        ("DIR --task stsb --data glue", "stsb"),
        ("swapped --task mrpc --data glue", "in another order than the data's"),
        ("no/such/folder --task mrpc --data glue", "no such folder"),
    ],
)
def test_what_cannot_be_scored_is_refused(place, line, message):
    other = knowing_model()
    with torch.no_grad():
        other.classifier.weight.copy_(other.classifier.weight.flip(0))
    tiny.save(other, place / "swapped")
    ended = run(f"limbeck evaluate {line}")
    assert ended.exit_code == 2
    assert message in " ".join(ended.output.split())
