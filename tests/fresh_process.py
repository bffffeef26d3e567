"""Code run in a process that limbeck was never imported in, where a new interpreter would take seconds to import
PyTorch and transformers: one that has done so is kept, and forks for each call.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

HASH_SEED = "12345"
"""Of strings in the new process; the tests' own is random."""

_RUN = """
import contextlib, sys
sys.argv = ["-c", *arguments]
with open(output, "w") as stream, contextlib.redirect_stdout(stream):
    exec(code, {"__name__": "__main__"})
"""


@functools.cache
def _kept() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.models.auto.modeling_auto"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PYTHONHASHSEED", HASH_SEED)
        forkserver.ensure_running()
    return context


def printed_by(code: str, *arguments: object) -> str:
    """What code prints that finds these in `sys.argv`; the test fails where it raises."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        names = {"code": code, "arguments": [*map(str, arguments)], "output": str(output)}
        process = _kept().Process(target=exec, args=(_RUN, names))
        process.start()
        process.join()
        ended = process.exitcode
        process.close()
        assert ended == 0, "its error stands on the standard error stream"
        return output.read_text()
