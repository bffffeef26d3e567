"""A run begins: what its recipe leaves open is resolved, its record and its folder are made. Part of `limbeck.run`."""

import logging
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from limbeck.activations import stack_names
from limbeck.objectives import ModelShape
from limbeck.recipe import Recipe, departures
from limbeck.recipe.quick import QUALITY, USUAL, training_for
from limbeck.records import Record, hardware, versions
from limbeck.records.facts import Examples, Execution
from limbeck.run import beside_teacher, earlier_run
from limbeck.run.prepared import TEST, Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.students import depth, read_config
from limbeck.students.execution import resolve_attention, resolve_precision
from limbeck.support import machine, terminal, words
from limbeck.support.errors import LimbeckError
from limbeck.tasks.metrics import TEACHER_LABEL

logger = logging.getLogger(__name__)


def new_record(recipe: Recipe, prepared: Prepared) -> Record:
    """The record of a run that has everything it needs and has not begun."""
    rows, without = len(prepared.train.encoded), prepared.unlabelled
    scored: dict[str, Any] = {**prepared.dev}
    if prepared.final is not None:
        scored[TEST] = prepared.final
    labels: Literal["teacher"] | None = "teacher" if recipe.label_column == TEACHER_LABEL else None
    return Record(
        kind="distill" if recipe.needs_teacher else "finetune",
        method=recipe.method,
        task=prepared.task.name,
        data=recipe.data,
        seed=recipe.seed,
        settings=recipe.settings,
        departures=departures(recipe),
        recipe=recipe.model_dump(mode="json") | prepared.execution.training,
        versions=versions(),
        hardware=hardware(),
        execution=prepared.execution,
        outputs=beside_teacher.outputs_facts(prepared),
        vocabulary=prepared.vocabulary,
        picked_layers=getattr(prepared.student.config, depth.PICKED)
        if prepared.recipe.student.ranks_layers
        else None,
        examples=Examples(
            train=rows,
            dev=len(prepared.selecting) if labels is None else len(prepared.splits["dev"]),
            test=None if prepared.final is None else len(prepared.final),
            truncated=prepared.truncated,
            labels=labels,
            in_train=dict(prepared.in_train),
            labelled=rows - without.kept,
            unlabelled=without.kept,
            unlabelled_in_scored_splits=without.scored,
            unlabelled_repeated=without.repeated,
            unlabelled_blank=without.blank,
            relabelled=recipe.conditions.relabelled(rows - without.kept),
            without_outputs=prepared.without_outputs,
            fingerprints={split: rows.fingerprint for split, rows in scored.items()},
        ),
    )


def begin(recipe: Recipe, folder: RunFolder, record: Record, *, fresh: bool) -> None:
    """The folder is this run's from now on."""
    if fresh and machine.is_first():
        folder.clear()
    machine.wait_for_all()
    if machine.is_first():
        folder.begin(recipe, record.execution.training)
    save(record, folder)


def save(record: Record, folder: RunFolder) -> None:
    """One process of several writes the record."""
    if machine.is_first():
        record.save(folder.path)


# The training and execution settings that a recipe leaves open, resolved once per run.


