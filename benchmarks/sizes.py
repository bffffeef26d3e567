"""Students cut in depth, width and vocabulary as int8 files: score, megabytes and milliseconds beside the teacher's.

MiniLM-6 is fine-tuned on each task and teaches every student by `logit-mse` or `kd` on the same rows. Of SST-2 10,000
rows keep their labels, and students also read the text of all 67,349. Of the questions 1,000 are dev rows. What ships
is scored: int8 (with 4-bit word embeddings where the row says so), timed at batch 1 and one thread. Students of SST-2
are also scored on tweets, text of another domain. A cascade's time is its first member's, and the second's of the share
of rows that reach it; its score is of rows that did not choose the threshold.

    python benchmarks/sizes.py run --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR [--work DIR]
        [--tasks sst2 mrpc stsb questions] [--seeds 5] [--labels 10000] [--only "3 layers" …]
    python benchmarks/sizes.py run … --tasks questions stsb --compress size=5MB [--hours 0.5]
    python benchmarks/sizes.py table
    python benchmarks/sizes.py picture

Resumable: what has a record in `benchmarks/records/sizes.json` is not made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import ttest_rel

import limbeck
from limbeck.compressing.front import FrontPoint
from limbeck.compressing.page import drawing
from limbeck.evaluation.compare import holm
from limbeck.exporting.cascade import cascade
from limbeck.latency.settings import BenchSettings
from limbeck.report.svg import standalone
from limbeck.runtimes.manifest import is_export
from study import RECORDS, JsonRecord

RECORD = JsonRecord("sizes", indent=1)
COMPRESSED = RECORDS / "compress_sst2.json"
PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "compress.svg"
TEACHER, PLAIN = "teacher, 6 layers", "3 layers"
SHALLOW, SLIM, FEW_TOKENS = "2 layers", "3 layers, ffn 384", "3 layers, 12,000 tokens"
FOUR_BITS = "3 layers, 21,000 tokens, trained in 4 bits"
EIGHT_THOUSAND = "3 layers, 8,000 tokens"
THIN, SMALL = "3 layers, ffn 256, 8,000 tokens", "3 layers, ffn 256, 4,400 tokens"
SMALLEST = "3 layers, ffn 256, 3,800 tokens, trained in 4 bits"
STATIC = "static, 8,000 tokens"
# Of about the same latency; and the same layers with and without rare tokens, twice of about 11 MB.
PAIRS = (
    (SLIM, SHALLOW),
    (FEW_TOKENS, PLAIN),
    (FOUR_BITS, PLAIN),
)
NARROW = {"student.hidden": 256, "student.heads": 8, "student.ffn": 768, "lr": 2e-4}
STUDENTS: dict[str, dict[str, Any]] = {
    PLAIN: {"student.layers": 3},
    FEW_TOKENS: {"student.layers": 3, "student.vocabulary": 12_000},
    FOUR_BITS: {
        "student.layers": 3,
        "student.vocabulary": 21_000,
        "student.embedding_bits": 4,
    },
    EIGHT_THOUSAND: {"student.layers": 3, "student.vocabulary": 8000},
    SHALLOW: {"student.layers": 2},
    SLIM: {"student.layers": 3, "student.ffn": 384},
    "2 layers, 8,000 tokens": {"student.layers": 2, "student.vocabulary": 8000},
    "3 layers of 256, 8,000 tokens": {
        "student.layers": 3,
        "student.vocabulary": 8000,
        **NARROW,
    },
    "3 layers, ffn 384, 8,000 tokens": {
        "student.layers": 3,
        "student.ffn": 384,
        "student.vocabulary": 8000,
    },
    THIN: {
        "student.layers": 3,
        "student.ffn": 256,
        "student.vocabulary": 8000,
    },
    SMALL: {"student.layers": 3, "student.ffn": 256, "student.vocabulary": 4400},
    SMALLEST: {
        "student.layers": 3,
        "student.ffn": 256,
        "student.vocabulary": 3800,
        "student.embedding_bits": 4,
    },
    "6 layers, ffn 384, 3,800 tokens": {
        "student.layers": 6,
        "student.ffn": 384,
        "student.vocabulary": 3800,
    },
    STATIC: {"student.static": True, "student.vocabulary": 8000},
}
# What ships, and is a row: most as int8, these with 4-bit word embeddings, or with 4 bits everywhere.
PRECISIONS: dict[str, dict[str, Any]] = {
    "4 bits": {"embedding_bits": 4},
    "int4": {"format": "onnx-int4"},
}
FORMS = {
    EIGHT_THOUSAND: ["", "int4"],
    THIN: ["", "4 bits", "int4"],
    SMALL: ["int4"],
    SMALLEST: ["int4"],
    "6 layers, ffn 384, 3,800 tokens": ["4 bits"],
}
# A name, and the rows of its members.
CASCADES = {"cascade: static, then 3 layers, ffn 256; 8,000 tokens": (STATIC, THIN)}
ROWS = {
    ", ".join(filter(None, (name, form))): (name, form)
    for name in STUDENTS
    for form in FORMS.get(name, [""])
}
# Passes over the rows: the teacher's, and a student's.
TASKS = {"sst2": (2, 3), "mrpc": (4, 8), "stsb": (4, 8), "questions": (4, 8)}
TIMING = BenchSettings.checked({"lengths": (26,), "passes": 100, "threads": (1,)})
COMMON = {"batch_size": 32, "precision": "auto", "attention": "eager", "floor": False}


def of_students(name: str, passes: int) -> tuple[str, dict[str, Any]]:
    """Method and settings of a student."""
    if "student.static" in STUDENTS[name]:
        return "logit-mse", {**COMMON, **STUDENTS[name], "batch_size": 128, "epochs": 2 * passes}
    usual = {"student.init": "teacher", "lr": 1e-4, "epochs": passes}
    return "kd", {**COMMON, **usual, **STUDENTS[name]}


def all_text(args: argparse.Namespace) -> str:
    """A file of the texts of all training rows of SST-2."""
    path: Path = args.work / "sst2-text.csv"
    if not path.is_file():
        rows = pd.read_csv(
            Path(args.data) / "SST-2" / "train.tsv", sep="\t", quoting=csv.QUOTE_NONE
        )
        rows[["sentence"]].to_csv(path, index=False)
    return str(path)


def rows_of(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Settings of a task's rows."""
    if task != "questions":
        return {"task": task, "data": args.data}
    paths = [args.work / f"questions-{split}.csv" for split in ("dev", "train")]
    if not paths[1].is_file():
        rows = pd.read_csv(Path(args.texts) / "questions.csv").drop_duplicates("text")
        rows = rows.sample(frac=1.0, random_state=0)[["text", "label"]]
        for path, some in zip(paths, (rows[:1000], rows[1000:]), strict=True):
            some.to_csv(path, index=False)
    dev, train = map(str, paths)
    columns = {"text_columns": ["text"], "label_column": "label"}
    return {"task": "own-questions", "data": train, "dev": dev, **columns}


