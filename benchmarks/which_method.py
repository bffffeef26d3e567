"""Which method, when: one table of cases from the records here, and runs that fill its largest hole.

    python benchmarks/which_method.py run --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR [--work DIR] [--seeds 3]
        [--tasks Questions] [--only "kd, text" …]
    python benchmarks/which_method.py table

`run`: 1,000 rows keep their labels, and at most 4,000 of the others are text (`static.py`'s rows). MiniLM-6 is
fine-tuned on the labels: one teacher of each task and seed. Students have its layers 2, 4 and 6, and the same rate,
batch and number of steps: two passes over all rows, or as many steps on the labels alone. Resumable: what has a record
is not made again.

`table`: a difference is a mean over the seeds that both have. Its 95 % interval is over seeds (paired t-test), and over
seeds and rows where records keep each row's prediction (`limbeck.evaluation.compare.seeds_and_rows`). p is corrected by
Holm over the case's methods. Cost is the student's training in TFLOP; a teacher's forward pass over a row is about a
third of it, and stored outputs save it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from embeddings_table import Pairs, p_text, read_runs
from limbeck.evaluation.compare import Comparison, holm, paired, paired_t_test, seeds_and_rows
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.recipe import Recipe
from limbeck.records import Record, read_collection
from limbeck.run import distill
from limbeck.run.run_folder import kept_predictions
from limbeck.teachers.teacher import Teacher
from static import LABELS, LENGTHS, STATIC_NAME, TFIDF, Sample
from static import RECORD as STATIC_RECORD
from study import JsonRecord, records_of

RECORD = JsonRecord("which_method")
TEACHER, ALONE = "teacher", "labels alone"
# Method, passes over the rows, whether these are all or those with labels.
STUDENTS = {
    "logit-mse, text": ("logit-mse", 2.0, True),
    "kd, text": ("kd", 2.0, True),
    ALONE: ("finetune", 2.0, False),
    "rail-kd-l, text": ("rail-kd-l", 2.0, True),
    "logit-mse, text, half the steps": ("logit-mse", 1.0, True),
    "logit-mse, text, 3 × the steps": ("logit-mse", 6.0, True),
    "logit-mse": ("logit-mse", 2.0, False),
    "kd": ("kd", 2.0, False),
}
TEXT = ("logit-mse, text", "kd, text", "rail-kd-l, text")
STEPS = ("logit-mse, text, half the steps", TEXT[0], "logit-mse, text, 3 × the steps")
MOST_TEXT = 4000
COMMON: dict[str, Any] = {
    "task": "own-rows", "text_columns": ["text"], "label_column": "label", "max_length": 32, "batch_size": 32,
    "lr": 1e-4, "precision": "auto", "attention": "eager",
}  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Train what has no record yet, one seed of everything first."""
    torch.set_num_threads(1)
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            sample = Sample(task, seed, args.work.resolve(), args)
            sample.make()
            folder = sample.folder
            rows = {
                **COMMON, "seed": seed, "data": str(folder / "train.parquet"), "dev": str(folder / "dev.parquet"),
            }  # fmt: skip
            place = folder / TEACHER
            own = {"student.init": args.model, "epochs": 6}
            _keep(task, TEACHER, seed, Recipe.load("finetune", **rows, **own), place)
            teacher, more = RememberingTeacher(Teacher.load(place)), folder / "text.parquet"
            pd.read_parquet(sample.rest)[:MOST_TEXT].to_parquet(more, index=False)
            for name in args.only:
                method, passes, text = STUDENTS[name]
                given: dict[str, Any] = {"unlabelled": [str(more)]} if text else {}
                if text:
                    given["unlabelled_duplicates"] = "drop"
                else:  # as many steps
                    passes = round(passes * (1 + len(pd.read_parquet(more)) / LABELS))
                settings = {"teacher": str(place), "student.init": "teacher", "student.layers": 3}
                recipe = Recipe.load(method, **rows, **given, **settings, epochs=passes)
                _keep(task, name, seed, recipe, folder / "student", teacher)


