"""Numbers of things in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`: the number and a noun whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
