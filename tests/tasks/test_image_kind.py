"""The image kind: which models are of it, what training sees, what it has in common with text."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import image_sets as sets
from limbeck.lab.cifar_nets import CifarNetForImageClassification, configuration_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import SentBatch, on_host
from limbeck.tasks import IMAGE, SENTENCE, SoftRule, kind_of_config, task_type_of
from limbeck.vision import Normalisation, image_processor
from numberless import META, numbers_are_told_apart


def batch(count: int = 4, side: int = 16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "pixel_values": torch.randn(count, 3, side, side, generator=generator),
        "labels": torch.arange(count),
        "index": torch.arange(count) + 7,
    }


def test_models_that_read_images_are_of_this_kind():
    net = CifarNetForImageClassification(configuration_of("resnet-8"))
    for model in (net, sets.vit(1), sets.hf_resnet()):
        assert task_type_of(model) is IMAGE
        model.config.architectures = [type(model).__name__]
        assert kind_of_config(model.config) is IMAGE


def test_evaluation_and_unaugmented_training_see_images_as_they_are():
    given, processor = batch(), image_processor(16)
    views = IMAGE.viewed(None, True)
    assert views.draw(given, processor, 1, 0) is given
    assert IMAGE.draw(given, processor, 1, 3) is given
    assert not torch.equal(
        views.draw(given, processor, 1, 3)["pixel_values"], given["pixel_values"]
    )
    assert (bool(views.resampled), IMAGE.resampled) == (True, "")


def test_views_are_cut_where_the_images_are():
    """Their windows and the border's colour are sent; the images stay."""
    host = batch()
    given = SentBatch({name: value.to(META) for name, value in host.items()}, host)
    with numbers_are_told_apart() as sent:
        found = IMAGE.viewed(None, True).draw(given, image_processor(16), 1, 3)
    assert sent == ["_to_copy"] * 2
    assert found["pixel_values"].shape == host["pixel_values"].shape
    assert on_host(found) is host


def test_the_border_is_black_as_the_model_reads_it():
    white = {"pixel_values": torch.full((1, 3, 16, 16), 9.0), "index": torch.tensor([0])}
    processor = image_processor(16, Normalisation((0.1, 0.2, 0.3), (0.5, 0.5, 0.5)))
    seen = torch.cat(
        [
            IMAGE.viewed(None, False).draw(white, processor, 0, e)["pixel_values"]
            for e in range(1, 9)
        ]
    )
    # An eighth of 16 pixels; black is (0 − mean) / std.
    for channel, black in enumerate((-0.2, -0.4, -0.6)):
        values = seen[:, channel].unique()
        assert torch.allclose(values, torch.tensor([black, 9.0]))
    hidden = (seen[:, 0] != 9.0).flatten(1).all(1)
    assert not hidden.any()
    black_rows = (seen[:, 0] != 9.0).all(2).sum(1)
    assert black_rows.max() == 2


def test_views_need_an_index():
    nameless = {"pixel_values": torch.zeros(1, 3, 8, 8)}
    with pytest.raises(LimbeckError, match="no index column"):
        IMAGE.viewed(0, True).draw(nameless, image_processor(8), 0, 1)


def test_losses_are_those_of_sentences():
    student, teacher = torch.randn(4, 5), torch.randn(4, 5)
    given = batch()
    expected = functional.cross_entropy(student, given["labels"])
    assert torch.allclose(IMAGE.hard_label(student, given), expected)
    rule = SoftRule("soft_kl", 2.0, True)
    assert torch.equal(
        IMAGE.soft_label(student, teacher, given, rule),
        SENTENCE.soft_label(student, teacher, given, rule),
    )
