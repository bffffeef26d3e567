"""Sizes and names as people read them."""

from __future__ import annotations

import pytest

from limbeck.support.words import human_size, short_text


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),  # and not 1024.0 KiB
        (52_428_800, "50.0 MiB"),
        (2**30, "1.0 GiB"),
        (1.25 * 2**40, "1.2 TiB"),
        (3000 * 2**40, "3000.0 TiB"),
    ],
)
def test_the_largest_unit_of_which_there_is_one(count, said):
    assert human_size(count) == said


def test_names_of_any_length_fit_into_a_sentence():
    assert [len(short_text("9" * digits)) for digits in (59, 60, 61, 5000)] == [59, 60, 60, 60]
    assert short_text("9" * 60) == "9" * 60 and short_text("9" * 61).endswith("9…")
