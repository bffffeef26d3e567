"""Decoders cut in depth and taught by their teacher: do layer terms help, and which layers are best kept?

The text is news (Reuters-52) and newsgroup posts (20 Newsgroups), 64 tokens of each. 320 texts fine-tune the teacher,
SmolLM2-135M-Instruct. A student keeps some of its 30 layers, by importance unless its name says otherwise, and takes 80
steps on 640 texts, sampled by the seed. It learns the texts' next tokens alone, or the teacher's logits too, or layers
beside both. Every student is scored on 128 held-out texts beside its teacher.

    python benchmarks/decoders.py run --model SMOLLM2_DIR --texts TEXTS_DIR [--work DIR] [--seeds 3]
        [--layers 15 10] [--only kd …]
    python benchmarks/decoders.py table

Resumable: what has a record in `benchmarks/records/decoders.json` is not made again. Records keep of each held-out text
the student's mean loss, the share of its tokens at which the teacher has the same favorite, and KL(teacher ‖ student).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import ttest_rel
from torch.nn.functional import cross_entropy, kl_div
from transformers import AutoModelForCausalLM, AutoTokenizer

import limbeck
from limbeck.students.execution import resolve_precision
from study import JsonRecord

RECORD = JsonRecord("decoders")
ROWS, LENGTH, HELD_OUT, BATCH = 640, 64, 128, 8
TEACHER_ROWS = 320
STEPS = ROWS // BATCH
TEACHER, KD = "teacher", "kd"
# First stage's terms for half of the steps, the others for the other half.
HALVES = {"first_stage.max_steps": STEPS // 2, "max_steps": STEPS - STEPS // 2}
LAST_TOKEN = {"objectives.attention.pool": "last"}
# Squared errors of a decoder's states are hundreds of times its cross-entropy. The recipe's weight is for encoders.
SMALL = {"objectives.attention.weight": 2e-4}
STUDENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fine-tuning alone": ("finetune", {}),
    KD: ("kd", {}),
    "logits alone": ("kd-soft", {}),
    "RAIL-KD": ("rail-kd-l", {}),
    "ALP-KD": ("alp-kd", LAST_TOKEN),
    "ALP-KD, a thousandth of its weight": ("alp-kd", LAST_TOKEN | SMALL),
    "MiniLMv2, then logits": ("minilmv2", HALVES),
    "kd, every second layer": ("kd", {"student.pick": "skip"}),
    "kd, last layers": ("kd", {"student.pick": "last"}),
    "kd, first layers": ("kd", {"student.pick": "first"}),
    "fine-tuning alone, every second layer": ("finetune", {"student.pick": "skip"}),
}
PICKS = [name for name, (_, own) in STUDENTS.items() if "student.pick" in own]
COMMON = {
    "kind": "causal-lm", "max_length": LENGTH, "text_columns": ["text"], "batch_size": BATCH, "epochs": 1,
    "precision": "auto", "attention": "eager", "skip_unused_embeddings": False, "cache": "never", "floor": False,
    "keep_texts": False,
}  # fmt: skip


def rows(args: argparse.Namespace) -> dict[str, Path]:
    """Files of texts that fill the length: to train on, to end a run by, and held out."""
    files = {name: args.work / f"{name}.csv" for name in ("train", "dev", "held_out")}
    if not all(file.is_file() for file in files.values()):
        args.work.mkdir(parents=True, exist_ok=True)
        kept: dict[str, list[pd.DataFrame]] = {name: [] for name in files}
        for source in ("reuters52", "newsgroups"):
            sides = []
            for side in ("train", "test"):
                found = pd.read_csv(Path(args.texts) / source / f"{side}.csv")[["text"]]
                long = found["text"].astype(str).str.split().str.len() >= 0.8 * LENGTH
                sides.append(found[long].drop_duplicates().sample(frac=1, random_state=0))
            kept["train"].append(sides[0][:3000])
            new = sides[1][~sides[1]["text"].isin(sides[0]["text"])]
            kept["held_out"].append(new[: HELD_OUT // 2])
            kept["dev"].append(new[HELD_OUT // 2 :][:16])
        for name, file in files.items():
            pd.concat(kept[name]).to_csv(file, index=False)
    return files


def made(name: str, layers: int, seed: int, args: argparse.Namespace) -> Path:
    """A finished run; one that is there stays."""
    files = rows(args)
    settings: dict[str, Any] = {
        **COMMON, "data": str(files["train"]), "dev": str(files["dev"]), "test_share": 0.0, "train_rows": ROWS,
        "train_rows_seed": seed, "seed": seed, "lr": args.lr,
    }  # fmt: skip
    if name == TEACHER:
        own = {"student.init": str(args.model), "lr": 1e-4, "train_rows": TEACHER_ROWS}
        recipe = limbeck.Recipe.load("finetune", **{**settings, **own})
        return limbeck.distill(recipe, out=args.work / TEACHER, report=False).path
    method, own = STUDENTS[name]
    teacher = str(made(TEACHER, 30, 0, args))
    settings |= {"student.layers": layers, "student.pick": "importance"}
    if method == "finetune":
        settings |= {"student.init": str(Path(teacher) / "student")}
    else:
        settings |= {"teacher": teacher, "student.init": "teacher"}
    if "first_stage.max_steps" in own:
        settings |= {"first_stage.lr": args.lr, "first_stage.batch_size": BATCH}
    place = args.work / f"{layers}-{name.replace(' ', '-').replace(',', '')}-s{seed}"
    recipe = limbeck.Recipe.load(method, **{**settings, **own})
    return limbeck.distill(recipe, out=place, report=False).path


@torch.inference_mode()
def beside(student: Path, teacher: Path, texts: list[str]) -> dict[str, list[float]]:
    """By text the student's mean loss, percent of tokens with the teacher's favorite, and KL in nats."""
    tokenizer = AutoTokenizer.from_pretrained(teacher, padding_side="right")
    models = [
        AutoModelForCausalLM.from_pretrained(one).float().eval() for one in (student, teacher)
    ]
    found: dict[str, list[float]] = {"loss": [], "same": [], "kl": []}
    bf16 = resolve_precision("auto") == "bf16"
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )  # fmt: skip
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = [model(**batch).logits[:, :-1] for model in models]
        for row, (ids, seen) in enumerate(
            zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ):
            ours, theirs = (side[row, : seen.sum() - 1].float().log_softmax(-1) for side in logits)
            following = ids[1 : seen.sum()]
            found["loss"].append(round(cross_entropy(ours, following).item(), 4))
            same = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
            found["same"].append(round(100 * same, 2))
            divergence = kl_div(ours, theirs, reduction="sum", log_target=True) / len(following)
            found["kl"].append(round(divergence.item(), 4))
    return found


def cells(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    """The measured cells in their order: the teacher, methods, picks of the deepest students, the next depth."""
    found = [(TEACHER, 30, 0)]
    for seed in range(1, args.seeds + 1):
        for layers in args.layers:
            names = [name for name in STUDENTS if name not in PICKS or layers == max(args.layers)]
            found += [(name, layers, seed) for name in args.only or names]
    return found


def run(args: argparse.Namespace) -> None:
    """Measure the cells without a record, seed by seed."""
    texts = list(pd.read_csv(rows(args)["held_out"])["text"])
    for name, layers, seed in cells(args):
        if RECORD.has(layers, name, seed):
            continue
        began = time.process_time()
        place = made(name, layers, seed, args)
        found: dict[str, Any] = {"cpu_seconds": round(time.process_time() - began)}
        teacher = made(TEACHER, 30, 0, args) / "student"
        found |= beside(place / "student", teacher, texts)
        RECORD.keep(found, layers, name, seed)
        means = {key: np.mean(value).round(3) for key, value in found.items()}
        print(layers, name, seed, means, flush=True)


def table() -> None:
    """A row a student: means over its seeds, and its loss less that of `kd` over the same texts and seeds."""
    record = RECORD.read()
    teacher = record.pop("30")
    for layers, students in record.items():
        students |= teacher
        print(
            f"| {layers} layers | seeds | perplexity | agreement | KL | loss less kd's | KL less kd's |"
        )
        print("|:---|---:|---:|---:|---:|---:|---:|")
        for name in sorted(students, key=[TEACHER, *STUDENTS].index):
            runs = students[name]
            means = {key: _mean(runs.values(), key) for key in ("loss", "same", "kl")}
            perplexity = f"{math.exp(means['loss'].mean()):.1f}"
            cells = [
                name,
                len(runs),
                perplexity,
                f"{means['same'].mean():.1f} %",
                f"{means['kl'].mean():.3f}",
            ]
            cells += [
                _less(runs, students.get(KD, {}), key) if name != KD else ""
                for key in ("loss", "kl")
            ]
            print(f"| {' | '.join(map(str, cells))} |")
        print()


def _mean(runs: Any, key: str) -> Any:
    """By text the mean over seeds."""
    return np.mean([one[key] for one in runs], axis=0)


def _less(ours: dict[str, Any], others: dict[str, Any], key: str) -> str:
    """The mean difference over the seeds of both; 95 % over seeds if there are three, otherwise over texts."""
    both = sorted(ours.keys() & others.keys())
    if not both:
        return ""
    pairs = [[runs[seed][key] for seed in both] for runs in (ours, others)]
    over_seeds = len(both) >= 3
    sides = [np.mean(side, axis=1 if over_seeds else 0) for side in pairs]
    low, high = ttest_rel(*sides).confidence_interval()
    gap = statistics.mean(sides[0]) - statistics.mean(sides[1])
    return f"{gap:+.3f} ({low:+.3f} to {high:+.3f} over {'seeds' if over_seeds else 'texts'})"


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what has no record yet")
    runs.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    runs.add_argument("--texts", required=True, help="folder of get-texts")
    runs.add_argument("--work", type=Path, default=Path("runs/decoders"))
    runs.add_argument("--layers", nargs="+", type=int, default=[15, 10])
    runs.add_argument("--seeds", type=int, default=3)
    runs.add_argument("--only", nargs="+", choices=STUDENTS)
    runs.add_argument("--lr", type=float, default=5e-4, help="of students")
    commands.add_parser("table", help="print the record's tables")
    args = parser.parse_args()
    if args.command == "table":
        table()
    else:
        torch.set_num_threads(1)
        run(args)


if __name__ == "__main__":
    main()
