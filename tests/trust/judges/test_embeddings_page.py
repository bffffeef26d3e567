"""The page of embedding models prints what the committed records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "embedding-models.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["embeddings_table.py", "embedding_retrieval.py"])
def test_all_rows_of_the_table_stand_on_the_page(script):
    command = [sys.executable, script, "--markdown"]
    found = subprocess.run(
        command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    rows = [line for line in found.stdout.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    assert [row for row in rows if row not in PAGE] == []


def test_spearman_of_a_draw_is_scipys_of_the_drawn_pairs(benchmarks):
    centred_ranks = benchmarks("embeddings_table").centred_ranks
    random = np.random.default_rng(3)
    similarities, cosines = random.integers(6, size=30) / 5, random.normal(size=30)
    cosines[4] = cosines[9]
    drawn = random.integers(30, size=(20, 30))
    counts = np.stack([np.bincount(one, minlength=30) for one in drawn])
    first, second = centred_ranks(similarities, counts), centred_ranks(cosines, counts)
    lengths = np.sqrt((counts * first**2).sum(-1) * (counts * second**2).sum(-1))
    for one, places in zip((counts * first * second).sum(-1) / lengths, drawn, strict=True):
        assert one == pytest.approx(spearmanr(similarities[places], cosines[places]).statistic)
