"""All checks of a run in order, cheap ones first.

Part of `limbeck.preflight`. What a check needs is asked of earlier ones: the models are run only on
data and models in which nothing cheaper was wrong.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import Request
from limbeck.data import rows_fingerprint
from limbeck.preflight import data_checks, score_checks
from limbeck.preflight.influence import Terms, check_influence, check_weights
from limbeck.preflight.model_checks import INPUT_CHECKS, check_labels, check_request
from limbeck.students import generic_labels, labels_of
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.machine import processes, share_of_step
from limbeck.support.terminal import messages, print_line
from limbeck.support.words import count_of
from limbeck.tasks import Processor, Task


@dataclass(frozen=True)
class TeacherSide:
    """The teacher as pre-flight sees it. `path` is where a record of its scores may lie.

    `own_tokens`: it reads the rows by its own tokenizer, and only its logits are used.
    """

    model: PreTrainedModel
    tokenizer: Processor
    path: str | Path | None = None
    own_tokens: bool = False


@dataclass(frozen=True)
class Method:
    """What the method does, as plain values.

    `requests`: by side (`student`, `teacher`), everything its terms may ask for. `weights`: by
    term, the largest weight it ever has. `terms(batch)`: the unweighted terms, run on `batch`, a
    few real examples. `modules`: what `terms` runs besides the student and writes buffers of.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    terms: Terms | None = None
    batch: Mapping[str, Tensor] | None = None
    modules: Iterable[nn.Module] = ()


@dataclass
class Findings:
    """What pre-flight found, and what it learned on the way.

    Attributes:
        problems: everything wrong or suspicious, each with its fix.
        asked: what teachers were asked on dev, by what messages call them.
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
    method = method or Method()
    splits = dict.fromkeys(("train", task.dev_splits[0], *task.scored_splits))
    in_data = [
        one
        for split in splits
        if split in rows
        for one in data_checks.check_values(task, split, rows[split])
    ]
    in_models = _check_models(task, student, tokenizer, max_length, teachers, method)
    problems = in_data + in_models + check_weights(method.weights)
    found = Findings(problems)
    if errors_of(in_data):
        return found
    problems += data_checks.check_scored_length(task, max_length)
    problems += data_checks.check_truncation(task, rows, truncated or {}, tokenizer, max_length)
    checks = INPUT_CHECKS[task.kind.reads.name]
    models = {"student": student} | {side: one.model for side, one in teachers.items()}
    problems += checks.lengths(task, rows, tokenizer, models, max_length)
    found.in_train = checks.in_train(task, rows)
    problems += data_checks.check_overlap(rows, found.in_train)
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
    if method.terms is not None and method.batch is not None and not errors_of(problems):
        problems += check_influence(
            method.terms, method.weights, student, method.batch, method.modules
        )
    return found


def _check_models(
    task: Task,
    student: PreTrainedModel,
    tokenizer: Processor,
    max_length: int,
    teachers: Mapping[str, TeacherSide],
    method: Method,
) -> list[Problem]:
    sides = {"student": (student, tokenizer)}
    sides |= {side: (teacher.model, teacher.tokenizer) for side, teacher in teachers.items()}
    problems = []
    for side, (model, own_tokenizer) in sides.items():
        in_labels = check_labels(side, model.config, task)
        # A teacher's names that merely prove nothing are resolved by its predictions, in _check_score; so are
        # those that a student has of it.
        theirs = [labels_of(teacher.model.config) for teacher in teachers.values()]
        problems += errors_of(in_labels) if labels_of(model.config) in theirs else in_labels
        problems += data_checks.unsaid_problem(side, model.config, task) if side in teachers else []
        checks = INPUT_CHECKS[task.kind.reads.name]
        problems += checks.model(side, model, own_tokenizer, max_length)
        problems += check_request(side, model, method.requests.get(side, Request()))
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
        return []  # what it gives is not what is scored
    names = check_labels(side, teacher.model.config, task)
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
    # Right predictions in the data's order say more than names.
    return names + found if found else _proven_by_predictions(side, teacher.model, task)


@problem_list
def _proven_by_predictions(side: str, model: PreTrainedModel, task: Task) -> Iterator[Problem]:
    """A note of names that differ from the data's, though the predictions agree; names that say nothing need none."""
    own = labels_of(model.config)
    if generic_labels(own) or not check_labels(side, model.config, task):
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
    """Print one list to standard error: errors, then warnings, then what is good to know, and how many of each."""
    console = messages()
    found = {name: [one for one in problems if one.severity == name] for name in _SEVERITIES}
    counts = [count_of(len(some), name) for name, some in found.items() if some or name != "note"]
    print_line(console, f"pre-flight: {', '.join(counts)}")
    for name, some in found.items():
        for problem in some:
            print_line(console, f"  {name}  {problem.message}", hang=4)
            if problem.fix:
                label = "" if name == "note" else "fix: "
                print_line(console, f"      {label}{problem.fix}", hang=6)


# Does the machine have what the settings ask of it.


_MOST_A_CORE = 4


@problem_list
def check_share(batch_size: int, accumulation: int) -> Iterator[Problem]:
    """Whether the processes of a launched run can share an optimisation step evenly."""
    if share_of_step(batch_size, accumulation) is not None:
        return
    count = processes()
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


# Can the run write where it is told to.