def made(task: str, name: str, seed: int, args: argparse.Namespace) -> Path:
    """A finished run; one that is there stays."""
    settings: dict[str, Any] = {**rows_of(task, args), "seed": seed}
    if task == "sst2":
        settings["train_rows"] = args.labels
    first, passes = TASKS[task]
    place = Path(args.work) / f"{task}-{name.replace(' ', '-').replace(',', '')}-s{seed}"
    if name == TEACHER:
        own = {**COMMON, "student.init": args.model, "lr": 5e-5, "epochs": first}
        recipe = limbeck.Recipe.load("finetune", **settings, **own)
    else:
        method, own = of_students(name, passes)
        if task == "sst2":
            settings |= {"unlabelled": [all_text(args)], "unlabelled_duplicates": "drop"}
        teacher = str(made(task, TEACHER, seed, args))
        recipe = limbeck.Recipe.load(method, **settings, **own, teacher=teacher)
    return limbeck.distill(recipe, out=place, report=False).path


def measured(task: str, name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Score, size and time of what ships."""
    if name in CASCADES:
        return of_cascade(task, CASCADES[name], seed, args)
    run, place = exported(task, name, seed, args)
    return of_export(run, place, made(task, TEACHER, seed, args), task, args)


def exported(task: str, name: str, seed: int, args: argparse.Namespace) -> tuple[Path, Path]:
    """A row's run, and the folder of what ships."""
    name, precision = ROWS.get(name, (name, ""))
    run = made(task, name, seed, args)
    form: dict[str, Any] = {
        "format": "onnx-int8",
        "max_drop": 100.0,
        **PRECISIONS.get(precision, {}),
    }
    place = Path(args.work) / f"{run.name}-{precision.replace(' ', '-') or 'int8'}"
    if not is_export(place):
        limbeck.export(run, out=place, overwrite=True, batch_size=32, threads=1, **form)
    return run, place


def of_cascade(
    task: str, members: tuple[str, str], seed: int, args: argparse.Namespace
) -> dict[str, Any]:
    """The same of a cascade: the second exported student answers the rows of which the first is unsure."""
    teacher = made(task, TEACHER, seed, args)
    runs = [exported(task, name, seed, args) for name in members]
    fast, slow = (of_export(*one, teacher, task, args) for one in runs)
    place = Path(args.work) / f"{task}-cascade-s{seed}"
    made_of = cascade([one for _, one in runs], place, overwrite=True)
    sent = made_of.shown.sent[-1]
    found = {
        "score": made_of.shown.score,
        "mb": round(fast["mb"] + slow["mb"], 2),
        "ms": round(fast["ms"] + sent * slow["ms"], 3),
        "sent": sent,
        "teacher_ms": slow["teacher_ms"],
    }
    return found | of_tweets(place, task, args)


def of_export(
    run: Path, place: Path, teacher: Path, task: str, args: argparse.Namespace
) -> dict[str, Any]:
    """Score, size and time of a run's student in torch and as it was exported, and the teacher's time beside them."""
    known = limbeck.evaluate(place)
    # A run's own exports come with it.
    models = [run, *[place] * (not place.is_relative_to(run)), *[teacher] * (run != teacher)]
    torch, shipped, *beside = limbeck.bench(models, TIMING).measurements  # in their order
    found = {
        "torch_score": torch.score,
        "score": known["primary"],
        "mb": round(sum(file.stat().st_size for file in place.iterdir()) / 1e6, 2),
        "ms": round(shipped.cpu_p50 or 0, 3),
        "torch_ms": round(torch.cpu_p50 or 0, 3),
        "teacher_ms": round([torch, *beside][-1].cpu_p50 or 0, 3),
    }
    return found | of_tweets(place, task, args)


def of_tweets(place: Path, task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Of a student of SST-2 the score on tweets."""
    if task != "sst2":
        return {}
    tweets = Path(args.work) / "tweets.csv"
    rows = pd.read_csv(Path(args.texts) / "sentiment" / "tweets.csv")
    rows[["text", "label"]].to_csv(tweets, index=False)
    own = limbeck.evaluate(place, data=str(tweets), text_columns=["text"], label_column="label")
    return {"tweets": own["primary"]}


def compressed(task: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """The same of the student that `compress` recommends within the budget and the hours."""
    out = args.work / f"{task}-compress-{args.compress}-{args.hours:g}h-s{seed}"
    teacher = made(task, TEACHER, seed, args)
    found = limbeck.compress(
        teacher,
        args.compress,
        out,
        hours=args.hours,
        jobs=2,  # of one thread each
        show=True,
        recipe=rows_of(task, args),
    )
    best = found.recommended
    if best is None or not best.run:
        raise SystemExit(f"{task}: {found.about['reason']}")
    own = of_export(Path(best.run), Path(best.path), teacher, task, args)
    return own | {"found": f"{best.name}, {best.precision}"}


def run(args: argparse.Namespace) -> None:
    """What has no record, seed by seed."""
    args.work.mkdir(parents=True, exist_ok=True)
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            names = (TEACHER, *(args.only or (*ROWS, *CASCADES)))
            if task in ("mrpc", "stsb"):  # two texts a row
                names = tuple(one for one in names if "static" not in one)
            if args.compress:
                names = (f"compress, {args.compress}, {args.hours:g} h",)
            for name in names:
                if RECORD.has(task, name, seed):
                    continue
                if args.compress:
                    found = compressed(task, seed, args)
                else:
                    found = measured(task, name, seed, args)
                RECORD.keep(found, task, name, seed)
                print(task, seed, name, found, flush=True)


def table() -> None:
    """A row a student: means over its seeds, compared with the teacher and with plain 3 layers."""
    for task, students in RECORD.read().items():
        tweets = task == "sst2"
        heads = [task, "seeds", "score", "of the teacher's", "less 3 layers'", *["tweets"] * tweets]
        print(f"| {' | '.join(heads)} | MB | ms | faster than the teacher in torch |")
        print("|:---|---:|---:|---:|---:|" + "---:|" * tweets + "---:|---:|---:|")
        for name, seeds in students.items():
            both = sorted(seeds.keys() & students[TEACHER].keys())
            ours, teachers = (
                [seeds[seed] for seed in both],
                [students[TEACHER][seed] for seed in both],
            )
            score, mb, ms = (
                statistics.mean(one[key] for one in ours) for key in ("score", "mb", "ms")
            )
            share = 100 * statistics.mean(
                one["score"] / other["torch_score"]
                for one, other in zip(ours, teachers, strict=True)
            )
            pairs = zip(ours, teachers, strict=True)
            faster = (
                statistics.mean(one.get("teacher_ms", two["torch_ms"]) for one, two in pairs) / ms
            )
            found = {one["found"] for one in ours if "found" in one}
            if sent := [one["sent"] for one in ours if "sent" in one]:
                found |= {f"{100 * statistics.mean(sent):.0f} % sent on"}
            cells = [
                ": ".join([name, *sorted(found)]),
                len(both),
                f"{score:.1f}",
                f"{share:.1f} %",
                _less(seeds, students.get(PLAIN, {})),
            ]
            if tweets:
                cells.append(f"{statistics.mean(one['tweets'] for one in ours):.1f}")
            cells += [f"{mb:.1f}", f"{ms:.2f}", f"{faster:.1f} ×"]
            print(f"| {' | '.join(map(str, cells))} |")
        print()
    differences()


def differences() -> None:
    """The pairs whose seeds were paired, three of them or more: a row a task."""
    found: dict[str, float] = {}
    for task, students in RECORD.read().items():
        for pair in PAIRS:
            runs = [students.get(name, {}) for name in pair]
            both = sorted(runs[0].keys() & runs[1].keys())
            if len(both) < 3:
                continue
            scores, times = (
                [[one[seed][key] for seed in both] for one in runs] for key in ("score", "ms")
            )
            faster = statistics.mean(times[1]) / statistics.mean(times[0])
            said = f"{' less '.join(pair)} | {len(both)} | {_less(*runs)} | {faster:.2f} ×"
            found[f"| {task}: {said}"] = float(ttest_rel(*scores).pvalue)
    if found:
        print("| difference | seeds | points (95 % over seeds) | speed | p, Holm |")
        print("|:---|---:|---:|---:|---:|")
    for row, value in holm(found).items():
        print(f"{row} | {value:.2g} |")


def picture() -> None:
    """Draw the README's picture from the record of one run of `limbeck compress`."""
    found = json.loads(COMPRESSED.read_text(encoding="utf-8"))
    points = [FrontPoint.model_validate(one) for one in found["points"]]
    PICTURE.write_bytes(standalone(drawing(points, found["metric"]).svg))


def _less(ours: dict[str, Any], plain: dict[str, Any]) -> str:
    both = sorted(ours.keys() & plain.keys())
    pairs = [[runs[seed]["score"] for seed in both] for runs in (ours, plain)]
    if not both or ours is plain:
        return ""
    gap = statistics.mean(one - other for one, other in zip(*pairs, strict=True))
    if len(both) < 3:
        return f"{gap:+.1f}"
    low, high = ttest_rel(*pairs).confidence_interval()
    return f"{gap:+.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what has no record yet")
    runs.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    runs.add_argument("--data", required=True, help="GLUE folder")
    runs.add_argument("--texts", required=True, help="folder of get-texts")
    runs.add_argument("--work", type=Path, default=Path("runs/sizes"))
    runs.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    runs.add_argument("--seeds", type=int, default=5)
    runs.add_argument("--labels", type=int, default=10_000, help="rows of SST-2 that keep them")
    runs.add_argument("--only", nargs="+", choices=(*ROWS, *CASCADES))
    runs.add_argument("--compress", help="a budget: the student that `compress` finds, by itself")
    runs.add_argument("--hours", type=float, default=0.5, help="of compress")
    commands.add_parser("table", help="print the record's tables")
    commands.add_parser("picture", help="draw the README's picture")
    args = parser.parse_args()
    if args.command == "table":
        table()
    elif args.command == "picture":
        picture()
    else:
        run(args)


if __name__ == "__main__":
    main()
