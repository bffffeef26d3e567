"""What tests of the docs' numbers share: the benchmarks that print them, as modules."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmarks():
    """A file of `benchmarks/` by its name, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
        yield importlib.import_module
