"""One class for an image: CIFAR, digits, a folder of images. Part of `limbeck.tasks`.

In training every image may be shifted and mirrored, by draws that are a function of (seed, epoch,
index): a run that is killed and continued sees the same images, and teacher and student read the
same ones. Evaluation sees them as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset
from datasets import Image as Picture
from torch import Tensor
from transformers import AutoModelForImageClassification

from limbeck import vision
from limbeck.activations.compat import IMAGE_CLASSIFIERS
from limbeck.support.errors import LimbeckError, Problem, first_line, problem_list
from limbeck.support.machine import on_host
from limbeck.tasks.abstract_type import TASK_TYPES, task_type
from limbeck.tasks.classes import Classes
from limbeck.tasks.modality import Processor, Reading
from limbeck.tasks.rules import CUT, Rows, TaskLike

PIXELS = "pixel_values"
# Of a border of 4 pixels around an image of 32 (He et al. 2016, §4.2).
_MARGIN_SHARE = 8


class ImageReading(Reading):
    """Images, by an image processor; kept as bytes until a batch is made."""

    name = "images"
    noun = "image"
    processor = "image processor"
    in_columns = False

    def load(self, source: str) -> Processor:
        """A checkpoint's image processor."""
        try:
            return vision.read_processor(source)
        except (OSError, ValueError) as error:
            first = first_line(error)
            raise LimbeckError(
                f"model {source!r} has no image processor that can be read: {first}",
                "put its preprocessor_config.json next to its config.json",
            ) from error

    def describe(self, processor: Processor) -> str:
        """All its settings."""
        return str(processor.to_json_string())

    @problem_list
    def problems(self, processor: Processor, max_length: int, columns: int) -> Iterator[Problem]:
        """A processor whose images differ in size, so that they cannot be stacked."""
        if vision.makes_one_size(processor):
            return
        yield Problem(
            f"{type(processor).__name__} makes images of different sizes",
            "set do_resize with a height and a width, or do_center_crop, in preprocessor_config.json",
        )

    def check(self, processor: Processor) -> None:
        """All images are of one size."""

    def stack(
        self, rows: list[dict[str, Any]], processor: Processor, width: int
    ) -> dict[str, Tensor]:
        """`pixel_values` (B, 3, H, W), scaled and normalised; other columns as tensors."""
        height, width = vision.side_of(processor)
        flat = np.frombuffer(b"".join(row[PIXELS] for row in rows), dtype=np.uint8)
        pixels = torch.from_numpy(flat.reshape(len(rows), vision.CHANNELS, height, width).copy())
        others = [name for name in rows[0] if name != PIXELS]
        columns = {name: torch.tensor([row[name] for row in rows]) for name in others}
        return {PIXELS: vision.normalised(pixels, processor)} | columns

    def width(self, rows: Sequence[Mapping[str, Any]], multiple_of: int | None) -> int:
        """There are no positions to label."""
        return 0

    def lengths(self, encoded: Dataset) -> list[int] | None:
        """All images are of one size."""
        return None

    def is_blank(self, value: Any) -> bool:
        """No image at all, or an empty path, as a CSV file has it."""
        return value is None or (isinstance(value, str) and not value.strip())


@task_type("image")
@dataclass(frozen=True)
class Image(Classes):
    """Image classification; with `crop` and `flip` other views of the images in every epoch.

    `crop`: pixels of the border a random window is cut from, None for an eighth of the image's
    height. `flip`: mirror images, left to right, for every other image.
    """

    crop: int | None = 0
    flip: bool = False

    summary = "one class for an image"
    auto = AutoModelForImageClassification
    heads = IMAGE_CLASSIFIERS
    reads = ImageReading()

    @property
    def resampled(self) -> str:
        """The views of training."""
        return "crops and mirror images of the training images (images)" if self.augments else ""

    @property
    def augments(self) -> bool:
        """Whether training sees other views than evaluation."""
        return self.flip or self.crop != 0

    def viewed(self, crop: int | None, flip: bool) -> "Image":
        """The kind of a task whose training images are cropped and mirrored so."""
        return replace(self, crop=crop, flip=flip)

    def features(self, task: TaskLike) -> dict[str, Any]:
        """Images, and class ids."""
        label = ClassLabel(names=list(task.labels))
        return {task.text_columns[0]: Picture(decode=False), task.label_column: label}

    def texts(self, task: TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        """An image holds none."""
        return []

    def encode(self, task: TaskLike, tokenizer: Processor, max_length: int, rows: Rows) -> Rows:
        """Each image as bytes at the processor's size, not yet normalised.

        Raises LimbeckError for an image that cannot be opened.
        """
        images = [vision.opened(picture) for picture in rows[task.text_columns[0]]]
        columns: Rows = {PIXELS: vision.to_bytes(images, tokenizer), "index": rows["index"]}
        columns[CUT] = [False] * len(images)
        if task.label_column in rows:
            columns["labels"] = rows[task.label_column]
        return columns

    def draw(
        self, batch: dict[str, Tensor], tokenizer: Processor, seed: int, epoch: int
    ) -> dict[str, Tensor]:
        """Other crops and mirror images in every epoch of training; evaluation's as they are.

        Raises LimbeckError for a batch without `index` in training.
        """
        if epoch == 0 or not self.augments:
            return batch
        if "index" not in batch:
            raise LimbeckError(
                "the batch has no index column to crop and mirror images by",
                "give every example a number in a column named index",
            )
        images = batch[PIXELS]
        margin = images.shape[2] // _MARGIN_SHARE if self.crop is None else self.crop
        black = torch.zeros(1, vision.CHANNELS, 1, 1, dtype=torch.uint8)
        seen = vision.shift_and_mirror(
            images,
            on_host(batch)["index"].tolist(),
            margin=margin,
            mirror=self.flip,
            fill=vision.normalised(black, tokenizer).flatten(),
            seed=seed,
            epoch=epoch,
        )
        return batch | {PIXELS: seen}


IMAGE = TASK_TYPES.get("image")
