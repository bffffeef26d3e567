"""A file of text without labels, or of translations: the teacher's own predictions are what there is to learn.

Before the run starts, part of the text is held out as dev and test rows. The teacher's predictions of it are written to
files next to the run folder, and the recipe names them as any other dev and test file. Training rows stay where they
are, without labels; task types whose losses look where labels are get the teacher's predictions there too.
For translations the teacher's embedding of the source is stored for source and translation, and some are held out.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features
from transformers import PreTrainedModel

from limbeck import tasks
from limbeck.data import Collator, encode, text_rows
from limbeck.data.files import form_of
from limbeck.data.own import FirstRows
from limbeck.data.splits import SplitRows, hold_out, make_split
from limbeck.data.table import read_table
from limbeck.embedding.embedder import WAYS
from limbeck.evaluation.model_outputs import compact_outputs_of
from limbeck.preflight import refuse_unfit
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run import inputs, models
from limbeck.run.rows import embedding_kind
from limbeck.students import labels_of, load_model, placement
from limbeck.support import given, machine
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.files import TEACHER_LABELS, at_home, checksum_of_text, written_whole
from limbeck.support.positions import positions_of
from limbeck.tasks.retrieval import TRANSLATED
from limbeck.tasks.rules import ScoredSplit
from limbeck.tasks.sentence_embedding import Embedding
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

MOST = 2_000
"""Rows of dev, and of test: enough for a score to half a point, and few enough to score after every epoch."""
_FEWEST = 10
_VERSION = 1
_USUAL = {
    tasks.TOKENS.name: ("tokens",),
    tasks.SPANS.name: ("question", "context"),
    tasks.PAIR_SCORE.name: ("query", "passage"),
}
_NEEDS = {
    tasks.TOKENS.name: "a list of words",
    tasks.SPANS.name: "a question and a context",
    tasks.PAIR_SCORE.name: "a query and a passage",
}
# The settings that decide which rows are held out, and how the teacher reads them.
_KEYS = (
    "teacher", "data", "parallel", "task", "kind", "text_columns", "max_length", "dev_share", "test_share", "embedding",
)  # fmt: skip


def with_teacher_labels(recipe: Recipe, runs: Path, live_teacher: Teacher | None = None) -> Recipe:
    """Name dev and test files with the teacher's predictions, if the recipe requests these labels but names no files.

    The files are written where they are not there yet, by the first process.

    Args:
        recipe: as it was requested.
        runs: the folder that holds the run folder.
        live_teacher: the model that `recipe.teacher` names, where it is loaded already.

    Raises:
        LimbeckError: rows that the teacher cannot read, too few of them, or a place that cannot be written.
    """
    if recipe.parallel:
        return _with_translations(recipe, runs, live_teacher)
    if recipe.label_column != tasks.metrics.TEACHER_LABEL or recipe.dev is not None:
        return recipe
    first = FirstRows.of(recipe.data)
    if first is None or tasks.metrics.TEACHER_LABEL in first.columns:
        return recipe
    raise_problems([*_problems(recipe, first)])
    folder = _written(recipe, runs, live_teacher, _write)
    kind = tasks.get_task_type(recipe.kind or tasks.SENTENCE.name)
    settings: dict[str, Any] = {"dev_share": None, "test_share": None}
    settings["dev"] = str(folder / "dev.parquet")
    if (folder / "test.parquet").is_file():
        settings["test"] = str(folder / "test.parquet")
    if tasks.abstract_type.no_unlabelled(kind) is None:
        settings["unlabelled_duplicates"] = "drop"
    elif kind.taught_labels:
        settings["data"] = str(folder / "train.parquet")
    return recipe.model_copy(update=settings)


def _written(
    recipe: Recipe,
    runs: Path,
    live_teacher: Teacher | None,
    write: Callable[[Recipe, Path, Teacher | None], None],
    last: str = "dev.parquet",
) -> Path:
    """The folder of the teacher's predictions, written by the first process where the last of its files is missing."""
    folder = runs / TEACHER_LABELS / _digest(recipe)
    problems = []
    if machine.is_first() and not (folder / last).is_file():
        try:
            write(recipe, folder, live_teacher)
        except LimbeckError as error:
            problems = error.problems
    raise_problems(machine.agreed(problems))
    return folder


