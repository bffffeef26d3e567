"""The page of embedding models prints what the committed records say."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "embedding-models.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_all_rows_of_the_table_stand_on_the_page():
    command = [sys.executable, "embeddings_table.py", "--test", "--markdown"]
    found = subprocess.run(
        command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    rows = [line for line in found.stdout.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    assert [row for row in rows if row not in PAGE] == []


def test_spearman_without_a_pair_is_scipys_of_the_others(benchmarks):
    random = np.random.default_rng(3)
    similarities, cosines = random.integers(6, size=30) / 5, random.normal(size=30)
    cosines[4] = cosines[9]
    found = benchmarks("embeddings_table").spearman_without(cosines, similarities)
    for place, one in enumerate(found):
        left = np.delete(np.arange(30), place)
        assert one == pytest.approx(spearmanr(similarities[left], cosines[left]).statistic)


def _sts(tmp_path, rows):
    """GLUE's test file of STS-B, and a file of the same rows with similarities."""
    (tmp_path / "STS-B").mkdir()
    lines = [[*(7 * ["column"]), "sentence1", "sentence2"]]
    lines += [[str(place), *(6 * ["none"]), one, two] for place, (one, two, _) in enumerate(rows)]
    text = "".join("\t".join(line) + "\n" for line in lines)
    (tmp_path / "STS-B" / "test.tsv").write_text(text, encoding="utf-8")
    with (tmp_path / "similarities.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return tmp_path, tmp_path / "similarities.csv", tmp_path / "pairs.csv"


def test_the_test_pairs_are_glues_with_the_similarities_of_the_other_file(tmp_path, benchmarks):
    rows = [('A "quoted" one, with a comma', "Another", "2.5"), ("Short", "Shorter", "0.0")]
    data, similarities, target = _sts(tmp_path, rows)
    assert benchmarks("embedding_test").make_pairs(data, similarities, target) == [2.5, 0.0]
    with target.open(encoding="utf-8", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert [tuple(row.values()) for row in found] == rows


def test_similarities_of_other_sentences_are_refused(tmp_path, benchmarks):
    data, similarities, target = _sts(tmp_path, [("One", "Two", "2.5"), ("Three", "Four", "1.0")])
    similarities.write_text("Three,Four,1.0\nOne,Two,2.5\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="in its order"):
        benchmarks("embedding_test").make_pairs(data, similarities, target)
    assert not target.exists()
