"""`submit(runs, out)`: students on GLUE's test rows, as the benchmark takes them. Part of `limbeck.lab.submitting`."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from datasets import Dataset
from rich.console import Console

from limbeck.data import rows_fingerprint
from limbeck.lab.submitting.glue_files import GLUE_FILES, GlueFile
from limbeck.lab.submitting.glue_test_rows import glue_test_rows
from limbeck.lab.submitting.submitted_runs import SubmittedRun, submitted_runs
from limbeck.predicting.predict_rows import predict
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, write_whole
from limbeck.support.manifest import Manifest
from limbeck.support.plain import loads
from limbeck.support.registry import FUNCTIONS
from limbeck.tasks import TASKS

# The same files give the same archive.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Submission:
    """What was written.

    Attributes:
        path: the archive.
        rows: of each file in it.
        missing: files of the benchmark that are not in it.
    """

    path: Path
    rows: Mapping[str, int]
    missing: Sequence[str] = ()


@FUNCTIONS.register("submit")
def submit(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    data: str | Path | None = None,
    partial: bool = False,
    overwrite: bool = False,
    show: bool = False,
) -> Submission:
    """Predict GLUE's test rows by one run a task and write them as the benchmark takes them, in one archive.

    A file is `index<TAB>prediction`: 0 or 1, the names of inference classes, a number from 0 to 5 with three decimals
    (STS-B). What a killed call predicted is kept beside `out`, and the same call goes on there.

    Args:
        runs: finished runs' folders, one for each of the nine tasks; MNLI's also predicts the mismatched and the
            diagnostic rows.
        out: the .zip file.
        data: the test rows, `hub`, `hub:DIR` or a folder in GLUE's layout; by default where each run's own are.
        partial: write the files of the tasks that are there. The benchmark takes whole submissions alone.
        overwrite: replace `out`.
        show: print progress.

    Raises:
        LimbeckError: everything that is wrong with runs and rows, before any is predicted; a task, a row or a class
            that is missing.
    """
    target = at_home(out)
    problems = _of_target(target, overwrite=overwrite)
    found = submitted_runs(runs, problems, partial=partial)
    files = [file for file in GLUE_FILES if file.task in found]
    rows = _rows(files, found, data, problems)
    if problems:
        raise LimbeckError(problems)
    work = target.with_name(f"{target.name}.rows")
    lines = {
        file.name: _lines(file, _predicted(file, found[file.task], rows[file.name], work, show))
        for file in files
    }
    write_whole(target, _archive(lines))
    shutil.rmtree(work, ignore_errors=True)
    missing = [file.name for file in GLUE_FILES if file not in files]
    return Submission(target, {file.name: file.rows for file in files}, missing)


def _of_target(target: Path, *, overwrite: bool) -> list[Problem]:
    if target.suffix.lower() != ".zip":
        return [Problem(f"out {str(target)!r} is no .zip file", "the benchmark takes a .zip")]
    if target.exists() and not overwrite:
        return [Problem(f"{target} is there already", "name another file, or --overwrite")]
    return []


def _rows(
    files: Iterable[GlueFile],
    runs: Mapping[str, SubmittedRun],
    data: str | Path | None,
    problems: list[Problem],
) -> dict[str, Dataset]:
    """The rows of each file; what is wrong with them is added to `problems`."""
    found = {}
    for file in files:
        try:
            found[file.name] = glue_test_rows(file, str(data or runs[file.task].data))
        except LimbeckError as error:
            problems += error.problems
    return found


def _predicted(
    file: GlueFile, run: SubmittedRun, rows: Dataset, work: Path, show: bool
) -> list[dict[str, Any]]:
    """The run's predictions of a file's rows, which an earlier call may have made."""
    manifest = Manifest.read(run.folder)
    student = sorted((manifest.checksums if manifest else {}).items())
    made_of = f"{student} {rows_fingerprint(TASKS[file.task], rows)}"
    path = work / f"{file.name}-{xxhash.xxh3_64_hexdigest(made_of.encode())}.jsonl"
    if not path.is_file():
        Console(stderr=True, quiet=not show, markup=False).print(f"{file.name} by {run.folder}")
        predict(
            run.folder,
            rows,
            to=path,
            text_columns=TASKS[file.task].text_columns,
            keep=["none"],
            show=show,
        )
    return [loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _lines(file: GlueFile, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a file.

    Raises:
        LimbeckError: a row without a prediction, or a class that the benchmark does not have.
    """
    values = [row["prediction"] for row in rows]
    if len(values) != file.rows or None in values:
        missing = values.index(None) if None in values else len(values)
        raise LimbeckError(
            f"{file.name}: row {missing} has no prediction", "see whether the row has text"
        )
    return ["index\tprediction", *(f"{at}\t{_word(file, one)}" for at, one in enumerate(values))]


def _word(file: GlueFile, value: Any) -> str:
    """A prediction as the benchmark writes it."""
    if not file.words:
        low, high = TASKS[file.task].bounds or (float("-inf"), float("inf"))
        return f"{min(max(float(value), low), high):.3f}"
    names = TASKS[file.task].labels
    if value not in names:
        raise LimbeckError(
            f"{file.name}: the student predicts {value!r}, which is no class of {file.task}",
            f"classes: {', '.join(names)}",
        )
    return file.words[names.index(value)]


def _archive(files: Mapping[str, Sequence[str]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in files.items():
            # At the top of the archive: the benchmark looks into no folder.
            archive.writestr(
                zipfile.ZipInfo(name, _DATE), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED
            )
    return packed.getvalue()