def _problems(recipe: Recipe, first: FirstRows) -> Iterator[Problem]:
    """The problems of the file or the settings."""
    columns = f"columns that are there: {', '.join(first.columns)}"
    if recipe.test is not None:
        yield Problem(
            f"test: {recipe.test}, and there is no dev file: dev rows would have a teacher's labels and these not",
            "name a dev file with labels too: --dev FILE",
        )
    wanted, there = _texts_of_teacher(recipe), recipe.text_columns or ()
    if wanted is not None and there and len(there) != wanted:
        yield Problem(
            f"text_columns: {', '.join(there)}, and the teacher {recipe.teacher} reads {wanted} of a row",
            f"name {wanted}: --text-columns …; {columns}"
            if len(first.columns) >= wanted
            else f"give a file with {wanted} columns of text, or a teacher of {len(there)}",
        )
    usual = _USUAL.get(recipe.kind or "", ())
    names = there or usual
    missing = [name for name in names if name not in first.columns]
    if names and not missing and not (usual and len(names) != len(usual)):
        return
    what = "which column holds the text is not clear"
    if usual:
        what = f"of kind {recipe.kind} rows need {_NEEDS[str(recipe.kind)]}"
    elif missing:
        what = f"it has no column {', '.join(map(repr, missing))}"
    fix = f"--text-columns {' '.join(usual) or 'A [B]'}; {columns}"
    lists = [
        name for name, values in first.columns.items() if values and isinstance(values[0], list)
    ]
    if recipe.kind == tasks.TOKENS.name and not lists:
        fix = 'write {"tokens": ["…", "…"]} for each row, one object per line of a .jsonl file'
    elif len(first.columns) < len(usual):
        fix = f"give a table with the columns {' and '.join(usual)}"
    yield Problem(f"data: {recipe.data}: {what}", fix)


def _texts_of_teacher(recipe: Recipe) -> int | None:
    """The number of texts in a row of the teacher's own training, if its record has it."""
    place = at_home(given.place_of(str(recipe.teacher)))
    run = place.parent if place.name == "student" else place
    if recipe.kind in ("embedding", "pair-score") or not (run / RECORD_NAME).is_file():
        return None
    known = Record.load(run).recipe
    task = tasks.TASKS.get(str(known.get("task")))
    return len(task.text_columns if task is not None else known.get("text_columns") or ()) or None


def _digest(recipe: Recipe) -> str:
    known = recipe.model_dump(mode="json")
    files = sorted(inputs.checksums_of_inputs(recipe).items())
    read = [[name, value] for name, value in files if re.match("(teacher|data|parallel)\\b", name)]
    found: list[Any] = [_VERSION, {key: known[key] for key in _KEYS}, read]
    if recipe.dev is not None:  # nothing is held out
        found.append("dev")
    return checksum_of_text(json.dumps(found, sort_keys=True))[:12]


# ---- the teacher's predictions ----


@dataclass(frozen=True)
class _Asked:
    """A teacher that labels rows.

    Attributes:
        task: whose rows they are, without labels.
        model: the teacher.
        tokenizer: its own.
        max_length: tokens that it reads of a row.
    """

    task: tasks.Task
    model: PreTrainedModel
    tokenizer: tasks.Processor
    max_length: int

    def about(self, rows: Dataset) -> tuple[np.ndarray, Dataset]:
        """What evaluation keeps of its outputs, and the encoded rows."""
        encoded, _ = encode(rows, self.task, self.tokenizer, self.max_length)
        collate = Collator(self.tokenizer, kind=self.task.kind)
        outputs = compact_outputs_of(self.model, encoded, collate)
        if outputs.dtype.kind == "f" and not np.isfinite(outputs).all():
            raise LimbeckError(
                f"teacher: {self.task.title} gives outputs that are not finite numbers",
                "its weights are damaged or have diverged: train it again, or use fp32",
            )
        return outputs, encoded


