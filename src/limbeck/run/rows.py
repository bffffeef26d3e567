"""The rows of a stage: the task's rows under the recipe's conditions, or a supplement's.

Part of `limbeck.run`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import PretrainedConfig

from limbeck import data, tasks
from limbeck.data import row_facts, table
from limbeck.data.encoding import LazyRows
from limbeck.data.own import FirstRows
from limbeck.data.splits import divided
from limbeck.data.text_rows import UnlabelledRows, read_unlabelled, with_unlabelled
from limbeck.embedding import folder, modules_of
from limbeck.objectives import TermSpec
from limbeck.recipe import ImageSpec, Recipe, Stage
from limbeck.recipe.checks import label_terms
from limbeck.recipe.groups import EmbeddingModelSpec
from limbeck.run.models import labelling_of
from limbeck.students import named_model, read_config
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.positions import positions_by_config
from limbeck.tasks.sentence_embedding import Embedding


@dataclass(frozen=True)
class EncodedRows:
    """Rows as they were loaded, and as the student's tokenizer (or image processor) encodes them.

    Attributes:
        task: the task of the rows.
        raw: as they were loaded.
        encoded: the same, or the rows that are trained on; for many rows each batch is encoded when it is needed.
        truncated: the number of rows cut by the length limit; None if not all of them have been encoded.
        max_length: the limit.
    """

    task: tasks.Task
    raw: Dataset
    encoded: Dataset | LazyRows
    truncated: int | None
    max_length: int

    @classmethod
    def of(
        cls,
        raw: Dataset,
        task: tasks.Task,
        tokenizer: tasks.Processor,
        max_length: int,
        *,
        progress: bool = False,
        in_turn: bool = False,
    ) -> "EncodedRows":
        """Encode loaded rows; with `in_turn` each batch when it is requested. Raises LimbeckError as `encode`."""
        if in_turn:
            return cls(task, raw, LazyRows(raw, task, tokenizer, max_length), None, max_length)
        encoded, truncated = data.encode(raw, task, tokenizer, max_length, progress=progress)
        return cls(task, raw, encoded, truncated, max_length)

    @property
    def kind(self) -> tasks.TaskType:
        """The task type of the rows."""
        return self.task.kind

    def collator(self, tokenizer: tasks.Processor, pad_to: int | None = None) -> data.Collator:
        """Makes batches of these rows, of a fixed width if one is given."""
        return data.Collator(tokenizer, pad_to=pad_to, kind=self.kind)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the rows' content."""
        return data.rows_fingerprint(self.task, self.raw)

    @property
    def mean_tokens(self) -> float | None:
        """Mean length of an example; None of images."""
        return row_facts.facts_of(self.encoded).mean_tokens


def load_rows(recipe: Recipe, *, labels_read: bool = True) -> tuple[tasks.Task, DatasetDict]:
    """The task and its splits, the training split under the recipe's conditions.

    Args:
        labels_read: False if nothing reads the training rows' labels.

    Raises:
        LimbeckError: data that cannot be loaded, or conditions that do not fit them.
    """
    task, rows = data.load_task(
        recipe.task,
        recipe.data,
        text_columns=recipe.text_columns,
        label_column=recipe.label_column,
        kind=recipe.kind,
        labelling=labelling_of(recipe),
        division=recipe.division,
    )
    absent = [split for split in ("train", task.dev_splits[0]) if split not in rows]
    if absent:
        raise LimbeckError(
            f"task {task.name!r}: the data have no {' and no '.join(absent)} split (there: {', '.join(rows)})",
            "training needs both",
        )
    rows["train"] = recipe.conditions.apply(rows["train"], task, labels_read=labels_read)
    return _with_settings(task, recipe), rows


