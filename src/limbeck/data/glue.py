"""`--data DIR`: tasks from a folder of released files, GLUE's own layout.

A source of the data stage. DIR is the folder of all tasks or the task's own; how the files look is
in `layouts`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from datasets import DatasetDict

from limbeck.data.files import opened
from limbeck.data.splits import check_splits, make_split, take, with_held_out_dev
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

# How each task's released files look: names, columns and the way labels are written. Facts only,
# read by `folder`. The layouts are GLUE's own and those of the SciTail, PAWS and MSR paraphrase
# releases.


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

# The paraphrase corpus as Microsoft released it; GLUE's script adds the ids of its dev rows.
MSR_TRAIN = "msr_paraphrase_train.txt"
MSR_TEST = "msr_paraphrase_test.txt"
MSR_DEV_IDS = "dev_ids.tsv"
MSR_IDS = ("#1 ID", "#2 ID")


# Reading one tab-separated file of a released dataset, line by line and strictly. No csv reader is
# used: in these files a quote is a quote, a line ends at "\n" alone, and a line that does not fit
# must be named, not fixed.


class TsvRows(NamedTuple):
    """The wanted columns of a file, and its class ids or numbers if it has labels."""

    columns: dict[str, list[str]]
    labels: list[int] | list[float] | None


def read_tsv(path: Path, layout: ReleasedLayout, extra: Sequence[str] = ()) -> TsvRows:
    """Read the text columns, `extra` columns and labels of one file.

    A file whose header has no label column is unlabelled. Raises LimbeckError naming file, line and
    what was expected for a line with the wrong number of columns, an unknown label, a score that is
    not a number or bytes that are not UTF-8, and for a file without the columns, without rows, or
    that cannot be read.
    """
    lines = _lines(path)
    _, first = next(lines, (0, ""))
    header, has_header = _header(first, path, layout, (*layout.text, *extra))
    if not has_header:
        lines = _lines(path)
    labelled = layout.label in header
    wanted = (*layout.text, *extra)
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    labels: list = []
    places = [(header.index(name), columns[name]) for name in wanted]
    broken = unlabelled = rows = 0
    for number, line in lines:
        rows += 1
        fields = line.split("\t")
        if len(fields) != len(header):
            if layout.broken_lines and len(fields) < len(header):
                broken += 1
                continue
            raise _width_error(path, number, fields, header)
        if labelled:
            written = fields[header.index(layout.label)].strip()
            if written == layout.no_label:
                unlabelled += 1
                continue
            labels.append(_label(written, layout, path, number))
        for place, column in places:
            column.append(fields[place])
    _report(path, rows, broken, unlabelled)
    return TsvRows(columns, labels if labelled else None)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without byte-order mark, line end and blank last lines."""
    try:
        # Binary, so that only "\n" ends a line and a bad byte is found on its own line.
        with opened(path) as file:
            blank = None
            for number, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not line:
                    blank = blank or number
                    continue
                if blank is not None:
                    yield blank, ""
                    blank = None
                yield number, line
    except UnicodeDecodeError as error:
        raise LimbeckError(
            f"{path}, line {number}: the bytes are not UTF-8 ({error.reason})",
            "save the file as UTF-8",
        ) from error
    except OSError as error:
        raise LimbeckError(
            f"cannot read {path}: {error.strerror}", "check the file's permissions"
        ) from error


def _header(
    first: str, path: Path, layout: ReleasedLayout, wanted: Sequence[str]
) -> tuple[list[str], bool]:
    """The column names, and whether the first line is where they stand."""
    names = [name.strip() for name in first.split("\t")]
    if all(name in names for name in wanted):
        twice = [name for name in (*wanted, layout.label) if names.count(name) > 1]
        if twice:
            raise LimbeckError(
                f"{path}, line 1: two columns have the name {twice[0]!r}", "take one of them out"
            )
        return names, True
    if layout.headerless and all(name in layout.headerless for name in wanted):
        return list(layout.headerless), False
    raise LimbeckError(
        f"{path}, line 1: expected a header with the columns {', '.join(wanted)}; "
        f"found {', '.join(repr(name) for name in names[:12])}",
        "check that the file belongs to this task and that its header line is there",
    )


def _width_error(path: Path, number: int, fields: list[str], header: list[str]) -> LimbeckError:
    start = "\t".join(fields)[:60]
    return LimbeckError(
        f"{path}, line {number}: expected {len(header)} tab-separated columns "
        f"({', '.join(header)}), found {len(fields)}: {start!r}",
        "fix or remove the line, or fetch the file again",
    )


