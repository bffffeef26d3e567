"""`submit(runs, out)`: students on GLUE's test rows, as the benchmark takes them. Part of `limbeck.lab.submitting`."""

import io
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash
from datasets import Dataset

from limbeck.data import glue, hub, load_task, rows_fingerprint, splits
from limbeck.predicting.predict_rows import predict
from limbeck.records import RECORD_NAME, Record
from limbeck.students.pretrained import refuse_damaged_student
from limbeck.support import given, plain, registry, terminal
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems
from limbeck.support.files import at_home, write_whole
from limbeck.support.manifest import Manifest
from limbeck.tasks import TASKS

# The files that gluebenchmark.com scores: names, rows and the words for classes. Facts only, as the benchmark's site
# and its published test files have them.


@dataclass(frozen=True)
class GlueFile:
    """One file of a submission: a header line `index<TAB>prediction`, then a line for each row of a test split.

    Attributes:
        name: of the file.
        task: limbeck's name of the task whose run predicts it.
        split: of the task's data; `diagnostic` for rows that no task has as a split.
        rows: how many the benchmark scores.
    """

    name: str
    task: str
    split: str
    rows: int

    @property
    def words(self) -> tuple[str, ...]:
        """The benchmark's names of the task's classes, in the order of their ids; empty for a number."""
        return glue.LAYOUTS[self.task].written


DIAGNOSTIC = "diagnostic"
GLUE_FILES = (
    GlueFile("CoLA.tsv", "cola", "test", 1063),
    GlueFile("SST-2.tsv", "sst2", "test", 1821),
    GlueFile("MRPC.tsv", "mrpc", "test", 1725),
    GlueFile("STS-B.tsv", "stsb", "test", 1379),
    GlueFile("QQP.tsv", "qqp", "test", 390_965),
    GlueFile("MNLI-m.tsv", "mnli", "test", 9796),
    GlueFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847),
    GlueFile("QNLI.tsv", "qnli", "test", 5463),
    GlueFile("RTE.tsv", "rte", "test", 3000),
    GlueFile("WNLI.tsv", "wnli", "test", 146),
    # Scored in addition to the tasks, by the model that learned MNLI.
    GlueFile("AX.tsv", "mnli", DIAGNOSTIC, 1104),
)


# The rows of a file of a submission.


_FOLDERS, _FILE = ("diagnostic", "AX"), "diagnostic.tsv"


def glue_test_rows(file: GlueFile, data: str) -> Dataset:
    """The rows in the order of their index, with the task's text columns.

    Args:
        file: which.
        data: `hub`, `hub:DIR`, or a folder in GLUE's layout.

    Raises:
        LimbeckError: they are missing, or other than the benchmark scores.
    """
    splits = _diagnostic(data) if file.split == DIAGNOSTIC else load_task(
        file.task, data, for_training=False
    )[1]  # fmt: skip
    if file.split not in splits:
        raise LimbeckError(
            f"{file.name}: {data} has no {file.split} rows of {file.task}",
            "name GLUE's released files or the Hub with --data; or --partial for a part of the tasks",
        )
    rows = splits[file.split].select_columns(list(TASKS[file.task].text_columns))
    if len(rows) != file.rows:
        raise LimbeckError(
            f"{file.name}: {data} has {len(rows):,} {file.split} rows of {file.task}, and the benchmark scores "
            f"{file.rows:,}",
            "name GLUE's released files or the Hub with --data",
        )
    return rows


def _diagnostic(data: str) -> Mapping[str, Dataset]:
    """The diagnostic rows under the name of a split; empty if they are missing."""
    mnli = TASKS["mnli"]
    if data == "hub" or data.startswith("hub:"):
        assert mnli.hub is not None
        source = replace(mnli.hub, config="ax")
        root = None if data == "hub" else at_home(data.removeprefix("hub:"))
        found = hub.fetch(replace(mnli, name="ax"), source, root)["test"]
        return {
            DIAGNOSTIC: splits.make_split(mnli, {n: found[n][:] for n in mnli.text_columns}, None)
        }
    layout = replace(glue.LAYOUTS["mnli"], folders=_FOLDERS, files={DIAGNOSTIC: _FILE})
    for folder in glue.task_folders(at_home(data), _FOLDERS):
        if (folder / _FILE).is_file():
            result: Mapping[str, Dataset] = glue.read_tables(mnli, layout, folder)
            return result
    return {}


