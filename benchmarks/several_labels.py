"""Several labels a row on real sentences, and rare classes: what soft labels, class weights and the focal loss do.

GLUE has no task of several labels. `several`: sentences of CoLA, SST-2, MRPC and RTE, whose labels are found by
plain rules on their words (`LABELS`): what a text classifier of several labels has to find in any text, from
classes of a third of the rows to one of a fiftieth. MiniLM-6 is fine-tuned on them and teaches students of its first 3
layers.

`rare`: SST-2 with one class made rare, a tenth of the rows; 3-layer students fine-tuned on plain labels, with
balanced class weights, and with the focal loss, by several seeds. Dev are rows of SST-2's own, half and half.

    python benchmarks/several_labels.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--parts several rare]
    python benchmarks/several_labels.py --table

Resumable. `--table` prints what the records under `benchmarks/records/` come to.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from limbeck.data import load_task
from limbeck.records import Record
from limbeck.records.facts import ClassificationScores
from limbeck.records.record import read_raw
from study import Cell, Study, records_of

_WORDS = re.compile(r"[a-z]+(?:'[a-z]+)?|n't")
_IRREGULAR = frozenset(
    _WORDS.findall(
        "was were had did said went made came took saw found gave told felt became left put brought began kept held "
        "wrote stood heard let meant met ran paid sat spoke lay led grew lost fell sent built drew broke spent"
    )
)
_NOT_PAST = frozenset(
    _WORDS.findall("need indeed speed feed seed hundred bed red shed wed exceed proceed succeed")
)
_NUMBERS = frozenset(
    _WORDS.findall(
        "two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand million billion"
    )
)


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text.lower()))


def _past(text: str) -> bool:
    words = _words(text)
    regular = any(w.endswith("ed") and len(w) > 4 and w not in _NOT_PAST for w in words)
    return regular or bool(words & _IRREGULAR)


LABELS: dict[str, Callable[[str], bool]] = {
    "past tense": _past,
    "number": lambda text: bool(re.search(r"\d", text)) or bool(_words(text) & _NUMBERS),
    "negation": lambda text: (
        bool(
            _words(text)
            & {
                "not",
                "no",
                "never",
                "nothing",
                "nobody",
                "none",
                "neither",
                "nor",
                "n't",
                "without",
            }
        )
        or "n't" in text.lower()
    ),
    "first person": lambda text: bool(_words(text) & {"i", "we", "my", "our", "me", "us"}),
    "quotation": lambda text: '"' in text or "``" in text,
    "question": lambda text: text.rstrip().endswith("?"),
}
"""Class → the rule that finds it. The rules read what a tokenizer keeps, so that they can be learned."""

SOURCES = {"cola": "sentence", "sst2": "sentence", "mrpc": "sentence1", "rte": "sentence1"}
TRAIN, DEV = 750, 250
"""Rows of each source."""
RARE_ROWS, RARE_SHARE, RARE_DEV = 600, 0.1, 300
COMMON: dict[str, Any] = {
    "batch_size": 16,
    "max_length": 64,
    "keep_texts": False,
    "attention": "eager",
}
SEEDS = 3


def several_rows(data: str, folder: Path) -> Path:
    """Train and dev files of sentences with the labels that the rules find, made once."""
    if (folder / "dev.parquet").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", TRAIN), ("dev", DEV)):
        texts: list[str] = []
        for task, column in SOURCES.items():
            rows = load_task(task, data)[1][split]
            order = np.random.default_rng(0).permutation(len(rows))[:count]
            texts += [str(rows[int(place)][column]) for place in np.sort(order)]
        labels = [[name for name, holds in LABELS.items() if holds(text)] for text in texts]
        Dataset.from_dict({"text": texts, "labels": labels}).to_parquet(folder / f"{split}.parquet")
    return folder


def rare_rows(data: str, folder: Path) -> Path:
    """SST-2 with few negative rows to train on, made once."""
    if (folder / "dev.parquet").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _, splits = load_task("sst2", data)
    train = splits["train"]
    labels = np.asarray(train["label"][:])
    generator = np.random.default_rng(0)
    rare = round(RARE_SHARE * RARE_ROWS)
    chosen = [
        generator.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in ((0, rare), (1, RARE_ROWS - rare))
    ]
    for split, rows in (
        ("train", train.select(np.sort(np.concatenate(chosen)))),
        ("dev", splits["dev"].shuffle(seed=0).select(range(RARE_DEV))),
    ):
        names = ["negative", "positive"]
        table = {"text": rows["sentence"][:], "label": [names[one] for one in rows["label"][:]]}
        Dataset.from_dict(table).to_parquet(folder / f"{split}.parquet")
    return folder


def several_cells(folder: Path, work: Path, model: str) -> tuple[Cell, list[Cell]]:
    """The teacher, and its students."""
    rows = {
        **COMMON, "task": "several", "data": str(folder), "kind": "multi-label", "seed": 1,
        "text_columns": ["text"], "label_column": "labels",
    }  # fmt: skip
    teacher = Cell(
        "several-teacher",
        "finetune",
        {**rows, "student.init": model, "lr": 5e-5, "epochs": 3},
        label="teacher",
    )
    own = {
        **rows, "teacher": str(work / teacher.name), "student.init": "teacher",
        "student.pick": "first", "student.layers": 3,
        "lr": 1e-4, "epochs": 2,
    }  # fmt: skip
    balanced = {"objectives.hard.class_weights": "balanced"}
    students = [
        Cell("several-labels", "finetune", own, label="labels alone"),
        Cell("several-balanced", "finetune", own | balanced, label="labels alone, balanced"),
        Cell("several-kd", "kd", own, label="kd"),
        Cell("several-pkd", "pkd-skip", own, label="pkd-skip"),
    ]
    return teacher, students


HARD: dict[str, dict[str, Any]] = {
    "plain": {},
    "balanced": {"objectives.hard.class_weights": "balanced"},
    "focal": {"objectives.hard": {"compare": "focal", "gamma": 2}},
}


def rare_cells(folder: Path, model: str, seeds: int) -> list[Cell]:
    """Students on labels alone, one seed of all first."""
    rows = {
        **COMMON, "task": "rare", "data": str(folder), "text_columns": ["text"], "label_column": "label",
        "student.init": model, "student.pick": "first", "student.layers": 3, "lr": 2e-4, "epochs": 10,
    }  # fmt: skip
    return [
        Cell(f"rare-{name}-s{seed}", "finetune", {**rows, **hard, "seed": seed}, seed, label=name)
        for seed in range(1, seeds + 1)
        for name, hard in HARD.items()
    ]


def table() -> None:
    """What the records come to, as the documentation shows it."""
    records = {
        name: Record.model_validate(one)
        for name, one in read_raw(records_of("several_labels")).items()
    }
    several = {name: one for name, one in records.items() if name.startswith("several")}
    print("| student | micro F1 | macro F1 | average precision | rows right |")
    print("|---|---|---|---|---|")
    for one in sorted(several.values(), key=lambda record: record.method != "teacher"):
        scores = one.scores["dev"]
        cells = [
            scores[name]
            for name in ("micro_f1", "macro_f1", "average_precision", "subset_accuracy")
        ]
        print(
            f"| {one.method} | {' | '.join(f'{value:.1f}' for value in cells if value is not None)} |"
        )
    found = several["several-kd"].classification["dev"]
    print("\n| class | dev rows | student's F1 | teacher's F1 |")
    print("|---|---|---|---|")
    for line in _classes(found):
        print(line)
    rare = {
        name: [one for key, one in records.items() if key.startswith(f"rare-{name}-")]
        for name in HARD
    }
    if not any(rare.values()):
        return
    columns = (
        "seeds", "macro F1", "recall of negative", "recall of positive", "accuracy", "last accuracy",
    )  # fmt: skip
    print(f"\n| labels' loss | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    for name, runs in rare.items():
        if runs:
            print(f"| {name} | {len(runs)} | {' | '.join(_rare(runs))} |")


def _classes(found: ClassificationScores) -> Iterable[str]:
    for one in found.classes:
        yield f"| {one.name} | {one.rows:,} | {one.f1 or 0:.1f} | {one.teacher_f1 or 0:.1f} |"


def _rare(runs: list[Record]) -> Iterable[str]:
    """Mean and, of several seeds, standard deviation: of the best epoch, and of the last."""
    found = [one.classification["dev"] for one in runs]
    columns = [[one.student.macro_f1 for one in found]]
    columns += [[one.classes[at].recall or 0.0 for one in found] for at in (0, 1)]
    columns += [[one.student.accuracy for one in found]]
    columns += [[(one.last and one.last.primary) or 0.0 for one in runs]]
    for values in columns:
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        yield f"{statistics.mean(values):.1f}{spread}"


def main() -> None:
    """Run what has no record yet, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/several_labels"))
    parser.add_argument(
        "--parts", nargs="+", default=["several", "rare"], choices=["several", "rare"]
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true", help="print the records' tables")
    args = parser.parse_args()
    if args.table:
        table()
        return
    if not (args.model and args.data):
        parser.error("--model and --data, or --table")
    study = Study("several_labels", args.work.resolve())
    if "several" in args.parts:
        folder = several_rows(args.data, study.work / "rows" / "several")
        teacher, students = several_cells(folder, study.work, args.model)
        study.run([teacher])
        study.run(students)
    if "rare" in args.parts:
        folder = rare_rows(args.data, study.work / "rows" / "rare")
        study.run(rare_cells(folder, args.model, args.seeds))


if __name__ == "__main__":
    main()