def _write(recipe: Recipe, folder: Path, live_teacher: Teacher | None) -> None:
    """Hold rows out, label them with the teacher and write them; the dev file comes last and marks completion."""
    texts = _texts(recipe)
    columns = [*texts]
    groups = tasks.pair_score.query_ids(texts[columns[0]]) if recipe.kind == "pair-score" else None
    parts = _held_out(recipe, len(texts[columns[0]]), groups)
    teacher = _teacher(recipe, columns, live_teacher)
    rows = {"test": parts.test, "dev": parts.dev}
    if teacher.task.kind.taught_labels:
        rows = {"train": parts.train, **rows}
    logger.info("%s predicts the labels of %d rows", recipe.teacher, sum(map(len, rows.values())))
    for split, places in rows.items():
        if not len(places):
            continue
        chosen = {name: [values[place] for place in places] for name, values in texts.items()}
        labelled = _labelled(teacher, chosen)
        with written_whole(folder / f"{split}.parquet") as stream:
            labelled.to_parquet(stream)


def _texts(recipe: Recipe) -> Mapping[str, list[Any]]:
    """Every different row of the file, by the columns that hold its texts."""
    kind, named = recipe.kind, recipe.text_columns
    if kind in (tasks.TOKENS.name, tasks.SPANS.name):
        path = at_home(given.place_of(recipe.data))
        table = read_table(next(path.glob("*")) if path.is_dir() else path)
        names = named or _USUAL[kind]
        rows = {
            repr(row): row for row in zip(*(table.columns[name] for name in names), strict=True)
        }
        wanted: type = list if kind == tasks.TOKENS.name else str
        for row in rows.values():
            if not all(isinstance(value, wanted) for value in row):
                raise LimbeckError(
                    f"{recipe.data}: {row[0]!r:.80} is no {'list of words' if wanted is list else 'text'}",
                    f"give every row {_NEEDS[kind]}, one object per line",
                )
        return dict(zip(names, map(list, zip(*rows.values(), strict=True)), strict=True))
    first_only = kind == "embedding" and named is not None and len(named) > 2
    found = text_rows.read_text_rows(
        recipe.data, text_columns=(named or ())[: 1 if first_only else None]
    )
    names = tuple(named or found.columns)[: len(found.columns)]
    return dict(zip(names, found.take(found.first).values(), strict=True))


def _held_out(recipe: Recipe, rows: int, groups: np.ndarray | None) -> SplitRows:
    """Rows of train, dev and test, of the last two at most `MOST`; the rest of these stays in train."""
    if rows < _FEWEST:
        raise LimbeckError(
            f"{recipe.data} holds {rows} different text{'s' * (rows > 1)}, too few to hold some out for dev",
            f"give {_FEWEST} or more; or name labeled dev rows: --dev FILE",
        )
    parts = hold_out(range(rows), False, 0, recipe.division.beside(()), groups)
    if groups is not None:
        return parts
    generator = np.random.default_rng(0)
    dev, test = (
        np.sort(generator.choice(part, MOST, replace=False)) if len(part) > MOST else part
        for part in (parts.dev, parts.test)
    )
    return SplitRows(np.setdiff1d(np.arange(rows), np.concatenate([dev, test])), dev, test)


def _teacher(recipe: Recipe, columns: list[str], live_teacher: Teacher | None) -> _Asked:
    """The teacher, loaded, with a task of its own classes."""
    path, kind = str(recipe.teacher), tasks.get_task_type(recipe.kind or tasks.SENTENCE.name)
    if isinstance(kind, Embedding):
        kind = embedding_kind(kind, recipe)
        columns = ["sentence1", "sentence2"]
    model = (
        live_teacher.model
        if live_teacher is not None
        else load_model(
            path, head="required", auto=kind.auto, loading=placement(recipe.teacher_device_map)
        )
    )
    names = kind.class_names(labels_of(model.config))
    task = tasks.Task(
        str(recipe.task), path, tuple(columns), names, (), "",
        label_column=tasks.metrics.TEACHER_LABEL, kind=kind,
    )  # fmt: skip
    tokenizer = models.processor_of(recipe, task, path)
    refuse_unfit(path, model, tokenizer)
    length = kind.scored_length(recipe.max_length)
    task = kind.decided_by(task, model.config)
    return _Asked(task, model, tokenizer, min(length, positions_of(model) or length))


