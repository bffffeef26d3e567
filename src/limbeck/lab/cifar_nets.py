"""The small residual CNNs of CIFAR, by their names in the literature.

Importing this package (as `limbeck.students`, which loads models, has it done) makes `AutoConfig` and
`AutoModelForImageClassification` know its CNNs, so that their `from_pretrained` reads them.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    ImageClassifierOutputWithNoAttention,
)

from limbeck.students.shapes import NAMED_CNNS, NamedCnn

# Residual CNNs for images of 32 × 32 pixels: ResNet (He et al. 2016, §4.2) and wide ResNet. A stem, three groups of
# equally many blocks, the last two groups halving the image, the mean over the remaining image, one linear layer.
# Where a block changes the number of channels or the size, its shortcut is a 1 × 1 convolution, as in the CNNs of CRD
# (Tian et al. 2020), which SKDBERT's Appendix B compares with; He et al. pad with zeros there.


_GROUPS = 3
# Weight layers outside the blocks: stem and head; in a wide CNN also two shortcuts.
_BESIDE_BLOCKS = {"basic": 2, "preactivated": 4}


@strict
class CifarNetConfig(PreTrainedConfig):
    """Which of the CNNs.

    `depth`: weight layers, 6n + 2 of a basic CNN and 6n + 4 of a wide one, with n blocks a group.
    `widths`: channels of the stem and of the three groups. `block`: `basic` (He et al. 2016) or
    `preactivated` (Zagoruyko and Komodakis 2016, wide ResNet). `image_size`: height and width in
    pixels it was made for; any other can be read. Raises ValueError for a depth that does not make an integer
    number of blocks.
    """

    model_type = "cifar_net"

    depth: int = 20
    widths: list[int] | tuple[int, ...] = (16, 16, 32, 64)
    block: str = "basic"
    num_channels: int = 3
    image_size: int = 32

    def __post_init__(self, **kwargs: Any) -> None:
        self.widths = list(self.widths)
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    def validate_shape(self) -> None:
        """Check that there is such a CNN."""
        if self.block not in _BESIDE_BLOCKS:
            raise ValueError(f"block {self.block!r} is not one of {', '.join(_BESIDE_BLOCKS)}")
        if len(self.widths) != _GROUPS + 1:
            raise ValueError(f"widths {self.widths}: give the stem's and three groups'")
        if self.depth <= self._beside or (self.depth - self._beside) % (2 * _GROUPS):
            raise ValueError(
                f"depth {self.depth} of {self.block} blocks is not 6n + {self._beside}"
            )

    @property
    def blocks(self) -> int:
        """Blocks in each group."""
        return (self.depth - self._beside) // (2 * _GROUPS)

    @property
    def _beside(self) -> int:
        return _BESIDE_BLOCKS[self.block]


class _BasicBlock(nn.Module):
    """Two convolutions, each normalised, and the shortcut: y = relu(f(x) + s(x))."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv3(outputs, outputs, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))


class _PreactivatedBlock(nn.Module):
    """Normalised and rectified before each convolution: y = f(x) + s(x).

    A shortcut that projects reads the rectified input, one that does not the input itself.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = _conv3(inputs, outputs, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv3(outputs, outputs, 1)
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        entered = functional.relu(self.bn1(x))
        out = self.conv2(functional.relu(self.bn2(self.conv1(entered))))
        found: Tensor = out + (x if self.shortcut is None else self.shortcut(entered))
        return found


_BLOCKS: dict[str, type[nn.Module]] = {"basic": _BasicBlock, "preactivated": _PreactivatedBlock}


def _conv3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class _CifarNetPreTrainedModel(PreTrainedModel):
    config: CifarNetConfig
    config_class = CifarNetConfig
    base_model_prefix = "cifar_net"
    main_input_name = "pixel_values"
    input_modalities = "image"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """He initialisation of convolutions by their outputs, as both papers' releases do."""
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            init.uniform_(module.weight, -bound, bound)
            init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.BatchNorm2d):
            init.ones_(module.weight)
            init.zeros_(module.bias)
            statistics = (module.running_mean, module.running_var, module.num_batches_tracked)
            for statistic, fill in zip(statistics, (0, 1, 0), strict=True):
                assert statistic is not None  # they are tracked
                init.constant_(statistic, fill)


