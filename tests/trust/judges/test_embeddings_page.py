"""The page of embedding models prints what the committed records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "embedding-models.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_all_rows_of_the_table_stand_on_the_page():
    command = [sys.executable, "embeddings_table.py", "--markdown"]
    found = subprocess.run(
        command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    rows = [line for line in found.stdout.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    assert [row for row in rows if row not in PAGE] == []
