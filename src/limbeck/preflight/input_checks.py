"""Checks of what the two models read, by form of input: tokens of a text, or pixels of an image.

Part of `limbeck.preflight`. Both sides get the same batch, so their processors must agree, and each
model must be able to read what its processor makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass

from datasets import Dataset
from transformers import PreTrainedModel

from limbeck.preflight.data_checks import check_unknown_tokens, longest_of, rows_in_train
from limbeck.preflight.model_checks import (
    check_positions,
    check_stretched,
    check_tokenizers,
    check_vocabulary,
    is_stretched,
)
from limbeck.support.errors import Problem
from limbeck.tasks import Processor, Task
from limbeck.vision import CHANNELS, side_of

_SAMPLE_TEXTS = 64
# Everything that decides the pixels a processor makes of an image.
_PIXEL_SETTINGS = (
    "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "do_resize", "size",
    "do_center_crop", "crop_size", "crop_pct", "resample",
)  # fmt: skip


class InputChecks(ABC):
    """The checks of one form of input."""

    @abstractmethod
    def model(
        self, side: str, model: PreTrainedModel, processor: Processor, max_length: int
    ) -> list[Problem]:
        """What of its input a model cannot read; `side` is what messages call it."""

    @abstractmethod
    def processors(
        self, task: Task, train: Dataset, teacher: Processor, student: Processor, *, side: str
    ) -> list[Problem]:
        """Where teacher and student would read a row differently."""

    def lengths(
        self,
        task: Task,
        rows: Mapping[str, Dataset],
        processor: Processor,
        models: Mapping[str, PreTrainedModel],
        max_length: int,
    ) -> list[Problem]:
        """Rows that are longer than what a model was trained on, though it can read them."""
        return []

    def in_train(self, task: Task, rows: Mapping[str, Dataset]) -> dict[str, int]:
        """How many rows of each scored split it is trained on too; nothing where rows are not compared."""
        return {}

    def reader(
        self, task: Task, train: Dataset, processor: Processor, *, side: str
    ) -> list[Problem]:
        """What of the rows a processor cannot read."""
        return []


class _TextChecks(InputChecks):
    def model(
        self, side: str, model: PreTrainedModel, processor: Processor, max_length: int
    ) -> list[Problem]:
        """Token ids without an embedding, and more positions than there are."""
        return check_vocabulary(side, model, processor) + check_positions(side, model, max_length)

    def lengths(
        self,
        task: Task,
        rows: Mapping[str, Dataset],
        processor: Processor,
        models: Mapping[str, PreTrainedModel],
        max_length: int,
    ) -> list[Problem]:
        """The longest row is sought where a limit says that there may be one."""
        stretched = {
            side: model for side, model in models.items() if is_stretched(model, max_length)
        }
        if not stretched:
            return []
        read = [rows[split] for split in ("train", *task.dev_splits) if split in rows]
        longest = max(longest_of(task, split, processor) for split in read)
        return [
            problem
            for side, model in stretched.items()
            for problem in check_stretched(side, model, max_length, longest)
        ]

    def processors(
        self, task: Task, train: Dataset, teacher: Processor, student: Processor, *, side: str
    ) -> list[Problem]:
        """Vocabularies, special tokens, and the ids of some rows."""
        columns = task.kind.texts(task, train[:_SAMPLE_TEXTS])
        return check_tokenizers(teacher, student, list(zip(*columns, strict=True)), side=side)

    def in_train(self, task: Task, rows: Mapping[str, Dataset]) -> dict[str, int]:
        """By their texts."""
        return rows_in_train(task, rows)

    def reader(
        self, task: Task, train: Dataset, processor: Processor, *, side: str
    ) -> list[Problem]:
        """Many tokens that its tokenizer does not know."""
        return check_unknown_tokens(task, train, processor, side=side)


class _ImageChecks(InputChecks):
    def model(
        self, side: str, model: PreTrainedModel, processor: Processor, max_length: int
    ) -> list[Problem]:
        """Another number of channels, and another size than the model was made for."""
        problems = []
        channels = getattr(model.config, "num_channels", CHANNELS)
        if channels != CHANNELS:
            problems.append(
                Problem(
                    f"{side}: it reads images of {channels} channels, and they have {CHANNELS} here",
                    "give a model of coloured images; grey ones are read as coloured",
                )
            )
        made_for = getattr(model.config, "image_size", None)
        made_for = (made_for, made_for) if isinstance(made_for, int) else made_for
        height, width = side_of(processor)
        if made_for is not None and tuple(made_for) != (height, width):
            problems.append(
                Problem(
                    f"{side}: it was made for images of {made_for[0]} × {made_for[1]} pixels, and "
                    f"they are read at {height} × {width}",
                    f"set images.size={made_for[0]}, or give a model of that size",
                )
            )
        return problems

    def processors(
        self, task: Task, train: Dataset, teacher: Processor, student: Processor, *, side: str
    ) -> list[Problem]:
        """Size, scale or normalisation that differ."""
        theirs, ours = (
            {name: _plain(getattr(processor, name, None)) for name in _PIXEL_SETTINGS}
            for processor in (teacher, student)
        )
        differing = [
            f"{name} {theirs[name]} and {ours[name]}"
            for name in _PIXEL_SETTINGS
            if theirs[name] != ours[name]
        ]
        if not differing:
            return []
        return [
            Problem(
                f"{side} and student read images differently: {'; '.join(differing)}",
                "save the student with the teacher's preprocessor_config.json, or start it from the "
                "teacher or from a CNN's name",
            )
        ]


def _plain(value: object) -> object:
    """Settings in one form: some processors hold lists, some tuples."""
    if isinstance(value, list | tuple):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


INPUT_CHECKS: dict[str, InputChecks] = {"text": _TextChecks(), "images": _ImageChecks()}
"""By name of a kind's `reads`."""
