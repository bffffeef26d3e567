"""The results page prints what the committed records say, marks included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from limbeck.reporting.records import read_collection
from limbeck.reporting.tables import build_table, collect, render

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "benchmarks" / "records"
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and ":---" not in line]


@pytest.mark.parametrize("study", ["real_glue", "pocket_study"])
def test_whole_tables(study):
    table = build_table(collect([RECORDS / f"{study}.jsonl.gz"]), baseline="finetune")
    printed = rows(render(table, "markdown"))
    assert len(printed) > 10
    assert [row for row in printed if row not in PAGE.splitlines()] == []


def test_the_methods_side_by_side():
    runs = read_collection(RECORDS / "methods_study.jsonl.gz").items()
    sst2 = [record for name, record in runs if name.startswith("sst2-")]
    printed = rows(render(build_table(sst2, baseline="finetune"), "markdown"))
    said = {row.split("|")[1].strip(): row.split("|")[3].strip() for row in printed[2:]}
    section = PAGE[PAGE.index("## Every method with one teacher") :]
    cells = dict(re.findall(r"`([a-z0-9-]+)` \| (\d+\.\d ± \d+\.\d(?: [▲▼])?) \|", section))
    assert said.keys() <= cells.keys()
    assert {method: cells[method] for method in said} == said
