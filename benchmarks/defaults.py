"""What limbeck's defaults reach beside `transformers.Trainer` and TextBrewer with theirs, on few real rows.

    python benchmarks/defaults.py start --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR
    python benchmarks/defaults.py plateau --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR
    python benchmarks/defaults.py run --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR [--tasks sst2] [--rows 300]
        [--layers 2] [--starts teacher] [--seeds 1] [--arms limbeck] [--plan]
    python benchmarks/defaults.py table

`start` measures how far apart an encoder's layers keep different texts: of every choice of layers the spread of a
student's logits and of the vector that they are read off, before any training. `plateau` trains students and looks at
that spread every few steps. `run` trains one teacher for each task, number of rows and seed (`limbeck finetune`,
nothing set) and its students: limbeck's (`limbeck distill --method kd`, nothing set but layers and start), a Trainer's
on the labels, and TextBrewer's as its README begins; the two others once for as many steps as limbeck took and once as
long as they train by themselves. Scores are of the last epoch, on the same dev rows. `table` prints them with paired
tests over the cells.

Seconds are of the processor. Resumable: whatever has a record is not measured again. `--plan` prints what would run and
how long it would take.
"""

from __future__ import annotations

import argparse
import csv
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
    set_seed,
)

from limbeck.data import load_task
from limbeck.evaluation.compare import holm, paired, paired_permutation_test
from limbeck.preflight import ask_teacher
from limbeck.recipe import Recipe
from limbeck.records import Record, hardware, versions
from limbeck.records.record import read_raw, write_collection
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.students import build_student
from limbeck.training import DistillationConfig, DistillationTrainer
from study import records_of

GLUE = ("sst2", "mrpc", "stsb")
TEXTS = {
    "reuters8": "reuters8/train.csv",
    "questions": "questions.csv",
    "newsgroups": "newsgroups/train.csv",
}
TASKS = (*GLUE, *TEXTS)
ROWS = (300, 1000, 3000)
MANY = 10_000
COUNTS = dict.fromkeys(TASKS, ROWS) | {"sst2": (*ROWS, MANY), "newsgroups": (MANY,)}
LAYERS, STARTS = (2, 4), ("teacher", "pretrained")
DEV = 500
OURS, TEACHER = "limbeck", "teacher"
ARMS = {
    OURS: "limbeck, nothing set",
    "trainer-equal": "Trainer, labels, as many steps",
    "trainer-own": "Trainer, labels, its own steps",
    "textbrewer-equal": "TextBrewer, as many steps",
    "textbrewer-own": "TextBrewer, its own steps",
}
BATCH = 32
# Of one core: a step of 32 short texts through one layer and back, and of a pass over a dev row.
STEP_SECONDS, DEV_SECONDS = 0.09, 0.002


