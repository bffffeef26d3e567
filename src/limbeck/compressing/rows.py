"""The rows of a compression: dev rows in two halves, samples to train on for a short time, stored teacher outputs.

Part of `limbeck.compressing`. One half of the dev rows chooses: epochs, trials, finalists, the recommendation. The
front's scores come from the other half, which chooses nothing: it is the `test` file of every run.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from pyarrow import parquet

from limbeck.data.files import form_of, open_rows
from limbeck.data.splits import halved
from limbeck.data.text_rows import TextRows, joined, read_text_rows, read_unlabelled
from limbeck.labelling.label_rows import label
from limbeck.predicting.formats import CsvForm, json_lines
from limbeck.recipe import Recipe
from limbeck.run.distill import plan_run
from limbeck.run.rows import load_rows
from limbeck.support import files
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.tasks import PAIR_SCORE, TASKS, Task
from limbeck.tasks.abstract_type import labelled_rows

CHOOSING, SCORING = "dev", "test"
"""The splits of every run that hold the two halves."""
_OWN = (
    "method", "test", "test_share", "teachers", "team", "parallel", "student", "seed", "train_rows", "lr", "objectives",
    "first_stage",
)  # fmt: skip
"""Settings of a recipe that a compression makes itself, or has no use for."""
_RESOLVED = ("kind", "data", "text_columns", "label_column", "outputs")
_MOST_TEXTS = 20_000
"""Number of texts that determine which tokens a smaller vocabulary keeps, and how long rows are."""


@dataclass(frozen=True)
class CompressRows:
    """What every training of a compression reads.

    Attributes:
        recipe: as one run without a search would have it.
        settings: of every run's recipe, the halves of the dev rows among them.
        task: the task of the rows.
        labelled, unlabelled: training rows with and without a label.
        texts: some of their texts.
        folder: the folder of the samples.
    """

    recipe: Recipe
    settings: Mapping[str, Any]
    task: Task
    labelled: int
    unlabelled: int
    texts: Sequence[str]
    folder: Path

    @property
    def count(self) -> int:
        """All training rows."""
        return self.labelled + self.unlabelled

    def sampled(self, count: int) -> dict[str, Any]:
        """The settings for this number of training rows; labeled rows come first."""
        found = dict(self.settings)
        if count >= self.count:
            return found
        if not self.labelled:  # the data are text
            return found | {"data": self._sample("data", [str(self.recipe.data)], count)}
        if count < self.labelled:
            found["train_rows"] = count
        if found.get("unlabelled"):
            more = max(0, count - self.labelled)
            sample = [self._sample("unlabelled", self.recipe.unlabelled, more)] if more else []
            found["unlabelled"] = sample
        return found

    def limited(self, count: int) -> "CompressRows":
        """The same with this number of training rows, but all that have a label."""
        count = max(count, self.labelled)
        if count >= self.count:
            return self
        return replace(self, settings=self.sampled(count), unlabelled=count - self.labelled)

    def _sample(self, name: str, sources: Sequence[str], count: int) -> str:
        """A file with this number of texts; it is written once."""
        path = self.folder / f"{name}-{count}.parquet"
        if not path.is_file():
            rows = _texts_of(self.recipe, self.task, sources)
            places = np.sort(np.random.default_rng(0).permutation(rows.first)[:count])
            columns = dict(zip(rows.names, rows.take(places).values(), strict=True))
            with files.written_whole(path) as stream:
                Dataset.from_dict(columns).to_parquet(stream)
        return str(path)


def recipe_of(teacher: str, given: Mapping[str, Any]) -> Recipe:
    """The recipe of the rows that its settings name.

    Raises:
        LimbeckError: settings that a compression makes itself; a recipe's errors.
    """
    known = {key.partition(".")[0] for key, value in given.items() if value is not None}
    if own := [key for key in _OWN if key in known]:
        raise LimbeckError(
            [
                Problem(f"{key}: compress sets it, or does not read it", "leave it out")
                for key in own
            ]
        )
    objects = [one for one in ("data", "dev") if not isinstance(given.get(one) or "", str | Path)]
    raise_problems(
        [
            Problem(
                f"{one}: compress reads files, not objects",
                "write the rows to a file, and give its path",
            )
            for one in objects
        ]
    )
    # Which rows there are does not depend on who answers for the teacher.
    named = {
        key: value for key, value in given.items() if value is not None and "output" not in key
    }
    return Recipe.load(None, teacher=teacher, **named)


def rows_of(teacher: str, given: Mapping[str, Any], folder: Path) -> CompressRows:
    """Read the rows that recipe settings name, and write the halves of their dev rows.

    Raises:
        LimbeckError: settings that a compression makes itself; a recipe's errors; dev rows that cannot be halved.
    """
    asked = {key: value for key, value in given.items() if value is not None}
    # The folder is not a run's: it also contains rows that the teacher labels.
    recipe = plan_run(recipe_of(teacher, given), folder / "run").recipe
    task, splits = load_rows(recipe, labels_read=False)
    settings = asked | {
        key: value for key in _RESOLVED if (value := getattr(recipe, key)) is not None
    }
    for key in ("dev_share", "group_column"):
        settings.pop(key, None)
    if recipe.dev is not None:
        settings |= _halves_of_file(recipe, folder)
    else:
        settings |= _files_of(task, splits, folder)
    settings["unlabelled_duplicates"] = recipe.unlabelled_duplicates
    known_rows = np.ones(len(splits["train"]), dtype=bool)
    if task.kind.stored_as.labels_texts:  # others take no rows without labels
        known_rows = labelled_rows(splits["train"].with_format("numpy")[task.label_column][:])
    texts: list[str] = []
    unlabelled = int((~known_rows).sum())
    if recipe.unlabelled:
        more = _texts_of(recipe, task, recipe.unlabelled)
        unlabelled += len(more.first)
        texts += [
            text for column in more.take(more.first[:_MOST_TEXTS]).values() for text in column
        ]
    some = splits["train"][: max(0, _MOST_TEXTS - len(texts))]
    texts += [text for column in task.kind.texts(task, some) for text in column]
    return CompressRows(recipe, settings, task, int(known_rows.sum()), unlabelled, texts, folder)


def _texts_of(recipe: Recipe, task: Task, sources: Sequence[str]) -> TextRows:
    if list(sources) == [recipe.data]:
        return read_text_rows(recipe.data, text_columns=recipe.text_columns or ())
    return joined(read_unlabelled(sources, task, text_columns=recipe.text_columns))


def _halved(count: int, groups: Sequence[Any] | None, where: str) -> dict[str, np.ndarray]:
    """Indices of the rows that choose and of the rows that score, rows of one group together."""
    parts = dict(zip((CHOOSING, SCORING), halved(count, groups), strict=True))
    if min(map(len, parts.values())) < 2:
        raise LimbeckError(
            f"dev: {where} has {count} rows, too few for a half that chooses and one that scores",
            "name more: --dev FILE",
        )
    return parts


def _halves_of_file(recipe: Recipe, folder: Path) -> dict[str, str]:
    """The two halves of a dev file, in its own form."""
    path = files.at_home(str(recipe.dev))
    form = form_of(path)
    if form not in ("csv", "tsv", "jsonl", "parquet") or path.is_dir():
        raise LimbeckError(
            f"dev: {recipe.dev} cannot be halved", "write it as .csv, .tsv, .jsonl or .parquet"
        )
    with closing(open_rows(path)) as source:
        rows = source.take(10**9).dicts(None)
    names, groups = [*rows[0]] if rows else [], None
    if recipe.kind == PAIR_SCORE.name:  # passages of a query stay together
        query = (recipe.text_columns or ["query"])[0]
        groups = [str(row.get(query)) for row in rows]
    found = {}
    for split, places in _halved(len(rows), groups, str(recipe.dev)).items():
        target, some = folder / f"{split}.{form}", [rows[place] for place in places.tolist()]
        if form == "parquet":  # with the file's facts about its columns
            with files.written_whole(target) as stream:
                parquet.write_table(parquet.read_table(path).take(places), stream)
        elif form == "jsonl":
            files.write_whole(target, json_lines(some))
        elif form == "csv":
            written = CsvForm(names, {})
            files.write_whole(target, written.head() + written.lines(some))
        else:
            lines = [names, *([str(row[name]) for name in names] for row in some)]
            files.write_whole(target, "".join("\t".join(line) + "\n" for line in lines))
        found[split] = str(target)
    return found


def _files_of(task: Task, splits: Mapping[str, Dataset], folder: Path) -> dict[str, Any]:
    """Train and dev rows in one file or in a known layout, as separate files."""
    dev = splits[task.dev_splits[0]]
    if not (task.one_class or task.regression) or task.kind.name == PAIR_SCORE.name:
        raise LimbeckError(
            f"dev: rows of kind {task.kind.name} are halved as a file of their own",
            "name it: --dev FILE",
        )
    found: dict[str, Any] = {
        "text_columns": [*task.text_columns],
        "label_column": task.label_column,
    }
    if task.name not in TASKS and task.labels:
        found["classes"] = [*task.labels]
    halves = _halved(len(dev), None, "the dev split")
    parts = {"train": splits["train"], **{name: dev.select(one) for name, one in halves.items()}}
    for name, rows in parts.items():
        values = rows.with_format("numpy")[task.label_column][:]
        there = labelled_rows(values).tolist()
        given = [
            _written(task, one) if known else None for one, known in zip(values, there, strict=True)
        ]
        columns = {text: rows[text][:] for text in task.text_columns}
        with files.written_whole(folder / f"{name}.parquet") as stream:
            Dataset.from_dict(columns | {task.label_column: given}).to_parquet(stream)
        found["data" if name == "train" else name] = str(folder / f"{name}.parquet")
    return found


def _written(task: Task, value: Any) -> str | float:
    return float(value) if task.regression else task.labels[int(value)]


def with_outputs(rows: CompressRows, teacher: str, folder: Path, *, show: bool) -> CompressRows:
    """The rows with stored outputs of the teacher, which are made if there are no stored outputs yet.

    For task types whose outputs cannot be stored, every run runs the teacher, and caches its outputs.
    """
    kind, settings = rows.task.kind, rows.settings
    if settings.get("outputs") or not (kind.labels_texts and kind.reads.in_columns):
        return rows
    label(
        teacher,
        settings["data"],
        unlabelled=settings.get("unlabelled") or (),
        out=str(folder),
        task=rows.recipe.task if rows.recipe.task in TASKS else None,
        text_columns=tuple(settings.get("text_columns") or ()),
        max_length=rows.recipe.max_length,
        show=show,
    )
    return replace(rows, settings={**settings, "outputs": [str(folder)]})
