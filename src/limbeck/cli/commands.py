"""Commands that are not the core's: whoever brings one registers it. Part of `limbeck.cli`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand

from limbeck.cli.options import Loads
from limbeck.support.registry import Registry


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        run: the function, whose parameters are its options.
        parser: how its line is read.
        first: whether the help lists it before the core's.
    """

    run: Callable[..., Any]
    parser: type[TyperCommand] = Loads
    first: bool = False


COMMANDS: Registry[Command] = Registry("command")
"""By name, in the order in which the help lists them."""
