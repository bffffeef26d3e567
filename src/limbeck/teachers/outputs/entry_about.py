"""What an entry of training says of itself beside its outputs. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class EntryRows:
    """Which rows an entry's examples are, so that it can be read, and travel, as a store that was labelled.

    Attributes:
        ids: of the example with each `index`, int64 (n,), as `limbeck.data.output_keys` gives them; −1 of none.
        columns: what their text columns are called.
        source: where they were read.
        target: whether what a decoder was to write is in the ids too.
        classes: in id order, for a teacher whose own names say nothing (`LABEL_0`).
        read_by: what the teacher's fingerprint says beside its weights: digest of its `tokenizer`, `max_length`;
            of a text-to-text model the `task` that prompts begin with.
    """

    ids: np.ndarray
    columns: tuple[str, ...]
    source: tuple[str, ...] = ()
    target: bool = False
    classes: tuple[str, ...] = ()
    read_by: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryAbout:
    """Attributes: names of the teacher and the task, for people; what gives the rows, None where they have no ids."""

    teacher: str | None = None
    task: str | None = None
    rows: Callable[[], EntryRows] | None = None