def _with_settings(task: tasks.Task, recipe: Recipe) -> tasks.Task:
    """A task with the recipe's settings of images, embeddings, or the thresholds of several labels per row."""
    kind = task.kind
    if not kind.reads.in_columns:
        given = recipe.images or ImageSpec.model_validate({})
        flip = task.image_traits.flip if given.flip is None else given.flip
        task = replace(task, kind=kind.viewed(given.crop, flip))
    elif recipe.images is not None:
        raise LimbeckError(f"images: the task {task.name!r} has no images", "leave images out")
    elif isinstance(kind, Embedding):
        task = replace(task, kind=embedding_kind(kind, recipe))
    elif recipe.embedding is not None:
        raise LimbeckError(
            f"embedding: the task {task.name!r} is of kind {kind.name}",
            "leave embedding out, or set kind=embedding",
        )
    tuned: tasks.Task | None = task.kind.tuned(task, recipe.thresholds)
    unread = [key for key in ("thresholds", "label_separator") if getattr(recipe, key) is not None]
    if tuned is None and unread:
        raise LimbeckError(
            f"{' and '.join(unread)}: for rows of several labels, and {task.name} is of kind {kind.name}",
            "leave out, or set kind=multi-label",
        )
    return tuned or task


def stage_rows(
    stage: Stage, tokenizer: tasks.Processor, reads: tasks.Reading, *, progress: bool = False
) -> tuple[tasks.Task, Dataset]:
    """The training rows of a stage that has its own, and whose they are.

    A supplement's come without labels, unless a decoder writes them. A sample of the run's own rows is one of those
    that have a label: the others are compared with dev and test rows for the stages that train on all.

    Raises:
        LimbeckError: as `load_rows` and `load_corpus`; rows of another form of input than the
            models read.
    """
    recipe = stage.recipe
    if stage.corpus is not None:
        _need(data.CORPUS, reads)
        return data.CORPUS, data.load_corpus(
            stage.corpus, tokenizer, recipe.max_length, progress=progress
        )
    task, rows = load_rows(recipe, labels_read=not stage.supplementary)
    _need(task, reads)
    train = rows["train"]
    if stage.supplementary and not task.kind.keeps_labels(task):
        return task, train.remove_columns(task.label_column)
    task.kind.need_labels(task, train, stage.setting.replace(".", ": "))
    return task, train if stage.supplementary else divided(train, task)[0]


def _need(task: tasks.Task, reads: tasks.Reading) -> None:
    if task.kind.reads is not reads:
        raise LimbeckError(
            f"first_stage: the rows of {task.name} are {task.kind.reads.name}, and the models read {reads.name}",
            "give the first stage a task that the models can read, or leave it out",
        )


# Training rows without labels of a run: the files that its recipe names, and which terms may learn
# from them.


logger = logging.getLogger(__name__)


