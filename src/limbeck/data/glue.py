"""`--data DIR`: tasks from a folder of released files, GLUE's own layout.

A source of the data stage. DIR is the folder of all tasks or the task's own. Read strictly: a line that does not fit
is named, not fixed.
"""

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from datasets import DatasetDict

from limbeck.data.files import lines_of, readable
from limbeck.data.splits import check_splits, make_split, with_held_out_dev
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import read_text
from limbeck.tasks.task import Task

logger = logging.getLogger(__name__)

# How each task's released files look: names, columns and the way labels are written. Facts only.
# The layouts are GLUE's own and the ones of the SciTail and PAWS releases.


_PLAIN = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}


@dataclass(frozen=True)
class ReleasedLayout:
    """One task's folder of tab-separated files.

    `text` and `label` name the columns of the header line, in the order of the task's text columns.
    `written` are the labels as the files spell them, in id order; none for numbers. `headerless`
    names the columns of files without a header line. `folders` are the names the folder goes by
    (case, "-" and "_" do not matter), `inner` a folder within it that some releases add.
    """

    text: tuple[str, ...]
    label: str
    written: tuple[str, ...]
    folders: tuple[str, ...]
    files: dict[str, str] = field(default_factory=lambda: dict(_PLAIN))
    headerless: tuple[str, ...] = ()
    inner: str = ""
    # QQP: about 1 line in 15,000 is a piece of a question that held a line break.
    broken_lines: bool = False
    # MultiNLI marks a pair whose annotators did not agree.
    no_label: str | None = None


_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_TWO = ("sentence1", "sentence2")

LAYOUTS: dict[str, ReleasedLayout] = {
    "cola": ReleasedLayout(
        ("sentence",), "label", _BINARY, ("CoLA",),
        headerless=("source", "label", "mark", "sentence"),
    ),
    "sst2": ReleasedLayout(("sentence",), "label", _BINARY, ("SST-2", "SST")),
    "mrpc": ReleasedLayout(("#1 String", "#2 String"), "Quality", _BINARY, ("MRPC",)),
    "stsb": ReleasedLayout(_TWO, "score", (), ("STS-B",)),
    "qqp": ReleasedLayout(
        ("question1", "question2"), "is_duplicate", _BINARY, ("QQP",), broken_lines=True
    ),
    "mnli": ReleasedLayout(
        _TWO, "gold_label", ("entailment", "neutral", "contradiction"), ("MNLI",),
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
        no_label="-",
    ),
    "qnli": ReleasedLayout(("question", "sentence"), "label", _ENTAILMENT, ("QNLI",)),
    "rte": ReleasedLayout(_TWO, "label", _ENTAILMENT, ("RTE",)),
    "wnli": ReleasedLayout(_TWO, "label", _BINARY, ("WNLI",)),
    "scitail": ReleasedLayout(
        ("premise", "hypothesis"), "label", ("entails", "neutral"), ("SciTail", "SciTailV1.1"),
        files={
            "train": "scitail_1.0_train.tsv",
            "dev": "scitail_1.0_dev.tsv",
            "test": "scitail_1.0_test.tsv",
        },
        headerless=("premise", "hypothesis", "label"),
        inner="tsv_format",
    ),
    "paws": ReleasedLayout(_TWO, "label", _BINARY, ("PAWS", "PAWS-Wiki"), inner="final"),
}  # fmt: skip

# ---- one file ----


class TsvRows(NamedTuple):
    """The text columns of a file, and its class ids or numbers if it has labels."""

    columns: dict[str, list[str]]
    labels: list[int] | list[float] | None


