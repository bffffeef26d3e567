"""Small sets of images on disk, and tiny models that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import (
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from limbeck.vision import image_processor

DIGITS = {number: str(number) for number in range(10)}


def vit(layers: int = 3, *, seed: int = 0, **changes) -> ViTForImageClassification:
    """A random ViT for digits of 8 × 8 pixels: four patches and a class token."""
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 8,
        "patch_size": 4,
        "id2label": DIGITS,
        "label2id": {name: number for number, name in DIGITS.items()},
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ViTForImageClassification(ViTConfig(**(settings | changes))).eval()


def hf_resnet(seed: int = 0) -> ResNetForImageClassification:
    """A random ResNet of transformers' own, for digits."""
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=DIGITS
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNetForImageClassification(config).eval()


def save(model: PreTrainedModel, folder: Path, side: int = 8) -> Path:
    model.save_pretrained(folder)
    image_processor(side).save_pretrained(folder)
    return folder


def write_pictures(root: Path, classes: Mapping[str, int], *, each: int = 6) -> Path:
    """Folders of plain squares: each class has its own grey, and every image its own size."""
    for name, grey in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(each):
            size = (6 + number, 9)
            Image.new("L", size, grey).save(root / name / f"{number:02d}.png")
    return root


def opened(path: Path) -> Image.Image:
    """An image in memory, its file closed."""
    with Image.open(path) as image:
        return image.copy()


def cifar_records(labels: Sequence[Sequence[int]], seed: int = 0) -> tuple[bytes, np.ndarray]:
    """Records of CIFAR's binary files, and the pixels in them [n, 3, 32, 32]."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), np.uint8)
    content = b"".join(
        bytes(row) + image.tobytes() for row, image in zip(labels, pixels, strict=True)
    )
    return content, pixels