class CifarNetModel(_CifarNetPreTrainedModel):
    """The CNN without its head: images to one vector each."""

    def __init__(self, config: CifarNetConfig) -> None:
        super().__init__(config)
        stem, *widths = config.widths
        block = _BLOCKS[config.block]
        self.stem = _conv3(config.num_channels, stem, 1)
        self.preactivated = config.block == "preactivated"
        # A preactivated CNN normalises its final output, the other one its first layer's.
        self.norm = nn.BatchNorm2d(widths[-1] if self.preactivated else stem)
        self.groups = nn.ModuleList()
        inputs = stem
        for number, outputs in enumerate(widths):
            first = block(inputs, outputs, 1 if number == 0 else 2)
            others = [block(outputs, outputs, 1) for _ in range(config.blocks - 1)]
            self.groups.append(nn.Sequential(first, *others))
            inputs = outputs
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """`pixel_values` (B, C, H, W), normalised; maps (B, C', H/4, W/4) and their means (B, C')."""
        maps = self.stem(pixel_values)
        if not self.preactivated:
            maps = functional.relu(self.norm(maps))
        for group in self.groups:
            maps = group(maps)
        if self.preactivated:
            maps = functional.relu(self.norm(maps))
        return BaseModelOutputWithPooling(
            last_hidden_state=maps, pooler_output=maps.mean(dim=(2, 3))
        )


class CifarNetForImageClassification(_CifarNetPreTrainedModel):
    """The CNN with its linear head over the classes."""

    def __init__(self, config: CifarNetConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.cifar_net = CifarNetModel(config)
        self.classifier = nn.Linear(config.widths[-1], int(config.num_labels or 0))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self, pixel_values: Tensor, labels: Tensor | None = None, **kwargs: Any
    ) -> ImageClassifierOutputWithNoAttention:
        """Logits (B, classes), and their cross-entropy with `labels` (B) if those are given."""
        logits = self.classifier(self.cifar_net(pixel_values).pooler_output)
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)


# The CNNs by the papers' names: `resnet-20`, `resnet-8x4`, `wrn-40-2`. The widths are CRD's (Tian
# et al. 2020).


_RESNETS = (8, 14, 20, 26, 32, 38, 44, 50, 56, 68, 80, 92, 104, 110)
_WIDENED = (8, 14, 20, 26, 32)
_WIDE_RESNETS = (16, 22, 28, 34, 40)


def _shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    for depth in _RESNETS:
        yield f"resnet-{depth}", {"depth": depth, "widths": [16, 16, 32, 64]}
    for depth in _WIDENED:
        yield f"resnet-{depth}x4", {"depth": depth, "widths": [32, 64, 128, 256]}
    for depth in _WIDE_RESNETS:
        for times in (1, 2):
            widths = [16, 16 * times, 32 * times, 64 * times]
            yield (
                f"wrn-{depth}-{times}",
                {"depth": depth, "widths": widths, "block": "preactivated"},
            )


SHAPES: dict[str, dict[str, Any]] = dict(_shapes())
"""Name → depth, widths and kind of block."""


def configuration_of(name: str, *, image_size: int = 32) -> CifarNetConfig:
    """The configuration of a named CNN; KeyError where `SHAPES` does not hold the name."""
    return CifarNetConfig(**SHAPES[name], image_size=image_size)


for _name in SHAPES:
    NAMED_CNNS.register(_name)(NamedCnn(partial(configuration_of, _name)))


__all__ = [
    "SHAPES",
    "CifarNetConfig",
    "CifarNetForImageClassification",
    "CifarNetModel",
    "configuration_of",
]

AutoConfig.register(CifarNetConfig.model_type, CifarNetConfig, exist_ok=True)
AutoModel.register(CifarNetConfig, CifarNetModel, exist_ok=True)
AutoModelForImageClassification.register(
    CifarNetConfig, CifarNetForImageClassification, exist_ok=True
)
