"""`limbeck label` with teachers that are asked in words: a causal model on disk, and llama.cpp's server."""

from __future__ import annotations

import csv
import json

import pytest
from torch.testing import assert_close
from typer.testing import CliRunner, Result

from faulty_proxy import fine, status
from limbeck import label
from limbeck.cli.app import app
from limbeck.data.row_ids import row_ids
from limbeck.labelling.language_models.causal import load_causal_labeller
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.outputs.store import open_store
from limbeck.support.errors import LimbeckError
from tiny_language_models import save_language_model

TEXTS = [f"film {number}" for number in range(20)]
PROMPT = """
template: "Review: {review}\\nIs:"
verbalizations: {negative: bad, positive: good}
calibrate: false
"""


def invoke(*arguments: object) -> Result:
    line = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, line, env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def files(tmp_path):
    """A table of reviews, half of them labelled, and a prompt."""
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review", "verdict"])
        writer.writerows(
            [text, "positive" if at % 2 else "negative"] for at, text in enumerate(TEXTS)
        )
    (tmp_path / "prompt.yaml").write_text(PROMPT, encoding="utf-8")
    return tmp_path


def line(files, *more):
    return [
        "label", "--data", files / "rows.csv", "--text-columns", "review", "--out", files / "store",
        "--prompt", files / "prompt.yaml", *more,
    ]  # fmt: skip


def test_a_causal_model_labels_a_file(files) -> None:
    model = save_language_model(files / "model", chat=False)
    ended = invoke(*line(files, "--teacher", model, "--to", files / "labels.csv"))
    assert ended.exit_code == 0, ended.output
    store = open_store(files / "store")
    assert store.classes == ("negative", "positive")
    prompt = Prompt(
        template="Review: {text}\nIs:",
        text="{text}",
        verbalizations={"negative": "bad", "positive": "good"},
        calibrate=False,
    )
    alone = load_causal_labeller(model, bind_prompt(prompt, store.classes, ("text",)))
    wanted = alone.score([{"text": text} for text in TEXTS])
    found = store.take(row_ids([TEXTS]))
    assert_close(found["logits"], wanted["logits"], rtol=1e-4, atol=1e-4)
    assert_close(found["probabilities"], wanted["probabilities"], rtol=1e-4, atol=1e-4)
    assert len((files / "labels.csv").read_text().splitlines()) == 21


def test_a_causal_model_gets_the_tasks_default_prompt(files) -> None:
    model = save_language_model(files / "model", chat=False)
    (files / "sst2.csv").write_text("sentence\na good film\nso bad\n")
    store = label(model, files / "sst2.csv", task="sst2", out=files / "store")
    alone = load_causal_labeller(model, bind_prompt(Prompt(), store.classes, ("sentence",)))
    wanted = alone.score([{"sentence": text} for text in ("a good film", "so bad")])
    found = store.take(row_ids([["a good film", "so bad"]]))
    assert_close(found["logits"], wanted["logits"], rtol=1e-4, atol=1e-4)
    with pytest.raises(LimbeckError, match="classes are not known"):
        label(model, files / "sst2.csv", out=files / "other")


@pytest.mark.slow
def test_rows_that_keep_failing_are_left_out_where_that_is_asked_for(proxy, files) -> None:
    served = ("--endpoint", proxy.url, "--model", "tiny", "--top-logprobs", 1000, "--retries", 0)
    proxy.always = lambda handler, body: "film 7" in str(body) and status(400, "filtered")(handler, body)  # fmt: skip
    command = line(
        files, *served, "--shard-rows", 5, "--missing-rows", "drop", "--to", files / "labels.csv"
    )
    ended = invoke(*command)
    assert ended.exit_code == 0, ended.output
    assert "left out: 1 (missing.json names them)" in ended.stderr
    store, failed = open_store(files / "store"), row_ids([["film 7"]])
    assert store.manifest.complete and len(store) == 19
    assert store.missing(failed).tolist() == failed.tolist()
    assert len(store.take(row_ids([["film 6", "film 8"]]))["logits"]) == 2
    said = (files / "store" / "missing.json").read_text()
    assert json.loads(said) == [{"row": int(failed[0]), "reason": "HTTP 400: filtered"}]
    table = (files / "labels.csv").read_text().splitlines()
    assert len(table) == 21 and '"film 7",,' in table
    proxy.always = fine
    (files / "labels.csv").unlink()
    assert invoke(*command).exit_code == 0
    # A shard that is there is not made again.
    assert len(open_store(files / "store")) == 19
    assert (files / "store" / "missing.json").read_text() == said