def _labelled(teacher: _Asked, texts: Mapping[str, list[Any]]) -> Dataset:
    """Rows with the teacher's predictions as a file of the user's own would have labels."""
    kind = teacher.task.kind
    if kind.embeds:
        return _scored_pairs(teacher, next(iter(texts.values())))
    # Outputs of tags are kept where labels are: at every word.
    words = texts[teacher.task.text_columns[0]]
    rows = make_split(
        teacher.task, texts, [[0] * len(row) for row in words] if kind is tasks.TOKENS else None
    )
    outputs, encoded = teacher.about(rows)
    split = ScoredSplit(encoded, rows, teacher.tokenizer)
    labels, feature = kind.file_labels(teacher.task, outputs, split)
    features = Features(
        {name: rows.features[name] for name in texts} | {tasks.metrics.TEACHER_LABEL: feature}
    )
    return Dataset.from_dict({**texts, tasks.metrics.TEACHER_LABEL: labels}, features=features)


def _scored_pairs(teacher: _Asked, texts: list[str]) -> Dataset:
    """Pairs of each text with another one, with their similarity, and the embedding of the first."""
    outputs = _embeddings(teacher, texts)
    order = np.random.default_rng(0).permutation(len(texts))  # neighbors in a file may be alike
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)
    pairs = np.stack([outputs, outputs[others]], axis=1).astype(np.float64)
    similarity = getattr(teacher.task.kind, "similarity", None) or "cosine"
    first, second = teacher.task.text_columns
    return Dataset.from_dict(
        {
            first: texts,
            second: [texts[other] for other in others],
            tasks.metrics.TEACHER_LABEL: WAYS[similarity].of_pairs(pairs).tolist(),
            tasks.metrics.TEACHER_EMBEDDING: outputs.astype(np.float32).tolist(),
        }
    )


def _embeddings(teacher: _Asked, texts: list[str]) -> np.ndarray:
    """The embedding of each text (n, d)."""
    columns = dict(zip(teacher.task.text_columns, (texts, [""] * len(texts)), strict=True))
    return teacher.about(make_split(teacher.task, columns, None))[0]


# ---- translations ----
#
# Reimers and Gurevych (2020), "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
# equation 1: of sentences s and translations t the mean of (M(s) - M'(s))^2 + (M(s) - M'(t))^2, of teacher M and
# student M'. With M(s) stored for both texts that is `embedding-mse`, and any other method of embeddings reads it too.

HELD_OUT = 1_000
"""Translations of dev, and of test; at most a tenth of all."""
# English and its German or French translation in MiniLM's tokens: 0.6, and 1.6 the other way round.
_FOREIGN = 1.3
# A first line of these is names of columns.
_NAME = re.compile(r"[A-Za-z][\w-]{0,31}")


def _with_translations(recipe: Recipe, runs: Path, live_teacher: Teacher | None) -> Recipe:
    """Train on texts with the stored embeddings of their sources; without a dev file translations are held out."""
    folder = _written(recipe, runs, live_teacher, _write_translations, last="train.parquet")
    train = str(folder / "train.parquet")
    splits = () if recipe.dev else ("dev", "test")
    held = {split: str(folder / f"{split}.parquet") for split in splits}
    own: dict[str, Any] = {"data": train, "outputs": [train], "text_columns": None}
    return recipe.model_copy(update=held | own)


