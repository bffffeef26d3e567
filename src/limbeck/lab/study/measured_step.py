"""The cost of one batch of a recipe's rows: its models forward and backward, timed.

Part of `limbeck.lab.study`.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.data import Collator
from limbeck.recipe import Recipe, Stage
from limbeck.run import prepare
from limbeck.run.inputs import missing
from limbeck.run.models import Named
from limbeck.run.rows import EncodedRows, load_rows
from limbeck.students.execution import resolve_precision
from limbeck.support import machine, words
from limbeck.support.errors import raise_problems
from limbeck.tasks import Processor, Task

_REPEATS = 3


@dataclass(frozen=True)
class StepCost:
    """The measurements on one batch of a task, in seconds, and the number of rows."""

    train: float
    """Forward, backward and update of the model that learns."""
    forward: float
    teacher: float
    """The teacher's forward pass; 0 without one."""
    batch: int
    rows: int
    dev_rows: int
    parameters: int
    device: str
    splits: tuple[str, ...] = ()
    """Those that have labels."""

    def seconds(self, recipe: Recipe, teachers: "Sequence[StepCost]" = ()) -> float:
        """Seconds of a complete run: every stage, dev scores (every epoch and at the end), runs that a team needs.

        `teachers`: measurements of the teaching models; without them the one measured here.
        """
        taught = self._taught(recipe, teachers)
        stages = sum(self._stage(stage, taught) for stage in recipe.stages())
        scored = (math.ceil(recipe.passes) + 1) * self.dev_rows / self.batch * self.forward
        by, use = getattr(recipe.team, "by", None), getattr(recipe.team, "use", None)
        if by in _RANKS_STUDENTS:  # a student of each teacher first
            epochs = getattr(recipe.team, "student_epochs", None) or recipe.passes
            alone = self.rows * epochs * (self.train + taught) / self.batch + scored
            runs = _RANKS_STUDENTS[by]
            return runs * (stages + scored) + len(teachers) * alone
        if use == "chain":  # each but the largest is distilled first
            stages += sum(
                self.rows * recipe.passes * (one.train + one.forward) / one.batch
                for one in teachers[1:]
            )
        return stages + scored

    def _stage(self, stage: Stage, taught: float) -> float:
        """Training of one stage, whose rows may be others."""
        recipe = stage.recipe
        rows = self.rows
        if stage.corpus is not None:
            rows = stage.corpus.size
        elif not stage.same_rows and recipe.train_rows is not None:
            rows = recipe.train_rows
        examples = rows * recipe.passes
        if recipe.max_steps is not None:
            examples = recipe.max_steps * recipe.batch_size * recipe.accumulation
        step = self.train + (taught if recipe.needs_teacher else 0.0)
        return examples / self.batch * step

    def _taught(self, recipe: Recipe, teachers: "Sequence[StepCost]") -> float:
        """The teachers' forward passes over one batch of this size."""
        if not teachers:
            return self.teacher
        each = [one.forward * self.batch / one.batch for one in teachers]
        return sum(each) if getattr(recipe.team, "use", None) == "ensemble" else fmean(each)


_RANKS_STUDENTS = {"student-rank": 1, "best-of": 3}
"""Distributions that students of each teacher decide, and the runs that come after them."""


@dataclass(frozen=True)
class UntrainedRun:
    """Rows and models of a recipe as they are before the first step."""

    task: Task
    rows: Mapping[str, Dataset]
    teachers: Sequence[Named]
    student: PreTrainedModel
    tokenizer: Processor


def untrained(recipe: Recipe) -> UntrainedRun:
    """Load a recipe's rows and models.

    Raises:
        LimbeckError: a setting is missing, or rows or models cannot be loaded.
    """
    problems = missing(recipe)
    raise_problems(problems)
    task, rows = load_rows(recipe)
    return UntrainedRun(task, rows, *prepare.build_models(recipe, task))


def measure(recipe: Recipe, run: UntrainedRun, *, save_as: Path | None = None) -> StepCost:
    """Time one batch of the recipe's rows through its models.

    `save_as`: a folder for the untrained model and its tokenizer. Other modules of its terms
    are not saved.
    """
    task, rows, named = run.task, run.rows, run.teachers
    student, tokenizer = run.student, run.tokenizer
    if save_as is not None:
        student.save_pretrained(save_as)
        tokenizer.save_pretrained(save_as)
    train, count = rows["train"], min(recipe.batch_size, len(rows["train"]))
    few = train.select(range(0, len(train), max(1, len(train) // count))).select(range(count))
    encoded = EncodedRows.of(few, task, tokenizer, recipe.max_length)
    assert isinstance(encoded.encoded, Dataset)  # this number is encoded at once
    batch = Collator(tokenizer, kind=task.kind)(list(encoded.encoded))
    on = machine.device()
    # Labels too: of a decoder they are the input, and to no other model are they given.
    inputs = {
        name: value.to(on)
        for name, value in batch.items()
        if isinstance(value, Tensor) and name != "index"
    }
    nn.Module.to(student, on)
    mixed = resolve_precision(recipe.precision) == "bf16"
    cast = torch.autocast(on.type, torch.bfloat16) if mixed else nullcontext()
    clock = _clock(on)
    with torch.random.fork_rng(), cast:
        train_seconds = _median(lambda: _train_step(student, inputs), clock)
        forward = _median(lambda: _forward(student, inputs), clock)
        taught = 0.0
        if named and recipe.needs_teacher:
            model = named[0].teacher.model
            nn.Module.to(model, on)
            taught = _median(lambda: _forward(model, inputs), clock)
    return StepCost(
        train_seconds,
        forward,
        taught,
        count,
        len(train),
        sum(len(rows[split]) for split in task.dev_splits if split in rows),
        sum(weight.numel() for weight in student.parameters()),
        f"{on.type} with {words.count_of(torch.get_num_threads(), 'thread')}"
        if on.type == "cpu"
        else str(on),
        tuple(name for name, own in rows.items() if task.label_column in own.column_names),
    )


def _train_step(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> None:
    model.train()
    logits = capture(model, inputs, Request.of_logits()).logits
    assert logits is not None  # requested
    logits.float().square().mean().backward()
    with torch.no_grad():  # an update reads and writes every weight and its two moments
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.mul_(0.9).addcmul_(weight.grad, weight.grad).mul_(0.0)
    model.zero_grad(set_to_none=True)
    _wait()


def _forward(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> None:
    model.eval()
    with torch.no_grad():
        capture(model, inputs, Request.of_logits())
    _wait()


def _wait() -> None:
    if machine.accelerator():
        torch.accelerator.synchronize()


def _clock(device: torch.device) -> Callable[[], float]:
    """Seconds; on CPU of this thread's own work, so that other load on its cores does not lengthen them.

    The calling thread has its part in all that torch's threads do.
    """
    return time.thread_time if device.type == "cpu" else time.perf_counter


def _median(work: Callable[[], None], clock: Callable[[], float]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        began = clock()
        work()
        times.append(clock() - began)
    return statistics.median(times)
