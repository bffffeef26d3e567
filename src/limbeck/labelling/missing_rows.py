"""Rows without outputs: gathered while the others are labelled, recorded beside the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from limbeck.outputs import StoreFiles
from limbeck.outputs.manifest import MISSING
from limbeck.outputs.scored_shard import ShardRows
from limbeck.support.errors import LimbeckError, Problem
from limbeck.teachers.labeller import RowsMissingError

MISSING_ROWS = ("error", "drop")


class MissingRows:
    """Why shards could not be made: of which rows, by their ids, there are no outputs.

    Args:
        files: the store, beside whose shards the file `missing.json` says so.
    """

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self.reasons: dict[int, str] = {}

    @contextmanager
    def of(self, part: ShardRows) -> Iterator[None]:
        """Inside, a shard with such rows is left out instead of ending the work."""
        try:
            yield
        except RowsMissingError as error:
            self.reasons |= {int(part.ids[at]): why for at, why in error.reasons.items()}

    def write(self, left_out: Mapping[int, str]) -> None:
        """Record them and those that shards were made without, or take the record of an earlier start away."""
        if reasons := {**left_out, **self.reasons}:
            rows = [{"row": row, "reason": reason} for row, reason in reasons.items()]
            text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
            self.files.write(MISSING, text.encode())
        elif self.files.exists(MISSING):
            self.files.remove(MISSING)

    def check(self) -> None:
        """Raise LimbeckError with the reasons, if there are any."""
        counts = Counter(self.reasons.values()).most_common()
        problems = [
            Problem(
                f"{self.files.url}: {count} row{'s have' if count > 1 else ' has'} no outputs: {reason}",
                f"run the same command again, which asks for these rows again, or with --missing-rows drop, which "
                f"leaves them out; {MISSING} names them",
            )
            for reason, count in counts
        ]
        if problems:
            raise LimbeckError(problems)
