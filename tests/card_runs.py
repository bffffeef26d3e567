"""A finished run with what cards and uploads are made of: a student, a record, an export, a bench."""

from __future__ import annotations

from pathlib import Path

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.records.facts import BenchFacts, BenchRow
from limbeck.run import distill
from limbeck.runtimes.manifest import (
    Conversion,
    ExportManifest,
    GateMeasure,
    GateRowsFacts,
    exports_of,
    read_export,
    weights_of,
)
from limbeck.support.files import checksums


def make_run(place: Path, method: str = "kd", **changes) -> Path:
    """A tiny run below `place`, which gets the teacher and the rows it needs."""
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "teacher").exists():
        tiny.save(tiny.knowing_teacher(4), place / "teacher")
        tiny.write_csv(place / "reviews.csv", 60)
    settings = {
        "task": "reviews",
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "teacher": None if method == "finetune" else str(place / "teacher"),
        "max_length": 24,
        "batch_size": 8,
        "max_steps": 3,
        "cache": "never",
        "seed": 1,
    }
    start = {"student.model": str(place / "teacher")} if method == "finetune" else {}
    recipe = Recipe.load(method, **(settings | start | {"student.layers": 2} | changes))
    out = place / f"{method}-s{recipe.seed}"
    distill(recipe, out=out, report=False)
    return out


def add_export(run: Path, name: str = "onnx-int8") -> Path:
    """An exported folder as `limbeck export` leaves one, around a file that is no real graph."""
    folder = run / "exported" / name
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"graph" * 100)
    (folder / "README.md").write_text(f"# Bert\n\nExported from `{run}` (int8).\n")
    record = Record.load(run)
    score = record.scores["dev"]["primary"]
    ExportManifest(
        format=name, file="model.onnx", kind="sentence", architecture="Bert", source=str(run),
        conversion=Conversion(name="int8 dynamic, per channel"),
        gate=GateRowsFacts(
            task="reviews", data=record.data, split="dev", rows=record.examples.dev or 0,
            fingerprint=record.examples.fingerprints["dev"],
        ),
        measured=GateMeasure(
            scores={"primary": score - 0.25}, torch_scores={"primary": score}, drop=0.25,
            agreement=0.99,
        ),
        max_drop=0.5, bytes=500, torch_bytes=2000, weights=weights_of(run / "student"),
        checksums=checksums(folder, ["model.onnx", "README.md"]),
    ).write(folder)  # fmt: skip
    return folder


def add_bench(run: Path) -> None:
    """What a bench of a run and its teacher leaves in the record."""
    record = Record.load(run)
    exported = [read_export(folder).checksums["model.onnx"] for folder in exports_of(run)]
    shared = {"batch_size": 1, "tokens": 32, "threads": 1, "form": "fp32"}
    record.bench = BenchFacts(
        identity="abc123", when="2026-01-01T00:00:00+0000", processor="A CPU",
        rows=[
            BenchRow(model="teacher", role="teacher", backend="torch", p50=12.0, p95=13.0, **shared),
            BenchRow(model="kd", role="student", backend="torch", p50=6.0, p95=7.0, **shared),
            BenchRow(model="kd", role="export", backend="onnxruntime", p50=1.5,
                     export=exported[0] if exported else None, **shared),
        ],
    )  # fmt: skip
    record.save(run)