def add_unlabelled(
    recipe: Recipe, task: tasks.Task, splits: DatasetDict
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with all rows to train on, and the treatment of rows without a label.

    If every term of the loss reads labels, unlabeled rows of the task's own data are left out.

    Raises:
        LimbeckError: files that cannot be read, rows that are scored on too, terms that have nothing to learn from, a
            task type that needs labels.
    """
    refused = tasks.abstract_type.no_unlabelled(task.kind)
    if refused is not None:
        if recipe.unlabelled:
            raise LimbeckError(
                f"unlabelled: task {task.name!r} is of kind {task.kind.name}: {refused.why}",
                f"{refused.instead}; or leave them out",
            )
        task.kind.need_labels(task, splits["train"])
        return splits, UnlabelledRows()
    labelled = tasks.abstract_type.labelled_rows(
        splits["train"].with_format("numpy")[task.label_column][:]
    )
    _check_share(recipe, labelled, more=bool(recipe.unlabelled))
    if labelled.all() and not recipe.unlabelled:
        if recipe.unlabelled_weight != 1:
            raise LimbeckError(
                f"unlabelled_weight: {recipe.unlabelled_weight:g}, and all training rows have a label",
                "leave it out, or add rows: --unlabelled FILE",
            )
        return splits, UnlabelledRows()
    terms = list(_terms(recipe, numbers=task.regression))
    raise_problems(_problems(recipe, task, terms, some=bool(labelled.any())))
    if all(reads for _, _, reads in terms):
        logger.warning(
            "%d of %d training rows have no label and are left out: every term of method %s reads labels",
            int((~labelled).sum()), len(labelled), recipe.method,
        )  # fmt: skip
        splits = DatasetDict(splits)
        splits["train"] = splits["train"].select(np.flatnonzero(labelled))
        return splits, UnlabelledRows()
    files = read_unlabelled(recipe.unlabelled, task, text_columns=recipe.text_columns)
    return with_unlabelled(task, splits, files, recipe.unlabelled_duplicates)


def check_left(recipe: Recipe, task: tasks.Task, labelled: np.ndarray) -> None:
    """Raise LimbeckError where `missing_outputs: drop` has left no row of a sort that terms or batches need.

    Args:
        labelled: of the training rows that are left, boolean (n,), which have a label.
    """
    _check_share(recipe, labelled, more=False)
    terms = list(_terms(recipe, numbers=task.regression))
    if not labelled.any() and (problems := _problems(recipe, task, terms, some=False)):
        raise LimbeckError(problems)


def _check_share(recipe: Recipe, labelled: np.ndarray, *, more: bool) -> None:
    """Raise LimbeckError for a share of batches that cannot be had; `more` rows without a label are to come."""
    if recipe.labelled_share is None:
        return
    for stage in recipe.stages():
        if stage.same_rows:
            data.samplers.labelled_in_batch(recipe.labelled_share, stage.recipe.batch_size)
    if not labelled.any() or (labelled.all() and not more):
        raise LimbeckError(
            f"labelled_share: {recipe.labelled_share:g}, and {'all' if labelled.any() else 'no'} training rows have a "
            "label",
            "leave it out, or add rows"
            + (": --unlabelled FILE" if labelled.any() else " with labels"),
        )


def _terms(recipe: Recipe, *, numbers: bool) -> Iterator[tuple[str, TermSpec, bool]]:
    """Every term that sees the run's own rows: its key, its settings, and whether it reads labels."""
    for stage in recipe.stages():
        if not stage.same_rows:
            continue
        reading = set(label_terms(stage.recipe.objectives, numbers=numbers))
        for name, term in stage.recipe.objectives.items():
            yield f"{stage.setting}objectives.{name}", term, name in reading


@problem_list
def _problems(
    recipe: Recipe, task: tasks.Task, terms: list[tuple[str, TermSpec, bool]], *, some: bool
) -> Iterator[Problem]:
    """Why these terms cannot be trained on rows without a label; `some` rows have one."""
    reading, advised = [(key, term) for key, term, reads in terms if reads], task.kind.distilled_by
    if len(reading) == len(terms) and recipe.unlabelled:
        yield Problem(
            f"unlabelled: every term of method {recipe.method} reads labels, so rows without teach nothing",
            f"leave it out, or take a method with soft labels or layers: limbeck distill --method {advised}",
        )
        return
    if (
        not some
        and recipe.unlabelled_weight == 0
        and all(term.weighs_examples for _, term, _ in terms)
    ):
        yield Problem(
            "unlabelled_weight: 0, and no training row has a label, so that none would count",
            "raise it, or leave it out",
        )
        return
    if not some:
        yield from (
            Problem(
                f"{key}: it learns from labels, and no training row has one",
                f"take a method without it (--method kd-soft), or take it out: {key}=null",
            )
            for key, term in reading
            if term.weight != 0
        )
        return
    yield from (
        Problem(
            f"{key}: {term.compare} reads the label of every example, and some have no label",
            "take it out, leave unlabeled rows out, or let its class count only labeled examples "
            "(counts_labelled = True)",
        )
        for key, term in reading
        if not term.counts_labelled
    )


# Find columns of a user's own data that the recipe does not name.

# Rows of texts and a class, several or a number.
_ONE_TABLE = (None, tasks.SENTENCE.name, tasks.ORDINAL.name, tasks.MULTI_LABEL.name)
# Their columns have names of their own.
_OWN_NAMES = (tasks.TOKENS.name, tasks.SPANS.name)


def with_columns(recipe: Recipe) -> Recipe:
    """Name the columns of a user's own texts, and of their classes or numbers, if the recipe does not.

    The recipe then contains the columns that were read, as does every command that repeats it. Unclear cases stay open:
    the reader of the rows reports them.
    """
    by_teacher = recipe.label_column == tasks.metrics.TEACHER_LABEL
    if recipe.task in tasks.TASKS or recipe.text_columns:
        return recipe
    if recipe.kind not in _ONE_TABLE and (not by_teacher or recipe.kind in _OWN_NAMES):
        return recipe
    first = FirstRows.of(recipe.data)
    if first is None:
        return recipe
    label = recipe.label_column or table.usual_label([*first.columns], first.class_columns)
    # Several labels may also be a column for each class.
    several = recipe.kind == tasks.MULTI_LABEL.name and not recipe.label_column
    if label is None and not several:
        return recipe
    texts = table.usual_texts(first.words, label)
    if by_teacher:
        unread = [name for name in first.like_labels if name not in texts]
        texts = texts or table.usual_texts(
            name for name in first.words if name not in {label, *unread}
        )
        if len(texts) == 1 and unread:
            logger.warning(
                "column %r of %s is not read; if it holds labels: --label-column %s",
                unread[0], recipe.data, unread[0],
            )  # fmt: skip
    return (
        recipe.model_copy(
            update={"text_columns": texts} | ({} if several else {"label_column": label})
        )
        if texts
        else recipe
    )


_PROMPTS = {
    "prompt": folder.SENTENCE,
    "query_prompt": folder.QUERY,
    "passage_prompt": folder.PASSAGE,
}
"""By setting, the type of text that its prompt precedes."""


def embedding_kind(kind: Embedding, recipe: Recipe) -> Embedding:
    """The type with the models' and the recipe's prompts, pooling, width, tokens of a text and similarity.

    Prompts, tokens and similarity are the teacher's, or the student's own where the teacher is no embedding model.

    Raises:
        LimbeckError: a single word as a prompt, which would stick to each text's first one, and no prompt's name; more
            tokens than a model has positions, or than batches have.
    """
    known: dict[str, str] = {}
    init = recipe.student.init
    sources = [] if recipe.lead is None else [recipe.lead]
    made = init in ("pocket", "fresh") or named_model(init) is not None
    if not (recipe.student.from_teacher or made):
        sources.append(init)
    configs = [*map(read_config, sources)]  # the teacher's first
    config = next((one for one in configs if modules_of(one) is not None), None)
    modules = None if config is None else modules_of(config)
    if config is not None and modules is not None:
        kind, known = kind.of_model(config), {k: v for k, v in modules.prompts.items() if v}
    own = recipe.embedding or EmbeddingModelSpec.model_validate({})
    tokens = _max_tokens(recipe, own, modules, configs)
    given = {key: getattr(own, key) for key in _PROMPTS if getattr(own, key) is not None}
    problems = [
        Problem(
            f"embedding.{key}: the model has no prompt {text!r} (it has {', '.join(known) or 'none'})",
            f"name one that it has, or give the prefix itself: '{text}: '",
        )
        for key, text in given.items()
        if text.isidentifier() and text not in known  # meant as a name
    ]
    raise_problems(problems)
    prompts = {_PROMPTS[key]: known.get(text, text) for key, text in given.items()}
    usual = folder.DOT if own.normalize is False else folder.COSINE
    similarity = own.similarity or (usual if modules is None else modules.similarity)
    return kind.embedding_as(own.pooling, own.normalize, own.width, prompts, tokens, similarity)


def _max_tokens(
    recipe: Recipe,
    own: EmbeddingModelSpec,
    modules: folder.EmbeddingModules | None,
    configs: Sequence[PretrainedConfig],
) -> int:
    """Tokens of a text that the student is scored with and shipped to read.

    Raises:
        LimbeckError: more than a model has positions, or than `pad_to` gives a batch.
    """
    positions = min(filter(None, map(positions_by_config, configs)), default=None)
    if own.max_tokens is not None and positions is not None and own.max_tokens > positions:
        raise LimbeckError(
            f"embedding.max_tokens {own.max_tokens} is beyond the {positions} positions of a model",
            f"set it to {positions} or less",
        )
    known = None if modules is None else modules.max_tokens
    if known is not None and positions is not None:
        known = min(known, positions)
    tokens = own.max_tokens or known or recipe.max_length
    width = recipe.padded_width
    if width is not None and width < tokens:
        raise LimbeckError(
            f"pad_to {width}: the student is scored with texts of up to {tokens} tokens, and shipped to read as many",
            f"set embedding.max_tokens={width}, raise pad_to, or leave it out",
        )
    return tokens