def _write_translations(recipe: Recipe, folder: Path, live_teacher: Teacher | None) -> None:
    """Write held-out pairs where there is no dev file, then the training texts with the teacher's embeddings."""
    by_file = {place: [*_translations(place)] for place in recipe.parallel}
    if empty := [place for place, found in by_file.items() if not found]:
        raise LimbeckError(
            f"parallel: {', '.join(empty)}: no row has a text and a translation",
            "give each row a text in its first column and translations in the others, or leave the file out",
        )
    pairs = list(dict.fromkeys(chain.from_iterable(by_file.values())))
    rows = [] if recipe.dev else _held_out_pairs(pairs)
    held = {*chain.from_iterable(rows)}
    if recipe.dev is None and len(rows) < 2 * _FEWEST:
        raise LimbeckError(
            f"parallel: {len(pairs)} different translations in {', '.join(recipe.parallel)}, too few to hold "
            f"{2 * _FEWEST} out whose texts are in no other pair",
            f"give {10 * _FEWEST} or more; or name a file with the columns {' and '.join(TRANSLATED)}: --dev FILE",
        )
    # A held-out text in another pair would be trained on.
    train = [pair for pair in pairs if held.isdisjoint(pair)]
    sources = list(dict.fromkeys(source for source, _ in train))
    teacher = _teacher(recipe, [], live_teacher)
    logger.info(
        "%s reads %d texts, which have %d translations", recipe.teacher, len(sources), len(train)
    )
    some = pairs[:: max(1, len(pairs) // 500)]
    read, other = (
        sum(map(len, teacher.tokenizer([*texts], truncation=True)["input_ids"]))
        for texts in zip(*some, strict=True)
    )
    if read > _FOREIGN * other:
        logger.warning(
            "%s splits the first column into %.1f times as many tokens as the translations. The first column "
            "holds the teacher's language: check the order of the columns of %s",
            recipe.teacher, read / other, ", ".join(recipe.parallel),
        )  # fmt: skip
    by_length = sorted(sources, key=len)  # a batch is padded to its longest text
    found = dict(zip(by_length, _embeddings(teacher, by_length).astype(np.float32), strict=True))
    texts = {source: found[source] for source in sources}
    for source, translation in train:
        texts.setdefault(translation, found[source])
    written: dict[str, Any] = {"train": {"sentence": [*texts], "embedding": [*texts.values()]}}
    if rows:
        half = len(rows) // 2
        splits = {"dev": rows[:half], "test": rows[half:]}
        columns = {
            split: dict(zip(TRANSLATED, zip(*some, strict=True), strict=True))
            for split, some in splits.items()
        }
        written = columns | written
    for name, found_columns in written.items():
        with written_whole(folder / f"{name}.parquet") as stream:
            Dataset.from_dict(found_columns).to_parquet(stream)


def _held_out_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """At most a fifth of all, of which no two share a text."""
    wanted = 2 * min(HELD_OUT, len(pairs) // 10)
    held: set[str] = set()
    found: list[tuple[str, str]] = []
    for place in np.random.default_rng(0).permutation(len(pairs)):
        if len(found) == wanted:
            break
        if held.isdisjoint(pairs[place]):
            held |= {*pairs[place]}
            found.append(pairs[place])
    return found


def _translations(place: str) -> Iterator[tuple[str, str]]:
    """Each source with each of its translations; a first line of texts is a row too."""
    table = read_table(at_home(given.place_of(place)))
    names = [*table.columns]
    if len(names) < 2:
        raise LimbeckError(
            f"parallel: {place} has one column, {names[0]!r:.60}",
            "give two or more: a text, then its translations (.tsv: with tabs between them)",
        )
    if names[0] not in table.words:
        raise LimbeckError(
            f"parallel: {place}: its first column, {names[0]!r:.60}, holds no text",
            "write the columns in this order: a text, then its translations",
        )
    table_form = form_of(Path(place)) in ("csv", "tsv")
    bare = table_form and not all(map(_NAME.fullmatch, names))
    if table_form and not bare:
        logger.info("%s: its first line names the columns: %s", place, ", ".join(names))
    for row in chain([names] if bare else [], zip(*table.columns.values(), strict=True)):
        source, *others = row
        every = chain.from_iterable(one if isinstance(one, list) else [one] for one in others)
        for other in every if isinstance(source, str) and source.strip() else ():
            if isinstance(other, str) and other.strip():
                yield source, other
