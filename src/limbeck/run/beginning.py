"""A run begins: its record before the first step, and the folder that is its own from now on. Part of `limbeck.run`."""

from __future__ import annotations

from typing import Literal

from limbeck.recipe import Recipe, departures
from limbeck.records import Examples, Record, hardware, versions
from limbeck.run.final_rows import TEST
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.run.scoring import outputs_facts
from limbeck.support.machine import is_first, wait_for_all
from limbeck.tasks.metrics import TEACHER_LABEL


def new_record(recipe: Recipe, prepared: Prepared) -> Record:
    """The record of a run that has everything it needs and has not begun."""
    rows, without = len(prepared.train.encoded), prepared.unlabelled
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
        outputs=outputs_facts(prepared),
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
            fingerprints={
                **prepared.fingerprints,
                **({} if prepared.final is None else {TEST: prepared.final.fingerprint}),
            },
        ),
    )


def begin(recipe: Recipe, folder: RunFolder, record: Record, *, fresh: bool) -> None:
    """The folder is this run's from now on."""
    if fresh and is_first():
        folder.clear()
    wait_for_all()
    if is_first():
        folder.begin(recipe, record.execution.training)
    save(record, folder)


def save(record: Record, folder: RunFolder) -> None:
    """One process of several writes the record."""
    if is_first():
        record.save(folder.path)