def _keep(
    task: str, name: str, seed: int, recipe: Recipe, out: Path, teacher: Teacher | None = None
) -> None:
    known = RECORD.has(task, name, seed)
    if known and (teacher is not None or (out / "student").is_dir()):
        return
    began = time.process_time()
    result = distill(recipe, out, overwrite=True, report=False, live_teacher=teacher)
    record, spent = result.record, time.process_time() - began
    predicted = kept_predictions(result.path, "dev")
    assert record.best is not None and record.last is not None and predicted is not None
    found: dict[str, Any] = {
        "score": round(record.best.primary or 0.0, 2),
        "last": round(record.last.primary or 0.0, 2),
        "steps": sum(stage.steps for stage in record.stages),
        "seconds": round(spent, 1),
        "tflop": round((record.cost.student_flops or 0.0) / 1e12, 2),
        "right": [int(a == b) for a, b in zip(predicted["prediction"], predicted["label"], strict=True)],
    }  # fmt: skip
    if record.floor is not None:
        found["floor"] = round(record.floor.scores["dev"]["primary"] or 0.0, 2)
    if known:
        return
    RECORD.keep(found, task, name, seed)
    print(task, seed, name, found["score"], found["steps"], found["seconds"], flush=True)


@dataclass
class Arm:
    """A method in a case.

    Attributes:
        scores: by seed.
        without: by seed the score with each row left out, where predictions are kept.
        tflop: by seed, of the student's training.
    """

    scores: dict[str, float] = field(default_factory=dict)
    without: dict[str, np.ndarray] = field(default_factory=dict)
    tflop: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Over its seeds."""
        return statistics.mean(self.scores.values())

    def of(self, seeds: set[str]) -> Arm:
        """Of these seeds alone."""
        return Arm(
            {seed: self.scores[seed] for seed in sorted(seeds)},
            {seed: one for seed, one in self.without.items() if seed in seeds},
            {seed: one for seed, one in self.tflop.items() if seed in seeds},
        )

    def less(self, other: Arm) -> Comparison | None:
        """Its score less another's over the seeds of both; over rows too where both keep them."""
        both = sorted(self.scores.keys() & other.scores.keys())
        if len(both) > 1 and {*both} <= self.without.keys() & other.without.keys():
            gaps = [self.scores[seed] - other.scores[seed] for seed in both]
            rows = [self.without[seed] - other.without[seed] for seed in both]
            return seeds_and_rows(gaps, np.mean(rows, axis=0))
        return paired_t_test(*paired(self.scores, other.scores))


Arms = dict[str, Arm]


@cache
def _records(study: str) -> dict[str, Record]:
    return read_collection(records_of(study))


def of_study(
    study: str, prefix: str, names: Mapping[str, str] | None = None, layers: int = 3
) -> Arms:
    """A study's students by method; with `names` those that it has, by what it calls them."""
    found: Arms = {}
    for cell, record in _records(study).items():
        score = record.scores["dev"]["primary"]
        own = record.student.layers == layers and cell.startswith(prefix)
        if own and score is not None and (names is None or record.method in names):
            name = f"`{record.method}`" if names is None else names[record.method]
            arm = found.setdefault(name, Arm())
            arm.scores[str(record.seed)] = score
            arm.tflop[str(record.seed)] = (record.cost.student_flops or 0.0) / 1e12
    return found


def of_rows(record: Mapping[str, Any], names: Mapping[str, str]) -> Arms:
    """Models of a record that keeps of each dev row whether it was right."""
    found: Arms = {}
    for name in names.keys() & record.keys():
        arm = found[names[name]] = Arm()
        for seed, one in record[name].items():
            right = np.array(one.get("right", one.get("predictions")), dtype=float)
            arm.scores[seed] = 100 * float(right.mean())
            arm.without[seed] = 100 * (right.sum() - right) / (len(right) - 1)
            if "tflop" in one:
                arm.tflop[seed] = one["tflop"]
    return found


def of_embeddings(layers: int) -> Arms:
    """Students of 12,000 sentences, two passes, scored on STS-B's dev pairs."""
    runs, similarities = read_runs(test=False)
    pairs, found = Pairs(similarities), of_study("embeddings", f"{layers}l-12000x2", layers=layers)
    for (place, name), scored in runs.items():
        if place == (layers, 12_000, 2):
            for seed, one in scored.items():
                arm = found[f"`{name}`"]
                arm.without[str(seed)] = pairs.without(one.name, one.cosines)
    return {name.strip("`"): arm for name, arm in found.items()}


