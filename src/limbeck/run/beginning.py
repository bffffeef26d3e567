"""What is known of a run before its first step: its record as it begins. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.recipe import Recipe, departures
from limbeck.reporting.records import Examples, Record, hardware, versions
from limbeck.run.assemble import Assembly


def new_record(recipe: Recipe, assembly: Assembly) -> Record:
    """The record of a run that has everything it needs and has not begun."""
    return Record(
        kind="distill" if recipe.needs_teacher else "finetune",
        method=recipe.method,
        task=assembly.task.name,
        data=recipe.data,
        seed=recipe.seed,
        settings=recipe.settings,
        departures=departures(recipe),
        recipe=recipe.model_dump(mode="json"),
        versions=versions(),
        hardware=hardware(),
        examples=Examples(
            train=len(assembly.encoded["train"]),
            dev=len(assembly.dev),
            truncated=assembly.truncated,
            relabelled=recipe.conditions.relabelled(len(assembly.encoded["train"])),
            fingerprints=assembly.fingerprints,
        ),
    )
