"""Comparisons of methods whose records lie in this repository: many runs, resumable, cheapest first.

A study is a list of `Cell`s. Each becomes an ordinary limbeck run; its record is copied into the study's file
under `benchmarks/records/`, which is what the tables in the docs are made of. A cell whose record lies there is
not run again, so a study that was stopped goes on where it was, and what there is can always be printed as a
table. Several processes may work on one study; claims and records are those of `limbeck.lab.study`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from limbeck.lab.study import SharedRuns
from limbeck.lab.study.shared_runs import portable
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.recipe import Recipe
from limbeck.records import write_collection
from limbeck.records.record import SUFFIX, read_raw
from limbeck.run import distill
from limbeck.support.files import write_whole
from limbeck.teachers.teacher import Teacher

RECORDS = Path(__file__).parent / "records"


def records_of(study: str) -> Path:
    """The file of a study's records."""
    return RECORDS / f"{study}{SUFFIX}"


@dataclass(frozen=True)
class JsonRecord:
    """What a benchmark measured, by names, in a JSON file of the records; several processes may add to it.

    Attributes:
        name: of the file.
        indent: of its lines; None for a single line.
    """

    name: str
    indent: int | None = None

    @property
    def path(self) -> Path:
        """Its file."""
        return RECORDS / f"{self.name}.json"

    def read(self) -> dict[str, Any]:
        """All of it; empty before the first run."""
        found: dict[str, Any] = (
            json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        )
        return found

    def has(self, *names: object) -> bool:
        """Whether something was measured under these names."""
        found = self.read()
        return all((found := found.get(str(name))) is not None for name in names)

    def keep(self, found: Any, *names: object) -> None:
        """Add what was measured under these names."""
        *groups, last = map(str, names)
        with FileLock(self.path.with_suffix(".lock")):
            record = part = self.read()
            for name in groups:
                part = part.setdefault(name, {})
            part[last] = found
            write_whole(self.path, json.dumps(record, indent=self.indent) + "\n")


METHODS = ("finetune", "kd", "pkd-skip", "ckd-no", "alp-kd", "rail-kd-l", "rail-kd-c")


@dataclass(frozen=True)
class Cell:
    """One run of a study: a name, a method and its settings, and a guess of its cost to order by.

    `label` is what its row is called in tables, where one method has several rows.
    """

    name: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    cost: float = 1.0
    label: str | None = None


def student_cells(
    task: str, settings: dict[str, Any], *, layers: Iterable[int], seed: int, cost: float = 1.0
) -> list[Cell]:
    """Every method at every depth, one seed: a whole round, so that a stopped study can be compared."""
    return [
        Cell(
            f"{task}-{method}-{depth}l-s{seed}",
            method,
            {
                **settings,
                "task": task,
                "seed": seed,
                "student.pick": "first",
                "student.layers": depth,
            },
            cost * depth,
        )
        for depth in layers
        for method in METHODS
    ]


@dataclass
class Study:
    """Cells, the folder their runs live in, and the file their records are kept in."""

    name: str
    work: Path
    teachers: dict[Path, Teacher] = field(default_factory=dict)

    @property
    def records(self) -> Path:
        """Where the records are kept."""
        return records_of(self.name)

    def _is_kept(self, name: str) -> bool:
        return name in read_raw(self.records)

    def run(self, cells: Iterable[Cell], teacher: Path | None = None) -> None:
        """Run every cell that has no record yet and that no other process is at, cheapest first."""
        for cell in sorted(cells, key=lambda cell: cell.cost):
            with SharedRuns(self.work).claimed(cell.name) as ours:
                if ours and not self._is_kept(cell.name):
                    self._run_cell(cell, None if teacher is None else self._teacher(teacher))

    def _teacher(self, folder: Path) -> Teacher:
        """One teacher a process, which remembers what it answered: every run sees the same rows."""
        if folder not in self.teachers:
            self.teachers.clear()  # Of many rows what one remembers is a gigabyte.
            self.teachers[folder] = RememberingTeacher(Teacher.load(folder))
        return self.teachers[folder]

    def _run_cell(self, cell: Cell, teacher: Teacher | None) -> None:
        recipe = Recipe.load(cell.method, **cell.settings)
        result = distill(recipe, self.work / cell.name, report=False, live_teacher=teacher)
        self.keep(result.path, cell.name, cell.label)
        if not cell.name.startswith("teacher") and not cell.name.endswith("teacher"):
            shutil.rmtree(result.path)

    def train_again(self, cell: Cell) -> None:
        """Train a teacher that has a record and whose folder is gone; its record stays as it is."""
        with SharedRuns(self.work).claimed(cell.name) as ours:
            if ours and not (self.work / cell.name / "student").is_dir():
                self._run_cell(cell, None)

    def lacks(self, cells: Iterable[Cell]) -> bool:
        """Whether any of these cells has no record."""
        return any(not self._is_kept(cell.name) for cell in cells)

    def wait_for(self, cells: Iterable[Cell]) -> None:
        """Wait until what other processes hold of these cells is done."""
        runs = SharedRuns(self.work)
        for cell in cells:
            while not self._is_kept(cell.name):
                with runs.claimed(cell.name) as ours:
                    if ours:
                        break
                time.sleep(1)

    def keep(self, run: Path, name: str, label: str | None = None) -> None:
        """Keep the record of a finished run as a cell's, where there is none yet."""
        if self._is_kept(name):
            return
        record = portable(run)
        if record is None:  # another process is at it
            return
        record["method"] = label or record["method"]
        with FileLock(self.work / "records.lock"):  # other processes keep records too
            write_collection(self.records, read_raw(self.records) | {name: record})
        print(f"{name}: {record['scores']['dev']['primary']:.2f}", flush=True)
