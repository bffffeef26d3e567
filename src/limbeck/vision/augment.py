"""What training does to an image in an epoch: a random shift, and a mirror image every other time.

Part of `limbeck.vision`. Pure: the draws are a function of (seed, epoch, index of the example), so
neither the batch an image is in nor a restart changes what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from limbeck.support.machine import send


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
