"""The cases of the net: recipes through both doors, task types, courses, other commands, error texts, endings.

A case is a function without arguments that works in an empty folder, its own, in a process of its own. It returns
what it has found: `exact` holds on one processor and one build of torch, `close` on all of them, but for rounding.
"""

# ruff: noqa: E402
from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "240", "NO_COLOR": "1"}
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
for folder in (TESTS, *(TESTS / name for name in ("data", "embedding", "run", "trust/results"))):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

import numpy
import torch
import transformers as hf
from safetensors.torch import load_file
from typer.testing import CliRunner

import image_sets
import kind_models
import several_labels
import tiny_runs as tiny
from limbeck import DistillationConfig, DistillationTrainer, Recipe, build_student
from limbeck.cli.app import app
from limbeck.data import Collator, Division, Labelling, encode, load_task
from limbeck.recipe import catalog
from limbeck.tasks import ScoredSplit

Entry = dict[str, Any]
CASES: dict[str, Callable[[], Entry]] = {}


def case(name: str, *given: Any) -> Callable[[Callable[..., Entry]], Callable[..., Entry]]:
    """Add a case of this name: the function, called with what is given."""

    def add(function: Callable[..., Entry]) -> Callable[..., Entry]:
        assert name not in CASES, name
        CASES[name] = functools.partial(function, *given)
        return function

    return add


# ---- the tiny models and rows of each task type ----

# Six steps, one epoch: there is nothing to select, and no score can turn another epoch's weights up.
SHORT = {"max_steps": 6, "batch_size": 4, "max_length": 12, "lr": 1e-3, "seed": 3, "floor": False}
COLUMNS = {"text_columns": ["review"], "label_column": "verdict", "task": "reviews", "data": "rows"}


