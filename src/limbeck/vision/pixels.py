"""Images as a model reads them: size, scale and normalisation, all held by its image processor.

Part of `limbeck.vision`. A processor of transformers' travels with every student, so a shipped one
is used by `AutoImageProcessor` and nothing of limbeck's. Pixels are kept as bytes until a batch is
made: a quarter of the room, and what a border of black is can still be told.
"""

from __future__ import annotations

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
    Raises OSError or ValueError where there is none.
    """
    with _no_advice():
        return AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", trust_remote_code=False
        )


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
    """Height and width in pixels of what a processor puts out."""
    return pixels_of([Image.new("RGB", (64, 64))], processor).shape[2:]


def opened(picture: Mapping[str, Any]) -> Image.Image:
    """A row's image (`bytes` of a file, or its `path`), turned as its camera was held.

    Raises LimbeckError for what is no image.
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
    return np.clip(np.rint(made["pixel_values"]), 0, 255).astype(np.uint8)


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
