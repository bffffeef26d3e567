"""Training settings that a source of data brings, under whatever the user sets. Part of `limbeck.recipe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from limbeck.support.registry import Registry


@dataclass(frozen=True)
class DataSettings:
    """What is known to work on the data of one source.

    Attributes:
        settings: from a recipe that is not checked yet to values for what it leaves open.
        toy: for data that no pretrained weights exist for, the `student.init` of random weights. The epochs and rates
            of papers are not right for such models.
    """

    settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    toy: str | None = None


DATA_SETTINGS: Registry[DataSettings] = Registry("settings for data")
"""By the name of the source."""


def settings_for(data: object) -> DataSettings | None:
    """What a source brings; None for most, which bring nothing."""
    names = tuple(DATA_SETTINGS)
    return DATA_SETTINGS.get(str(data)) if data in names else None


def toy_of(data: object) -> str | None:
    """The random start of students of a source, where pretrained weights know nothing of its words."""
    known = settings_for(data)
    return None if known is None else known.toy
