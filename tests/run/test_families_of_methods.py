"""Every family of methods in two processes: `torchrun` trains what one process with twice the batch trains."""

# ruff: noqa: E402
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

TESTS = Path(__file__).parent.parent
sys.path.append(str(TESTS / "net"))

from net_cases import place_of

from closeness import assert_trained_alike, travelled
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill

# 8, 8 and 5 examples a pass: of the last, one process has four and the other one.
SHORT = {
    "batch_size": 8,
    "train_rows": 21,
    "max_steps": 6,
    "lr": 1e-3,
    "max_grad_norm": 1e9,
    "log_steps": 1,
}
STATIC = {"student.init": None, "student.layers": None, "student.static": True, "student.width": 8,
          "student.token_dropout": 0}  # fmt: skip
# Of three texts each: the processes share the texts of some rows.
EMBEDDING = {"train_rows": 7}
FAMILIES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    # name: method, task type if it is not the method's own, settings. Correlations of nearly equal predictions, and
    # angles between nearly equal states, would be of rounding alone.
    "outputs": ("kd-soft", None, {}),
    "outputs, relations in the batch": ("dist", None, {"student.init": "teacher"}),
    "outputs, weights that follow the run": ("llkd", None, {}),
    "layers, random map": ("rail-kd-c", None, {}),
    "layers, attention map": ("alp-kd", None, {}),
    "layers, transport": ("bert-emd", None, {}),
    "layers, two stages": ("tinybert", None, {}),
    "mixed inputs, two stages": ("cr-ild", None, {}),
    "mixed inputs, consistency with clean ones": ("l-ild-mixup", None, {}),
    # One process has no examples in the last pass.
    "mixed inputs, labels of both": ("kd", None, {"mixup.alpha": 1, "train_rows": 20}),
    "attention": ("minilmv2", None, {}),
    "relations of tokens": ("contextual-kd", None, {"objectives.word_angles.weight": 0}),
    "memory bank": ("codir", None, {}),
    "teachers, ensemble": ("mt-bert", None, {}),
    "teachers, sampled": ("skd-uniform", None, {}),
    "teachers, chain": ("takd", None, {}),
    "embeddings": ("embedding-mse", None, EMBEDDING),
    "embeddings, in-batch negatives": ("embedding-contrast", None, EMBEDDING),
    "embeddings, in-batch lists": ("embedding-lists", None, EMBEDDING),
    "embeddings, similarities": ("embedding-similarity", None, EMBEDDING),
    "embeddings, margins": ("embedding-margin", None, EMBEDDING),
    "rerankers": ("listwise-kl", None, {}),
    "rerankers, pairs": ("lambda-loss", None, {}),
    "token tags": ("kd", "tokens", {}),
    "causal language models": ("kd", "causal-lm", {}),
    "text": ("kd", "text", {}),
    "static students": ("logit-mse", None, STATIC),
    "static students, embeddings": ("embedding-mse", None, STATIC | EMBEDDING),
}
WORKER = """
import sys
from test_families_of_methods import run_all
run_all(sys.argv[1], "both", sys.argv[2:])
import torch
torch.distributed.destroy_process_group()
"""


def without_dropout(folder: Path) -> None:
    """Random numbers are each process's own."""
    for path in folder.glob("*/config.json"):
        config = json.loads(path.read_text())
        config |= {key: 0.0 for key in config if "dropout" in key and config[key] is not None}
        path.write_text(json.dumps(config))


def run_all(place: str, out: str, families: list[str]) -> None:
    for name in families:
        folder = Path(place, name)
        os.environ["LIMBECK_CACHE"] = str(folder / f"cache-{out}")
        with contextlib.chdir(folder):
            given = json.loads(Path("given.json").read_text())
            distill(Recipe.load(FAMILIES[name][0], **given), out=out, report=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory, request) -> Path:
    """A folder of runs by family: `both` by two processes that torchrun has started, `alone` by this one."""
    place = tmp_path_factory.mktemp("families")
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = {call.params.get("family") for call in calls if call is not None}
    families = [name for name in FAMILIES if name in chosen]
    for name in families:
        method, kind, own = FAMILIES[name]
        (place / name).mkdir()
        with contextlib.chdir(place / name):
            given = place_of(method, kind) | SHORT | own
            given = {key: value for key, value in given.items() if value is not None}
            Path("given.json").write_text(json.dumps(given))
        without_dropout(place / name)
    (place / "worker.py").write_text(WORKER)
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(TESTS), str(TESTS / "run")]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    subprocess.run(
        [*launch, str(place / "worker.py"), str(place), *families],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        check=False,
        timeout=1200,
    )
    return place


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_train_what_one_with_twice_the_batch_trains(place, family):
    run_all(str(place), "alone", [family])
    both, alone = (Record.load(place / family / name) for name in ("both", "alone"))
    assert both.execution.processes == (2,) and alone.execution.processes == (1,)
    weights = [
        load_file(place / family / name / "student/model.safetensors") for name in ("both", "alone")
    ]
    if family.startswith("rerankers"):  # lists say nothing of what is added to all scores
        for one in weights:
            del one["classifier.bias"]
    assert_trained_alike(*weights, travelled=travelled(alone))
    for ours, theirs in zip(both.epochs, alone.epochs, strict=True):
        assert ours.train["loss"] == pytest.approx(theirs.train["loss"], rel=1e-3)
