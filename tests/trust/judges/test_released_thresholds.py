"""The teacher's thresholds of `llkd` decide as FreeMatch's released code does, whose decisions are written down."""

from __future__ import annotations

RELEASED = """\
1111111111111111
1111111111111111
1110111111111111
1111111111111111
1111111111111111
1111110111111111
1111111111111111
0111111111111101
1111111111011111
1111111111101111
1111111010111111
0111011111101111
"""
"""Which examples pass, a line for each step: what `benchmarks/beside_freematch.py` printed of the release."""


def test_examples_pass_as_in_the_release(benchmarks):
    beside = benchmarks("beside_freematch")
    found = beside.ours(beside.batches(0, beside.STEPS))
    assert ["".join("01"[passes] for passes in step) for step in found] == RELEASED.split()