# Which run predicts which task of a submission.


@dataclass(frozen=True)
class SubmittedRun:
    """A finished run: its folder, and where its own rows are (`hub` where they were objects)."""

    folder: Path
    data: str


def submitted_runs(
    runs: Sequence[str | Path], problems: list[Problem], *, partial: bool
) -> Mapping[str, SubmittedRun]:
    """By task its run; errors are added to `problems`.

    Args:
        runs: folders.
        problems: receives every folder that is no run, is not finished, has no task of GLUE or one that another run
            has, and unless `partial` the tasks without a run.
        partial: whether tasks may be missing.
    """
    found: dict[str, SubmittedRun] = {}
    tasks = tuple(dict.fromkeys(file.task for file in GLUE_FILES))
    for run in runs:
        try:
            task, submitted = _read(at_home(run))
        except LimbeckError as error:
            problems += error.problems
            continue
        if task not in tasks:
            problems.append(
                Problem(f"{run} is a run of {task}", f"tasks of GLUE: {', '.join(tasks)}")
            )
        elif task in found:
            problems.append(
                Problem(
                    f"{run} and {found[task].folder} are both runs of {task}", "name one of them"
                )
            )
        else:
            found[task] = submitted
    missing = [task for task in tasks if task not in found]
    if not found and not problems:
        problems.append(Problem("no run is named", "limbeck submit RUN… --out submission.zip"))
    elif missing and not partial:
        problems.append(
            Problem(
                f"no run of {', '.join(missing)}",
                "the benchmark scores all nine tasks together: name a run of each, or --partial to write the files of "
                "these",
            )
        )
    return found


def _read(folder: Path) -> tuple[str, SubmittedRun]:
    if not (folder / RECORD_NAME).is_file():
        raise LimbeckError(f"{folder} is no run folder", "name the folder that `--out` named")
    record = Record.of_finished(folder)
    student = folder / "student"
    if not (student / "config.json").is_file() or not any(student.glob("*.safetensors")):
        raise LimbeckError(
            f"run {folder} has no student", "studies keep them with keep_students: true"
        )
    # Found later, it would cost the predictions of the tasks before.
    refuse_damaged_student(folder, student)
    data = str(record.recipe.get("data"))
    return str(record.recipe.get("task")), SubmittedRun(
        folder, "hub" if given.is_reference(data) else data
    )


# The same files give the same archive.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Submission:
    """The written files.

    Attributes:
        path: the archive.
        rows: of each file in it.
        missing: files of the benchmark that are not in it.
    """

    path: Path
    rows: Mapping[str, int]
    missing: Sequence[str] = ()


@registry.FUNCTIONS.register("submit")
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
    (STS-B). A killed call's predictions are kept next to `out`, and the same call resumes there.

    Args:
        runs: finished runs' folders, one for each of the nine tasks; MNLI's also predicts the mismatched and the
            diagnostic rows.
        out: the .zip file.
        data: the test rows, `hub`, `hub:DIR` or a folder in GLUE's layout; by default where each run's own are.
        partial: write the files of the existing tasks. The benchmark accepts only complete submissions.
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
    raise_problems(problems)
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
    """The rows of each file; errors are added to `problems`."""
    found = {}
    for file in files:
        with collecting(problems):
            found[file.name] = glue_test_rows(file, str(data or runs[file.task].data))
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
        terminal.messages(shown=show).print(f"{file.name} by {run.folder}")
        predict(
            run.folder,
            rows,
            to=path,
            text_columns=TASKS[file.task].text_columns,
            keep=["none"],
            show=show,
        )
    return [plain.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


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
