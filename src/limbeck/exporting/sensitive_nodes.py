"""Which nodes of a graph int8 hurts most: each is quantised alone, and the logits are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from limbeck.exporting.int8 import Feed, quantisable, quantise
from limbeck.runtimes import GraphSession
from limbeck.runtimes.manifest import Conversion

MOST_GROUPS = 40
"""Graphs of more nodes than this are searched by neighbours together."""


def ranked(
    sources: Sequence[Path],
    work: Path,
    how: Conversion,
    feeds: Sequence[Feed],
    open_files: Callable[[Sequence[Path]], GraphSession],
    *,
    calibration: Sequence[Sequence[Feed]] | None = None,
    step: Callable[[int], None] = lambda done: None,
) -> list[list[str]]:
    """Groups of nodes, those first whose quantisation alone changes the logits most.

    Args:
        sources: the model's graphs in float.
        work: a folder for the files that are tried.
        how: the conversion whose nodes are searched.
        feeds: batches to compare logits on.
        open_files: opens the graphs as one model.
        calibration: of static int8, what is fed to each graph.
        step: called with 1 after each group.
    """
    groups = _grouped(sources)
    reference = _logits(open_files(sources), feeds)
    errors = []
    for at, group in groups:
        target = work / "one.onnx"
        quantise(
            sources[at], target, how, calibration=calibration[at] if calibration else (), only=group
        )
        tried = [*sources[:at], target, *sources[at + 1 :]]
        difference = _logits(open_files(tried), feeds) - reference
        errors.append(float(np.sqrt(np.mean(difference**2))))
        step(1)
    order = sorted(range(len(groups)), key=lambda place: errors[place], reverse=True)
    return [groups[place][1] for place in order]


def number_of_groups(sources: Sequence[Path]) -> int:
    """How many groups `ranked` will try."""
    return len(_grouped(sources))


def _grouped(sources: Sequence[Path]) -> list[tuple[int, list[str]]]:
    """Which graph, and names of neighbours in it."""
    found = [quantisable(source) for source in sources]
    size = -(-sum(map(len, found)) // MOST_GROUPS) or 1
    return [
        (at, list(nodes[start : start + size]))
        for at, nodes in enumerate(found)
        for start in range(0, len(nodes), size)
    ]


def _logits(session: GraphSession, feeds: Sequence[Feed]) -> np.ndarray:
    return np.concatenate([session.logits(feed).reshape(-1) for feed in feeds])


def amounts(groups: int) -> list[int]:
    """How many groups to leave in float, in the order that is tried: 1, 2, 4, …, below all of them."""
    found, number = [], 1
    while number < groups:
        found.append(number)
        number *= 2
    return found
