"""Latency that can be believed: models in processes of their own, timed in turns."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck.latency.benching import BenchSettings, bench
    from limbeck.latency.report import BenchReport, Measurement, load_bench

__all__ = ["BenchReport", "BenchSettings", "Measurement", "bench", "load_bench"]
_HOMES = {
    "BenchReport": "report",
    "Measurement": "report",
    "load_bench": "report",
    "BenchSettings": "benching",
    "bench": "benching",
}


def __getattr__(name: str) -> Any:
    # Lazily: a worker is a module of this package, and holds its model's runtime and nothing else.
    if name in _HOMES:
        return getattr(import_module(f"limbeck.latency.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'limbeck.latency' has no attribute {name!r}")
