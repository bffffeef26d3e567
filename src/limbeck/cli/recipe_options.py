"""The options of `limbeck finetune` and `limbeck distill` that are settings of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.help import setting

DATA, STUDENT, TRAINING = "Task and data", "Student", "Training"


@dataclass(frozen=True)
class RunPlace:
    """Where a run is written."""

    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder to write, by default runs/TASK-METHOD-MODEL-LAYERS-sSEED-DIGEST, one an experiment; "
            "the same command again continues an unfinished run there."
        ),
    ] = None
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace another recipe's run, or a finished one, that lies in --out.",
        ),
    ] = False


@dataclass(frozen=True)
class DataOptions:
    """What is learned from which rows."""

    task: Annotated[str | None, setting("task", DATA)] = None
    data: Annotated[str | None, setting("data", DATA)] = None
    dev: Annotated[str | None, setting("dev", DATA)] = None
    test: Annotated[str | None, setting("test", DATA)] = None
    dev_share: Annotated[float | None, setting("dev_share", DATA)] = None
    test_share: Annotated[float | None, setting("test_share", DATA)] = None
    group_column: Annotated[str | None, setting("group_column", DATA)] = None
    text_columns: Annotated[list[str] | None, setting("text_columns", DATA)] = None
    label_column: Annotated[str | None, setting("label_column", DATA)] = None
    classes: Annotated[list[str] | None, setting("classes", DATA)] = None
    labels: Annotated[str | None, setting("labels", DATA)] = None
    kind: Annotated[str | None, setting("kind", DATA)] = None
    max_length: Annotated[int | None, setting("max_length", DATA)] = None


@dataclass(frozen=True)
class ShapeOptions:
    """The shape of what is trained."""

    layers: Annotated[list[int] | None, setting("layers", STUDENT)] = None
    pick: Annotated[str | None, setting("pick", STUDENT)] = None


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained."""

    settings: Annotated[str | None, setting("settings", TRAINING)] = None
    epochs: Annotated[float | None, setting("epochs", TRAINING)] = None
    max_steps: Annotated[int | None, setting("max_steps", TRAINING)] = None
    lr: Annotated[float | None, setting("lr", TRAINING)] = None
    batch_size: Annotated[int | None, setting("batch_size", TRAINING)] = None
    accumulation: Annotated[int | None, setting("accumulation", TRAINING)] = None
    warmup: Annotated[float | None, setting("warmup", TRAINING)] = None
    patience: Annotated[int | None, setting("patience", TRAINING)] = None
    seed: Annotated[int | None, setting("seed", TRAINING)] = None
    precision: Annotated[str | None, setting("precision", TRAINING)] = None
    compile: Annotated[bool | None, setting("compile", TRAINING)] = None
    attention: Annotated[str | None, setting("attention", TRAINING)] = None
    report_to: Annotated[list[str] | None, setting("report_to", TRAINING)] = None
    plugin: Annotated[list[str] | None, setting("plugin", TRAINING)] = None


@dataclass(frozen=True)
class TeacherOptions:
    """Who teaches, and which of what is taught counts."""

    teacher: Annotated[str | None, setting("teacher", DATA)] = None
    teachers: Annotated[list[str] | None, setting("teachers", DATA)] = None
    outputs: Annotated[list[str] | None, setting("outputs", DATA)] = None
    missing_outputs: Annotated[str | None, setting("missing_outputs", DATA)] = None
    output_classes: Annotated[list[str] | None, setting("output_classes", DATA)] = None
    unlabelled: Annotated[list[str] | None, setting("unlabelled", DATA)] = None
