"""All checks of a run in order, cheap ones first.

Part of `limbeck.preflight`. A check builds on earlier ones: the models are run only on
data and models in which nothing cheaper was wrong.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.data import rows_fingerprint
from limbeck.preflight import data_checks, model_checks, score_checks
from limbeck.static.row_adam import rows_of
from limbeck.students import generic_labels, labels_of
from limbeck.support import machine, terminal, words
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.tasks import Processor, Task


@problem_list
def check_weights(weights: Mapping[str, float]) -> Iterator[Problem]:
    """Terms that are configured but weighted by zero, and weights that are no loss at all."""
    for name, weight in weights.items():
        if not math.isfinite(weight):
            yield Problem(f"objectives.{name}: its weight is {weight}", "give a finite weight")
        elif weight == 0:
            yield Problem(
                f"objectives.{name}: its weight is 0, so it never influences the student",
                "give it a weight, or take it out (it costs time all the same)",
                "warning",
            )
    if weights and all(weight == 0 for weight in weights.values()):
        yield Problem("objectives: every weight is 0, so nothing is learned", "give one a weight")


@dataclass(frozen=True)
class Method:
    """The method, as plain values.

    `requests`: by side (`student`, `teacher`), everything its terms may request. `weights`: by
    term, the largest weight it ever has. `terms(batch)`: the unweighted terms by name, as the engine
    computes them, run on `batch`, a few real examples; without one they are not run. `modules`: other
    modules that `terms` runs and whose buffers it writes (objectives).
    """

    weights: Mapping[str, float]
    requests: Mapping[str, Request]
    terms: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
    batch: Mapping[str, Tensor] | None = None
    modules: Iterable[nn.Module] = ()


def check_influence(method: Method, student: nn.Module, *, decoder: bool) -> list[Problem]:
    """Terms whose value does not depend on the student, or is not a finite number.

    Terms of weight 0 are left to `check_weights`. The student runs in the
    mode it is in. In a `decoder` the terms' sizes are compared too.
    """
    weights, batch = method.weights, method.batch
    if batch is None:
        return []
    parameters = [weight for weight in student.parameters() if weight.requires_grad]
    if not parameters:
        return [Problem("student: no parameter can be trained", "unfreeze some of them")]
    problems = []
    with _untouched([student, *method.modules], batch), torch.enable_grad():
        values = method.terms(batch)
        for name, value in values.items():
            if weights.get(name, 1.0) != 0:
                problems += _check_term(name, value, parameters)
    return problems + (check_sizes(values, weights) if decoder and not errors_of(problems) else [])


# ALP-KD's squared errors of a decoder's raw states, which ruin the student, are far above this.
_DWARFS = 30


@problem_list
def check_sizes(values: Mapping[str, Tensor], weights: Mapping[str, float]) -> Iterator[Problem]:
    """A term that is far larger than all others together, weighted."""
    sizes = {name: value.item() * weights.get(name, 1.0) for name, value in values.items()}
    largest = max(sizes, key=sizes.__getitem__)
    others = sum(sizes.values()) - sizes[largest]
    if others > 0 and sizes[largest] > _DWARFS * others:
        weight = weights.get(largest, 1.0) * others / sizes[largest]
        yield Problem(
            f"objectives.{largest}: {sizes[largest]:,.3g} on the first batch, all other terms together "
            f"{others:,.3g}; the student would hardly learn from the others",
            f"set a smaller weight, such as objectives.{largest}.weight={weight:.1g}",
            "warning",
        )


# A student of an encoder's first layers starts at a thousandth and less, one that has its last layer above a hundredth.
_ALIKE = 3e-3
# The summed rates of the steps after which such a student was first seen to distinguish texts.
_ON_THE_PLATEAU = 7e-3


@problem_list
def check_start(
    student: PreTrainedModel, batch: Mapping[str, Tensor], travel: float
) -> Iterator[Problem]:
    """A student that gives all texts one answer at the start, and a training too short to change that.

    Lower layers of an encoder write nothing of the text into the token that a class is read off, so that a student of
    them begins on a plateau: its outputs hardly differ, nor do the gradients of its examples.

    Args:
        student: predicts a class or number for a complete text.
        batch: a few real examples.
        travel: the learning rates of all steps, added up.
    """
    if travel >= _ON_THE_PLATEAU or len(batch["input_ids"]) < 2:
        return
    with machine.evaluating(student):
        logits = capture(student, batch, Request.of_logits()).logits
    assert logits is not None  # requested
    spread = float(logits.float().std(0).max())
    if not spread < _ALIKE:
        return
    yield Problem(
        f"student: it starts with nearly the same outputs for all texts (logits differ by {spread:.1g}), and "
        f"the learning rates of its steps add up to {travel:.2g}; it would answer one class for all texts until "
        f"they add up to about {_ON_THE_PLATEAU:g}",
        "raise epochs or lr (left out, they follow the rows); --pick skip keeps the last layer, which separates texts",
        "warning",
    )


@problem_list
def _check_term(name: str, value: Tensor, parameters: list[nn.Parameter]) -> Iterator[Problem]:
    if not torch.isfinite(value).all():
        yield Problem(
            f"objectives.{name}: its value on the first batch is {value.item()}",
            "check labels, temperature and precision",
        )
        return
    gradients: list[Tensor] = []
    if value.requires_grad:
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        gradients = [rows_of(gradient)[1] for gradient in found if gradient is not None]
    if not gradients:
        yield Problem(
            f"objectives.{name}: it does not depend on any weight of the student that is "
            "trained, so it cannot influence it",
            "let it look at a layer above frozen ones, or take it out",
        )
        return
    if not all(torch.isfinite(gradient).all() for gradient in gradients):
        yield Problem(
            f"objectives.{name}: its gradient on the first batch is not finite",
            "check labels, temperature and precision",
        )
        return
    if not any(gradient.count_nonzero() for gradient in gradients):
        yield Problem(
            f"objectives.{name}: its gradient on the first batch is exactly zero",
            "expected where the student starts as a copy of the layers it is compared with; otherwise map other "
            "layers, or check that the student's tokenizer knows the text",
            "warning",
        )
        return


@contextmanager
def _untouched(modules: list[nn.Module], batch: Mapping[str, Tensor]) -> Iterator[None]:
    """Give random states and buffers back as they were."""
    buffers = [
        (buffer, buffer.detach().clone()) for module in modules for buffer in module.buffers()
    ]
    accelerators = {tensor.device for tensor in batch.values() if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(accelerators, key=str)):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


@dataclass(frozen=True)
class TeacherSide:
    """The teacher as pre-flight sees it. `path` is where a record of its scores may be.

    `own_tokens`: it reads the rows by its own tokenizer.
    """

    model: PreTrainedModel
    tokenizer: Processor
    path: str | Path | None = None
    own_tokens: bool = False


@dataclass
class Findings:
    """The findings of pre-flight, and the values that it computed.

    Attributes:
        problems: everything wrong or suspicious, each with its fix.
        asked: the teachers' outputs on dev, by the teachers' names in messages.
        in_train: by split how many scored rows are training rows too.
    """

    problems: list[Problem]
    asked: dict[str, score_checks.TeacherOutputs] = field(default_factory=dict)
    in_train: dict[str, int] = field(default_factory=dict)


def check(
    *,
    task: Task,
    rows: Mapping[str, Dataset],
    student: PreTrainedModel,
    tokenizer: Processor,
    max_length: int,
    teachers: Mapping[str, TeacherSide] = MappingProxyType({}),
    method: Method | None = None,
    truncated: Mapping[str, int] | None = None,
) -> Findings:
    """Everything wrong or suspicious about a run, before its first step.

    `rows`: the loaded splits. `tokenizer`: the student's, of images its image processor.
    `teachers`: by what messages call them. `truncated`: the counts of
    `encode`, by split. Weights, gradients, random state and buffers are left as they were.
    """
    weights, requests = ({}, {}) if method is None else (method.weights, method.requests)
    splits = dict.fromkeys(("train", task.dev_splits[0], *task.scored_splits))
    in_data = [
        one
        for split in splits
        if split in rows
        for one in data_checks.check_values(task, split, rows[split])
    ]
    in_models = _check_models(task, student, tokenizer, max_length, teachers, requests)
    problems = in_data + in_models + check_weights(weights)
    found = Findings(problems)
    if errors_of(in_data):
        return found
    problems += data_checks.check_scored_length(task, max_length)
    problems += data_checks.check_truncation(task, rows, truncated or {}, tokenizer, max_length)
    checks = model_checks.INPUT_CHECKS[task.kind.reads.name]
    models = {"student": student} | {side: one.model for side, one in teachers.items()}
    problems += checks.lengths(task, rows, tokenizer, models, max_length)
    found.in_train = checks.in_train(task, rows)
    problems += data_checks.check_overlap(task, rows, found.in_train)
    problems += checks.reader(task, rows["train"], tokenizer, side="student")
    for side, teacher in teachers.items():
        in_tokenizers = []
        if teacher.own_tokens:
            problems += checks.reader(task, rows["train"], teacher.tokenizer, side=side)
        else:
            in_tokenizers = checks.processors(
                task, rows["train"], teacher.tokenizer, tokenizer, side=side
            )
        problems += in_tokenizers
        if not errors_of(in_models + in_tokenizers):
            dev = rows[task.dev_splits[0]]
            problems += _check_score(task, dev, side, teacher, max_length, found.asked)
    if method is not None and not errors_of(problems):
        problems += check_influence(method, student, decoder=task.kind.generates)
    return found


def _check_models(
    task: Task,
    student: PreTrainedModel,
    tokenizer: Processor,
    max_length: int,
    teachers: Mapping[str, TeacherSide],
    requests: Mapping[str, Request],
) -> list[Problem]:
    sides = {"student": (student, tokenizer)}
    sides |= {side: (teacher.model, teacher.tokenizer) for side, teacher in teachers.items()}
    problems = []
    for side, (model, own_tokenizer) in sides.items():
        in_labels = model_checks.check_labels(side, model.config, task)
        # A teacher's names that merely prove nothing are resolved by its predictions, in _check_score; so are
        # the names that a student has from it.
        theirs = [labels_of(teacher.model.config) for teacher in teachers.values()]
        problems += errors_of(in_labels) if labels_of(model.config) in theirs else in_labels
        problems += data_checks.unsaid_problem(side, model.config, task) if side in teachers else []
        checks = model_checks.INPUT_CHECKS[task.kind.reads.name]
        problems += checks.model(side, model, own_tokenizer, max_length)
        problems += model_checks.check_static(side, model, task)
        problems += model_checks.check_request(side, model, requests.get(side, Request()))
        problems += model_checks.check_direction(side, model) if task.kind.continues_texts else []
    return problems


def _check_score(
    task: Task,
    dev: Dataset,
    side: str,
    teacher: TeacherSide,
    max_length: int,
    asked: dict[str, score_checks.TeacherOutputs],
) -> list[Problem]:
    """The teacher's score, and the order of its classes where their names prove nothing."""
    if task.kind.of_teacher(teacher.model.config) is not task.kind:
        return []  # its own output is not scored
    names = model_checks.check_labels(side, teacher.model.config, task)
    chosen, labels = dev, dev[task.label_column][:]
    split, score, origin = task.dev_splits[0], None, ""
    recorded = score_checks.recorded_scores(
        teacher.path, task, {split: rows_fingerprint(task, dev)}
    )
    if recorded is not None:
        score, origin = recorded[0].get(split, {}).get("primary"), f"recorded in {recorded[1]}"
    if score is not None and not names:
        return score_checks.check_teacher_score(task, score, origin, labels, side=side, rows=dev)
    try:
        outputs = score_checks.ask_teacher(task, teacher.model, teacher.tokenizer, dev, max_length)
        asked[side] = outputs
        order = score_checks.check_class_order(task, outputs, side=side)
        if order:
            return order
        if score is None:
            score, origin = outputs.scores["primary"], outputs.origin
            labels, chosen = outputs.labels, outputs.rows or dev
        found = score_checks.check_teacher_score(
            task, score, origin, labels, side=side, rows=chosen
        )
    except LimbeckError as error:
        return error.problems
    # Right predictions in the data's order are better evidence than names.
    return names + found if found else _proven_by_predictions(side, teacher.model, task)