@dataclass(frozen=True)
class Rows:
    """A sample of a task's rows as a user's own file, and dev rows that no sample holds."""

    task: str
    count: int
    seed: int
    work: Path

    @property
    def folder(self) -> Path:
        """Where its two files lie."""
        return self.work / "rows" / f"{self.task}-{self.count}-s{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """Of every run on them: what a user has to say."""
        pair = ["text", "text_b"] if self.task in ("mrpc", "stsb") else ["text"]
        return {
            "task": f"own-{self.task}",
            "data": str(self.folder / "train.csv"),
            "dev": str(self.folder / "dev.csv"),
            "text_columns": pair,
            "label_column": "label",
            "seed": self.seed,
        }

    def make(self, args: argparse.Namespace) -> None:
        """Write the files that are not there."""
        if (self.folder / "dev.csv").exists():
            return
        train, dev = _glue(self.task, args.data) if self.task in GLUE else _texts(self.task, args)
        order = np.random.default_rng(self.seed).permutation(len(train))[: self.count]
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / "train.csv", [train[row] for row in order])
        step = max(1, len(dev) // DEV)
        _write(self.folder / "dev.csv", dev[::step][:DEV])


def _glue(task: str, data: str) -> tuple[list[list[Any]], list[list[Any]]]:
    known, splits = load_task(task, data)
    named = {number: f"class {name}" for number, name in enumerate(known.labels)}

    def rows(split: str) -> list[list[Any]]:
        columns = [splits[split][name] for name in (*known.text_columns, known.label_column)]
        return [[*texts, named.get(label, label)] for *texts, label in zip(*columns, strict=True)]

    return rows("train"), rows("dev")


def _texts(task: str, args: argparse.Namespace) -> tuple[list[list[Any]], list[list[Any]]]:
    with (Path(args.texts) / TEXTS[task]).open(newline="", encoding="utf-8") as stream:
        rows = [[row["text"], row["label"]] for row in csv.DictReader(stream)]
    order = np.random.default_rng(0).permutation(len(rows))
    mixed = [rows[place] for place in order]
    return mixed[DEV:], mixed[:DEV]


def _write(path: Path, rows: list[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "text_b", "label"] if len(rows[0]) == 3 else ["text", "label"])
        writer.writerows(rows)


@dataclass(frozen=True)
class Cell:
    """One student: of which rows and teacher, how deep, from where, and trained by whom."""

    rows: Rows
    layers: int
    start: str
    arm: str

    @property
    def name(self) -> str:
        """Of its record."""
        return f"{self.rows.folder.name}-{self.start}-{self.layers}l-{self.arm}"


class Book:
    """The records: one JSON line a cell, written as soon as it is measured."""

    def __init__(self) -> None:
        self.path = records_of("defaults")

    def has(self, name: str) -> bool:
        """Whether a cell is measured."""
        return name in read_raw(self.path)

    def keep(self, name: str, **found: Any) -> None:
        """Write what was measured, with versions and hardware."""
        found |= {"versions": versions(), "hardware": hardware()}
        write_collection(self.path, read_raw(self.path) | {name: found})
        print(f"{name}: {found.get('score', '')}", flush=True)


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """The plan, or the part of it that is asked for: one seed of everything first."""
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            for count in args.rows or COUNTS[task]:
                rows = Rows(task, count, seed, args.work)
                for layers in args.layers:
                    for start in args.starts:
                        for arm in args.arms:
                            yield Cell(rows, layers, start, arm)


def seconds(cell: Cell) -> float:
    """A guess of what a cell costs on one core, in seconds of the processor."""
    steps = {"trainer-own": 3 * 4, "textbrewer-own": 1}.get(cell.arm)
    per_epoch = cell.rows.count / BATCH
    long = max(300, 3 * per_epoch) if steps is None else steps * per_epoch
    size = 0.5 if cell.arm == "trainer-own" else 1.0
    taught = 2 if cell.arm.startswith("textbrewer") else 0
    return long * STEP_SECONDS * (size * cell.layers + taught) + DEV * DEV_SECONDS * cell.layers


def run(args: argparse.Namespace) -> None:
    """Every cell that has no record."""
    book, wanted = Book(), list(cells(args))
    due = [cell for cell in wanted if not book.has(cell.name)]
    hours = sum(map(seconds, due)) / 3600
    print(f"{len(wanted)} cells, {len(due)} without a record: about {hours:.1f} hours of one core")
    if args.plan:
        print("\n".join(f"{cell.name}: {seconds(cell) / 60:.1f} min" for cell in due))
        return
    # Limbeck's own first: the others train for as many steps.
    for cell in due:
        cell.rows.make(args)
        teacher = _teacher(cell.rows, args, book)
        if cell.arm == OURS:
            _ours(cell, teacher, args, book)
        else:
            _peer(cell, teacher, args, book)


def _teacher(rows: Rows, args: argparse.Namespace, book: Book) -> Path:
    """`limbeck finetune`, nothing set; trained again where its record is kept and its folder is gone."""
    folder, name = args.work / f"{rows.folder.name}-teacher", f"{rows.folder.name}-{TEACHER}"
    recipe = Recipe.load("finetune", **rows.settings, **{"student.init": args.model})
    began = time.process_time()
    record = distill(recipe, folder, report=False).record
    spent = {"seconds": time.process_time() - began}
    if not book.has(name):
        said = _said(rows, TEACHER, "pretrained", record.student.layers)
        book.keep(name, **said, **_of(record), **spent)
    found: Path = folder
    return found


def _ours(cell: Cell, teacher: Path, args: argparse.Namespace, book: Book) -> None:
    init = "teacher" if cell.start == "teacher" else args.model
    settings = {"teacher": str(teacher), "student.layers": cell.layers, "student.init": init}
    recipe = Recipe.load("kd", **cell.rows.settings, **settings)
    began = time.process_time()
    result = distill(recipe, args.work / cell.name, report=False)
    spent = {"seconds": time.process_time() - began}
    book.keep(cell.name, **_said_of(cell), **_of(result.record), **spent)
    shutil.rmtree(result.path)


def _of(record: Record) -> dict[str, Any]:
    """Of a run of limbeck's: scores, what it was trained with, and how many steps that were."""
    recipe = record.recipe
    steps = math.ceil(record.examples.train / recipe["batch_size"]) * recipe["epochs"]
    assert record.last is not None and record.best is not None
    constant = record.scores["dev"].get("matthews") == 0.0
    return {
        "score": record.last.primary,
        "best": record.best.primary,
        "steps": round(steps),
        "settings": {key: recipe[key] for key in ("epochs", "lr", "lr_schedule", "warmup")},
        "constant": constant,
    }


