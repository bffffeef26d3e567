"""Images and image processors: what a batch holds is what the processor itself would make."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, CLIPImageProcessorPil, ConvNextImageProcessorPil

from limbeck.support.errors import LimbeckError
from limbeck.vision import (
    Normalisation,
    image_processor,
    makes_one_size,
    normalised,
    opened,
    pixels_of,
    read_processor,
    side_of,
    with_side,
)

NORMALISATION = Normalisation((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    coloured = random.integers(0, 256, (20, 14, 3), np.uint8)
    return [Image.fromarray(coloured), Image.fromarray(coloured[:9, :11, 0])]


@pytest.mark.parametrize(
    "processor",
    [
        image_processor(16, NORMALISATION),
        ConvNextImageProcessorPil(size={"shortest_edge": 24}),
        ConvNextImageProcessorPil(size={"shortest_edge": 24}, do_normalize=False),
        ConvNextImageProcessorPil(
            size={"shortest_edge": 24}, do_rescale=False, image_mean=[9.0] * 3
        ),
    ],
    ids=["vit", "convnext", "unnormalised", "unscaled"],
)
def test_pixels_are_the_processors_own(processor):
    coloured = [picture.convert("RGB") for picture in pictures()]
    expected = processor(coloured, return_tensors="pt")["pixel_values"]
    kept = pixels_of(pictures(), processor)
    assert kept.dtype == np.uint8 and kept.shape[1] == 3
    assert side_of(processor) == tuple(expected.shape[2:])
    found = normalised(torch.from_numpy(kept), processor)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected.float(), atol=1e-6)


def test_a_processor_is_read_back_without_limbeck(tmp_path):
    image_processor(12, NORMALISATION).save_pretrained(tmp_path)
    ours, plain = read_processor(tmp_path), AutoImageProcessor.from_pretrained(tmp_path)
    for processor in (ours, plain):
        assert list(processor.image_mean) == [0.1, 0.2, 0.3]
        assert processor(pictures()[0], return_tensors="np")["pixel_values"].shape == (1, 3, 12, 12)


def test_another_size_leaves_the_first_alone():
    before = image_processor(8, NORMALISATION)
    after = with_side(before, 32)
    assert (side_of(before), side_of(after)) == ((8, 8), (32, 32))
    assert list(after.image_std) == [0.5, 0.6, 0.7]
    cropping = ConvNextImageProcessorPil(size={"shortest_edge": 24})
    assert side_of(with_side(cropping, 32)) == (32, 32)


def test_whether_all_pictures_come_out_alike():
    edge = CLIPImageProcessorPil(size={"shortest_edge": 24}, do_center_crop=False)
    assert makes_one_size(image_processor(8))
    assert makes_one_size(ConvNextImageProcessorPil(size={"shortest_edge": 24}))
    assert not makes_one_size(edge)


def test_grey_paletted_and_turned_pictures_are_opened(tmp_path):
    grey = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    for name, picture in {"grey": grey, "palette": grey.convert("P")}.items():
        picture.save(tmp_path / f"{name}.png")
        found = opened({"bytes": None, "path": str(tmp_path / f"{name}.png")})
        assert np.array_equal(np.asarray(found.convert("RGB"))[:, :, 1], np.asarray(grey))
    stream, marks = BytesIO(), Image.Exif()
    marks[0x0112] = 6  # the camera stood on its side: turn clockwise
    grey.save(stream, format="png", exif=marks)
    turned = opened({"bytes": stream.getvalue(), "path": None})
    assert np.array_equal(np.asarray(turned), np.rot90(np.asarray(grey), -1))


def test_what_is_no_picture_is_refused(tmp_path):
    (tmp_path / "note.png").write_text("not an image")
    for picture in (
        {"bytes": b"\x89PNG", "path": None},
        {"bytes": None, "path": str(tmp_path / "note.png")},
        {"bytes": None, "path": str(tmp_path / "none.png")},
    ):
        with pytest.raises(LimbeckError, match="cannot be opened"):
            opened(picture)