def beside(path: str) -> Any:
    """A conftest of another folder, whose name alone does not say which one is meant."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), TESTS / f"{path}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(kind: str) -> dict[str, Any]:
    """Write the models and rows of a task type into this folder, and return a recipe's settings for them."""
    rows, given = Path("rows"), SHORT | {"teacher": "teacher"}
    if kind == "several labels":
        several_labels.place_of(Path())
        given |= {"kind": "multi-label", "label_column": "tags", "text_columns": ["review"]}
        given |= {"classes": list(several_labels.CLASSES)}
        return given | {"data": "rows", "task": "reviews", "student.layers": 2}
    rows.mkdir()
    if kind in ("classes", "regression"):
        number = kind == "regression"
        tiny.save(tiny.knowing_teacher(12, regression=number), Path("teacher"))
        tiny.save(tiny.bert(3, **({"id2label": {0: "LABEL_0"}} if number else {})), Path("start"))
        for split, count in (("train", 24), ("dev", 8)):
            tiny.write_csv(rows / f"{split}.csv", count, regression=number)
        return given | COLUMNS | {"student.init": "start"}
    if kind == "pairs":
        import pair_runs

        pair_runs.save(pair_runs.segmented(4), Path("teacher"), pair_runs.WITH)
        pair_runs.save(pair_runs.distilbert(2), Path("start"), pair_runs.WITHOUT)
        for split, count in (("train", 24), ("dev", 8)):
            pair_runs.write_pairs(rows / f"{split}.csv", count)
        return given | COLUMNS | {"text_columns": ["first", "second"], "student.init": "start"}
    given |= {"student.layers": 2, "task": "own", "data": "rows"}
    if kind == "images":
        image_sets.save(image_sets.vit(3), Path("start"))
        given |= {"data": "digits", "task": None, "images.crop": 0, "images.flip": False}
        return taught(given, train_rows=256, max_steps=64, lr=3e-3)
    if kind == "embedding":
        import tiny_embedders as embedders

        embedders.encoder(Path("teacher"))
        embedders.write_pairs(Path("dev.tsv"))
        columns = [embedders.sentences(8, seed) for seed in (1, 2, 3)]
        names = ("anchor", "positive", "negative")
        made = [dict(zip(names, texts, strict=True)) for texts in zip(*columns, strict=True)]
        Path("triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in made))
        return given | {"kind": kind, "data": "triplets.jsonl", "dev": "dev.tsv", "task": None}
    model = kind_models.model("spans" if kind == "pair-score" else kind, layers=3, scale=1.0)
    if kind == "pair-score":
        import test_reranker_runs as rerankers

        model.config.num_labels = 1
        model = seeded(lambda: hf.BertForSequenceClassification(model.config))
        for split, count in (("train", 6), ("dev", 3)):
            rerankers.write(rows / f"{split}.jsonl", rerankers.candidates(count, count))
        given |= {"kind": kind, "max_length": 32, "batch_size": 12, "max_steps": 3}
    else:
        kinds = beside("tasks/conftest")
        if kind == "tokens":
            changes = {"id2label": {0: "O", 1: "B-LOC", 2: "B-PER"}, "num_labels": 3}
            config = model.config.from_dict(model.config.to_dict() | changes)
            model = seeded(lambda: hf.BertForTokenClassification(config))
        kinds.write_rows(kind, rows)
        given |= kinds.OWN[kind] | {"max_length": 24}
    model.save_pretrained("start")
    kind_models.tokenizer().save_pretrained("start")
    return taught(given, max_steps={"pair-score": 24, "text": 60}.get(kind, 40), lr=1e-2)


def taught(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """With a teacher that is better than any one answer, as a run asks: fine-tuned by the command."""
    own = {key: value for key, value in given.items() if not key.startswith(("student", "teacher"))}
    own |= {"student.init": "start", "batch_size": 8} | changes
    ended = typed(["finetune", *settings_typed(own), "--out", "taught"])
    assert ended.exit_code == 0, ended.output
    Path("taught/student").rename("teacher")
    return given


KINDS = ("classes", "pairs", "regression", "several labels", "embedding", "pair-score", "spans", "tokens", "text",
         "masked", "images")  # fmt: skip


def seeded(make: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make()


# ---- the two doors ----


def typed(line: str | list[str]) -> Any:
    """Run a command as it would be typed here."""
    arguments = shlex.split(line) if isinstance(line, str) else line
    return CliRunner().invoke(app, arguments)


def settings_typed(given: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]


NEWER = ("hidden", "heads", "ffn")
"""Keys of `student` that are younger than the reference: left out where nothing is said of them."""


def by_command(method: str, given: dict[str, Any], out: str = "run", full: bool = False) -> Entry:
    """A run of `limbeck distill`: its student, its record and what it printed."""
    ended = typed(["distill", method, *settings_typed(given), "--out", out])
    if ended.exit_code:
        return {"close": {"refused": said(ended)}, "exact": {}}
    record = json.loads(Path(out, "record.json").read_text())
    usual = Recipe.load("finetune").model_dump(mode="json") | given
    recipe = record.pop("recipe").items()
    recipe = {k: v for k, v in recipe if k not in catalog.HEADER and v != usual[k]}
    if "student" in recipe:
        own = recipe["student"].items()
        recipe["student"] = {k: v for k, v in own if k not in NEWER or v is not None}
    losses = columns([epoch["train"] for epoch in record["epochs"]])
    seen = timeless(record)
    kept = seen if full else {key: seen[key] for key in IN_SHORT if key in seen}
    answers = json.loads(Path(out, "predictions.json").read_text())
    return {
        "close": {
            "losses": losses,
            "norms": norms(Path(out, "student")),
            "recipe": recipe if full else digest(recipe),
            "fields of the record": digest(sorted(fields_of(seen))),
        },
        "exact": {
            "student": digest_of_weights(Path(out, "student")),
            "predictions": digest(answers),
            "record": kept | {"digest of all": digest(seen)},
            "printed": scrubbed(ended.stdout) + (scrubbed(ended.stderr) if full else []),
        },
    }


IN_SHORT = ("scores", "team", "outputs")
"""What stands in the reference of a run's record; of the rest a digest does."""
TIMES = ("seconds", "latency_ms", "bench_ms", "bench", "versions", "hardware", "cost", "checksum")


def timeless(value: Any) -> Any:
    """A record without times, versions, paths' digests, and what is not there."""
    if isinstance(value, dict):
        kept = {key: timeless(one) for key, one in value.items() if key not in (*TIMES, "files")}
        return {key: one for key, one in kept.items() if one not in (None, [], {})}
    if isinstance(value, list):
        kept = [timeless(one) for one in value]
        return [one for one in kept if not (isinstance(one, dict) and one.get("rows") == 0)]
    return "\n".join(scrubbed(value)) if isinstance(value, str) else value


def fields_of(value: Any, name: str = "") -> set[str]:
    """The names of a record's fields, each with those it lies in: the same on every processor."""
    if isinstance(value, dict):
        inside = [fields_of(one, f"{name}.{key}") for key, one in value.items()]
        return {name}.union(*inside)
    return {name}.union(*(fields_of(one, name) for one in value)) if isinstance(value, list) else {name}  # fmt: skip


def by_trainer(method: str, given: dict[str, Any], resume: bool = False, **own: Any) -> Entry:
    """The same with `DistillationTrainer`, the same models and rows."""
    trainer = trainer_of(method, dict(given), **own)
    with contextlib.redirect_stdout(None):
        trainer.train(resume_from_checkpoint=True if resume else None)
    trainer.save_model("trained")
    history = [(entry, entry.get("part", "")) for entry in trainer.state.log_history]
    for part in trainer.parts:
        history += [(entry, part.name) for entry in part.log_history]
    logged = [
        {f"{part} {k}".strip(): v for k, v in entry.items() if LOGGED.fullmatch(k)}
        for entry, part in history
        if "learning_rate" in entry
    ]
    losses, trained = columns(logged), Path("trained")
    return {
        "close": {"losses": losses, "norms": norms(trained)},
        "exact": {"student": digest_of_weights(trained)},
    }


LOGGED = re.compile(r"loss|term/.*")


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What each key was, row after row."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            found.setdefault(key, []).append(value)
    return found


def trainer_of(method: str, given: dict[str, Any], **own: Any) -> DistillationTrainer:
    recipe = Recipe.load(method, **{k: v for k, v in given.items() if k.startswith(OF_METHOD)})
    named = {k: given[k] for k in ("text_columns", "label_column", "kind") if k in given}
    named |= {
        "division": Division(given.get("dev")),
        "labelling": Labelling(tuple(given.get("classes", ()))),
    }
    task, splits = load_task(given.get("task"), given["data"], **named)
    folders = given.get("teachers") or [given.get("teacher")]
    teachers = {one: build_student(f"./{one}", kind=task.kind) for one in folders if one}
    one = None if not teachers else teachers if "teachers" in given else teachers[folders[0]]
    start = given.get("student.init", folders[0])
    student = build_student(f"./{start}", layers=given.get("student.layers"), kind=task.kind)
    words = hf.AutoTokenizer if task.kind.name != "image" else hf.AutoImageProcessor
    words = words.from_pretrained(f"./{folders[0] or start}")  # as the teacher reads them
    rows = {
        name: encode(split, task, words, given["max_length"])[0] for name, split in splits.items()
    }
    first = {"first_stage": {"max_steps": 4}} if recipe.first_stage else {}

    def scores(found: hf.EvalPrediction) -> dict[str, float]:
        """As the command scores dev rows, by which it ranks teachers."""
        outputs = numpy.asarray(found.predictions)
        of = ScoredSplit(rows["dev"], splits["dev"], words)
        return task.kind.results(task, outputs, of).scores

    settings = {
        "output_dir": "trainer",
        "method": recipe,
        "max_steps": given["max_steps"],
        "per_device_train_batch_size": given["batch_size"],
        "learning_rate": given["lr"],
        "seed": given["seed"],
        "logging_steps": 1,
        "save_strategy": "no",
        "compact_metrics": True,
        "metric_for_best_model": "primary",
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }
    trainer = DistillationTrainer(
        student,
        one,
        DistillationConfig(**(settings | first | own)),
        train_dataset=rows["train"],
        eval_dataset=rows["dev"],
        data_collator=Collator(words, kind=task.kind),
        compute_metrics=scores,
        processing_class=words,
    )
    trainer.remove_callback(hf.PrinterCallback)
    return trainer


OF_METHOD = ("objectives.", "team.", "max_length", "min_confidence", "joint")


# ---- what is said of it ----


DIGITS = 32  # of a SHA-256 sum


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGITS]


def weights_of(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every number of a saved model, whatever the file says beside them."""
    (file,) = folder.rglob("*.safetensors")
    return iter(sorted(load_file(file).items()))


def digest_of_weights(folder: Path) -> str:
    found = hashlib.sha256()
    for name, value in weights_of(folder):
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.numpy().tobytes())
    return found.hexdigest()[:DIGITS]


def norms(folder: Path) -> dict[str, float]:
    """Euclidean length of each layer's weights, and of those outside the layers.

    Without attention's key biases: softmax removes them, so Adam makes whole steps of mere rounding.
    """
    squares: dict[str, float] = {}
    for name, value in weights_of(folder):
        if name.endswith("key.bias"):
            continue
        layer = re.match(r".*?\.\d+(?=\.)", name)
        place = layer[0] if layer else "others"
        squares[place] = squares.get(place, 0.0) + float(value.double().square().sum())
    return {place: math.sqrt(square) for place, square in squares.items()}


CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.+]+"), "<time>"),
    (
        re.compile(r"(?<![\w.])[\d.,]+ ?(ms|s|seconds?|minutes?|rows/s|tokens/s)\b(?![:'])"),
        "<time>",
    ),
    (re.compile(r"(?<=seconds )[\d.e-]+"), "<time>"),
    (re.compile(r"(?<=\| cpu \| )[\d.]+ \| ± [\d.]+"), "<time>"),
    (re.compile(r"[\d.]+ × the teacher"), "<number> × the teacher"),
    (re.compile(r"\b\d+\.\d+\.\d+(\+\w+)?\b"), "<version>"),
)


BAR = re.compile(r"loading PyTorch|it/s|examples/s")


def scrubbed(text: str) -> list[str]:
    """Printed lines without what another folder, day, machine or version changes."""
    text = text.replace(str(Path.cwd()), "<work>")
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return [line for line in lines if line and not BAR.search(line)]


def said(ended: Any) -> list[str]:
    """How a command ended, and all that it printed."""
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return [f"{type(ended.exception).__name__}: {ended.exception}"]
    return [f"exit code {ended.exit_code}", *scrubbed(ended.stdout), *scrubbed(ended.stderr)]


# ---- cases: recipes and task types ----

# What a method leaves to its user, or to small data.
LEFT_OPEN: dict[str, dict[str, Any]] = {
    "pkd": {"objectives.patience.mapping.layers": {"1": 4}},
    "skd-adaptive": {"team.holdout": 4, "max_steps": 5},  # of 20 rows: one epoch
}
KIND_OF = {None: "classes", "embedding": "embedding", "pair-score": "pair-score", "text": "text"}


def place_of(method: str, kind: str | None = None) -> dict[str, Any]:
    """The models and rows that a method needs, and its settings."""
    raw = catalog.read(method)
    given = written(kind or KIND_OF[raw.get("kind")]) | LEFT_OPEN.get(method, {})
    if raw.get("first_stage"):
        given["first_stage.max_steps"] = 4
    if raw["family"] == "baseline":
        del given["teacher"]
    if raw["family"] == "several":
        tiny.save(tiny.knowing_teacher(6), Path("middle"))
        del given["teacher"]
        given["teachers"] = ["teacher", "middle"]
    return given


def both_doors(method: str, kind: str | None = None, full: bool = False) -> Entry:
    given = place_of(method, kind)
    found = {"command": by_command(method, given, full=full), "trainer": by_trainer(method, given)}
    return joined(found)


for _method in catalog.names():
    case(f"recipe/{_method}", _method)(both_doors)

# A method that answers for the type: labels and soft labels, or what stands in their place.
_METHODS = {"embedding": "embedding-mse", "pair-score": "listwise-kl"}
# Whose record and recipe stand in the reference whole; of the others, what is left out has a digest.
_WHOLE = ("classes", "regression", "several labels", "embedding")
for _kind in KINDS:
    case(f"kind/{_kind}", _METHODS.get(_kind, "kd"), _kind, _kind in _WHOLE)(both_doors)


# ---- cases: what a training is made of ----

CHANGED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    # name: method, settings of the command, the trainer's own of the same; None where it has none
    "accumulation": (
        "rail-kd-l",
        {"accumulation": 2, "batch_size": 2},
        {"gradient_accumulation_steps": 2},
    ),
    # Left to itself a bf16 run on CPU takes whichever attention a short measurement finds to be faster.
    "bf16": (
        "kd",
        {"precision": "bf16", "attention": "sdpa"},
        {"bf16": True, "attn_implementation": "sdpa"},
    ),
    "cosine rate": ("kd", {"lr_schedule": "cosine"}, {"lr_scheduler_type": "cosine"}),
    "cached outputs": ("rail-kd-l", {"cache": "always"}, {"cache_teacher_outputs": "disk"}),
    "cached, two stages": ("tinybert", {"cache": "always"}, {"cache_teacher_outputs": "disk"}),
    "cached, a team": ("skd-uniform", {"cache": "always"}, {"cache_teacher_outputs": "auto"}),
    "confidence": ("kd", {"min_confidence": 0.6}, {}),
    "joint stages": ("tinybert", {"joint": True}, {}),
    "epochs, patience": ("kd", {"max_steps": None, "epochs": 4, "patience": 2, "lr": 0.01}, None),
    "few rows, wrong labels": ("kd", {"train_rows": 16, "label_noise": 0.3}, None),
    "fresh student": ("kd", {"student.init": "fresh", "student.layers": 1}, None),
}


def changed(name: str) -> Entry:
    method, settings, own = CHANGED[name]
    given = place_of(method) | settings
    found = {"command": by_command(method, given)}
    if own is not None:
        found["trainer"] = by_trainer(method, given, **own)
    return joined(found)


for _name in CHANGED:
    case(f"course/{_name}", _name)(changed)


@contextlib.contextmanager
def killed(trainer: int, step: int) -> Iterator[None]:
    """The process ends before a step of the nth trainer that is made."""
    original, made = DistillationTrainer.__init__, iter(range(1, 100))

    def dying(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if next(made) == trainer:
            self.add_callback(tiny.Kill("step_begin", step))

    DistillationTrainer.__init__ = dying
    try:
        yield
    except tiny.KilledError:
        pass
    finally:
        DistillationTrainer.__init__ = original


def resumed(method: str, part: int, step: int) -> Entry:
    """Stopped in one of its parts and started again: the student, beside that of a run that was not."""
    given = place_of(method) | {"checkpoint_steps": 2}
    line = [method, *settings_typed(given), "--out", "stopped"]
    found = {"unbroken command": by_command(method, given, "unbroken")}
    with killed(part, step):
        typed(["distill", *line])
    assert not Path("stopped/student").exists()
    found["resumed command"] = by_command(method, given, "stopped")
    kept = {"save_strategy": "steps", "save_steps": 2}
    found["unbroken trainer"] = by_trainer(method, given, output_dir="whole", **kept)
    with killed(part, step), contextlib.redirect_stdout(None):
        trainer_of(method, given, **kept).train()
    found["resumed trainer"] = by_trainer(method, given, True, **kept)
    students = {name: one["exact"].get("student") for name, one in found.items()}
    same = {
        door: students[f"unbroken {door}"] == students[f"resumed {door}"]
        for door in ("command", "trainer")
    }
    return {"close": {"resumed as unbroken": same}, "exact": students}


for _method, _part, _step in (
    *(("rail-kd-l", 1, 3), ("tinybert", 1, 3), ("tinybert", 2, 3), ("takd", 1, 3), ("takd", 2, 3)),
    *(("skd-adaptive", 1, 3), ("skd-student-rank", 2, 3), ("internal-kd-pid", 1, 5)),
):
    case(f"resumed/{_method}, part {_part}", _method, _part, _step)(resumed)


@case("course/three teachers, which are runs")
def three_teachers() -> Entry:
    """Assistants start from what the runs of these teachers started from."""
    given = place_of("takd")
    for layers, name in ((4, "small"), (6, "large")):
        tiny.save(tiny.knowing_teacher(layers), Path(f"start-{name}"))
        own = {k: v for k, v in given.items() if k != "teachers"}
        line = settings_typed(own | {"student.init": f"start-{name}"})
        assert typed(["finetune", *line, "--out", f"run-{name}"]).exit_code == 0
    given["teachers"] = ["teacher", "run-large", "run-small"]
    found = {"command": by_command("takd", given, full=True)}
    given["teachers"] = ["teacher", "run-large/student", "run-small/student"]
    found["trainer"] = by_trainer("takd", given)
    return joined(found)


@case("course/stored outputs")
def stored_outputs() -> Entry:
    """What `limbeck label` stores, and the students of the store, of a table and of the live teacher."""
    given = place_of("kd")
    rows, store = "--text-columns review --max-length 12", "--outputs logits hidden:12 --out store"
    label = f"label --teacher teacher --data rows/train.csv {rows} {store} --to labels.csv"
    predict = f"predict teacher rows/train.csv {rows} --output probabilities --to table.csv"
    printed = [
        *(said(typed(line)) for line in (label, predict, "outputs show store")),
        *(Path(name).read_text().splitlines() for name in ("labels.csv", "table.csv")),
    ]
    table = Path("table.csv").read_text().replace("probability_", "probabilities.")
    Path("table.csv").write_text(table)
    layer = {"compare": "hidden_mse", "mapping": {"kind": "last-to-last"}}
    taught_by = {
        "live": {},
        "store": {"teacher": None, "outputs": ["store"]},
        "table": {"teacher": None, "outputs": ["table.csv"]},
        "layers of a store": {"teacher": None, "outputs": ["store"], "objectives.layer": layer},
    }
    return joined(runs("kd", given, taught_by), printed)


@case("course/unlabeled rows")
def unlabelled_rows() -> Entry:
    given = place_of("kd")
    lines = ["review", *(f"{text} film" for text in tiny.sentences(30)[8:])]
    Path("more.csv").write_text("\n".join(lines) + "\n")
    Path("more.txt").write_text("\n".join(lines[1:]) + "\n")
    more = {"unlabelled_duplicates": "drop", "max_steps": 9}
    mixed = {"unlabelled": ["more.csv"], "labelled_share": 0.25, "unlabelled_weight": 0.5}
    files = {"csv": {"unlabelled": ["more.csv"]}, "txt": {"unlabelled": ["more.txt"]}}
    return joined(runs("kd", given | more, files | {"mixed": mixed}))


def runs(
    method: str, given: dict[str, Any], changes: dict[str, dict[str, Any]]
) -> dict[str, Entry]:
    return {
        name: by_command(method, given | settings, f"run {name}")
        for name, settings in changes.items()
    }


def joined(found: dict[str, Entry], printed: list[list[str]] | None = None) -> Entry:
    parts = {part: {name: one[part] for name, one in found.items()} for part in ("close", "exact")}
    return parts | {"exact": parts["exact"] | ({"printed": printed} if printed else {})}


# ---- cases: other commands, error texts, file endings ----


@case("commands")
def commands() -> Entry:
    """What the other commands print about four small runs, and the files that they write."""
    given = place_of("kd")
    for seed in (1, 2):
        for method in ("kd", "finetune"):
            own = (
                given
                | {"seed": seed, "max_steps": 30, "lr": 0.01}
                | ({"teacher": None} if method == "finetune" else {})
            )
            line = [*settings_typed(own), "--out", f"runs/{method}-{seed}"]
            assert typed(["distill", method, *line]).exit_code == 0
    write_study("rows")
    printed = {line: said(typed(line)) for line in listed("print")}
    names = ("predicted.csv", "predicted.jsonl", "card.md")
    files = {name: scrubbed(Path(name).read_text()) for name in names}
    return {"close": {}, "exact": {"printed": printed, "files": files}}


def listed(word: str) -> list[str]:
    """The commands below the heading that holds the word."""
    parts = (HERE / "commands.txt").read_text().split("# ")
    (found,) = [part for part in parts if word in part.partition("\n")[0]]
    return found.strip().splitlines()[1:]


def write_study(data: str) -> None:
    from tiny_studies import STUDY

    text = STUDY.format(place=".", methods="plain: {method: finetune}, kd: ")
    text = (
        text.replace("./reviews.csv", data).replace("[1, 2]", "[1]").replace("./teacher", "start")
    )
    Path("tiny.yaml").write_text(text.replace("epochs: 1", "max_steps: 2, floor: false"))


def wrong(heading: str, models: bool) -> Entry:
    """The texts of wrong commands, which no processor and no seed changes."""
    given = written("classes") if models else None
    if given is None:
        Path("rows").mkdir()
        tiny.write_csv(Path("rows/train.csv"), 12)
        tiny.write_csv(Path("rows/dev.csv"), 4)
    head = "review,verdict\n"
    for name, content in {
        "broken.yaml": "method: [kd\n", "rows.xlsx": "no table", "ragged.csv": f"{head}a film\nb,c,d\n",
        "three-mistakes.yaml": "method: kd\ntask: mrcp\nepochs: -1\nlearning_rate: 0.1\n",
        "blank.csv": head, "broken.jsonl": '{"review": "a"\n', "broken.parquet": "PAR1", "broken.csv.gz": "no archive",
        "empty/rows.csv": "text,label\n",
    }.items():  # fmt: skip
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    Path("latin.csv").write_bytes(head.encode() + "ein Käse,gut\n".encode("latin-1"))
    settings = " ".join(map(shlex.quote, settings_typed(given))) if given else ""
    found = {line: said(typed(line.replace("{given}", settings))) for line in listed(heading)}
    return {"close": found, "exact": {}}


case("errors without models", "need no model", False)(wrong)
case("errors with models", "beside a model", True)(wrong)

TRAINS = "{columns} --out run-{file} floor=false max_length=12"
READS = {
    "finetune": f"finetune --model start --data {{file}} {TRAINS}",
    "distill": f"distill kd --teacher teacher --layers 2 --data {{file}} {TRAINS}",
    "unlabelled": f"distill kd --teacher teacher --layers 2 --data base.csv unlabelled=[{{file}}] {TRAINS}",
    "label": "label --teacher teacher --data {file} --text-columns text --out store-{file}",
    "predict": "predict teacher {file} --text-columns text --to predicted-{file}.jsonl",
    "evaluate": "evaluate teacher --data {file} {columns}",
    "study": "study {file}.yaml --out studies-{file}",
}


def reads(command: str) -> Entry:
    """Which files a command accepts, by their endings: up to the first step, where it trains."""
    import test_endings as endings

    written("classes")
    line, found = READS[command], {}
    label = ["negative" if number % 2 else "positive" for number in range(40)]
    texts = {
        name: [f"{text} {name} {row}" for row, text in enumerate(tiny.sentences(40))]
        for name in ("base", "mine")
    }
    endings.written(Path("base.csv"), {"text": texts["base"], "label": label})
    for ending in (f".{one}{packed}" for one in endings.ENDINGS for packed in endings.COMPRESSED):
        file = f"mine{ending}"
        endings.written(Path(file), {"text": texts["mine"], "label": label})
        if command == "study":
            write_study(file)
            text = Path("tiny.yaml").read_text().replace("[review]", "[text]")
            Path(f"{file}.yaml").write_text(text.replace("verdict", "label"))
        given = {"file": file, "columns": "--text-columns text --label-column label"}
        with killed(1, 0):
            ended = typed(line.format(**given))
            accepted = (
                ended.exit_code == 0 or "KilledError" in f"{ended.exception!r} {ended.output}"
            )
            errors = [text for text in said(ended) if "error" in text] or said(ended)
            found[ending] = "accepted" if accepted else errors[0]
    return {"close": found, "exact": {}}


for _command in READS:
    case(f"endings/{_command}", _command)(reads)
