"""The page of language models as teachers prints its record, measured with the prompt that it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "language-model-teachers.md").read_text(encoding="utf-8")


@pytest.fixture
def bench(benchmarks):
    return benchmarks("language_model_teachers")


def test_the_page_prints_the_tables(bench):
    record = json.loads(bench.RECORD.read_text(encoding="utf-8"))
    for lines in (bench.teacher_lines(record), bench.rows_lines(record)):
        assert len(lines) > 4 and "\n".join(lines) in PAGE
    speeds = record["speed"]["rows_per_second"]
    assert f"{speeds['reused']:.0f} instead of {speeds['plain']:.0f} rows a second" in PAGE
    # The budget of the benchmark is 45 minutes.
    minutes = sum(part["cpu_seconds"] for part in record.values() if "cpu_seconds" in part) / 60
    assert f"{minutes:.0f} CPU minutes" in PAGE and minutes < 45


def test_the_pages_prompt_is_the_measured_one(bench):
    written = yaml.safe_load(PAGE.split("```yaml\n")[1].split("```")[0])
    assert bench.Prompt.checked(written) == bench.PROMPT


def test_paid_after_by_hand(bench):
    # 100 s of labels and 50 s of training; 0.1 s a text by the teacher and 0.001 by the student: 150 / 0.099.
    found = {"rows": 1000, "label_seconds": 100.0, "train_seconds": 50.0, "ms": 1.0}
    assert bench.paid_after(found) == 1516


def test_lists_of_topics(bench):
    fine = ["ENTY:food"] * 3 + ["LOC:city"] * 3
    rows = pd.DataFrame({"text": [f"question {n}" for n in range(6)], "fine": fine})
    lists = bench.topic_lists(rows, 2, 3)
    assert [one["query"] for one in lists] == ["food", "a city"]
    food, city = ({*one["passages"][2:]} for one in lists)
    assert [one["labels"] for one in lists] == [[1, 1, 0, 0, 0]] * 2
    assert food == {*rows["text"][3:]} and city == {*rows["text"][:3]}


def test_the_nearest_text_is_another(bench):
    cosines = bench.similarities([[2.0, 0.0], [3.0, 1.0], [0.0, 5.0]])
    assert cosines.argmax(1).tolist() == [1, 0, 1]
    assert cosines[0, 1] == pytest.approx(3 / 10**0.5)
