"""The CNNs of CIFAR: their published sizes, their arithmetic step by step, their files."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig, AutoModelForImageClassification

from limbeck.lab.cifar_nets import (
    SHAPES,
    CifarNetConfig,
    CifarNetForImageClassification,
    configuration_of,
)


def net(name: str, classes: int = 100, seed: int = 0) -> CifarNetForImageClassification:
    config = configuration_of(name)
    config.num_labels = classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CifarNetForImageClassification(config).eval()


# Millions for 100 classes. ResNets of He et al. have .27, .46, .66, .85 and 1.7 with 10 classes
# (Table 6); the others are those of the CNNs in CRD's release.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("resnet-8x4", 1.23),
        ("resnet-32x4", 7.43),
        ("wrn-16-1", 0.18),
        ("wrn-16-2", 0.70),
        ("wrn-40-1", 0.57),
        ("wrn-40-2", 2.26),
        ("resnet-20", 0.28),
        ("resnet-32", 0.47),
        ("resnet-56", 0.86),
        ("resnet-110", 1.74),
    ],
)
def test_parameter_counts_are_the_published_ones(name, millions):
    count = sum(weight.numel() for weight in net(name).parameters())
    assert round(count / 1e6, 2) == millions


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85)])
def test_with_ten_classes_sizes_are_those_of_the_first_paper(depth, millions):
    # Their shortcuts pad with zeros where these project: 16 · 32 + 32 · 64 weights and 4 norms.
    projections = 16 * 32 + 32 * 64 + 2 * (32 + 64)
    count = sum(weight.numel() for weight in net(f"resnet-{depth}", 10).parameters())
    assert round((count - projections) / 1e6, 2) == millions


@pytest.mark.slow
def test_every_named_net_answers():
    for name in SHAPES:
        if name.startswith("wrn") or int(name.partition("-")[2].partition("x")[0]) < 30:
            logits = net(name, classes=3)(torch.zeros(1, 3, 8, 8)).logits
            assert logits.shape == (1, 3) and torch.isfinite(logits).all(), name


# The forward pass once more, out of the state dict alone.


def convolved(state: dict[str, Tensor], name: str, x: Tensor, stride: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    return functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)


def standardised(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    mean, variance, weight, bias = (
        state[f"{name}.{part}"][:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def basic_block(state: dict[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
    out = standardised(state, f"{name}.bn1", convolved(state, f"{name}.conv1", x, stride))
    out = standardised(state, f"{name}.bn2", convolved(state, f"{name}.conv2", out.clamp(min=0)))
    if f"{name}.shortcut.0.weight" in state:
        x = convolved(state, f"{name}.shortcut.0", x, stride)
        x = standardised(state, f"{name}.shortcut.1", x)
    return (out + x).clamp(min=0)


def wide_block(state: dict[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
    entered = standardised(state, f"{name}.bn1", x).clamp(min=0)
    out = convolved(state, f"{name}.conv1", entered, stride)
    out = standardised(state, f"{name}.bn2", out).clamp(min=0)
    out = convolved(state, f"{name}.conv2", out)
    if f"{name}.shortcut.weight" in state:
        return out + convolved(state, f"{name}.shortcut", entered, stride)
    return out + x


def answered(state: dict[str, Tensor], x: Tensor, blocks: int, wide: bool) -> Tensor:
    x = convolved(state, "cifar_net.stem", x)
    if not wide:
        x = standardised(state, "cifar_net.norm", x).clamp(min=0)
    for group in range(3):
        for number in range(blocks):
            stride = 2 if group > 0 and number == 0 else 1
            block = wide_block if wide else basic_block
            x = block(state, f"cifar_net.groups.{group}.{number}", x, stride)
    if wide:
        x = standardised(state, "cifar_net.norm", x).clamp(min=0)
    vector = x.sum(dim=(2, 3)) / (x.shape[2] * x.shape[3])
    return vector @ state["classifier.weight"].T + state["classifier.bias"]


@pytest.mark.parametrize(
    ("name", "blocks"), [("resnet-14", 2), ("resnet-8x4", 1), ("wrn-16-2", 2), ("wrn-16-1", 2)]
)
def test_forward_pass_step_by_step(name, blocks):
    model = net(name, classes=7).double()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for module in model.modules():  # as if it had been trained
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
        pixels = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        expected = answered(model.state_dict(), pixels, blocks, name.startswith("wrn"))
        assert torch.allclose(model(pixels).logits, expected, rtol=1e-9, atol=1e-9)


def test_maps_halve_twice():
    output = net("resnet-8").cifar_net(torch.zeros(1, 3, 32, 32))
    assert output.last_hidden_state.shape == (1, 64, 8, 8)
    assert output.pooler_output.shape == (1, 64)


def test_saved_and_read_by_the_auto_classes(tmp_path):
    model = net("wrn-16-1", classes=4)
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.depth, config.widths, config.block) == (16, [16, 16, 32, 64], "preactivated")
    again = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert isinstance(again, CifarNetForImageClassification)
    pixels = torch.randn(2, 3, 8, 8)
    assert torch.equal(again(pixels).logits, model(pixels).logits)


def test_labels_give_the_cross_entropy():
    model, labels = net("resnet-8", classes=4), torch.tensor([1, 3])
    output = model(torch.randn(2, 3, 8, 8), labels=labels)
    chosen = output.logits.softmax(-1)[[0, 1], labels]
    assert output.loss.item() == pytest.approx(-chosen.log().mean().item())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"depth": 21}, "depth 21 of basic blocks is not 6n"),
        ({"depth": 20, "block": "preactivated"}, "depth 20 of preactivated blocks"),
        ({"block": "bottleneck"}, "block 'bottleneck' is not one of"),
        ({"widths": [16, 32]}, "give the stem's and three groups'"),
    ],
)
def test_shapes_that_are_none_are_refused(settings, expected):
    with pytest.raises(Exception, match=expected):
        CifarNetConfig(**settings)
