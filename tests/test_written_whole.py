"""A file that is written piece by piece is there whole, or what was there before stays."""

from __future__ import annotations

import errno
import stat

import pytest

from limbeck.support.errors import LimbeckError
from limbeck.support.files import written_whole


def test_pieces_are_one_file_under_the_usual_mask(tmp_path):
    path = tmp_path / "made" / "rows.txt"
    with written_whole(path) as stream:
        stream.write(b"one\n")
        assert not path.exists()
        stream.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n" and [*path.parent.iterdir()] == [path]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize(
    ("raised", "seen", "said"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (ValueError("no such column"), ValueError, "no such column"),
        (LimbeckError("what", "fix"), LimbeckError, "what"),
        (OSError(errno.ENOSPC, "No space left on device"), LimbeckError, "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), LimbeckError, "cannot write .*rows.txt: Input"),
    ],
)
def test_whatever_ends_the_writing_leaves_what_was_there(tmp_path, raised, seen, said):
    path = tmp_path / "rows.txt"
    path.write_text("as it was")
    with pytest.raises(seen, match=said), written_whole(path) as stream:
        stream.write(b"half")
        raise raised
    assert path.read_text() == "as it was" and [*tmp_path.iterdir()] == [path]
