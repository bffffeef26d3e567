"""`limbeck label` hands everything on, and says size and time before the work and what it made after it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from limbeck.cli.app import app
from tiny_runs import knowing_teacher, save, sentences


def invoke(*arguments: object) -> Result:
    line = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, line, env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{number},{text}" for number, text in enumerate(sentences(20))]
    path.write_text("page,review\n" + "\n".join(lines) + "\n")
    return path


def test_a_file_is_labelled_and_continued(tmp_path, rows):
    teacher = save(knowing_teacher(), tmp_path / "runs" / "teacher")
    line = ["label", "--teacher", teacher, "--data", rows, "--text-columns", "review"]
    line += ["--out", tmp_path / "store", "--outputs", "probabilities", "hidden:-1:cls"]
    line += ["--shard-rows", 8, "--to", tmp_path / "labels.csv", "--with-text"]
    ended = invoke(*line)
    assert ended.exit_code == 0, ended.output
    assert "by one measured batch: about" in ended.stderr and "rows/s" in ended.stderr
    assert "outputs: probabilities, hidden-main-4-cls" in ended.stderr
    assert f"{tmp_path / 'store'}:" in ended.stdout and "KiB" in ended.stdout
    header, first, *_ = (tmp_path / "labels.csv").read_text().splitlines()
    assert header == '"review","label","confidence"'
    assert first.startswith(f'"{sentences(1)[0]}","positive",0.')
    refused = invoke(*line)
    assert refused.exit_code == 2 and "labels.csv exists" in refused.stderr
    (tmp_path / "labels.csv").unlink()
    again = invoke(*line)
    assert "rows are there" in again.stderr and "measured" not in again.stderr
    (tmp_path / "labels.csv").unlink()
    other = invoke(*line, "--precision", "bf16")
    assert other.exit_code == 2 and "other teacher precision: 'fp32' there" in other.stderr


def test_everything_that_is_typed_is_handed_on(monkeypatch, tmp_path):
    calls = []

    def label(*args, **kwargs):
        calls.append((args, kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr("limbeck.labelling.label_rows.label", label)
    words = (
        "label --teacher a b --data hub --task sst2 --unlabelled c.txt d.csv --text-columns x y --label-column z "
        "--out s3://bucket/store --to t.parquet --outputs logits --with-text --shard-rows 5 "
        "--batch-size 6 --max-length 7 --precision bf16 --missing-rows drop"
    )
    assert invoke(*words.split()).exit_code == 130
    ((args, kwargs),) = calls
    assert args == (["a", "b"], "hub")
    assert str(kwargs.pop("to")) == "t.parquet"
    assert kwargs == {
        "out": "s3://bucket/store",
        "task": "sst2",
        "unlabelled": ["c.txt", "d.csv"],
        "text_columns": ["x", "y"],
        "label_column": "z",
        "prompt": None,
        "endpoint": None,
        "outputs": ["logits"],
        "with_text": True,
        "shard_rows": 5,
        "batch_size": 6,
        "max_length": 7,
        "precision": "bf16",
        "missing_rows": "drop",
        "show": True,
    }


def test_an_endpoints_options_are_handed_on(monkeypatch):
    calls = []

    def label(*args, **kwargs):
        calls.append((args, kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr("limbeck.labelling.label_rows.label", label)
    words = (
        "label --data a.csv --out s --prompt p.yaml --endpoint http://here/v1 --model m --api-key-env K --mode votes "
        "--votes 3 --temperature 0.5 --top-logprobs 9 --concurrency 2 --rate 30 --price-in 1 "
        "--price-out 2 --max-cost 5 --timeout 7 --retries 1 --seed 8"
    )
    assert invoke(*words.split()).exit_code == 130
    ((args, kwargs),) = calls
    assert args == ((), "a.csv") and str(kwargs["prompt"]) == "p.yaml"
    assert kwargs["endpoint"].model_dump() == {
        "url": "http://here/v1",
        "model": "m",
        "api_key_env": "K",
        "mode": "votes",
        "votes": 3,
        "temperature": 0.5,
        "top_logprobs": 9,
        "concurrency": 2,
        "requests_per_minute": 30.0,
        "price_in": 1.0,
        "price_out": 2.0,
        "max_cost": 5.0,
        "timeout": 7.0,
        "retries": 1,
        "seed": 8,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--votes 3 --rate 9", ["requests_per_minute, votes: read with an endpoint only"]),
        ("--endpoint http://here/v1", ["model of the endpoint is missing"]),
        (
            "--endpoint http://x/v1 --model m --mode vote --rate -1",
            ["unknown mode of the endpoint 'vote'", "requests_per_minute of the endpoint is -1"],
        ),
    ],
)
def test_wrong_options_of_an_endpoint(words, said):
    ended = invoke("label", "--data", "a.csv", "--out", "s", *words.split())
    assert ended.exit_code == 2
    assert all(text in ended.stderr for text in said), ended.stderr
