"""Numbers of things in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `2 processes`: the number and a noun whose plural ends in s."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
