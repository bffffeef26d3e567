"""The page *Past one machine*: rows labeled in parts on a local Ray cluster, joined, and learned from."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

import limbeck
import tiny_runs as tiny

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of Ray and its libraries
def test_parts_labeled_by_ray_teach_a_student(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "docs"))
    from pages import fences

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    tiny.save(tiny.knowing_teacher(), Path("teacher"))
    tiny.save(tiny.bert(2), Path("start"))
    Path("parts").mkdir()
    texts = tiny.sentences(60)
    for name, rows in (("one", texts[:30]), ("other", texts[30:])):
        write(Path("parts", f"{name}.csv"), ["text"], [[text] for text in rows])
    labels = [[text, ["negative", "positive"]["good" in text]] for text in texts]
    write(Path("rows.csv"), ["text", "label"], labels)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    session: dict = {"__name__": "page"}
    try:
        for fence in fences(ROOT / "docs" / "past-one-machine.md", "python"):
            exec(compile(fence.text, fence.place, "exec"), session)
    finally:
        ray.shutdown()
    joined = pyarrow.parquet.read_table("outputs.parquet").to_pydict()
    assert set(joined["text"]) == set(texts)  # some are in both parts
    assert all((a > b) == ("bad" in t) for t, (a, b) in zip(*joined.values(), strict=True))
    result = limbeck.distill(
        "kd-soft", outputs=["outputs.parquet"], output_classes=["negative", "positive"], task="reviews",
        data="rows.csv", text_columns=["text"], label_column="label", max_steps=3, batch_size=8, max_length=24,
        out="run", report=False, **{"student.init": "start"},
    )  # fmt: skip
    assert result.record.status == "finished"


def write(path: Path, head: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([head, *rows])
