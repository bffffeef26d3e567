"""How images become a model's input, and the views of them in training."""

from limbeck.vision.augment import shift_and_mirror
from limbeck.vision.pixels import (
    CHANNELS,
    Normalisation,
    image_processor,
    makes_one_size,
    normalised,
    opened,
    pixels_of,
    read_processor,
    side_of,
    to_bytes,
    with_side,
)

__all__ = [
    "CHANNELS",
    "Normalisation",
    "image_processor",
    "makes_one_size",
    "normalised",
    "opened",
    "pixels_of",
    "read_processor",
    "shift_and_mirror",
    "side_of",
    "to_bytes",
    "with_side",
]