def _said_of(cell: Cell) -> dict[str, Any]:
    return _said(cell.rows, cell.arm, cell.start, cell.layers)


def _said(rows: Rows, arm: str, start: str, layers: int | None) -> dict[str, Any]:
    return {
        "task": rows.task,
        "rows": rows.count,
        "seed": rows.seed,
        "arm": arm,
        "start": start,
        "layers": layers,
    }


def _peer(cell: Cell, teacher: Path, args: argparse.Namespace, book: Book) -> None:
    ours = read_raw(book.path).get(Cell(cell.rows, cell.layers, cell.start, OURS).name)
    if ours is None:
        print(f"{cell.name}: waits for limbeck's own, --arms limbeck", flush=True)
        return
    set_seed(cell.rows.seed)
    recipe = Recipe.load("kd", **cell.rows.settings, teacher=str(teacher), epochs=1)
    prepared = prepare(recipe)
    source = teacher / "student" if cell.start == "teacher" else args.model
    # What plain transformers does with a depth: the first layers.
    student = AutoModelForSequenceClassification.from_pretrained(
        source, num_hidden_layers=cell.layers, **_head(prepared)
    )
    began = time.process_time()
    train = _trainer if cell.arm.startswith("trainer") else _textbrewer
    steps = train(prepared, student, ours["steps"] if cell.arm.endswith("equal") else None, args)
    spent = time.process_time() - began
    task, rows = prepared.task, prepared.splits["dev"]
    answers = ask_teacher(task, student.eval(), prepared.tokenizer, rows, 128, rows=len(rows))
    found = {"score": answers.scores["primary"], "steps": steps, "seconds": spent}
    found["constant"] = answers.scores.get("matthews") == 0.0
    book.keep(cell.name, **_said_of(cell), **found)


def _head(prepared: Prepared) -> dict[str, Any]:
    config = prepared.student.config
    return {"num_labels": config.num_labels, "problem_type": config.problem_type}


def _rows_of(prepared: Prepared) -> Dataset:
    rows = prepared.train.encoded
    assert isinstance(rows, Dataset)  # so few are encoded at once
    return rows.remove_columns("index")


def _trainer(
    prepared: Prepared, student: PreTrainedModel, steps: int | None, args: argparse.Namespace
) -> int:
    """`transformers.Trainer` on the labels: its defaults, or its rate and schedule for so many steps of 32."""
    given: dict[str, Any] = (
        {} if steps is None else {"max_steps": steps, "per_device_train_batch_size": BATCH}
    )
    settings = TrainingArguments(
        str(args.work / "trainer"),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=prepared.recipe.seed,
        **given,
    )
    trainer = Trainer(
        student,
        settings,
        DataCollatorWithPadding(prepared.tokenizer),
        _rows_of(prepared),
    )
    trainer.train()
    return trainer.state.global_step


