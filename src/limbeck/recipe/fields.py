"""What a recipe may say: every setting with its meaning and unit, once.

Part of `limbeck.recipe`. The descriptions become the command line's help and the reference in the
docs.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from limbeck.objectives import TermSpec
from limbeck.schedules import Number


class StudentSpec(BaseModel):
    """Where the student comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    init: str = Field(
        "teacher",
        description="teacher (its layers), a checkpoint's folder or Hub name, pocket, or fresh "
        "(the teacher's configuration, random weights)",
    )
    layers: int | list[int] | None = Field(
        None, description="how many layers to keep, or which ones, counted from 1"
    )
    pick: Literal["first", "last", "skip", "upper"] = Field(
        "first", description="which layers to keep when `layers` is a number"
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="settings of a fresh configuration (hidden_size: 128)"
    )


class RecipeFields(BaseModel):
    """All top-level keys of a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = Field(description="name of the method; a shipped one is inherited from")
    family: str = Field("own", description="family it is listed under")
    summary: str = Field("", description="one line for `limbeck methods`")
    paper: str = Field("", description="where it is published")
    formula: str = Field("", description="the loss, as the paper writes it")

    teacher: str | None = Field(
        None, description="a run folder, a checkpoint's folder or a Hub name"
    )
    task: str | None = Field(None, description="GLUE task, or a name for your own data")
    data: str = Field("hub", description="hub, a GLUE folder, pocket, or your own file")
    text_columns: list[str] | None = Field(
        None, description="your own data: one or two text columns"
    )
    label_column: str | None = Field(None, description="your own data: the label's column")
    max_length: int = Field(128, gt=2, description="longest input, in tokens")
    train_rows: int | None = Field(
        None, gt=0, description="use the first N training rows of a seeded shuffle (seed 0)"
    )

    student: StudentSpec = Field(default_factory=lambda: StudentSpec.model_validate({}))
    objectives: dict[str, TermSpec] = Field(
        default_factory=dict, description="the terms of the loss, by name"
    )

    epochs: float = Field(3.0, gt=0, description="passes over the training rows")
    max_steps: int | None = Field(
        None, gt=0, description="optimisation steps at most; overrides epochs"
    )
    lr: Number = Field(5e-5, gt=0, description="peak learning rate of AdamW")
    batch_size: int = Field(32, gt=0, description="examples in a forward pass")
    accumulation: int = Field(
        1, gt=0, description="forward passes whose gradients make one optimisation step"
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of steps with a rising rate")
    lr_schedule: Literal["linear", "cosine", "constant_with_warmup"] = Field(
        "linear", description="course of the learning rate after warm-up"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="type of matrix products; losses are fp32 either way"
    )
    group_by_length: bool = Field(True, description="batch examples of similar length")
    seed: int = Field(42, ge=0, description="seed of initialisation, order, dropout and draws")
    patience: int | None = Field(
        None, gt=0, description="stop after this many epochs without a better dev score"
    )
    select_by: str = Field(
        "primary", description="dev score that picks the best epoch: primary, or a metric's name"
    )
    checkpoint_steps: int | None = Field(
        None, gt=0, description="also checkpoint every N steps; always at the end of an epoch"
    )
    log_steps: int = Field(10, gt=0, description="steps between two logged values of the terms")
    tensorboard: bool = Field(
        False, description="log every term for TensorBoard in OUT/tensorboard"
    )
    workers: int = Field(0, ge=0, description="processes that load batches")
