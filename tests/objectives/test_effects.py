"""No key of a shipped recipe without effect: whichever is changed, the run becomes another.

Each key in turn gets another valid value. What is compared of both: the stages, what the Trainer is
told, the learned maps, what is asked of both models, which terms are at work with what weight, and
their values over some steps, for models of equal and of different widths.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset
from tiny_pairs import CLASSES, GIVEN, answers, batch, bert, t5

from limbeck.activations import Passes, Request, Trace, capture
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.input_transforms import Mixture, Mixup, MixupSpec, StepInputs
from limbeck.mappings import MAPPINGS
from limbeck.objectives import OBJECTIVES, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe, catalog
from limbeck.recipe.validation import check
from limbeck.records import Record
from limbeck.run import prepared as prepared_module
from limbeck.run import several_teachers as teaching_module
from limbeck.run.models import Named, form_team
from limbeck.run.prepared import Prepared, StageInputs
from limbeck.run.rows import EncodedRows
from limbeck.run.run_folder import RunFolder
from limbeck.run.several_teachers import with_team
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import get_task, get_task_type
from limbeck.teachers.teacher import Teacher
from limbeck.training import training_arguments
from limbeck.training.optimizer import Optimisation
from quick_cases import ONE_OF_A_KIND, quick

# Names, not settings.
ABOUT = set(catalog.HEADER) | {"formula"}
# Skip and uniform, two names of one map, come last.
KINDS = sorted(MAPPINGS, key=("skip", "uniform").__contains__)
# Another value for each key; where it depends, by the value it has.
OTHER: dict[str, Any] = {
    "weight": 0.123,
    "pool": {"cls": "mean", "mean": "cls"},
    "stack": "encoder",
    "student_layers": {"1..M-1": "1..M", "1..M": "1..M-1", "M": "M-1", "0..M": "1..M"},
    "teacher_layers": {"1..L": "2..L", "1..L-1": "2..L"},
    "within": "all",
    "overlap": False,
    "uneven": "round",
    "combine": "sum",
    "read": "mean",
    "weigh": "entmax",
    "layer_weights": "uniform",
    "to": {128: 64, "teacher": "student", "student": "teacher"},
    "sides": "both",
    "share": "none",
    "start": "random",
    "bias": False,
    "when": "always",
    "compare_layers": "each",
    "pairs": "sum",
    "mean_over": {"all": "valid", "batch_and_features": "valid", "batch_and_classes": "batch"},
    "temperature": 3,
    "scale_by_t2": False,
    "standardize": False,
    "alpha": 5,
    "beta": 3,
    "gamma": 3,
    "masked": "left_out",
    "rows": "valid",
    "of": {
        "query": "key",
        "key": "value",
        "value": "query",
        "query_key": "query",
        "teacher": "labels",
        "labels": "teacher",
    },
    "weighting": {"uniform": "lambda_rank", "ndcg_loss2_plus": "ndcg_loss2"},
    "window": 3,
    "negatives": 1,
    "momentum": 0.9,
    "target": "mixed",
    "end": 0.3,
    "over": 0.7,
    "by": {
        "epoch": "step",
        "uniform": "teacher-rank",
        "teacher-rank": "uniform",
        "student-rank": "uniform",
        "adaptive": "uniform",
        "best-of": "uniform",
    },
    "use": {
        "sample": "ensemble",
        "ensemble": "sample",
        "chain": "sample",
        "llkd": "confidence",
    },
    "student_epochs": 9,
    "partner": "permutation",
    "at": "word_embeddings",
    "dominant": False,
    "terms": ["cosine"],
    "wait": [],
    "order": {"progressive": "stacked", "stacked": "progressive"},
    "pick": "first",
    "init": "teacher",
    "epochs": 7,
    "lr": 3e-3,
    "batch_size": 5,
    "lr_schedule": "linear",
    "warmup": 0.3,
    "teacher_dropout": False,
    "keys": "model",
    "through": None,
    "regression": "teacher",
    "exceptions": [{"teacher": 12, "student": 4, "layers": {1: 1, 2: 1, 3: 1}}],
    "optimizer": "adamw",
    "weight_decay": 0.5,
    "max_grad_norm": 2.0,
    "max_length": 99,
    "pad_to": 999,
}
MOMENTS = [
    StepState(seed=2, epoch=n, step=7 * n, progress=p, passes=n + 0.5)
    for n, p in enumerate((0.05, 0.5, 0.7, 0.95))
]


def raw_of(method: str) -> dict[str, Any]:
    """The shipped file as it is read, with what it leaves to the user."""
    raw = yaml.safe_load(catalog.find(method).text)
    raw.pop("stated", None)  # settings of papers have tests of their own
    for path, value in GIVEN.get(method, {}).items():
        place(raw, path)[path.split(".")[-1]] = value
    return raw


def place(raw: dict[str, Any], path: str) -> dict[str, Any]:
    """The mapping that a dotted key stands in."""
    return functools.reduce(lambda found, key: found[key], path.split(".")[:-1], raw)


def leaves(raw: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in raw.items():
        if isinstance(value, dict) and key != "layers":
            yield from leaves(value, f"{prefix}{key}.")
        elif prefix or key not in ABOUT:
            yield f"{prefix}{key}"


def changes(raw: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """The recipe with another value of this key; several where not all have to be valid.

    What compares, and the kind of a mapping, take the keys along that the other one has.
    """
    *_, key = path.split(".")
    value = place(raw, path)[key]
    found: list[dict[str, Any]] = []
    if key == "compare":
        for name in OBJECTIVES:
            known = OBJECTIVES.get(name).settings_class.model_fields
            fields = {k: v for k, v in place(raw, path).items() if k in known}
            found += [fields | {"compare": name}] if name != value else []
    elif path == "team.use":  # what else it says belongs to that use
        found = [{"use": OTHER["use"][value]}]
    elif path == "kind":
        found = [raw | {"kind": "sentence"}]
    elif key == "kind":
        own = ("layers", "exceptions")
        keys = {k: v for k, v in place(raw, path).items() if k not in own}
        found = [
            {k: v for k, v in keys.items() if k in kept or k == "combine"} | {"kind": kind}
            for kept in (set(keys), {"student_layers"}, set())
            for kind in KINDS
            if kind != value
        ]
    elif key == "layers":
        other = {j: (k + 1 if isinstance(k, int) else k[:1]) for j, k in value.items()}
        found = [place(raw, path) | {key: other}]
    else:
        other = OTHER[key]
        other = other[value] if isinstance(other, dict) else other
        found = [place(raw, path) | {key: other}]
    for replaced in found:
        changed = deepcopy(raw)
        parent = place(changed, path)
        parent.clear()
        parent.update(deepcopy(replaced))
        yield changed


# ---- what a recipe comes to ----

PAIRS = {"of 6 layers, wider": (6, 12), "of 12, as wide": (12, 8), "of 12, wider": (12, 12)}
NUMBERS = "of 6 layers, with a number for a label"


def embedder(layers: int, width: int, seed: int) -> Any:
    torch.manual_seed(seed)
    return SENTENCE_EMBEDDERS.from_config(bert(layers, width, seed).config).eval()


@functools.cache
def models(kind: str, pair: str) -> tuple[Any, Any]:
    if pair == NUMBERS:
        return bert(4, 8, seed=1, classes=1), bert(6, 12, seed=0, classes=1)
    if kind == "embedding":
        return embedder(4, 8, seed=1), embedder(*PAIRS[pair], seed=0)
    make = t5 if kind == "text" else bert
    return make(4, 8, seed=1), make(*PAIRS[pair], seed=0)


@functools.cache
def examples(kind: str, step: int, pair: str = "") -> dict[str, torch.Tensor]:
    """Other words each time under the same four numbers."""
    made = batch(extra=1, seed=step, classes=1 if pair == NUMBERS else CLASSES)
    if kind == "pair-score":
        grades = torch.tensor([0.0, 1.0, 1.0, 0.0])
        return made | {"labels": grades, "query_id": torch.full((4,), 3)}
    if kind == "embedding":
        grades = torch.tensor([float("nan"), 1.0, 0.0, 0.0])
        return made | {"grade": grades, "query_id": torch.full((4,), 3)}
    return made | {"labels": answers(seed=step)} if kind == "text" else made


@functools.cache
def seen(
    step: int, kind: str, pair: str, side: int, asked: Request, clean: Request, mixture: Any
) -> Trace:
    """A trace, made once for each thing that is asked."""
    model, shown = models(kind, pair)[side], examples(kind, step, pair)
    with torch.no_grad():
        if mixture is None:
            return capture(model, shown, asked)
        partner, share, at = mixture
        drawn = Mixture(torch.tensor(partner), share, at)
        inputs = StepInputs(shown, Mixup(MixupSpec()), drawn)
        run = functools.partial(capture, model)
        return inputs.of_student(model, asked, clean, run, Passes())


def mixture_of(recipe: Recipe, step_state: StepState) -> tuple | None:
    if recipe.transform is None:
        return None
    drawn = recipe.transform.draw({"index": torch.arange(4)}, step_state, torch.device("cpu"))
    return tuple(drawn.partner.tolist()), drawn.share, drawn.at


def losses(recipe: Recipe, pair: str) -> Any:
    """What some steps of one stage come to on a pair of models, or why they do not."""
    kind = recipe.kind or "sentence"
    student, teacher = models(kind, pair)
    torch.manual_seed(5)
    try:
        sides = ModelShape.of(student), ModelShape.of(teacher)
        shape = Shape(*sides, kind=get_task_type(kind), rows=4)
        objectives = Objectives(recipe.loss, shape)
        steps = []
        for step_state in MOMENTS:
            asked = {side: objectives.request(side, step_state) for side in ("student", "teacher")}
            mixture = mixture_of(recipe, step_state)
            clean = objectives.request("clean", step_state)
            traces = (
                seen(step_state.step, kind, pair, 0, asked["student"], clean, mixture),
                seen(step_state.step, kind, pair, 1, asked["teacher"], Request(), mixture),
            )
            with torch.no_grad():
                found = objectives(*traces, examples(kind, step_state.step, pair), step_state)
            objectives.after_step()
            weights = {name: objectives.weight(name, step_state) for name in objectives.terms}
            steps.append({name: (weights.get(name), v.item()) for name, v in found.items()})
        return {name: tuple(w.shape) for name, w in objectives.named_parameters()}, steps
    except LimbeckError as error:
        return str(error)


# Of rows that nobody reads: every record was scored on them.
DEV_ROWS = {"dev": "1a2b3c4d"}
EMPTY = EncodedRows(get_task("sst2"), Dataset.from_dict({}), Dataset.from_dict({}), 0, 16)
vars(EMPTY)["fingerprint"] = DEV_ROWS["dev"]


def teaching(recipe: Recipe) -> Any:
    """Of three teachers: who is sampled in some steps or counts how much, and what is trained first."""
    if recipe.team is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        scores = {"a": (90.0, 70.0), "b": (80.0, 75.0), "c": (95.0, 60.0)}
        named = [
            Named(key, str(scored(place / key, own)), Teacher(bert(2, 8, seed=0)), None)
            for key, (own, _) in scores.items()
        ]
        recipe = recipe.model_copy(update={"teachers": [one.path for one in named]})
        stage = StageInputs(recipe.stages()[-1], EMPTY, tuple(named))
        prepared = Prepared(
            recipe=recipe,
            task=EMPTY.task,
            splits={},
            tokenizer=None,
            student=None,
            named=tuple(named),
            dev={"dev": EMPTY},
            stages=(stage.taught_by(form_team(recipe, named)),),
        )
        made = []

        def train(before: Recipe, folder: Path) -> Record:
            epochs = getattr(before.team, "student_epochs", None)
            made.append((folder.name, before.epochs, epochs, before.objectives))
            return Record.load(scored(folder, scores.get(folder.name, (0, 0))[1]))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(teaching_module, "load_teacher", lambda *_: bert(2, 8, seed=0))
            patch.setattr(teaching_module, "processor_of", lambda *_: None)
            patch.setattr(prepared_module, "bound", lambda rows, readers, *_, **__: (rows, readers))
            prepared, facts = with_team(recipe, prepared, RunFolder(place / "run"), train)
    team = prepared.last.teacher
    sampled = facts.use == "sample" and team is not None
    picks = [team.pick(recipe.seed, step) for step in range(40)] if sampled else None
    return facts.use, [member.share for member in facts.members], made, picks


def scored(folder: Path, score: float) -> Path:
    """A run folder that holds no more than a record."""
    record = Record(kind="finetune", method="m", task="sst2", data="d", seed=1)
    record.scores = {"dev": {"primary": score, "accuracy": score}}
    record.examples.fingerprints = dict(DEV_ROWS)
    record.save(folder)
    return folder


def outcome(recipe: Recipe) -> Iterator[Any]:
    """Part by part, so that a comparison can end at the first difference."""
    stages = recipe.stages()
    yield len(stages), recipe.student, recipe.teacher_dropout
    yield teaching(recipe)
    for stage in stages:
        arguments = training_arguments(stage.recipe, Path("none"), select=stage.last)
        settings = arguments.to_dict().items()
        yield {k: v for k, v in settings if "dir" not in k and k != "method"}, stage.recipe.loss
        yield Optimisation.of(stage.recipe), stage.recipe.padded_width, stage.recipe.max_length
    for pair in (*PAIRS, NUMBERS):
        for stage in stages:
            text, lists = (stage.recipe.kind == kind for kind in ("text", "pair-score"))
            skipped = text if pair == NUMBERS else lists
            yield None if skipped else losses(stage.recipe, pair)


def load(raw: dict[str, Any]) -> Recipe:
    return check(deepcopy(raw), Recipe, known_tasks=())


@pytest.mark.parametrize("method", quick(*ONE_OF_A_KIND, of=catalog.names()))
def test_every_key_has_an_effect(method):
    raw = raw_of(method)
    own = list(outcome(load(raw)))
    idle, refusals = [], {}
    for path in leaves(raw):
        for changed in changes(raw, path):
            try:
                recipe = load(changed)
            except LimbeckError as error:
                refusals.setdefault(path, str(error))
                continue
            refusals.pop(path, None)
            if all(new == old for new, old in zip(outcome(recipe), own, strict=True)):
                idle.append(path)
            break
    assert idle == []
    # Some keys can have no other value beside the rest; the refusal has to name them.
    for path, message in refusals.items():
        assert path.split(".")[-1] in message
