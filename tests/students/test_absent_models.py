"""Names of models that lead nowhere: paths are refused at once, Hub names once the Hub did not answer."""

from __future__ import annotations

import http.server
import threading

import pytest
from huggingface_hub import constants
from transformers import BertConfig
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.students import pretrained, read_config, read_tokenizer, resolve_checkpoint
from limbeck.support.errors import LimbeckError

PATHS = [
    "/nowhere/model",
    "./model",
    "../model",
    "runs/mrpc/model",
    "runs/model/",
    "~/no/model",
    "a\\b",
]


@pytest.fixture
def asked(monkeypatch):
    """The Hub is on this machine, and its address is asked for nothing but by a test."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    pretrained._knock.cache_clear()
    yield
    pretrained._knock.cache_clear()


@pytest.fixture
def nobody(asked, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("read", [resolve_checkpoint, read_config, read_tokenizer])
def test_a_path_is_no_hub_name(name, read, asked, monkeypatch):
    monkeypatch.setattr(pretrained, "get_session", lambda: pytest.fail("a path was asked for"))
    with pytest.raises(LimbeckError, match="no such folder"):
        read(name)


@pytest.mark.parametrize("read", [resolve_checkpoint, read_config, read_tokenizer])
@pytest.mark.parametrize("name", ["runs/teacher", "a-model"])
def test_a_hub_that_does_not_answer_is_asked_once(name, read, nobody, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("asked again"))
    with pytest.raises(LimbeckError, match=r"not a folder here, and the Hub .* cannot be reached"):
        read(name)


def test_the_command_says_so_and_what_may_be_meant(nobody, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "teacher").mkdir(parents=True)
    words = ["distill", "kd", "--task", "mrpc", "--data", "pocket", "--teacher", "runs/teachr"]
    ended = CliRunner().invoke(app, words)
    said = " ".join(ended.output.split())
    assert ended.exit_code != 0
    assert "runs/teachr': not a folder here" in said and "did you mean 'runs/teacher'?" in said


def test_what_a_cache_holds_needs_no_hub(nobody, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--ada--kept"
    BertConfig(vocab_size=7).save_pretrained(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert resolve_checkpoint("ada/kept") == "ada/kept"
    with pytest.raises(LimbeckError, match="cannot be reached"):
        resolve_checkpoint("ada/other")


def test_a_hub_that_answers_is_asked_itself(asked, monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert resolve_checkpoint("ada/model") == "ada/model"
        server.shutdown()
