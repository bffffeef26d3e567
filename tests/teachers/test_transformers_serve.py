"""Labels asked of `transformers serve`, which gives no log-probabilities and takes neither n nor a schema."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from limbeck.labelling.language_models.causal import CausalLabeller
from limbeck.labelling.language_models.endpoint import EndpointLabeller
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError
from tiny_language_models import byte_tokenizer, language_model

pytestmark = [pytest.mark.slow, pytest.mark.integration]

BOUND = bind_prompt(
    Prompt(
        template="{text} is",
        text="{text}",
        verbalizations={"negative": "bad", "positive": "good"},
        calibrate=False,
    ),
    ("negative", "positive"),
    ("text",),
)
TEXTS = ["film x", "film o", "plot x", "plot o", "end x", "end o"]
ROWS = [{"text": text} for text in TEXTS]


def taught():
    """A Llama that answers " good" behind what holds an o, and " bad" behind what holds an x; then the text ends."""
    model, tokenizer = language_model("llama").train(), byte_tokenizer(chat=True)
    texts = [f"{name} {mark}" for name in ("film", "plot", "end", "star", "a") for mark in "xo"]
    prompts = [
        tokenizer.apply_chat_template(BOUND.messages({"text": text}), tokenize=False, add_generation_prompt=True)
        for text in texts
    ]  # fmt: skip
    ends = [" good</s>" if text.endswith("o") else " bad</s>" for text in texts]
    batch = tokenizer(
        [prompt + end for prompt, end in zip(prompts, ends, strict=True)],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        positions = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
        logits = model(batch.input_ids, attention_mask=batch.attention_mask, position_ids=positions)
        loss = cross_entropy(
            logits.logits[:, -3:-1].flatten(0, 1), batch.input_ids[:, -2:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.02
    return model.eval(), tokenizer


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, tokenizer = taught()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", str(folder), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]
    program = "from transformers.cli.transformers import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1", str(folder), model
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str, process: subprocess.Popen) -> None:
    for _ in range(240):
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except urllib.error.HTTPError:
            return  # it is there, whatever it says
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server did not begin")


def test_votes_of_a_taught_model_are_its_likeliest_answers(served) -> None:
    url, name, model = served
    settings = EndpointSettings(url=url, model=name, votes=3, concurrency=2)
    with EndpointLabeller(settings, BOUND) as made:
        assert made.mode == "votes" and "n" in made.refused
        votes = made.score(ROWS)
    local = CausalLabeller(model, byte_tokenizer(chat=True), BOUND).score(ROWS)
    wanted = np.array([0, 1] * 3)
    assert local["probabilities"].argmax(1).tolist() == wanted.tolist()
    assert votes["votes"].argmax(1).tolist() == wanted.tolist()
    assert votes["votes"].sum(1).min() >= 2


def test_an_unknown_model_is_said_before_any_row(served, monkeypatch) -> None:
    url, _, _ = served
    with pytest.raises(LimbeckError, match="check --model nothing"):
        EndpointLabeller(EndpointSettings(url=url, model="nothing"), BOUND)
    with pytest.raises(LimbeckError, match="gives no log-probabilities"):
        EndpointLabeller(EndpointSettings(url=url, model=served[1], mode="logprobs"), BOUND)


def test_a_server_that_goes_away_leaves_rows_missing(served, monkeypatch) -> None:
    url, name, _ = served
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0)
    with EndpointLabeller(EndpointSettings(url=url, model=name, votes=1, retries=1), BOUND) as made:
        made.client.base_url = "http://127.0.0.1:9/v1/"
        with pytest.raises(RowsMissingError, match="Connection"):
            made.score(ROWS[:2])
