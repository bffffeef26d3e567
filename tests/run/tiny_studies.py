"""A study of tiny models on a file of reviews, and records of runs that were never made."""

from __future__ import annotations

from pathlib import Path

from limbeck.lab.study import StudyPlan, load_study
from limbeck.records import Record

STUDY = """
title: Tiny
data: {place}/reviews.csv
model: {place}/teacher
tasks: [reviews]
seeds: [1, 2]
settings: {{text_columns: [review], label_column: verdict, epochs: 1, batch_size: 16, max_length: 24, lr: 0.01}}
teachers: {{settings: {{lr: 0.0001}}}}
students: {{student.init: teacher, student.layers: 1}}
methods: {{{methods}}}
table: {{baseline: plain}}
"""


def plan_of(
    place: Path,
    folder: Path,
    extra: str = "",
    searches: Path | None = None,
    methods: str = "plain: {method: finetune}, kd: ",
    **given,
) -> StudyPlan:
    path = folder / "tiny.yaml"
    path.write_text(STUDY.format(place=place, methods=methods) + extra, encoding="utf-8")
    return StudyPlan.of(load_study(path, **given), searches)


def scored(dev: float, other: float = 0.0) -> Record:
    scores = {"dev": {"primary": dev}, "test": {"primary": other}, "imdb": {"primary": other}}
    return Record(
        kind="distill", method="kd", task="t", data="d", seed=1, status="finished", scores=scores
    )
