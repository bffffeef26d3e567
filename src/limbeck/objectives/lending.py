"""One term's learned maps that serve another one too: `through`. Part of `limbeck.objectives`.

The maps belong to one term, which trains and saves them.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from limbeck.mappings.projections import Projections
from limbeck.support.errors import LimbeckError, Problem, unknown


class Borrowed:
    """Another term's maps, or none, out of torch's sight: they are its parameters, not the borrower's."""

    def __init__(self, lender: Projections | None) -> None:
        self.lender = lender


def lent_maps(setting: str, through: str, terms: Mapping[str, nn.Module]) -> Projections:
    """The maps of the term that `through` names, one for all layers.

    Args:
        setting: of the borrower, for messages.
        through: the lender's name.
        terms: the terms that have maps of their own, by name.

    Raises:
        LimbeckError: no such term, or its maps do not serve every layer.
    """
    lenders: dict[str, Projections] = {}
    for name, term in terms.items():
        own = getattr(term, "projections", None)
        if isinstance(own, Projections) and own.of_layers:
            lenders[name] = own
    if through not in lenders:
        raise LimbeckError(
            unknown(f"term with a map of single layers in {setting}.through:", through, [*lenders])
        )
    maps = lenders[through]
    if len(maps.widths) > 1 and not maps.shared:
        raise LimbeckError(
            Problem(
                f"{setting}.through: {through} has a map for each of its layers, and none for others",
                f"set objectives.{through}.project.share: all",
            )
        )
    return maps
