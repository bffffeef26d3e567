"""Seven ways to train a short student on real GLUE, against each other.

MiniLM-6 teacher; 3- and 2-layer students from the first layers of the same pretrained encoder (on STS-B and MRPC of
the teacher: from the pretrained ones they stay on their plateau for several passes); STS-B, MRPC and 10,000 rows of
SST-2; three seeds; bf16. Every run of a task sees the same rows, epochs, rate and initial student.

With `--texts`, 3-layer students start as the papers' do, from an encoder that was distilled before: the pretrained
one's layers 2, 4 and 6 learn its attention scores and hidden states (TinyBERT's first stage) on text of newsgroups and
Reuters, two passes over 20,000 rows of 48 to 64 tokens.

    python benchmarks/real_glue.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--seeds 3] [--texts TEXTS_DIR]

Resumable. `limbeck table benchmarks/records/real_glue.jsonl.gz` prints what there is, of
`--texts` the file `distilled_start.jsonl.gz`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.files import write_whole
from study import Cell, Study, student_cells

TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"epochs": 1, "train_rows": 10_000},
    "stsb": {"epochs": 2, "student.init": "teacher"},
    "mrpc": {"epochs": 2, "student.init": "teacher"},
}
COMMON = {"lr": 1e-4, "batch_size": 32, "precision": "auto"}
TEACHER = {"epochs": 3, "seed": 1}


def teacher_cell(task: str, model: str, data: str) -> Cell:
    """Fine-tune the whole encoder."""
    settings = {**COMMON, **TASKS[task], **TEACHER, "task": task, "data": data}
    return Cell(f"{task}-teacher", "finetune", settings | {"student.init": model})


def students(task: str, args: argparse.Namespace, seed: int) -> list[Cell]:
    """One seed of every method and depth on a task."""
    settings = {
        **COMMON,
        "student.init": args.model,
        **TASKS[task],
        "data": args.data,
        "teacher": str(args.work / f"{task}-teacher"),
    }
    if args.texts is None:
        return student_cells(task, settings, layers=(2, 3), seed=seed)
    settings["student.init"] = str(distilled_encoder(args))
    return student_cells(task, settings, layers=(3,), seed=seed)


def distilled_encoder(args: argparse.Namespace) -> Path:
    """The general student of 3 layers, made once."""
    work: Path = args.work
    corpus, place, made = work / "corpus.txt", work / "distilled", work / "distilled/first_stage"
    if made.is_dir():
        return made
    if not corpus.exists():
        files = (args.texts / name / "train.csv" for name in ("newsgroups", "reuters52"))
        texts = [text.split() for file in files for text in pd.read_csv(file)["text"]]
        # They have no punctuation: 20 words are a sentence.
        lines = (
            "\n".join(" ".join(words[at : at + 20]) for at in range(0, len(words), 20))
            for words in texts
        )
        write_whole(corpus, "\n\n".join(lines) + "\n")
    drawn = {"source": str(corpus), "size": 20_000, "min_tokens": 48, "max_tokens": 64}
    general = {
        "corpus": drawn,
        "teacher": args.model,
        "max_steps": 1250,
        "lr": 3e-4,
        "batch_size": 32,
    }
    recipe = Recipe.load(
        "tinybert",
        task=args.tasks[0],
        data=args.data,
        teacher=str(args.work / f"{args.tasks[0]}-teacher"),
        max_steps=1,  # of the second stage, which is not used
        keep_first_stage=True,
        precision="auto",
        **{f"first_stage.{key}": value for key, value in general.items()},
        **{"student.init": args.model, "student.layers": 3, "student.pick": "skip"},
    )
    distill(recipe, place, report=False)
    return made


def main() -> None:
    """Teachers first, then the students of one seed after the other, the cheapest task first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/real_glue"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--only-teachers", action="store_true")
    parser.add_argument(
        "--texts",
        type=Path,
        help="folder of get-texts: start from an encoder distilled on its text",
    )
    args = parser.parse_args()
    study = Study("distilled_start" if args.texts else "real_glue", args.work)
    study.run([teacher_cell(task, args.model, args.data) for task in args.tasks])
    if args.only_teachers:
        return
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            study.run(students(task, args, seed), args.work / f"{task}-teacher")


if __name__ == "__main__":
    main()
