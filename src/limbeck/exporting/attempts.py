"""The conversions of an export, one after the other, until one passes the gate."""

from __future__ import annotations

import time
from collections.abc import Sequence

from limbeck.exporting.conversions import conversions, keeping, recovering
from limbeck.exporting.gate import measure
from limbeck.exporting.int8 import weight_bytes
from limbeck.exporting.sensitive_nodes import amounts, number_of_groups, ranked
from limbeck.exporting.workshop import Workshop
from limbeck.runtimes.manifest import Attempt, Conversion
from limbeck.support.errors import LimbeckError
from limbeck.support.files import is_full

_SEARCH_ROWS, _SEARCH_BATCH = 32, 8


def try_all(workshop: Workshop) -> list[Attempt]:
    """Every attempt that was made; the last one passed, or none did."""
    tried: list[Attempt] = []
    for how in conversions(workshop.settings):
        tried.append(_try(workshop, how))
        if tried[-1].passed:
            return tried
    settings = workshop.settings
    if settings.format != "onnx-int8":
        return tried
    if settings.recover_steps and (best := _best(tried)) is not None:
        workshop.recover(best)
        tried.append(_try(workshop, recovering(best, settings.recover_steps)))
        if tried[-1].passed:
            return tried
    best = _best(tried) if settings.keep_sensitive else None
    if best is None:
        return tried
    if not best.recovery_steps:
        workshop.forget_recovery()
    for nodes in _sensitive(workshop, best):
        tried.append(_try(workshop, keeping(best, nodes)))
        if tried[-1].passed:
            break
    return tried


def _best(tried: Sequence[Attempt]) -> Conversion | None:
    """The conversion that lost least; None where none came out."""
    drops = [(one.measured.drop, place) for place, one in enumerate(tried) if one.measured]
    return tried[min(drops)[1]].conversion if drops else None


def _try(workshop: Workshop, how: Conversion) -> Attempt:
    began = time.perf_counter()
    try:
        workshop.write(how)
        session = workshop.open(workshop.shipped)
    except LimbeckError:
        raise
    # ONNX Runtime's, OpenVINO's and ExecuTorch's converters have no common class of errors; one
    # conversion that does not work is no reason not to try the next.
    except Exception as error:
        if is_full(error):  # nor would the next one have room
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Attempt(conversion=how, error=first, seconds=time.perf_counter() - began)
    workshop.inputs, workshop.outputs = session.inputs, session.outputs
    step = workshop.progress.phase(how.name, len(workshop.rows.encoded))
    measured, outputs = measure(session, workshop.rows, workshop.reference, step)
    workshop.measured.append(outputs)
    return Attempt(
        conversion=how,
        measured=measured,
        passed=measured.drop <= workshop.settings.max_drop,
        bytes=sum(weight_bytes(path) for path in workshop.shipped),
        seconds=time.perf_counter() - began,
    )


def _sensitive(workshop: Workshop, how: Conversion) -> list[list[str]]:
    """Which nodes to leave in float: the most sensitive one, two, four, …"""
    step = workshop.progress.phase("searching sensitive layers", number_of_groups(workshop.sources))
    feeds = workshop.feeds(_SEARCH_ROWS, _SEARCH_BATCH)
    calibration = workshop.calibration(_SEARCH_ROWS) if how.scheme == "static" else None
    groups = ranked(
        workshop.sources,
        workshop.work,
        how,
        feeds,
        workshop.open,
        calibration=calibration,
        step=step,
    )
    return [
        [node for group in groups[:number] for node in group] for number in amounts(len(groups))
    ]