@dataclass(frozen=True)
class Case:
    """What a user has, and the methods that were compared there.

    Attributes:
        has: labels, text, student, start, task.
        arms: by name; those of words alone are under `WORDS`.
        alone: the arm of fine-tuning the same layers on the labels alone.
    """

    has: tuple[str, str, str, str, str]
    arms: Arms
    alone: str = "`finetune`"

    def row(self) -> tuple[str, ...]:
        """As the table has it, over the seeds that all methods have."""
        shared = set.intersection(*({*arm.scores} for arm in self.arms.values()))
        arms = {name: arm.of(shared) for name, arm in self.arms.items()}
        words = arms.pop(WORDS, None)
        order = sorted(arms, key=lambda name: -arms[name].mean)
        best, alone = arms[order[0]], arms.get(self.alone)
        shown = [f"{name} {arms[name].mean:.1f}" for name in order]
        if len(shown) > MOST:
            last = [shown[order.index(self.alone)]] if self.alone in order[MOST:] else []
            shown = [*shown[:MOST], f"{len(shown) - MOST - len(last)} more", *last]
        tests = {name: arm.less(alone) for name, arm in arms.items() if alone and arm is not alone}
        p = holm({name: one.p for name, one in tests.items() if one and one.p is not None})
        cost = [one for one in (best, alone) if one and one.tflop]
        return (
            *self.has,
            ", ".join(shown),
            difference(best.less(arms[order[1]])),
            difference(tests.get(order[0])),
            p_text(p.get(order[0])),
            str(len(shared)),
            " / ".join(f"{statistics.mean(one.tflop.values()):.0f}" for one in cost) or "–",
            f"{words.mean:.1f}: {difference(best.less(words))}" if words else "–",
        )


def difference(found: Comparison | None) -> str:
    """With its interval."""
    if found is None:
        return "–"
    ends = "" if found.low is None else f" ({found.low:+.1f} to {found.high:+.1f})"
    return f"{found.difference:+.1f}{ends}"


MOST, WORDS = 5, "words alone"
HEADINGS = (
    "labels", "text", "student", "start", "task", "methods, best first", "best less the next (95 %)",
    "best less fine-tuning (95 %)", "p (Holm)", "seeds", "TFLOP: best / fine-tuning",
    "words alone: best less it",
)  # fmt: skip
MISSING = (
    (*("any",) * 2, "3 of 12 or fewer", *("any",) * 2, "no record of a larger teacher"),
    ("none", "all", "3 of 6", "teacher", "any", "no record with seeds: text without any label"),
    (*("many",) * 2, "3 of 6", "teacher", "any", "no record with seeds; few labels above"),
    ("none", "all", "15 of 30", "teacher", "text generation", "three seeds: see decoders"),
)
PRETRAINED = "`finetune` from pretrained"
ALONE_NAMES = {"labels alone": PRETRAINED, "labels alone, teacher's layers": "`finetune`"}
TAUGHT = {
    "unlabelled": "logit-mse",
    "pseudo-labels": "pseudo-label",
    "unlabelled, layers": "rail-kd-l",
}
AUGMENTED = {"augmented": "`logit-mse`, augmented examples"}
# Labels, then a case for each amount of text: its name, and what the labels of its records end with.
FEW = {
    "sst2": ("SST-2", (200, 1000, 5000), {"10,000": " (10,000 rows)", "66,000": ""}),
    "mrpc": ("MRPC", (200, 1000), {"the rest": ""}),
    "cola": ("CoLA", (200, 1000, 5000), {"the rest": ""}),
}
STATIC = {
    STATIC_NAME: "`logit-mse`, static",
    TFIDF: WORDS,
    "3 layers, labels alone": "3 layers, `finetune`",
    "model2vec, labels alone": "model2vec, labels alone",
}