def _textbrewer(
    prepared: Prepared, student: PreTrainedModel, steps: int | None, args: argparse.Namespace
) -> int:
    """As TextBrewer's README begins: two hidden matches, AdamW at 1e-4, warm-up of a tenth, one epoch of its own."""
    from textbrewer import DistillationConfig as Distillation
    from textbrewer import GeneralDistiller, TrainingConfig

    assert prepared.teacher is not None
    layers, depth = student.config.num_hidden_layers, prepared.teacher.config.num_hidden_layers
    matches = [
        {"layer_T": of * depth // layers, "layer_S": of, "feature": "hidden", "loss": "hidden_mse"}
        | {"weight": 1}
        for of in (0, layers - 1)
    ]
    rows = _rows_of(prepared)
    generator = torch.Generator().manual_seed(prepared.recipe.seed)
    loader = DataLoader(
        rows,
        BATCH,
        shuffle=True,
        generator=generator,
        collate_fn=lambda few: dict(DataCollatorWithPadding(prepared.tokenizer)(few)),
    )
    total = len(loader) if steps is None else steps

    def adaptor(batch: Any, answers: Any) -> dict[str, Any]:
        return {"logits": answers.logits, "hidden": answers.hidden_states}

    settings = TrainingConfig(
        device="cpu", output_dir=str(args.work / "textbrewer"), ckpt_steps=10**9
    )
    student.config.output_hidden_states = prepared.teacher.config.output_hidden_states = True
    distiller = GeneralDistiller(
        settings,
        Distillation(intermediate_matches=matches),
        prepared.teacher,
        student.train(),
        adaptor,
        adaptor,
    )
    with distiller:
        distiller.train(
            torch.optim.AdamW(student.parameters(), lr=1e-4),
            loader,
            num_steps=total,
            scheduler_class=get_linear_schedule_with_warmup,
            scheduler_args={"num_warmup_steps": int(0.1 * total), "num_training_steps": total},
            callback=None,
        )
    return total


# ---- why shortened students stand still ----


def start(args: argparse.Namespace) -> None:
    """How far apart every choice of layers keeps different texts, before any training."""
    prepared = _measured(args)
    batch = prepared.collator(list(prepared.selecting.select(range(72))))
    for source in (args.model, *args.teacher):
        config = AutoConfig.from_pretrained(source)
        depth = config.num_hidden_layers
        half = depth // 2
        for layers in (
            depth,
            *(list(range(1, keep + 1)) for keep in (2, half, depth - 2)),
            *(list(range(step, depth + 1, step)) for step in (2, 3)),
            [*range(1, half), depth],
            list(range(half + 1, depth + 1)),
        ):
            student = build_student(
                str(source), layers=layers, task=prepared.task, kind=prepared.task.kind, seed=1
            )
            origin = "pretrained" if source == args.model else "teacher"
            name = f"start-{origin}-{layers if layers != depth else 'all'}"
            if not Book().has(name):
                Book().keep(name, layers=layers, **spread(student, batch))


@torch.no_grad()
def spread(student: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """How far a student's answers to different texts are apart.

    `logits`: standard deviation of the difference of the first two over the texts. `first token`: mean distance of
    the first token's last state from its mean, as a share of that mean's length; `mean token` the same of mean states.
    """
    was = student.training
    found = student.eval()(
        **{k: v for k, v in batch.items() if k != "index"}, output_hidden_states=True
    )
    student.train(was)
    state, mask = found.hidden_states[-1], batch["attention_mask"][..., None]
    logits = found.logits[:, 1] - found.logits[:, 0] if found.logits.shape[1] > 1 else found.logits

    def apart(vectors: torch.Tensor) -> float:
        middle = vectors.mean(0)
        return float((vectors - middle).norm(dim=1).mean() / middle.norm())

    return {
        "logits": float(logits.std()),
        "first token": apart(state[:, 0]),
        "mean token": apart((state * mask).sum(1) / mask.sum(1)),
    }


def _measured(args: argparse.Namespace) -> Prepared:
    rows = Rows("sst2", 720, 1, args.work)
    rows.make(args)
    settings = {"student.init": str(args.model), "epochs": 1}
    return prepare(Recipe.load("finetune", **rows.settings, **settings))


class Watch(TrainerCallback):
    """Looks at a student's answers every few steps."""

    def __init__(self, student: PreTrainedModel, batch: Mapping[str, torch.Tensor], every: int):
        self.student, self.batch, self.every = student, batch, every
        self.travelled, self.seen = 0.0, [(0, 0.0, spread(student, batch)["logits"])]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the rate up; now and then measure."""
        self.travelled += kwargs["lr_scheduler"].get_last_lr()[0]
        if state.global_step % self.every == 0:
            logits = spread(self.student, self.batch)["logits"]
            self.seen.append((state.global_step, round(self.travelled, 6), round(logits, 5)))


def plateau(args: argparse.Namespace) -> None:
    """Training curves of pretrained layers on labels: the first three and every second one, at two rates."""
    prepared = _measured(args)
    batch = prepared.collator(list(prepared.selecting.select(range(72))))
    for pick, lr, course, steps in (
        ("skip", 1e-4, "linear", 69),
        ("first", 1e-4, "linear", 69),
        ("first", 2e-4, "constant", 69),
    ):
        name = f"plateau-{pick}-{lr:g}-{course}-{steps}"
        if Book().has(name):
            continue
        student = build_student(
            args.model,
            layers=3,
            pick=pick,
            task=prepared.task,
            kind=prepared.task.kind,
            seed=1,
        )
        settings = DistillationConfig(
            str(args.work / "plateau"),
            method="finetune",
            learning_rate=lr,
            lr_scheduler_type=course,
            warmup_steps=0.1 if course == "linear" else 0,
            max_steps=steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            group_by_length=True,
            seed=1,
        )
        watch = Watch(student, batch, 3)
        DistillationTrainer(
            student,
            None,
            settings,
            data_collator=prepared.collator,
            train_dataset=prepared.train.encoded,
            callbacks=[watch],
        ).train()
        rows = prepared.splits["dev"]
        score = ask_teacher(prepared.task, student.eval(), prepared.tokenizer, rows, 128, rows=DEV)
        Book().keep(
            name, seen=watch.seen, score=score.scores["primary"], rows=len(prepared.train.encoded)
        )


# ---- tables ----


HEADINGS = ("task", "rows", "layers", "start", "teacher", *ARMS.values())


def places_reached(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table's lines: means over seeds, and how many these are."""
    places: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for one in found.values():
        for layers, begin in _places_of(one, found):
            place = (one["task"], one["rows"], layers, begin)
            places.setdefault(place, {}).setdefault(one["arm"], []).append(one["score"])
    return [
        (
            *map(str, place),
            *(
                f"{np.mean(scores[arm]):.1f} ({len(scores[arm])})" if arm in scores else "–"
                for arm in (TEACHER, *ARMS)
            ),
        )
        for place, scores in sorted(places.items())
    ]


def measured_cells() -> dict[str, dict[str, Any]]:
    """All records of cells and teachers, by name."""
    return {name: one for name, one in read_raw(records_of("defaults")).items() if "arm" in one}


def table(args: argparse.Namespace) -> None:
    """Scores of all cells, means over seeds, and each peer against limbeck over the cells that both have."""
    found = measured_cells()
    lines = places_reached(found)
    if args.markdown:
        marks = (":---", "---:", "---:", ":---", *(len(ARMS) + 1) * ["---:"])
        print("\n".join("| " + " | ".join(line) + " |" for line in (HEADINGS, marks, *lines)))
    else:
        shown = Table(*HEADINGS, title="dev score of the last epoch")
        for line in lines:
            shown.add_row(*line)
        Console(width=160).print(shown)
    by_arm: dict[str, dict[tuple[Any, ...], float]] = {}
    for one in found.values():
        key = (one["task"], one["rows"], one["seed"], one["layers"], one["start"])
        by_arm.setdefault(one["arm"], {})[key] = one["score"]
    tests = {
        arm: paired_permutation_test(*paired(by_arm[OURS], by_arm[arm]))
        for arm in ARMS
        if arm != OURS and arm in by_arm and OURS in by_arm
    }
    known = {arm: test for arm, test in tests.items() if test is not None}
    corrected = holm({arm: test.p for arm, test in known.items() if test.p is not None})
    for arm, test in known.items():
        p = corrected.get(arm)
        print(
            f"limbeck − {ARMS[arm]}: {test.difference:+.2f} over {test.pairs} cells, "
            f"p {'unknown' if p is None else f'{p:.3f}'} (sign flips, Holm)"
        )
    constant = [name for name, one in found.items() if one.get("constant")]
    print(f"constant students: {', '.join(constant) or 'none'}")


def _places_of(
    one: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]
) -> set[tuple[int, str]]:
    """The lines a record stands in: a teacher's in those of all its students."""
    if one["arm"] != TEACHER:
        return {(one["layers"], one["start"])}
    rows = ("task", "rows", "seed")
    return {
        (other["layers"], other["start"])
        for other in found.values()
        if other["arm"] != TEACHER and all(other[key] == one[key] for key in rows)
    }


def main() -> None:
    """One of the modes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["start", "plateau", "run", "table"])
    parser.add_argument("--model", help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", help="GLUE folder")
    parser.add_argument("--texts", help="folder of reuters8/ and questions.csv")
    parser.add_argument("--work", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--teacher", nargs="*", default=[], help="start: fine-tuned encoders")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--rows", nargs="+", type=int)
    parser.add_argument("--layers", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--starts", nargs="+", default=list(STARTS), choices=STARTS)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plan", action="store_true", help="print what would run")
    parser.add_argument("--markdown", action="store_true", help="table: as the docs have it")
    args = parser.parse_args()
    args.work = args.work.resolve()
    {"start": start, "plateau": plateau, "run": run, "table": table}[args.mode](args)


if __name__ == "__main__":
    main()
