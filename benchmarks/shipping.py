"""A teacher and its 3-layer students × torch, ONNX, int8: score, size and latency in one table and one plot.

MiniLM-6 fine-tuned on each task, and 3-layer students by `kd` and `rail-kd-l`, from the teacher's first layers: two
short passes on MRPC and STS-B, one over the 67,000 rows of SST-2. Each is exported as fused ONNX and int8 under
the gate, then all are timed in turns: batch 1, one thread, 26 and 128 tokens.

    python benchmarks/shipping.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--tasks mrpc stsb sst2] [--anew]

Resumable: runs and exports that are there are not made again, and a task whose record is there is left alone, but with
`--anew`, which times it once more. A task is recorded as soon as it is timed. Ends with the bars: the int8 student at
least 6 × as fast as the teacher in torch, at most 20 % of its size, its score within .5 of its own in torch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import limbeck
from limbeck.latency.report import BenchReport, Measurement, as_markdown
from limbeck.latency.settings import BenchSettings
from limbeck.runtimes.manifest import is_export, read_export
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole

# Passes over a task's rows: the teacher's, and a student's.
TASKS = {"mrpc": (3, 2), "stsb": (3, 2), "sst2": (1, 1)}
COMMON = {"lr": 1e-4, "batch_size": 32, "precision": "auto", "seed": 1}
METHODS = ("kd", "rail-kd-l")
TOKENS = 26
FASTER, SHARE, LOST = 6.0, 0.20, 0.5
RECORD = Path(__file__).parent / "records" / "shipping.json"


def train(task: str, args: argparse.Namespace) -> list[Path]:
    """The teacher and its students; runs that have finished stay."""
    settings = {**COMMON, "task": task, "data": args.data}
    of_teacher, of_student = TASKS[task]
    teacher = args.work / f"{task}-teacher"
    recipe = limbeck.Recipe.load(
        "finetune", **settings, epochs=of_teacher, **{"student.init": args.model}
    )
    limbeck.distill(recipe, out=teacher, report=False)
    found = [teacher]
    for method in args.methods:
        student = {
            "student.init": "teacher",
            "student.pick": "first",
            "student.layers": 3,
            "teacher": str(teacher),
        }
        recipe = limbeck.Recipe.load(method, **settings, epochs=of_student, **student)
        found.append(args.work / f"{task}-{method}-3l")
        limbeck.distill(recipe, out=found[-1], report=False)
    return found


def ship(run: Path) -> None:
    """ONNX and int8, under the gate."""
    for form in ("onnx", "onnx-int8"):
        place = run / "exported" / form
        if is_export(place):
            continue
        try:
            limbeck.export(run, format=form, out=place, batch_size=1, threads=1)
        except LimbeckError as refused:
            print(f"{run.name} {form}: {refused}", flush=True)
            continue
        manifest = read_export(place)
        print(
            f"{run.name} {manifest.conversion.name}: {manifest.measured.scores['primary']:.2f} "
            f"(torch {manifest.measured.torch_scores['primary']:.2f})",
            flush=True,
        )


def bars(task: str, report: BenchReport) -> list[dict[str, Any]]:
    """How each int8 student stands to the bars."""
    here = report.under(report.conditions[0])
    found = {(one.model, one.backend, one.form.split(",")[0]): one for one in here}
    teacher = found[f"{task}-teacher", "torch", "fp32"]
    said = []
    for (model, backend, _), one in found.items():
        if backend != "onnxruntime" or "int8" not in one.form or model == teacher.model:
            continue
        own = found[model, "torch", "fp32"]
        said.append(_bar(one, own, teacher))
    return said


def _bar(one: Measurement, own: Measurement, teacher: Measurement) -> dict[str, Any]:
    # Of CPU time, which other programs on the machine change little.
    faster = (teacher.cpu_p50 or 0) / (one.cpu_p50 or 1)
    share = one.disk_mib / teacher.disk_mib
    lost = (own.score or 0) - (one.score or 0)
    return {
        "model": one.model,
        "form": one.form,
        "faster": round(faster, 2),
        "faster_by_the_clock": round((teacher.p50 or 0) / (one.p50 or 1), 2),
        "share_of_size": round(share, 3),
        "points_lost": round(lost, 2),
        "held": faster >= FASTER and share <= SHARE and lost <= LOST,
    }


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """Task → its bars and its bench; empty where nothing is recorded."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def written(results: dict[str, Any]) -> str:
    """The record as a file: a line for each measurement, so that a change to one task changes its lines alone."""
    parts = []
    for task, found in sorted(results.items()):
        bench = dict(found["bench"])
        measured = ",\n   ".join(json.dumps(one) for one in bench.pop("measurements"))
        rest = json.dumps(bench)[1:-1]
        kept = ",\n   ".join(json.dumps(one) for one in found["bars"])
        parts.append(
            f'"{task}": {{"bars": [\n   {kept}],\n  "bench": {{{rest},\n  "measurements": [\n   {measured}]}}}}'
        )
    return "{" + ",\n ".join(parts) + "}\n"


def rounded(found: Any) -> Any:
    """Numbers to five digits."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.5g}") if isinstance(found, float) else found


def main() -> None:
    """Train, export, time; one task after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/shipping"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--passes", type=int, default=200)
    parser.add_argument("--anew", action="store_true", help="time tasks that are recorded, too")
    args = parser.parse_args()
    results = read_record()
    for task in args.tasks:
        if task in results and not args.anew:
            print(f"{task} is recorded; --anew times it once more", flush=True)
            continue
        runs = train(task, args)
        for run in runs:
            ship(run)
        settings = BenchSettings.checked({"lengths": (TOKENS, 128), "passes": args.passes})
        report = limbeck.bench(runs, settings, out=args.work / f"bench-{task}", show=True)
        print(as_markdown(report), flush=True)
        # Read again: another task may have been recorded meanwhile.
        results = read_record() | {
            task: {
                "bars": bars(task, report),
                "bench": rounded(report.model_dump(exclude_defaults=True)),
            }
        }
        for line in results[task]["bars"]:
            print(line, flush=True)
        write_whole(RECORD, written(results))


if __name__ == "__main__":
    main()