def resolve(
    prepared: Prepared, folder: RunFolder, files: dict[str, str], *, fresh: bool
) -> Prepared:
    """Resolve the open settings of a run's recipe; its models then compute accordingly.

    The values of an earlier start of the run stay, so that a continued run computes the same; `fresh`
    resolves them again. `files`: checksums of the files that the run reads.

    Raises:
        LimbeckError: an attention implementation that a model or the machine does not have, or
            other rows or teachers than the run began with.
    """
    # The first process may have written its record before another one reads it.
    record = None if fresh else earlier_run.record_in(folder)
    before = machine.agreed(Execution() if record is None else record.execution)
    recipe = prepared.recipe
    read = earlier_run.digests(prepared) | earlier_run.plugins_read(recipe)
    earlier_run.refuse_changed(folder, before.read, read)
    precision = before.precision or resolve_precision(recipe.precision)
    training = before.training or _training(prepared)
    train = prepared.train.encoded
    batch = prepared.collator(list(train.select(range(min(recipe.batch_size, len(train))))))
    models = {"student": prepared.student}
    models |= {one.setting: one.teacher.model for one in prepared.named if not one.stored}
    batches = {one.setting: one.teacher.as_read(batch) for one in prepared.named}
    attention = {
        side: resolve_attention(
            model,
            before.attention.get(side, recipe.attention),
            batches.get(side, batch),
            precision=precision,
            setting=side,
        )
        for side, model in models.items()
        # A convolutional network has no attention to choose.
        if stack_names(model) or recipe.attention != "auto"
    }
    update: dict[str, Any] = {"precision": precision, "training": training, "attention": attention}
    update |= {"read": read, "files": files}
    update["processes"] = _processes(prepared, folder, before.processes)
    resolved = prepared.following(recipe.model_copy(update={"precision": precision, **training}))
    return replace(resolved, execution=before.model_copy(update=update))


def say_training(prepared: Prepared, *, show: bool) -> None:
    """Print which epochs and which rate were chosen, if any were left out."""
    recipe = prepared.recipe
    chosen = prepared.execution.training and recipe.max_steps is None
    if not (show and machine.is_first() and chosen):
        return
    rows = words.count_of(len(prepared.train.encoded), "row")
    own, whole = _depths(prepared)
    layers = "" if own is None or own == whole else f", {own} of {whole} layers"
    passes = f"{words.count_of(recipe.passes, 'epoch')} at {recipe.lr:g}"
    others = f"for quality {recipe.quality} (set --epochs and --lr for others)"
    terminal.print_line(terminal.messages(), f"training: {rows}{layers}: {passes} {others}")


def _training(prepared: Prepared) -> dict[str, float]:
    """Epochs and rate, as far as the recipe leaves them out."""
    recipe = prepared.recipe
    found = USUAL
    if not prepared.task.kind.language_model:
        own, whole = _depths(prepared)
        step = recipe.batch_size * recipe.accumulation
        depth = 0.0 if recipe.student.static else (own or 1) / (whole or own or 1)
        found = training_for(_examples(prepared), step, depth)
    found = found._replace(epochs=float(math.ceil(QUALITY[recipe.quality] * found.epochs)))
    return {key: value for key, value in found._asdict().items() if getattr(recipe, key) is None}


def _examples(prepared: Prepared) -> int:
    """Examples of an epoch, augmented ones among them."""
    recipe, rows = prepared.recipe, len(prepared.train.encoded)
    if recipe.augment is not None:
        return rows * (1 + recipe.augment.examples)
    if recipe.labelled_share is not None:
        return round(prepared.unlabelled.kept / (1 - recipe.labelled_share))
    return rows


def _depths(prepared: Prepared) -> tuple[int | None, int | None]:
    """Layers of the student, and of the deepest model among its teachers and their uncut originals."""
    recipe, spec = prepared.recipe, prepared.recipe.student
    configs = [prepared.student.config]
    source = recipe.lead if spec.from_teacher else spec.init
    if spec.layers is not None and source is not None:
        with suppress(LimbeckError):  # a shape's name, or a model that is known by its outputs
            configs.append(read_config(source))
    own, *others = (getattr(config, "num_hidden_layers", None) for config in configs)
    # Stored outputs with layers record their teacher's number of layers.
    others += [ModelShape.of(one.teacher.model).layers or None for one in prepared.named]
    return own, max((depth for depth in (own, *others) if depth is not None), default=None)


def _processes(prepared: Prepared, folder: RunFolder, before: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of processes that have made the run, this start's the last."""
    now = machine.processes()
    if not before or before[-1] == now:
        return before or (now,)
    if not folder.begun:  # nothing is trained yet
        return (*before[:-1], now)
    if machine.is_first():
        logger.warning(
            "out: %s was begun by %s and continues with %d: its steps have the same examples, but random numbers "
            "(dropout) differ, so that the student is not bit-identical",
            folder.path,
            words.count_of(before[-1], "process"),
            now,
        )
    return (*before, now)