def cases() -> Iterator[Case]:
    """Every case that has a record of several methods."""
    three = ("3 of 6", "teacher")
    for task, models in RECORD.read().items():
        arms = of_rows(
            models,
            {name: f"`{name.removesuffix(', text')}`" for name in TEXT} | {ALONE: "`finetune`"},
        )
        arms[WORDS] = Arm({seed: one["floor"] for seed, one in models[TEXT[0]].items()})
        yield Case(("1,000", "4,000", *three, task), arms)
        plain = of_rows(models, {"kd": "`kd`", "logit-mse": "`logit-mse`", ALONE: "`finetune`"})
        if len(plain) > 1:
            yield Case(("1,000", "none", *three, task), plain)
    for task, (title, labels, texts) in FEW.items():
        for count in labels:
            prefix = f"{task}-{count}-"
            for text, end in texts.items():
                names = {f"{name}{end}": f"`{method}`" for name, method in TAUGHT.items()}
                yield _few(prefix, (f"{count:,}", text, *three, title), names)
            yield _few(prefix, (f"{count:,}", "none", *three, title), AUGMENTED)
    yield Case(("1,000", "none", *three, "MRPC"), of_study("methods_study", "mrpc-1000-"))
    yield Case(
        ("10,000", "none", "3 of 6", "pretrained", "SST-2"), of_study("methods_study", "sst2-")
    )
    for layers in (3, 2):
        for task, title, rows, start in (
            ("sst2", "SST-2", "10,000", "pretrained"),
            ("mrpc", "MRPC", "3,667", "teacher"),
            ("stsb", "STS-B", "5,749", "teacher"),
        ):
            arms = of_study("real_glue", f"{task}-", layers=layers)
            yield Case((rows, "none", f"{layers} of 6", start, title), arms)
            if layers == 3 and (arms := of_study("distilled_start", f"{task}-", layers=layers)):
                yield Case((rows, "none", f"{layers} of 6", "distilled", title), arms)
    for task, models in STATIC_RECORD.read().items():
        if arms := of_rows(models, STATIC):
            yield Case(("1,000", "the rest", "static", "teacher", task), arms)
    for layers in (3, 2):
        has = ("none", "12,000", f"{layers} of 6", "teacher", "STS-B, embeddings")
        yield Case(has, of_embeddings(layers))
    rerankers = ("kd-soft", "margin-mse", "listwise-kl")
    names = {f"{name}, skip": f"`{name}`" for name in rerankers} | {"finetune, skip": PRETRAINED}
    has = ("many", "none", *three, "STS-B, reranking")
    yield Case(has, of_study("rerankers", "s", names), PRETRAINED)


def _few(prefix: str, has: tuple[str, str, str, str, str], names: dict[str, str]) -> Case:
    arms = of_study("few_labels", prefix, names | ALONE_NAMES)
    return Case(has, arms, "`finetune`" if "`finetune`" in arms else PRETRAINED)


def steps() -> Iterator[tuple[str, ...]]:
    """What more steps bring: the same method for half and for three times as long."""
    for task, models in RECORD.read().items():
        arms = of_rows(models, {name: name for name in STEPS})
        for name, arm in sorted(arms.items(), key=lambda pair: STEPS.index(pair[0])):
            less = difference(arm.less(arms[STEPS[1]])) if name != STEPS[1] else "–"
            taken = statistics.mean(one["steps"] for one in models[name].values())
            tflop = statistics.mean(one["tflop"] for one in models[name].values())
            yield (
                task,
                f"{taken:.0f}",
                f"{arm.mean:.1f}",
                less,
                str(len(arm.scores)),
                f"{tflop:.1f}",
            )


def table() -> None:
    """Print a row a case, then which cases have no record, then what more steps bring."""
    printed(
        HEADINGS, 6, [case.row() for case in cases()] + [(*row, *6 * ("–",)) for row in MISSING]
    )
    print(
        "\n`logit-mse` with text for one, two (as usual) and six passes; the difference is from the usual two:\n"
    )
    headings = ("task", "steps", "score", "less as usual (95 %)", "seeds", "TFLOP")
    printed(headings, 1, list(steps()))


def printed(headings: tuple[str, ...], words: int, lines: list[tuple[str, ...]]) -> None:
    """Print a table of Markdown whose first columns hold words."""
    marks = (*words * [":---"], *(len(headings) - words) * ["---:"])
    for line in (headings, marks, *lines):
        print("| " + " | ".join(line) + " |")


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what has no record yet")
    runs.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    runs.add_argument("--data", required=True, help="GLUE folder")
    runs.add_argument("--texts", required=True, help="folder of get-texts")
    runs.add_argument("--work", type=Path, default=Path("runs/which_method"))
    runs.add_argument("--tasks", nargs="+", choices=LENGTHS, default=["Questions"])
    runs.add_argument("--only", nargs="+", choices=STUDENTS, default=[*STUDENTS])
    runs.add_argument("--seeds", type=int, default=3)
    commands.add_parser("table", help="print the table")
    args = parser.parse_args()
    if args.command == "run":
        run(args)
    else:
        table()


if __name__ == "__main__":
    main()
