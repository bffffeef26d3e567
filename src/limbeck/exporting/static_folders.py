"""A static student's own folder, which NumPy reads, or model2vec's and sentence-transformers'."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import cast

from limbeck.exporting.workshop import Workshop
from limbeck.runtimes.manifest import Attempt, Conversion
from limbeck.runtimes.sessions import GraphSession, open_file
from limbeck.static import StaticStudent, write_model2vec, write_plain


class StaticWorkshop(Workshop):
    """A workshop of a static student's folders, which hold no graph.

    model2vec has no place for word pairs: the gate measures the student without them.
    """

    def __post_init__(self) -> None:
        """Set aside the student as it is shipped, and its tokenizer."""
        self.work, self.shipped = self.part / "work", self.part / "model.safetensors"
        self.student = cast(StaticStudent, self.model)
        self.tokenizer = copy.deepcopy(self.rows.processor)
        self.tokenizer.model_max_length = self.rows.max_length
        self.numpy = self.settings.format.startswith("numpy")
        self.bare = self.student
        if not self.numpy and self.student.pairs is not None:
            self.bare = copy.deepcopy(self.student)
            self.bare.config.pairs, self.bare.pairs = 0, None

    def open(self, path: Path) -> GraphSession:
        """Open the student as NumPy reads it."""
        return open_file(path if self.numpy else self.work / path.name, "numpy")

    def write(self, how: Conversion) -> None:
        """Write the folder, and for the gate the student's own."""
        int8 = how.precision == "int8"
        write_plain(self.bare, self.tokenizer, self.part if self.numpy else self.work, int8=int8)
        if not self.numpy:
            write_model2vec(
                self.student, self.tokenizer, self.part, int8=int8, without_pairs=self.change
            )

    change = 0.0
    """Of the score, without word pairs."""

    def clear(self, shipped: Attempt) -> None:
        """Write what leaving word pairs out has changed, and remove what is not shipped."""
        if self.bare is not self.student and shipped.measured is not None:
            self.change = -shipped.measured.drop
            self.write(shipped.conversion)
        shutil.rmtree(self.work, ignore_errors=True)