@problem_list
def _proven_by_predictions(side: str, model: PreTrainedModel, task: Task) -> Iterator[Problem]:
    """A note about names that differ from the data's, though the predictions agree; generic names need none."""
    own = labels_of(model.config)
    if generic_labels(own) or not model_checks.check_labels(side, model.config, task):
        return
    pairs = ", ".join(f"{mine} = {data}" for mine, data in zip(own, task.labels, strict=True))
    yield Problem(
        f"{side}: its classes have other names than the data's, and by its predictions mean the same: {pairs}",
        f"rename id2label in its config.json to have the data's names; its students inherit the {side}'s",
        "note",
    )


# The list of findings on a terminal: errors first, each with its fix.


_SEVERITIES = ("error", "warning", "note")


def errors_of(problems: Sequence[Problem]) -> list[Problem]:
    """Those that must be fixed before a run can start."""
    return [problem for problem in problems if problem.severity == "error"]


def show(problems: Sequence[Problem]) -> None:
    """Print one list to standard error: errors, then warnings, then notes, and the number of each."""
    console = terminal.messages()
    found = {name: [one for one in problems if one.severity == name] for name in _SEVERITIES}
    counts = [
        words.count_of(len(some), name) for name, some in found.items() if some or name != "note"
    ]
    terminal.print_line(console, f"pre-flight: {', '.join(counts)}")
    for name, some in found.items():
        for problem in some:
            terminal.print_line(console, f"  {name}  {problem.message}", hang=4)
            if problem.fix:
                label = "" if name == "note" else "fix: "
                terminal.print_line(console, f"      {label}{problem.fix}", hang=6)