def read_tsv(path: Path, layout: ReleasedLayout) -> TsvRows:
    """Read the text columns and labels of one file; blank lines are skipped.

    A quote is a quote, and a line ends at a line feed alone. A file whose header has no label column is unlabelled.

    Raises:
        LimbeckError: a line of another width, an unknown label or a score that is no number, with the line; a file
            without the columns, or one that cannot be read.
    """
    columns: dict[str, list[str]] = {name: [] for name in layout.text}
    labels: list[Any] = []
    header: list[str] = []
    broken = unlabelled = rows = 0
    with readable(path):
        for number, line in enumerate(lines_of(path), start=1):
            fields = line.split("\t")
            if not header:
                header = _header(path, layout, fields)
                if header != list(layout.headerless):
                    continue
            if not line:
                continue
            rows += 1
            if len(fields) < len(header) and layout.broken_lines:
                broken += 1
                continue
            if len(fields) != len(header):
                start = "\t".join(fields)[:60]
                raise LimbeckError(
                    f"{path}, line {number}: expected {len(header)} tab-separated columns "
                    f"({', '.join(header)}), found {len(fields)}: {start!r}",
                    "fix or remove the line, or fetch the file again",
                )
            row = dict(zip(header, fields, strict=True))
            written = row.get(layout.label)
            if written is not None and written.strip() == layout.no_label:
                unlabelled += 1
                continue
            if written is not None:
                labels.append(_label(written.strip(), layout, f"{path}, line {number}"))
            for name, column in columns.items():
                column.append(row[name])
    header = header or _header(path, layout, [""])
    # Two dozen pieces in QQP's 364,000 lines are the release's; many more are a damaged file.
    if broken > max(1, rows // 1000):
        raise LimbeckError(
            f"{path}: {broken} of {rows} lines have too few columns",
            "the file is damaged: fetch it again",
        )
    if broken:
        logger.warning("%s: skipped %d lines with too few columns", path, broken)
    if unlabelled:
        logger.warning("%s: skipped %d rows without a gold label", path, unlabelled)
    return TsvRows(columns, labels if layout.label in header else None)


def _header(path: Path, layout: ReleasedLayout, fields: Sequence[str]) -> list[str]:
    """The columns' names, by a file's first line."""
    names = [name.strip() for name in fields]
    if set(layout.text) <= set(names):
        twice = [name for name in (*layout.text, layout.label) if names.count(name) > 1]
        if twice:
            raise LimbeckError(
                f"{path}, line 1: two columns have the name {twice[0]!r}", "take one of them out"
            )
        return names
    if layout.headerless:
        return list(layout.headerless)
    raise LimbeckError(
        f"{path}, line 1: expected a header with the columns {', '.join(layout.text)}; "
        f"found {', '.join(repr(name) for name in names[:12])}",
        "check that the file belongs to this task and that its header line is there",
    )


def _label(written: str, layout: ReleasedLayout, where: str) -> int | float:
    if written in layout.written:
        return layout.written.index(written)
    expected = f"one of {', '.join(layout.written)}"
    if not layout.written:
        with suppress(ValueError):
            if math.isfinite(value := float(written)):
                return value
        expected = "a number"
    raise LimbeckError(
        f"{where}: {layout.label} is {written!r}, expected {expected}",
        "fix or remove the line, or fetch the file again",
    )


# ---- a folder ----


def read_folder(
    task: Task, root: Path, *, seed: int = 0, for_training: bool = True
) -> DatasetDict | None:
    """The splits of `task` under `root`, or None when `root` holds none of its files.

    Raises LimbeckError for a missing split (see `check_splits`) and for the lines that `read_tsv`
    rejects. `seed` draws the dev split where a release has no dev split (IMDb).
    """
    if task.name == "imdb":
        home = _home(root, ("aclImdb", "imdb"), "aclImdb", ["train/pos", "test/pos"])
        splits = None if home is None else _reviews(task, home, seed)
    else:
        layout = LAYOUTS[task.name]
        home = _home(root, layout.folders, layout.inner, [*layout.files.values()])
        splits = None if home is None else read_tables(task, layout, home)
    if splits is not None and home is not None:
        origin = f"{home} ({', '.join(contents(home))})"
        check_splits(task, splits, origin, for_training=for_training)
    return splits


def expected_files(task: Task) -> str:
    """Where a folder is expected to keep the task, for messages."""
    if task.name == "imdb":
        return "aclImdb/train/{pos,neg}/*.txt, aclImdb/test/{pos,neg}/*.txt"
    layout = LAYOUTS[task.name]
    folder = "/".join(part for part in (layout.folders[0], layout.inner) if part)
    return ", ".join(f"{folder}/{file}" for file in layout.files.values())


def contents(folder: Path, at_most: int = 12) -> list[str]:
    """The first names in a folder, for messages."""
    names = sorted(child.name + "/" * child.is_dir() for child in folder.iterdir())
    return names[:at_most] + ["…"] * (len(names) > at_most) if names else ["nothing"]


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def task_of_folder(folder: Path) -> str | None:
    """The task that a folder is called after, as `SST-2` is after sst2; None of any other name."""
    name = _plain(folder.resolve().name)
    found = (task for task, one in LAYOUTS.items() if name in map(_plain, one.folders))
    return next(found, None)


def tasks_inside(folder: Path) -> list[str]:
    """The tasks that have a folder in this one."""
    found = map(task_of_folder, sorted(one for one in folder.iterdir() if one.is_dir()))
    return [task for task in dict.fromkeys(found) if task is not None]


def task_folders(root: Path, names: tuple[str, ...]) -> list[Path]:
    """Folders of `root` that go by one of the names, then `root` unless it is another task's."""
    plain = {_plain(name) for name in names}
    children = sorted(child for child in root.iterdir() if child.is_dir())
    found = [child for child in children if _plain(child.name) in plain]
    # SST-2's files would pass for CoLA's, so another task's own folder is no place to look.
    others = {_plain(name) for layout in LAYOUTS.values() for name in layout.folders} - plain
    return found if _plain(root.resolve().name) in others else [*found, root]


def _home(root: Path, names: tuple[str, ...], inner: str, files: list[str]) -> Path | None:
    """The folder that holds any of the files."""
    folders = [home for one in task_folders(root, names) for home in (one, one / inner)]
    return next((home for home in folders if any((home / file).exists() for file in files)), None)


def read_tables(task: Task, layout: ReleasedLayout, home: Path) -> DatasetDict:
    """The splits whose files are in `home`."""
    splits = DatasetDict()
    for name, file in layout.files.items():
        if (home / file).exists():
            rows = read_tsv(home / file, layout)
            texts = dict(zip(task.text_columns, rows.columns.values(), strict=True))
            splits[name] = make_split(task, texts, rows.labels)
    return splits


def _reviews(task: Task, home: Path, seed: int) -> DatasetDict:
    """IMDb as released: one review a file, the folder its class."""
    splits = DatasetDict()
    for part in ("train", "test"):
        files = {name: sorted((home / part / name).glob("*.txt")) for name in task.labels}
        labels = [place for place, found in enumerate(files.values()) for _ in found]
        texts = [read_text(file) for found in files.values() for file in found]
        if texts and part == "train":
            splits |= with_held_out_dev(task, {"text": texts}, labels, seed)
        elif texts:
            splits[part] = make_split(task, {"text": texts}, labels)
    return splits
