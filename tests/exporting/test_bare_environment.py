"""`predict.py` in a new environment that holds its runtime, tokenizers and NumPy, and nothing of ours."""

from __future__ import annotations

import ast
import subprocess
import venv
from pathlib import Path

import pytest
from export_rows import SENTENCES
from said_alone import said_alone

pytestmark = [pytest.mark.network, pytest.mark.slow]

# Nothing of this environment's, PYTHONPATH say.
ALONE = {"PATH": "/usr/bin:/bin"}
GIVEN = {
    "sentence": ("good film", "the bad plot very slow", "bad good long"),
    "regression": SENTENCES[1:3],
    "tokens": SENTENCES,
    "spans": ("who ?", SENTENCES[1]),
    "masked": ("ann saw [MASK] in rome .",),
}


@pytest.fixture(scope="session")
def bare(tmp_path_factory) -> Path:
    """An environment's Python, in which torch, transformers and limbeck are not installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = ("onnxruntime", "tokenizers", "numpy")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    for module in ("torch", "transformers", "limbeck"):
        tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, env=ALONE)
        assert b"ModuleNotFoundError" in tried.stderr
    return python


@pytest.mark.parametrize("kind", GIVEN)
def test_the_folder_runs_where_only_its_runtime_is_installed(kind, exported, bare, tmp_path):
    folder = exported[kind].path
    ran = subprocess.run(
        [bare, folder / "predict.py", *GIVEN[kind]],
        capture_output=True, text=True, cwd=tmp_path, env=ALONE,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ast.literal_eval(ran.stdout) == said_alone(folder, *GIVEN[kind])
