"""What holds for every test: the shapes written in signatures are enforced, as nowhere else."""

import atexit
import functools
import gc
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import typer.testing
from accelerate.utils import imports as installed_packages
from jaxtyping import install_import_hook

from blank_drawings import draw

# Almost all that imports make stays: to search it for garbage again and again takes seconds.
gc.disable()

# Runs of tiny models wait for the disk a fifth of their time, and no test cuts the power: what they write
# stays in memory where there is room, and nobody waits for it to reach a disk.
_MEMORY, _ROOM = Path("/dev/shm"), 4 * 1024**3
if (
    _MEMORY.is_dir()
    and min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > 2 * _ROOM
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
os.fsync = lambda _descriptor: None

# What is the same for a whole process is worked out once in it: which packages are installed (asked by each
# training a dozen times) and the commands' options (by each command a test types).
installed_packages._is_package_available = functools.cache(installed_packages._is_package_available)
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Nothing a test stores may lie where a user's own does.
os.environ["LIMBECK_CACHE"] = tempfile.mkdtemp(prefix="limbeck-test-cache-")
atexit.register(shutil.rmtree, os.environ["LIMBECK_CACHE"], ignore_errors=True)

# Works only on what is imported afterwards, so it stands here and not in a fixture: pytest reads
# this file before any test module can import limbeck.
install_import_hook("limbeck.functional", "beartype.beartype")


def pytest_collection_finish() -> None:
    """What is imported by now stays to the end: each of the Trainer's full collections (one a training) skips it."""
    _keep_out_of_collections()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)
    _measure_briefly()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """So does what a module has imported and left to later ones; drawings are drawn where a test asks."""
    config = item.config
    if item.path != config.stash.get(_MODULE, item.path):
        _keep_out_of_collections()
    config.stash[_MODULE] = item.path
    draw(item.get_closest_marker("drawn") is not None)


_MODULE = pytest.StashKey[Path]()


def _keep_out_of_collections() -> None:
    gc.collect()
    gc.freeze()


def _measure_briefly() -> None:
    """Runs time two rounds of their models instead of 35: whatever tests look at, it is not the speed."""
    measuring = sys.modules.get("limbeck.evaluation.measuring")
    if measuring is not None:
        measuring.latencies.__kwdefaults__.update(repeats=2, warm_up=0)
    # Templates are compiled once in a process.
    from limbeck.support import templates

    templates.templates_of = functools.cache(templates.templates_of)


def pytest_sessionstart(session) -> None:
    """With LIMBECK_TEST_ROUNDING=seed everything runs in arithmetic that rounds otherwise."""
    seed = os.environ.get("LIMBECK_TEST_ROUNDING")
    session.config.rounding = None
    if seed:
        from rounding import RoundsOtherwise

        session.config.rounding = RoundsOtherwise(int(seed))
        session.config.rounding.__enter__()


# A module that says one of these compares floating-point numbers, one by one.
_COMPARES = re.compile(r"assert_close|allclose|assert_trained_alike|approx|isclose")


def pytest_collection_modifyitems(items) -> None:
    """Mark as `numeric` what `scripts/processors` runs as other processors would."""
    compares = {
        path: path.parent.name in ("functional", "releases")
        or _COMPARES.search(path.read_text(encoding="utf-8")) is not None
        for path in {item.path for item in items}
    }
    for item in items:
        if compares[item.path]:
            item.add_marker(pytest.mark.numeric)


@pytest.fixture(autouse=True)
def arithmetic(request):
    """Tests that compile, or hold one process against another, keep to the processor's own."""
    rounding = request.config.rounding
    if rounding is None or not request.node.get_closest_marker("own_arithmetic"):
        yield
        return
    rounding.__exit__(None, None, None)
    try:
        yield
    finally:
        rounding.__enter__()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The URL of a tiny language model that llama.cpp serves."""
    from llama_server import llama_server
    from tiny_language_models import save_gguf

    with llama_server(save_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")) as url:
        yield url


@pytest.fixture
def proxy(server, monkeypatch, tmp_path):
    """What fails on purpose before that server; it is asked again at once, and what it says is kept for one test."""
    from faulty_proxy import faulty_proxy

    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0)
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    with faulty_proxy(server) as made:
        yield made