def _label(written: str, layout: ReleasedLayout, path: Path, number: int) -> int | float:
    if layout.written:
        if written in layout.written:
            return layout.written.index(written)
        expected = f"one of {', '.join(layout.written)}"
    else:
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
        expected = "a number"
    raise LimbeckError(
        f"{path}, line {number}: {layout.label} is {written!r}, expected {expected}",
        "fix or remove the line, or fetch the file again",
    )


def _report(path: Path, rows: int, broken: int, unlabelled: int) -> None:
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


logger = logging.getLogger(__name__)

_REVIEW_CLASSES = ("neg", "pos")


def read_folder(
    task: Task, root: Path, *, seed: int = 0, for_training: bool = True
) -> DatasetDict | None:
    """The splits of `task` under `root`, or None when `root` holds none of its files.

    Raises LimbeckError for a missing split (see `check_splits`) and for the lines `read_tsv`
    refuses. `seed` draws the dev split where a release has none (IMDb; MRPC without its dev ids).
    """
    if task.name == "imdb":
        home = _home(root, ("aclImdb", "imdb"), "aclImdb", ["train/pos", "test/pos"])
        splits = None if home is None else _reviews(task, home, seed)
    else:
        layout = LAYOUTS[task.name]
        files = [*layout.files.values()]
        home = _home(root, layout.folders, layout.inner, files)
        if home is not None:
            splits = read_tables(task, layout, home)
        elif task.name == "mrpc":
            home = _home(root, layout.folders, "", [MSR_TRAIN])
            splits = None if home is None else _msr(task, layout, home, seed)
        else:
            splits = None
    if splits is not None:
        check_splits(task, splits, f"{home} ({', '.join(contents(home))})" if home else str(root),
                     for_training=for_training)  # fmt: skip
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
    """The tasks whose folders lie in one."""
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
    for folder in task_folders(root, names):
        for home in (folder, folder / inner) if inner else (folder,):
            if any((home / file).exists() for file in files):
                return home
    return None


def _split(
    task: Task, layout: ReleasedLayout, rows: TsvRows
) -> tuple[dict[str, list[str]], list | None]:
    """Rows under the task's column names instead of the file's."""
    names = dict(zip(layout.text, task.text_columns, strict=True))
    return {names[name]: rows.columns[name] for name in layout.text}, rows.labels


def read_tables(task: Task, layout: ReleasedLayout, home: Path) -> DatasetDict:
    """The splits whose files lie in `home`."""
    splits = DatasetDict()
    for name, file in layout.files.items():
        if (home / file).exists():
            splits[name] = make_split(task, *_split(task, layout, read_tsv(home / file, layout)))
    return splits


def _msr(task: Task, layout: ReleasedLayout, home: Path, seed: int) -> DatasetDict:
    rows = read_tsv(home / MSR_TRAIN, layout, extra=MSR_IDS)
    texts, labels = _split(task, layout, rows)
    if labels is None:
        raise LimbeckError(f"{home / MSR_TRAIN} has no {layout.label} column", "fetch it again")
    ids_file = home / MSR_DEV_IDS
    if ids_file.exists():
        lines = ids_file.read_text("utf-8-sig").splitlines()
        dev_ids = {tuple(line.split("\t")) for line in lines if line}
        pairs = zip(rows.columns[MSR_IDS[0]], rows.columns[MSR_IDS[1]], strict=True)
        in_dev = [pair in dev_ids for pair in pairs]
        splits = DatasetDict()
        for name, wanted in (("train", False), ("dev", True)):
            chosen = [row for row, held in enumerate(in_dev) if held == wanted]
            splits[name] = make_split(task, take(texts, chosen), [labels[row] for row in chosen])
    else:
        logger.warning(
            "%s: no %s, so the dev split is a seeded tenth and not GLUE's", home, MSR_DEV_IDS
        )
        splits = with_held_out_dev(task, texts, labels, seed)
    if (home / MSR_TEST).exists():
        test = read_tsv(home / MSR_TEST, layout)
        splits["test"] = make_split(task, *_split(task, layout, test))
    return splits


def _reviews(task: Task, home: Path, seed: int) -> DatasetDict:
    """IMDb as released: one review a file, the folder its class."""
    read = {part: _review_files(home / part) for part in ("train", "test")}
    splits = DatasetDict()
    if read["train"][0]:
        texts, labels = read["train"]
        splits = with_held_out_dev(task, {"text": texts}, labels, seed)
    if read["test"][0]:
        splits["test"] = make_split(task, {"text": read["test"][0]}, read["test"][1])
    return splits


def _review_files(folder: Path) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(_REVIEW_CLASSES):
        for file in sorted((folder / name).glob("*.txt")):
            try:
                texts.append(file.read_text("utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise LimbeckError(f"cannot read {file}: {error}", "fetch it again") from error
            labels.append(label)
    return texts, labels
