"""What any opened model is held to, whatever runs it."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.runtimes.sessions import GraphSession
from limbeck.support.errors import LimbeckError


class Answering(GraphSession):
    """Answers as many rows as it was told to."""

    inputs = ("input_ids",)
    outputs = ("logits",)

    def __init__(self, rows):
        self.rows = rows

    def run(self, feed):
        return [np.zeros((self.rows, 2) if self.rows else (0,))]


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_an_answer_of_other_rows_than_were_given_is_refused(rows):
    with pytest.raises(LimbeckError, match=rf"answered {rows} rows where it was given 3"):
        Answering(rows).logits({"input_ids": np.ones((3, 5), dtype=np.int64)})


def test_an_answer_of_every_row_is_taken():
    assert Answering(3).logits({"input_ids": np.ones((3, 5), dtype=np.int64)}).shape == (3, 2)
