"""Row ids: what a row says decides, and nothing else."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from limbeck.data.row_ids import row_ids
from limbeck.support.errors import LimbeckError


def test_an_id_is_63_bits_of_the_digest_of_the_texts_utf8():
    expected = hashlib.blake2b(b"fr\xc3\xbch\xffb", digest_size=8)
    assert row_ids([["früh"], ["b"]])[0] == int(expected.hexdigest(), 16) % 2**63


def test_ids_do_not_depend_on_neighbours_or_order():
    texts, others = ["a", "b", "a", ""], ["x", "y", "x", "z"]
    ids = row_ids([texts, others])
    assert ids.dtype == np.int64 and (ids >= 0).all()
    assert ids[0] == ids[2] and len(set(ids.tolist())) == 3
    assert row_ids([texts[::-1], others[::-1]]).tolist() == ids[::-1].tolist()


def test_where_one_text_ends_and_the_other_begins_counts():
    assert len({*row_ids([["ab", "a", "", "abc"], ["c", "bc", "abc", ""]]).tolist()}) == 4
    assert row_ids([["abc"]])[0] not in row_ids([["ab", "abc"], ["c", ""]])


def test_a_hundred_thousand_rows_have_as_many_ids():
    assert len({*row_ids([[str(number) for number in range(100_000)]]).tolist()}) == 100_000


@pytest.mark.parametrize("columns", [[], [["a"], []], [["a", None]], [[3]], [["\ud800"]]])
def test_what_is_no_text_has_no_id(columns):
    with pytest.raises(LimbeckError, match="row ids"):
        row_ids(columns)
