"""Ray, connected to a cluster or started on this machine for as long as it is needed. Part of `limbeck.run`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limbeck.support.errors import LimbeckError


@contextmanager
def ray_session(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected, and stopped at the end if it was not connected before.

    `address`: a cluster's; by default the one that `RAY_ADDRESS` names, else one started on this machine.

    Raises:
        LimbeckError: Ray is not installed, or there is no such cluster.
    """
    ray = imported_ray()
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(
                address=address,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LimbeckError(f"engine ray: {reason}", _fix(address)) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def imported_ray() -> Any:
    """The module. Raises LimbeckError where it is not installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise LimbeckError(
            f"engine ray: {error}", "pip install 'limbeck[ray]', or leave --engine out"
        ) from None
    return ray


def _fix(address: str | None) -> str:
    """For a cluster that does not answer: where its name was read."""
    if address is not None:
        return f"{address}: name a cluster that runs, HOST:PORT, or none"
    if named := os.environ.get("RAY_ADDRESS"):
        return f"RAY_ADDRESS is {named}: name a cluster that runs, HOST:PORT, or unset it"
    return "look for what else of Ray runs on this machine (ray status), or leave --engine out"
