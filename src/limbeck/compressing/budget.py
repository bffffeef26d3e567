"""A budget, `size=6MB,latency=2ms,score=97%`: limits on a student's cost, and the share of the score to keep.

Part of `limbeck.compressing`; free of torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from limbeck.support.cells import magnitude, milliseconds
from limbeck.support.errors import Problem, raise_problems, unknown

_MB = 1e6
# By the name of each part its units, as factors; "" is a number without a unit.
_BYTES = {"B": 1.0, "KB": 1e3, "MB": _MB, "GB": 1e9}
_UNITS: dict[str, dict[str, float]] = {
    "size": _BYTES,
    "latency": {"us": 1e-3, "ms": 1.0, "s": 1e3},
    "parameters": {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9},
    "memory": _BYTES,
    "score": {"%": 0.01},
}
_EXAMPLES = {
    "size": "6MB", "latency": "2ms", "parameters": "5M", "memory": "50MB", "score": "97%"
}  # fmt: skip
_VALUE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z%]*)")


@dataclass(frozen=True)
class Costs:
    """A model's cost in one form.

    Attributes:
        size: bytes on disk of the shipped files: weights, configuration and tokenizer.
        latency: milliseconds of a pass.
        parameters: numbers that were learned.
        memory: bytes that the process takes for it.
    """

    size: float
    latency: float
    parameters: float
    memory: float


@dataclass(frozen=True)
class Budget:
    """The most that each of a model's `Costs` may be, and the least share of the teacher's score, 0 to 1."""

    limits: Mapping[str, float]
    score: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a budget. Raises LimbeckError for all that is wrong with it."""
        found: dict[str, float] = {}
        problems: list[Problem] = []
        for part in filter(None, (one.strip() for one in text.split(","))):
            name, _, value = (one.strip() for one in part.partition("="))
            if name not in _UNITS:
                problems.append(unknown("part of the budget", name, [*_UNITS]))
                continue
            number = _number(name, value)
            if number is None or number <= 0 or (name == "score" and number > 1):
                units = ", ".join(unit for unit in _UNITS[name] if unit)
                said = f"budget: {part}: expected a positive number with one of the units {units}"
                said += ", 100% at most" * (name == "score")
                problems.append(Problem(said, f"write it as {name}={_EXAMPLES[name]}"))
            elif name in found:
                said = f"budget: {name} is given twice"
                problems.append(Problem(said, f"give one: {name}={_EXAMPLES[name]}"))
            else:
                found[name] = number
        if not found and not problems:
            problems.append(Problem("budget: it is empty", "--budget size=6MB,latency=2ms"))
        raise_problems(problems)
        score = found.pop("score", None)
        return cls(found, score)

    def exceeded(self, costs: Costs) -> dict[str, float]:
        """Name of each limit that these costs exceed, with how many times it they are."""
        times = {name: getattr(costs, name) / limit for name, limit in self.limits.items()}
        return {name: found for name, found in times.items() if found > 1}

    def __str__(self) -> str:
        parts = [f"{name} {amount(name, limit)}" for name, limit in self.limits.items()]
        return ", ".join([*parts, *[f"score {100 * (self.score or 0):g}%"] * bool(self.score)])


def _number(name: str, value: str) -> float | None:
    match = _VALUE.fullmatch(value)
    units = {unit.lower(): factor for unit, factor in _UNITS[name].items()}
    factor = units.get(match[2].lower()) if match else None
    return None if match is None or factor is None else float(match[1]) * factor


def amount(name: str, value: float) -> str:
    """A limit or cost in words, with its unit."""
    if name == "latency":
        return f"{milliseconds(value)[0] if value >= 0.01 else f'{value:g}'} ms"
    if name == "parameters":
        return magnitude(value)
    if value < _MB / 10:
        return f"{value / 1e3:.1f} KB"
    return f"{value / _MB:.{2 if value < 10 * _MB else 1}f} MB"
