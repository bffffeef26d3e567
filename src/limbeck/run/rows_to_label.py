"""Which rows `label` reads: files, folders and patterns of them, and rows given as objects. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.data.text_rows import TextRows, joined, read_text_rows, stands_for
from limbeck.data.unlabelled import text_files
from limbeck.run.given_rows import read_rows_to_label
from limbeck.run.objects import unlabelled_places
from limbeck.support.errors import LimbeckError
from limbeck.support.given import Write


@dataclass(frozen=True)
class RowSources:
    """Where rows are read.

    Attributes:
        data: a source that `read_text_rows` knows, or the reference of an object; None for no such rows.
        unlabelled: files, folders, patterns and references of more.
        task: a known task, whose columns they are.
        text_columns: the columns that hold text.
        writers: what writes the object behind each reference (`limbeck.support.given.at_hand`).
    """

    data: str | Path | None
    unlabelled: tuple[str, ...]
    task: str | None
    text_columns: tuple[str, ...]
    writers: Mapping[str, Write]

    @classmethod
    def of(cls, data: Any, unlabelled: Any, task: str | None, text_columns: Any) -> RowSources:
        """From the arguments of `label`, in which one name may stand where several can.

        Raises:
            LimbeckError: an object that holds no rows, a column that is named twice.
        """
        columns = tuple(listed(text_columns))
        if len({*columns}) < len(columns):
            raise LimbeckError(
                f"text_columns: {', '.join(columns)} names one column twice", "name two, or one"
            )
        writers: dict[str, Write] = {}
        if data is not None and not isinstance(data, str | Path):
            rows = read_rows_to_label(data)
            writers[rows.reference] = rows.write
            data = rows.reference
        more = unlabelled_places(unlabelled, task, writers)
        return cls(data, tuple(more), task, columns, writers)

    @property
    def all(self) -> list[str | Path]:
        """Every source that is named, in order."""
        return [*([] if self.data is None else [self.data]), *self.unlabelled]

    def read(self, max_rows: int) -> TextRows:
        """The rows of all sources. Raises LimbeckError as `read_text_rows`."""
        # Names of files alone, where `data` may be more than that.
        text_files([source for source in self.unlabelled if not Path(source).is_dir()])
        return joined(
            [
                read_text_rows(
                    source, task=self.task, text_columns=self.text_columns, max_rows=max_rows
                )
                for source in self.all
            ]
        )

    def check_apart(self, path: Path) -> None:
        """Raise LimbeckError for a table that the next start would read as rows: the same command is to go on."""
        for source in self.all:
            if stands_for(source, path, task=self.task, text_columns=self.text_columns):
                raise LimbeckError(
                    f"--to {path} would be one of the files of {source}, so that the same command would read it as "
                    "rows when it is given again",
                    "name a file that lies elsewhere",
                )


def listed(given: Any) -> Sequence[Any]:
    """Several names; one may stand alone."""
    return [given] if isinstance(given, str | Path) else given
