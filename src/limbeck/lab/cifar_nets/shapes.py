"""The CNNs by the names the papers call them: `resnet-20`, `resnet-8x4`, `wrn-40-2`.

Part of `limbeck.lab.cifar_nets`. The widths are those of CRD (Tian et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from limbeck.lab.cifar_nets.nets import CifarNetConfig
from limbeck.students.shapes import NAMED_CNNS, NamedCnn

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
