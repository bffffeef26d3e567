"""Crops and mirror images: against a loop over pixels, and as a function of (seed, epoch, index)."""

from __future__ import annotations

import torch

from limbeck.vision import shift_and_mirror

FILL = torch.tensor([-1.0, -2.0, -3.0])


def images(count: int = 6, height: int = 5, width: int = 4) -> torch.Tensor:
    return torch.arange(count * 3 * height * width).view(count, 3, height, width).float()


def seen(batch: torch.Tensor, indices, *, margin=2, mirror=True, seed=1, epoch=1) -> torch.Tensor:
    return shift_and_mirror(
        batch, indices, margin=margin, mirror=mirror, fill=FILL, seed=seed, epoch=epoch
    )


def views(image: torch.Tensor, margin: int, mirror: bool) -> list[torch.Tensor]:
    """Every crop of one image, pixel by pixel, and their mirror images."""
    channels, height, width = image.shape
    found = []
    for down in range(-margin, margin + 1):
        for right in range(-margin, margin + 1):
            view = torch.empty_like(image)
            for c in range(channels):
                for y in range(height):
                    for x in range(width):
                        inside = 0 <= y + down < height and 0 <= x + right < width
                        view[c, y, x] = image[c, y + down, x + right] if inside else FILL[c]
            found.append(view)
            if mirror:
                found.append(view.flip(2))
    return found


def test_every_image_becomes_one_of_its_views():
    batch = images(4)
    for mirror in (False, True):
        allowed = [views(image, 1, mirror) for image in batch]
        for epoch in range(1, 8):
            changed = seen(batch, range(4), margin=1, mirror=mirror, epoch=epoch)
            for image, choices in zip(changed, allowed, strict=True):
                assert any(torch.equal(image, view) for view in choices)


def test_all_views_come_up():
    one = images(1)
    found = {seen(one, [index], margin=1).numpy().tobytes() for index in range(400)}
    assert found == {view.numpy().tobytes() for view in views(one[0], 1, True)}


def test_half_are_mirrored_and_none_unless_asked():
    batch = images(1).expand(400, 3, 5, 4)
    mirrored = seen(batch, range(400), margin=0)
    share = (mirrored != batch).flatten(1).any(1).float().mean()
    assert 0.4 < share < 0.6
    assert torch.equal(seen(batch, range(400), margin=0, mirror=False), batch)


def test_a_view_follows_from_seed_epoch_and_index_alone():
    batch = images(6)
    together = seen(batch, range(6))
    order = [3, 0, 5]
    assert torch.equal(seen(batch[order], order), together[order])
    for other in ({"seed": 2}, {"epoch": 2}):
        assert not torch.equal(seen(batch, range(6), **other), together)
    assert not torch.equal(seen(batch, range(10, 16)), together)
