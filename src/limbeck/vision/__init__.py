"""Images: the small residual CNNs of CIFAR, and how images become a model's input.

It needs nothing but torch and transformers. Importing this package
(as everything of limbeck that loads a model does) makes `AutoConfig` and
`AutoModelForImageClassification` know its CNNs, so that their `from_pretrained` reads them.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

from limbeck.vision.augment import shift_and_mirror
from limbeck.vision.nets import CifarNetConfig, CifarNetForImageClassification, CifarNetModel
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
from limbeck.vision.shapes import SHAPES, configuration_of

__all__ = [
    "CHANNELS",
    "SHAPES",
    "CifarNetConfig",
    "CifarNetForImageClassification",
    "CifarNetModel",
    "Normalisation",
    "configuration_of",
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

AutoConfig.register(CifarNetConfig.model_type, CifarNetConfig, exist_ok=True)
AutoModel.register(CifarNetConfig, CifarNetModel, exist_ok=True)
AutoModelForImageClassification.register(
    CifarNetConfig, CifarNetForImageClassification, exist_ok=True
)
