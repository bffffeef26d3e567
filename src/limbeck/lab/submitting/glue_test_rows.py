"""The rows of a file of a submission. Part of `limbeck.lab.submitting`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from datasets import Dataset

from limbeck.data import load_task
from limbeck.data.glue import LAYOUTS, read_tables, task_folders
from limbeck.data.hub import fetch
from limbeck.data.splits import make_split
from limbeck.lab.submitting.glue_files import DIAGNOSTIC, GlueFile
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import TASKS

_FOLDERS, _FILE = ("diagnostic", "AX"), "diagnostic.tsv"


def glue_test_rows(file: GlueFile, data: str) -> Dataset:
    """The rows in the order of their index, with the task's text columns.

    Args:
        file: which.
        data: `hub`, `hub:DIR`, or a folder in GLUE's layout.

    Raises:
        LimbeckError: there are none, or other than the benchmark scores.
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
    """The diagnostic rows under the name of a split; none where there are none."""
    mnli = TASKS["mnli"]
    if data == "hub" or data.startswith("hub:"):
        assert mnli.hub is not None
        source = replace(mnli.hub, config="ax")
        root = None if data == "hub" else at_home(data.removeprefix("hub:"))
        found = fetch(replace(mnli, name="ax"), source, root)["test"]
        return {DIAGNOSTIC: make_split(mnli, {n: found[n][:] for n in mnli.text_columns}, None)}
    layout = replace(LAYOUTS["mnli"], folders=_FOLDERS, files={DIAGNOSTIC: _FILE})
    for folder in task_folders(at_home(data), _FOLDERS):
        if (folder / _FILE).is_file():
            result: Mapping[str, Dataset] = read_tables(mnli, layout, folder)
            return result
    return {}
