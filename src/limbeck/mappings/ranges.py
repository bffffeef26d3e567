"""Layer ranges and buckets: the arithmetic of "which layers", as the papers write it.

Part of `limbeck.mappings`. All layer numbers are 1-based layer outputs; 0 is the embedding output.
"""

from __future__ import annotations

import re
from itertools import pairwise

from limbeck.support.errors import LimbeckError

_RANGE = re.compile(r"(?P<low>[^.]+)\.\.(?P<high>[^.]+)")
_BOUND = re.compile(r"(?P<base>\d+|[LM])(?P<offset>[+-]\d+)?")


def _bound(text: str, depth: dict[str, int], setting: str) -> int:
    match = _BOUND.fullmatch(text.replace(" ", ""))
    if match is None:
        raise LimbeckError(
            f"{setting}: cannot read the layer {text!r}",
            "write a number, L (teacher depth) or M (student depth), with + or - a number: L-1",
        )
    base = match["base"]
    return (depth[base] if base in depth else int(base)) + int(match["offset"] or 0)


def parse_layers(
    value: str | int | list[int], *, teacher_depth: int, student_depth: int, setting: str
) -> tuple[int, ...]:
    """`1..M-1`, `M`, `4` or a list of layers, as ascending layer numbers.

    Raises:
        LimbeckError: the text is not of that form.
    """
    if isinstance(value, list):
        return tuple(sorted(set(value)))
    depth = {"L": teacher_depth, "M": student_depth}
    text = str(value)
    match = _RANGE.fullmatch(text)
    if match is None:
        return (_bound(text, depth, setting),)
    low, high = _bound(match["low"], depth, setting), _bound(match["high"], depth, setting)
    return tuple(range(low, high + 1))


def round_half_up(numerator: int, denominator: int) -> int:
    """The nearest whole number of a ratio of positive numbers, halves upwards."""
    return (2 * numerator + denominator) // (2 * denominator)


def buckets(layers: tuple[int, ...], count: int, *, overlap: bool = False) -> list[tuple[int, ...]]:
    """Split consecutive `layers` into `count` buckets, the first `len(layers) % count` one larger.

    With `overlap` every bucket but the last also takes the next bucket's first layer (ALP-KD's PO).
    12 layers in 5: 1–3, 4–6, 7–8, 9–10, 11–12; 12 in 3 with overlap: 1–5, 5–9, 9–12.

    Raises:
        LimbeckError: more buckets than layers.
    """
    if count > len(layers):
        raise LimbeckError(
            f"{count} student layers cannot each have a bucket of {len(layers)} teacher layers",
            "map fewer student layers, or use a mapping that shares teacher layers (attention)",
        )
    size, extra = divmod(len(layers), count)
    starts = [j * size + min(j, extra) for j in range(count + 1)]
    reach = 1 if overlap else 0
    return [
        layers[start : (stop + reach if stop < len(layers) else stop)]
        for start, stop in pairwise(starts)
    ]
