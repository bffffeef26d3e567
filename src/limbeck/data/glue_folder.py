"""`--data DIR`: tasks from a folder of released files, GLUE's own layout.

A source of the data stage. DIR is the folder of all tasks or the task's own; how the files look is
in `layouts`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from datasets import DatasetDict

from limbeck.data.layouts import LAYOUTS, MSR_DEV_IDS, MSR_IDS, MSR_TEST, MSR_TRAIN, ReleasedLayout
from limbeck.data.splits import check_splits, make_split, take, with_held_out_dev
from limbeck.data.tsv import TsvRows, read_tsv
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

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
