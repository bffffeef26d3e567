"""Students of translations: how often the nearest sentence of the other language is the translation.

all-MiniLM-L6-v2 reads English. A static student with a tokenizer of both languages, one with the teacher's tokenizer,
and a 3-layer student learn its embeddings of English sentences for German or French ones. Scores are of 1,000
translations that nobody trained on, each way, beside the teacher's own; and nDCG@10 by the query's language, where one
index holds the texts of both languages and the translation alone is relevant. `--pairs` and `--characters` cut the
files to what a core reads in minutes: so many pairs, drawn with a fixed seed from those whose English side is that
short.

    python benchmarks/parallel.py run --model MINILM_DIR --texts PARALLEL_DIR [--work DIR] [--languages de fr]
        [--students static …] [--pairs 12000] [--characters 100]
    python benchmarks/parallel.py table

Resumable: what has a record in `benchmarks/records/parallel.json` is not made again.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import AutoTokenizer

import limbeck
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.recipe import Recipe
from limbeck.scoring.evaluation import evaluate
from limbeck.support.files import write_whole
from limbeck.tasks.metrics import ndcg
from static import torch_reader
from study import JsonRecord

RECORD = JsonRecord("parallel", indent=1)
LANGUAGES = {"de": "German", "fr": "French"}
STATIC = {"student.static": True, "batch_size": 128, "epochs": 5}
STUDENTS: dict[str, dict[str, Any]] = {
    "static": {**STATIC, "student.tokenizer": 30_000},
    "static, the teacher's tokenizer": STATIC,
    "3 layers": {"student.layers": 3, "batch_size": 32, "epochs": 1, "lr": 2e-4},
}
SCORES = ("to_translation", "to_source", "ndcg_source", "ndcg_translation")


def run(args: argparse.Namespace) -> None:
    """Train and score what has no record yet."""
    torch.set_num_threads(1)
    embedder = args.work / "teacher"
    if not (embedder / "modules.json").exists():
        AutoTokenizer.from_pretrained(args.model).save_pretrained(embedder)
        SENTENCE_EMBEDDERS.from_pretrained(args.model).save_pretrained(embedder)
    for language in args.languages:
        for name in args.students:
            key = f"{LANGUAGES[language]}, {name}"
            if RECORD.has(key):
                continue
            recipe = Recipe.load(
                None, teacher=str(embedder), parallel=str(cut(args, language)), max_length=64, attention="eager",
                **STUDENTS[name],
            )  # fmt: skip
            out = args.work / f"{language}-{name.replace(' ', '-')}"
            made = limbeck.distill(recipe, out=out, report=False)
            test = Path(made.record.recipe["test"])
            teacher = evaluate(embedder, data=str(test))
            sides = {
                "student": made.record.scores["test"] | mixed(out / "student", test),
                "teacher": teacher | mixed(embedder, test),
            }
            found: dict[str, Any] = {
                side: {one: scores[one] for one in SCORES} for side, scores in sides.items()
            }
            cuts = {"pairs": args.pairs, "characters": args.characters}
            found |= {"rows": made.record.examples.train, **cuts}
            RECORD.keep(found, key)
            print(key, found, flush=True)


def mixed(model: Path, test: Path) -> dict[str, float]:
    """nDCG@10 of queries in each language, in one index of both without the query itself."""
    rows = pd.read_parquet(test) if test.suffix == ".parquet" else pd.read_csv(test)
    count, read = len(rows), torch_reader(model)
    vectors = np.concatenate([read([*map(str, rows[side])]) for side in ("source", "translation")])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gains = []
    for query, cosines in enumerate(vectors @ vectors.T):
        cosines[query] = -2.0  # behind all others
        gains.append(ndcg(cosines, np.arange(2 * count) == (query + count) % (2 * count), 10))
    sides = np.array(gains).reshape(2, count).mean(axis=1)
    return {name: 100 * float(mean) for name, mean in zip(SCORES[2:], sides, strict=True)}


def cut(args: argparse.Namespace, language: str) -> Path:
    """The file of a language with the pairs that are read of it."""
    there = args.texts / f"en-{language}.tsv"
    lines = [*dict.fromkeys(there.read_text(encoding="utf-8").rstrip("\n").split("\n"))]
    short = [line for line in lines if len(line.split("\t")[0]) <= args.characters]
    chosen = random.Random(0).sample(short, min(args.pairs, len(short)))
    path: Path = args.work / f"en-{language}-{args.pairs}-{args.characters}.tsv"
    write_whole(path, "\n".join(chosen) + "\n")
    return path


def table() -> None:
    """Print one row a student, the teacher's above them."""
    print(
        "| student | to the translation | to English | nDCG@10, English queries | nDCG@10, the others |"
        " training texts |\n|:---|---:|---:|---:|---:|---:|"
    )
    seen = set()
    for key, found in sorted(RECORD.read().items(), key=lambda one: one[0].split(",")[0]):
        language = key.split(",")[0]
        both = {f"{language}, the teacher itself": ("teacher", "")} if language not in seen else {}
        seen.add(language)
        for name, (side, rows) in (both | {key: ("student", f"{found['rows']:,}")}).items():
            scores = " | ".join(f"{found[side][one]:.1f}" for one in SCORES)
            print(f"| {name} | {scores} | {rows} |")


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="measure what has no record yet")
    one.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    one.add_argument("--texts", type=Path, required=True, help="folder of get-parallel")
    one.add_argument("--work", type=Path, default=Path("runs/parallel"))
    one.add_argument("--languages", nargs="+", choices=LANGUAGES, default=[*LANGUAGES])
    one.add_argument("--students", nargs="+", choices=STUDENTS, default=[*STUDENTS])
    one.add_argument("--pairs", type=int, default=12_000)
    one.add_argument("--characters", type=int, default=100, help="of the English side, at most")
    commands.add_parser("table", help="print the record's table")
    args = parser.parse_args()
    if args.command == "table":
        table()
    else:
        run(args)


if __name__ == "__main__":
    main()
