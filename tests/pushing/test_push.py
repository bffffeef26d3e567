"""`limbeck push` against a stand-in of the Hub: which bytes arrive, which never do, and what is said when it fails."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from hub_stand_in import TOKEN, running_hub
from huggingface_hub import ModelCard, constants
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

from card_runs import add_export, make_run
from limbeck.cards import CardSettings
from limbeck.cards.card import write_card
from limbeck.cards.push import push, push_files
from limbeck.cli.app import app
from limbeck.records import Record
from limbeck.runtimes.manifest import read_export
from limbeck.support.errors import LimbeckError
from synthetic_records import a_run

REPO = "ada/small-reviews"

# huggingface_hub sends large files in a way that its HTTP library is going to drop.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("secret-folder"))
    add_export(run)
    return run


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made.parent, tmp_path / "place")
    return tmp_path / "place" / made.name


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    # The suite runs offline; this hub is on the machine itself.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with running_hub() as found:
        yield found


def send(run, hub, **changes):
    settings = {"endpoint": hub.endpoint, "token": TOKEN} | changes
    return push(run, REPO, **settings)


# ---- what arrives ----


def test_what_arrives_is_the_student_byte_for_byte(run, hub, tmp_path):
    result = send(run, hub)
    held = hub.repos[REPO]
    for path in (run / "student").iterdir():
        if path.name != "README.md":
            assert held[path.name] == path.read_bytes(), path.name
    assert hub.visibility[REPO] == "private"
    assert result.url == f"{hub.endpoint}/{REPO}"
    assert hub.commits == ["kd on reviews, seed 1"]
    assert {file.name: file.size for file in result.files} == {
        name: len(content) for name, content in held.items()
    }
    for name, content in held.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(content)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "got")
    assert model.config.num_hidden_layers == 2
    # The exported folder is whole there too, checksums and all; and the record can be read.
    assert read_export(tmp_path / "got" / "onnx-int8").measured.drop == 0.25
    record, own = Record.load(tmp_path / "got"), Record.load(run)
    assert record.scores == own.scores and record.recipe["teacher"] == "teacher"


def test_nothing_else_arrives(run, hub):
    for name in (
        "checkpoints/checkpoint-3/optimizer.pt",
        "student/optimizer.pt",
        "student/rows.csv",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(b"not for others")
    (run / "exported" / "onnx-int8" / "cache.bin").write_bytes(b"nor this")
    send(run, hub)
    assert hub.repos[REPO].keys() == {
        "README.md", "config.json", "model.safetensors", "record.json", "tokenizer.json",
        "tokenizer_config.json", "onnx-int8/README.md", "onnx-int8/export.json",
        "onnx-int8/model.onnx",
    }  # fmt: skip


def test_no_file_names_a_folder_of_the_machine(run, hub):
    send(run, hub)
    for name, content in hub.repos[REPO].items():
        assert b"secret-folder" not in content and str(run.parent).encode() not in content, name
        assert not re.search(rb'"/(tmp|home|root|work)/', content), name


def test_the_card_bears_the_repositorys_name_and_what_was_said(run, hub):
    write_card(run, CardSettings(license="mit"))
    send(run, hub)
    card = ModelCard(hub.repos[REPO]["README.md"].decode())
    assert card.data.license == "mit"
    assert f'name = "{REPO}"\n' in card.text


def test_a_persons_card_is_sent_as_it_is(run, hub):
    (run / "student" / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    send(run, hub)
    assert hub.repos[REPO]["README.md"].endswith(b"Mine.\n")


def test_a_dry_run_asks_nobody(run, hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    ended = CliRunner().invoke(app, ["push", str(run), REPO, "--dry-run"])
    assert ended.exit_code == 0, ended.output
    size = (run / "student" / "model.safetensors").stat().st_size
    assert f"{size / 1e6:10.3f} MB  model.safetensors" in ended.output
    assert "9 files" in ended.output and "nothing is sent" in ended.output
    assert hub.requests == []


def test_the_command_ends_with_the_url(run, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", hub.endpoint)
    ended = CliRunner().invoke(app, ["push", str(run), REPO, "--public"])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[-1] == f"{hub.endpoint}/{REPO}"
    assert hub.visibility[REPO] == "public"


# ---- what fails ----


def test_a_failed_upload_says_so_and_can_be_repeated(run, hub):
    hub.fails["/commit/"] = 500
    with pytest.raises(LimbeckError) as found:
        send(run, hub)
    assert "500" in str(found.value) and "rerun the command" in str(found.value)
    assert hub.repos[REPO] == {}
    before = list(hub.sent)
    assert before
    send(run, hub)
    assert "model.safetensors" in hub.repos[REPO]
    assert hub.sent == before  # large files had arrived


@pytest.mark.slow
def test_a_second_push_of_the_same_is_no_commit(run, hub):
    send(run, hub)
    assert send(run, hub).url == f"{hub.endpoint}/{REPO}"
    assert len(hub.commits) == 1


@pytest.mark.slow
def test_a_large_file_that_is_refused_is_said_so(run, hub):
    hub.fails["/upload/"] = 403
    with pytest.raises(LimbeckError, match="right to write"):
        send(run, hub)
    send(run, hub)
    assert "model.safetensors" in hub.repos[REPO]


@pytest.mark.parametrize(
    ("part", "status", "said"),
    [
        ("/api/repos/create", 403, "right to write"),
        ("/preupload/", 409, "others changed it"),
        ("/commit/", 429, "wait"),
        ("/commit/", 413, "refused ada/small-reviews with 413"),
        ("/api/validate-yaml", 400, "metadata in README.md"),
    ],
)
def test_refusals_are_clear(run, hub, part, status, said):
    hub.fails[part] = status
    with pytest.raises(LimbeckError, match=said):
        send(run, hub)


def test_a_wrong_token_and_none(run, hub, monkeypatch):
    with pytest.raises(LimbeckError, match="with a valid token") as found:
        send(run, hub, token="hf_wrong")
    assert "hf auth login" in str(found.value)
    monkeypatch.setattr("limbeck.cards.push.get_token", lambda: None)
    with pytest.raises(LimbeckError, match="no token") as found:
        send(run, hub, token=None)
    assert "HF_TOKEN" in str(found.value)


def test_a_public_repository_is_not_written_to_unasked(run, hub):
    hub.repos[REPO], hub.visibility[REPO] = {}, "public"
    with pytest.raises(LimbeckError, match="is public"):
        send(run, hub)
    assert hub.repos[REPO] == {}
    send(run, hub, private=False)
    assert hub.repos[REPO]


@pytest.mark.parametrize("name", ["a/b/c", "-a/b", "a b", "ada/--x", "ada/x.git"])
def test_a_malformed_name_is_said_before_anything_else(run, hub, name):
    with pytest.raises(LimbeckError, match="USER/NAME"):
        push(run, name, endpoint=hub.endpoint, token=TOKEN)
    assert hub.requests == []


def test_nobody_at_home(run, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(LimbeckError, match="cannot reach"):
        push(run, REPO, endpoint="http://127.0.0.1:9", token=TOKEN)


def test_runs_that_cannot_be_sent(run, tmp_path):
    (run / "student" / "config.json").write_text("{}")
    with pytest.raises(LimbeckError, match=r"damaged: student/config\.json"):
        push_files(run, REPO)
    a_run("kd", 1, None, status="failed").save(tmp_path / "failed")
    with pytest.raises(LimbeckError, match="is failed"):
        push_files(tmp_path / "failed", REPO)
    a_run("kd", 1, 80.0).save(tmp_path / "bare")
    with pytest.raises(LimbeckError, match="does not list its student's files"):
        push_files(tmp_path / "bare", REPO)
    export = json.loads((run / "exported" / "onnx-int8" / "export.json").read_text())
    assert export["source"].startswith("/")  # so the test of names has something to find
