"""Rows a second of `limbeck predict` beside transformers' pipeline, on the same rows with the same model.

A fine-tuned run of SST-2 reads the first 5,000 training rows of GLUE's file: the pipeline with batches of 32, limbeck
in torch, and by ONNX Runtime the fp32 and the int8 file that the run was exported to. All are measured in turns, on CPU
with as many threads as the machine has (OMP_NUM_THREADS says otherwise), reading the file included, loading the model
not.

    python benchmarks/predict_speed.py --run RUN --data GLUE_DIR [--rows 5000] [--turns 3]

RUN is a finished `limbeck finetune --task sst2`; it is exported into RUN/exported where it was not yet.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from transformers import pipeline

import limbeck
from limbeck.runtimes.manifest import is_export
from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "predict_speed.json"
FORMATS = {"ONNX Runtime, fp32": "onnx", "ONNX Runtime, int8": "onnx-int8"}
PIPELINE, TORCH = "transformers' pipeline", "limbeck, torch"
Answers = tuple[float, list[str]]
"""Seconds, and each row's label."""


def exported(run: Path, form: str) -> Path:
    """The run as a file of that format; where the gate refuses int8 at half a point, it is said."""
    folder = run / "exported" / form
    if not is_export(folder):
        limbeck.export(run, out=folder, format=form)
    return folder


def by_pipeline(student: Path) -> Callable[[Path], Answers]:
    """The pipeline, loaded."""
    classify = pipeline("text-classification", model=str(student), device="cpu")

    def measured(rows: Path) -> Answers:
        began = time.perf_counter()
        lines = rows.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["sentence"] for line in lines]
        found = classify(texts, batch_size=32, truncation=True, max_length=512)
        return time.perf_counter() - began, [one["label"] for one in found]

    return measured


def by_limbeck(model: Path) -> Callable[[Path], Answers]:
    """`limbeck.predict`, which leaves loading out of its seconds; to a file, as the command writes it."""

    def measured(rows: Path) -> Answers:
        out = rows.with_name("out.jsonl")
        said = limbeck.predict(model, rows, to=out, overwrite=True)
        lines = out.read_text(encoding="utf-8").splitlines()
        return said.seconds, [json.loads(line)["prediction"] for line in lines]

    return measured


def write_rows(data: Path, count: int, folder: Path) -> Path:
    """The first rows of the training file, as JSON lines."""
    lines = (data / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1 : count + 1]
    path = folder / "rows.jsonl"
    texts = [line.rsplit("\t", 1)[0] for line in lines]
    path.write_text(
        "".join(json.dumps({"sentence": text}) + "\n" for text in texts), encoding="utf-8"
    )
    return path


def table(record: dict[str, Any]) -> list[str]:
    """The record as the docs print it."""
    heading = ["| by | rows/s | × the pipeline | same labels |", "| --- | ---: | ---: | ---: |"]
    return heading + [
        f"| {name} | {one['rows_per_second']:.0f} | {one['times_the_pipeline']:.1f} | "
        f"{one['same_labels']:,} of {record['rows']:,} |"
        for name, one in record["ways"].items()
    ]


def main() -> None:
    """Measure in turns, print a line each, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    ways = {PIPELINE: by_pipeline(args.run / "student"), TORCH: by_limbeck(args.run)}
    ways |= {name: by_limbeck(exported(args.run, form)) for name, form in FORMATS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    labels: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = write_rows(args.data, args.rows, Path(folder))
        for _ in range(args.turns):
            for name, way in ways.items():
                took, labels[name] = way(rows)
                seconds[name].append(took)
    record: dict[str, Any] = {
        "rows": args.rows,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "onnxruntime")
        },
        "ways": {
            name: {
                "seconds": took,
                "rows_per_second": args.rows / statistics.median(took),
                "times_the_pipeline": statistics.median(
                    base / own for base, own in zip(seconds[PIPELINE], took, strict=True)
                ),
                "same_labels": sum(
                    a == b for a, b in zip(labels[name], labels[PIPELINE], strict=True)
                ),
            }
            for name, took in seconds.items()
        },
    }
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")
    print("\n".join(table(record)))


if __name__ == "__main__":
    main()