def test_rows_that_fail_are_recorded_and_asked_again(proxy, files) -> None:
    served = ("--endpoint", proxy.url, "--model", "tiny", "--top-logprobs", 1000, "--retries", 1)
    proxy.always = lambda handler, body: "film 7" in str(body) and status(500, "broken")(handler, body)  # fmt: skip
    ended = invoke(*line(files, *served, "--shard-rows", 5))
    assert ended.exit_code == 2
    assert "1 row has no outputs: HTTP 500: broken" in ended.stderr
    (row,) = json.loads((files / "store" / "missing.json").read_text())
    assert row["row"] == int(row_ids([["film 7"]])[0])
    store = open_store(files / "store", allow_incomplete=True)
    assert not store.manifest.complete and store.manifest.stored_rows == 15
    # The row was asked about for the measured batch and for its shard, and twice each time.
    assert store.manifest.costs["requests"] == len(proxy.bodies) - 2
    proxy.always, before = fine, len(proxy.bodies)
    ended = invoke(*line(files, *served, "--shard-rows", 5))
    assert ended.exit_code == 0, ended.output
    assert len(proxy.bodies) == before + 2  # the first request of a start, and the row
    assert not (files / "store" / "missing.json").exists()
    store = open_store(files / "store")
    assert store.manifest.complete and store.manifest.costs["requests"] == len(proxy.bodies) - 2
    assert store.take(row_ids([TEXTS]))["coverage"].shape == (20,)


def test_rows_are_not_left_out_because_a_server_goes_down(proxy, files) -> None:
    served = ("--endpoint", proxy.url, "--model", "tiny", "--top-logprobs", 1000, "--retries", 0)
    command = line(files, *served, "--shard-rows", 5, "--missing-rows", "drop", "--concurrency", 2)
    proxy.turns, proxy.always = [fine] * 12, status(503, "maintenance")
    ended = invoke(*command)
    assert ended.exit_code == 2
    assert "HTTP 503: maintenance" in ended.stderr
    assert not (files / "store" / "missing.json").exists()
    proxy.always = fine
    assert invoke(*command).exit_code == 0
    store = open_store(files / "store")
    assert len(store) == 20 and not store.manifest.missing_rows


@pytest.mark.slow
def test_the_cost_limit_stops_a_store_that_is_continued(proxy, files) -> None:
    served = ["--endpoint", proxy.url, "--model", "tiny", "--top-logprobs", 1000]
    priced = [*served, "--price-in", 1e6, "--price-out", 1e6, "--concurrency", 2]
    ended = invoke(*line(files, *priced, "--max-cost", 400))
    assert ended.exit_code == 2 and "max_cost: 400.0 is reached" in ended.stderr
    sent = len(proxy.bodies)
    assert 2 < sent < 20
    ended = invoke(*line(files, *priced, "--max-cost", 100_000))
    assert ended.exit_code == 0, ended.output
    store = open_store(files / "store")
    assert store.manifest.complete
    # 20 rows, and the first request of either start.
    assert len(proxy.bodies) == 22


@pytest.mark.slow
def test_what_other_rows_and_stores_cost_counts_towards_the_limit(proxy, files, caplog) -> None:
    """As the help and the page say."""
    served = ["--endpoint", proxy.url, "--model", "tiny", "--top-logprobs", 1000]
    priced = [*served, "--price-in", 1e6, "--price-out", 1e6, "--concurrency", 1]
    assert invoke(*line(files, *priced, "--max-cost", 1e5)).exit_code == 0
    spent = open_store(files / "store").manifest.costs["cost"]
    (files / "rows.csv").write_text("review\nanother film\na third\n")
    other = [*line(files, *priced), "--out", files / "other", "--max-cost"]
    caplog.clear()
    ended = invoke(*other, spent + 1)
    assert ended.exit_code == 2 and f"max_cost: {spent + 1} is reached" in ended.stderr
    assert (
        f"{spent:.4g} of {spent + 1:.4g} were spent before, on this prompt about any rows"
        in caplog.text
    )
    ended = invoke(*other, 2 * spent)
    assert ended.exit_code == 0, ended.output
    assert len(open_store(files / "other")) == 2
    shown = " ".join(invoke("label", "--help").output.replace("│", " ").split())
    assert (
        "once this model and prompt have cost so much, in earlier starts and for other rows and stores too"
        in shown
    )


def test_votes_are_stored(proxy, files) -> None:
    ended = invoke(
        *line(files, "--endpoint", proxy.url, "--model", "tiny", "--mode", "votes", "--votes", 3)
    )
    assert ended.exit_code == 0, ended.output
    found = open_store(files / "store").take(row_ids([TEXTS]))
    assert_close(found["votes"].sum(1) + found["unparsable"], found["unparsable"] * 0 + 3)


def test_settings_that_nobody_would_read(files) -> None:
    endpoint = EndpointSettings(url="http://127.0.0.1:9/v1", model="m", max_cost=1.0)
    with pytest.raises(LimbeckError) as caught:
        label(
            "model",
            files / "rows.csv",
            text_columns=["review"],
            out=files / "store",
            endpoint=endpoint,
            max_length=9,
            precision="bf16",
        )
    named = [problem.message.split(":")[0] for problem in caught.value.problems]
    assert named == ["max_cost", "max_length", "precision", "teacher"]