# Whether the machine supports the settings.


_MOST_A_CORE = 4


@problem_list
def check_share(batch_size: int, accumulation: int) -> Iterator[Problem]:
    """Whether the processes of a launched run can share an optimization step evenly."""
    if machine.share_of_step(batch_size, accumulation) is not None:
        return
    count = machine.processes()
    passes = f" times {accumulation} forward passes" if accumulation > 1 else ""
    yield Problem(
        f"batch_size {batch_size}: {count} processes cannot share a step of {batch_size} examples{passes} evenly",
        f"set batch_size={-(-batch_size // count) * count}, or start another number of processes",
    )


@problem_list
def check_workers(workers: int) -> Iterator[Problem]:
    """More processes that load batches than cores: slower, and with several times as many a standstill.

    Each process of a launched run starts `workers` of its own.
    """
    there = cores()
    # As torchrun counts the processes of one machine.
    beside = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    wanted = workers * beside
    if there is None or wanted <= there:
        return
    times = f" in each of {beside} processes" if beside > 1 else ""
    yield Problem(
        f"workers: {workers}{times}, and this machine has {there} core{'s' * (there != 1)}",
        f"workers={there // beside}; 0 loads batches in the run's own process",
        "error" if wanted > _MOST_A_CORE * there else "warning",
    )
