"""What pre-flight says of models and processors that read images."""

from __future__ import annotations

import pytest

import image_sets as sets
from limbeck.data import load_task
from limbeck.lab.cifar_nets import CifarNetForImageClassification, configuration_of
from limbeck.preflight.data_checks import check_values
from limbeck.preflight.model_checks import INPUT_CHECKS
from limbeck.tasks import TASKS
from limbeck.vision import Normalisation
from limbeck.vision import image_processor as processor

CHECKS = INPUT_CHECKS["images"]


def test_models_and_processors_that_fit():
    net = CifarNetForImageClassification(configuration_of("resnet-8", image_size=8))
    for model in (net, sets.vit(1), sets.hf_resnet()):
        assert CHECKS.model("student", model, processor(8), 128) == []
    assert (
        CHECKS.processors(TASKS["digits"], None, processor(8), processor(8), side="teacher") == []
    )


@pytest.mark.parametrize(
    ("model", "said", "fix"),
    [
        (
            sets.vit(1),
            "made for images of 8 × 8 pixels, and they are read at 16 × 16",
            "images.size=8",
        ),
        (sets.vit(1, image_size=16, num_channels=1), "images of 1 channels", "coloured"),
    ],
    ids=["size", "channels"],
)
def test_a_model_that_cannot_read_the_pictures(model, said, fix):
    (problem,) = CHECKS.model("teacher", model, processor(16), 128)
    assert problem.severity == "error" and problem.message.startswith("teacher: ")
    assert said in problem.message and fix in problem.fix


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (processor(16), "size {'height': 8, 'width': 8} and {'height': 16, 'width': 16}"),
        (
            processor(8, Normalisation((0.1, 0.2, 0.3))),
            "image_mean [0.5, 0.5, 0.5] and [0.1, 0.2, 0.3]",
        ),
    ],
    ids=["size", "mean"],
)
def test_processors_that_differ(other, said):
    (problem,) = CHECKS.processors(TASKS["digits"], None, processor(8), other, side="teacher")
    assert problem.severity == "error"
    assert said in problem.message


def test_rows_without_a_picture_are_counted():
    task, splits = load_task(None, "digits")
    few = splits["train"].select(range(30))
    assert check_values(task, "train", few) == []
    holed = few.map(
        lambda row: {"image": None if row["index"] in (3, 4) else row["image"]},
        features=few.features,
    )
    (problem,) = check_values(task, "train", holed)
    assert "2 of 30 rows have no image" in problem.message
