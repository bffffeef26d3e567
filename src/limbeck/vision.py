"""Images as a model reads them: size, scale and normalisation, all held by its image processor.

A processor of transformers' travels with every student, so a shipped one
is used by `AutoImageProcessor` and nothing of limbeck's. Pixels are kept as bytes until a batch is
made: a quarter of the memory, and a black border is still recognizable.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from transformers import AutoImageProcessor, BaseImageProcessor, ViTImageProcessorPil
from transformers.utils import logging as hub_logging

from limbeck.support.errors import LimbeckError
from limbeck.support.machine import send

CHANNELS = 3
"""Grey images are read as red, green and blue alike."""


class Normalisation(NamedTuple):
    """Mean and standard deviation of red, green and blue, of pixels from 0 to 1."""

    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)


def image_processor(side: int, normalisation: Normalisation | None = None) -> BaseImageProcessor:
    """A processor that makes square images of `side` pixels, written and read by transformers."""
    mean, std = normalisation or Normalisation()
    return ViTImageProcessorPil(
        size={"height": side, "width": side}, image_mean=list(mean), image_std=list(std)
    )


def read_processor(folder: str | Path) -> BaseImageProcessor:
    """The image processor of a checkpoint's folder or Hub name.

    Pillow does the work whether or not torchvision is there: the two resize a little differently.
    Raises OSError or ValueError for a checkpoint without one.
    """
    with _no_advice():
        found: BaseImageProcessor = AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", trust_remote_code=False
        )
        return found


@contextmanager
def _no_advice() -> Iterator[None]:
    """Without transformers' hint to install torchvision."""
    logger = hub_logging.get_logger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def side_of(processor: Any) -> tuple[int, int]:
    """Height and width in pixels of a processor's output."""
    return pixels_of([Image.new("RGB", (64, 64))], processor).shape[2:]


def opened(picture: Mapping[str, Any]) -> Image.Image:
    """A row's image (`bytes` of a file, or its `path`), turned as its camera was held.

    Raises LimbeckError for a file that is no image.
    """
    try:
        with Image.open(
            BytesIO(picture["bytes"]) if picture["bytes"] else picture["path"]
        ) as image:
            return ImageOps.exif_transpose(image.convert("RGB") if image.mode == "P" else image)
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        raise LimbeckError(
            f"the image {picture['path'] or 'in a row'} cannot be opened: {error}",
            "remove it, or save it again as PNG or JPEG",
        ) from error


def makes_one_size(processor: Any) -> bool:
    """Whether images of all sizes come out at one."""
    shapes = [(64, 64), (48, 80), (80, 48)]
    return len({pixels_of([Image.new("RGB", shape)], processor).shape for shape in shapes}) == 1


def with_side(processor: Any, side: int) -> Any:
    """A copy of a processor that makes square images of `side` pixels."""
    changed = type(processor).from_dict(processor.to_dict())
    square = {"height": side, "width": side}
    by_edge = getattr(changed.size, "shortest_edge", None) is not None
    changed.size = type(changed.size)(**({"shortest_edge": side} if by_edge else square))
    if getattr(changed, "do_center_crop", False):
        changed.crop_size = type(changed.size)(**square)
    return changed


def pixels_of(images: Sequence[Image.Image], processor: Any) -> np.ndarray:
    """Images resized and cropped as the processor does it, uint8 (B, 3, H, W), not yet scaled."""
    coloured = [image.convert("RGB") for image in images]
    made = processor(coloured, do_rescale=False, do_normalize=False, return_tensors="np")
    found: np.ndarray = np.clip(np.rint(made["pixel_values"]), 0, 255).astype(np.uint8)
    return found


def to_bytes(images: Sequence[Image.Image], processor: Any) -> list[bytes]:
    """`pixels_of` as a column of a table holds them: the bytes of each image, (3, H, W)."""
    return [pixels.tobytes() for pixels in pixels_of(images, processor)]


def normalised(pixels: Tensor, processor: Any) -> Tensor:
    """Pixels (B, 3, H, W) of 0 to 255 as the model reads them, float32."""
    values = pixels.float()
    if getattr(processor, "do_rescale", True):
        values = values * processor.rescale_factor
    if getattr(processor, "do_normalize", True):
        mean = torch.tensor(processor.image_mean, device=values.device)
        std = torch.tensor(processor.image_std, device=values.device)
        values = (values - mean[:, None, None]) / std[:, None, None]
    return values


# What training does to an image in an epoch: a random shift, and a mirror image every other time. The draws are a
# function of (seed, epoch, index of the example), so neither the batch an image is in nor a restart changes what
# becomes of it.


def shift_and_mirror(
    images: Tensor,
    indices: Sequence[int],
    *,
    margin: int,
    mirror: bool,
    fill: Tensor,
    seed: int,
    epoch: int,
) -> Tensor:
    """Images (B, C, H, W) as they look in an epoch: a random crop after padding, mirrored or not.

    Each image gets a border of `margin` pixels of colour `fill` (C), and a window of its own size is
    cut out of that (He et al. 2016, §4.2); with `mirror` half of them are turned left to right.
    """
    height, width = images.shape[2:]
    draws = np.array([_draw(seed, epoch, index, margin) for index in indices])
    top, left, turned = send(torch.from_numpy(draws), images.device).unbind(1)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    if mirror:
        columns = torch.where(turned[:, None] > 0, columns.flip(1), columns)
    size = (*images.shape[:2], height + 2 * margin, width + 2 * margin)
    fill = send(fill, images.device).to(images.dtype)
    bordered = fill[None, :, None, None].expand(size).clone()
    bordered[:, :, margin : margin + height, margin : margin + width] = images
    examples = torch.arange(len(images), device=images.device)[:, None, None]
    # Advanced indices around a slice put its dimension last.
    return bordered[examples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _draw(seed: int, epoch: int, index: int, margin: int) -> tuple[int, int, int]:
    """Top and left corner of the window in the bordered image, and whether it is mirrored (0, 1)."""
    random = np.random.default_rng([seed, epoch, index])
    top, left = random.integers(0, 2 * margin + 1, size=2)
    return int(top), int(left), int(random.integers(0, 2))
