"""`label(teacher, data, out=…)`: a teacher's outputs about any rows, in a store. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.data.label_column import some_of
from limbeck.data.text_rows import TextRows, joined, read_target_rows, read_text_rows
from limbeck.labelling import logged, plain_table
from limbeck.labelling.fill import LabelWork, fill
from limbeck.labelling.language_models import answers, causal
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import (
    BoundPrompt,
    Prompt,
    bind_prompt,
    columns_of,
    read_prompt,
)
from limbeck.labelling.model_labeller import ModelLabeller, TargetLabeller
from limbeck.labelling.settings import LabelSettings
from limbeck.outputs import cache, columns, shards
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.scored_shard import ShardContent
from limbeck.outputs.store import OutputStore, open_store
from limbeck.preflight import refuse_beyond
from limbeck.recipe import Recipe
from limbeck.records.runs_meant import members_at
from limbeck.run.objects import read_rows, unlabelled_places
from limbeck.students import load_model, placement, read_config, read_processor
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support import machine, terminal, words
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems, unknown
from limbeck.support.given import at_hand
from limbeck.tasks import TASKS, TEXT, TEXT_READING, kind_of_config
from limbeck.teachers.labeller import Labeller, TeamLabeller

if TYPE_CHECKING:
    from limbeck.labelling.language_models.endpoint import EndpointLabeller


def label(
    teacher: str | Path | Labeller | Sequence[str | Path | Labeller] = (),
    data: Any = None,
    *,
    unlabelled: Any = (),
    prompt: str | Path | Prompt | None = None,
    endpoint: EndpointSettings | None = None,
    show: bool = False,
    **settings: Any,
) -> OutputStore:
    """Store a teacher's outputs for rows of text; called again after a kill it resumes.

    Args:
        teacher: a model's folder or Hub name, a run folder, several of them, or objects that follow
            `limbeck.teachers.labeller.Labeller`.
        data: rows, of all splits: `hub`, `pocket`, a folder in GLUE's layout, a file or a folder of files of your own,
            a `Dataset`, a `DatasetDict`, rows by split; labels are not looked at, but by a text-to-text teacher, whose
            decoder reads them.
        unlabelled: more rows: a file, a `Dataset`, or several of them.
        prompt: a language model's prompt, or its YAML file; without it a causal model and an endpoint get
            the default prompt.
        endpoint: an OpenAI-compatible server and its settings, instead of a teacher.
        show: print the pre-flight and a progress bar.
        settings: of `limbeck.labelling.settings.LabelSettings`: out, to, task, text_columns, outputs, ….

    Example:
        ```python
        store = limbeck.label("runs/teacher", "questions.csv", unlabelled="more.csv", out="stores/teacher")
        limbeck.distill("logit-mse", outputs=store, data="questions.csv", **{"student.init": "path/to/encoder"})
        ```

    Raises:
        LimbeckError: whatever is wrong with teacher, rows or settings, or another store in `out`.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    asked, console = LabelSettings.checked(given), terminal.messages(shown=show)
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        if data is not None and not isinstance(data, str | Path):
            held = read_rows(data, training=False)
            writers[held.reference], data = held.write, held.reference
        more = unlabelled_places(unlabelled, asked.task, writers)
        stack.enter_context(at_hand(writers))
        source = LabellerSource(named(teacher), asked)
        sources = [*([] if data is None else [data]), *more]
        raise_problems(_problems(asked, source, sources, prompt, endpoint))
        _refuse_images(source)
        if asked.answers:
            source = logged_source(asked, prompt)
            (found,) = source.teachers
            assert isinstance(found, logged.LoggedAnswers)
            rows = found.rows()
            console.print(found.report())
        elif prompt is None and endpoint is None and writes_targets(source):
            written_task, rows = target_rows(source, data, others=bool(more or asked.to))
            source = replace(source, written_task=written_task)
        else:
            named_rows: dict[str, Any] = {"task": asked.task, "text_columns": asked.text_columns}
            rows = joined([read_text_rows(one, **named_rows) for one in sources])
        warn_of_emulated_bf16(asked.precision)
        if not asked.answers and (
            prompt is not None
            or endpoint is not None
            or any(map(causal.is_causal_model, source.paths))
        ):
            # A prompt calls the columns as the user does.
            rows = replace(rows, columns=dict(zip(rows.names, rows.columns.values(), strict=True)))
            if prompt is None and endpoint is None:
                prompt = _prompt_of(source.paths)
            source = replace(source, prompt=prompt_for(prompt, rows.names, asked.task))
            if endpoint is not None:
                assert source.prompt is not None
                served = stack.enter_context(endpoint_labeller(endpoint, source.prompt))
                source = replace(source, teachers=(served,))
        elif asked.label_column is not None and not (asked.answers or source.written_task):
            raise LimbeckError(
                "label_column: only a text-to-text teacher reads labels", "leave it out"
            )
        labeller = source.load()
        content = _content(labeller, source, rows.names if asked.with_text else ())
        files = StoreFiles(asked.out or f"{asked.to}.store")
        work = LabelWork(files, rows, labeller, content, asked.task or source.written_task)
        if asked.to is not None:
            plain_table.check_labels(asked.to, work)
        made = fill(work, asked.shard_rows, console)
        if made.truncated_rows:
            console.print(
                f"{made.truncated_rows:,} of {made.stored_rows:,} rows were truncated at the end of their longest "
                f"text: {'the' if source.prompt is None else 'with the rest of the prompt the'} text exceeded the "
                "model's maximum length (--max-length)"
            )
    store = open_store(files.url)
    if asked.to is not None:
        tied, counts = plain_table.write_plain_labels(Path(asked.to), store, rows)
        none = f", {tied:,} without a label: several classes are equally likely" if tied else ""
        console.print(f"{asked.to}: {len(rows):,} rows{none}")
        if counts:
            said = [f"{name} {count:,}" for name, count in counts.most_common() if count]
            console.print(f"labels: {some_of(said)}")
        if unused := [name for name, count in counts.items() if not count]:
            console.print(
                f"no row has the label {some_of(unused)}: add rows or examples of it, or leave the class out"
            )
    return store


@problem_list
def _problems(
    asked: LabelSettings,
    source: LabellerSource,
    rows: Sequence[str | Path],
    prompt: object,
    endpoint: EndpointSettings | None,
) -> Iterator[Problem]:
    """Missing or unused settings, before any row is read."""
    if asked.out is None and asked.to is None:
        yield Problem("no store is named", "--out FOLDER_OR_URL")
    if asked.answers:
        others = {"teacher": source.teachers, "data, unlabelled": rows, "endpoint": endpoint}
        yield from (
            Problem(f"answers: {name} is not read with them", "leave it out")
            for name, given in others.items()
            if given
        )
        if len(asked.text_columns) != (asked.label_column is not None):
            said = "answers: a table's columns are one of requests and one of answers"
            yield Problem(said, "--text-columns REQUEST --label-column ANSWER, or neither")
    elif not rows:
        yield Problem("no rows are named", "--data, or --unlabelled FILE")
    if asked.to is not None:
        yield from plain_table.check_place(asked.to, plain_table.FORMATS)
    models = any(isinstance(one, str) for one in source.teachers)
    if endpoint is None and prompt is not None and not models and not asked.answers:
        yield Problem(
            "prompt: the teacher is no language model that is read from a folder",
            "leave it out, or name a folder or an endpoint",
        )
    if endpoint is not None:
        yield from endpoint.problems()
        unread = sorted({"max_length", "precision"} & asked.model_fields_set)
        unread += ["teacher"] if source.teachers else []
        yield from (
            Problem(f"{name}: an endpoint does not read it", "leave it out") for name in unread
        )
    elif not source.teachers and not asked.answers:
        yield Problem("no teacher is named", "--teacher MODEL, or --endpoint URL")


def _refuse_images(source: LabellerSource) -> None:
    """Raise LimbeckError for a named teacher that reads no text."""
    for path in source.paths:
        if not (reads := kind_of_config(read_config(path)).reads).in_columns:
            raise LimbeckError(
                f"teacher {path} reads {reads.name}, and label stores outputs for text",
                "name it as the --teacher of `limbeck distill`, which reads it in training",
            )


def _content(labeller: Labeller, source: LabellerSource, texts: Sequence[str]) -> ShardContent:
    """The outputs in a shard: the named ones, or all of a labeller's.

    Args:
        labeller: the teacher.
        source: where it comes from.
        texts: names of the text columns stored with them.

    Raises:
        LimbeckError: outputs that it does not give, or that have the name of another column.
    """
    asked, known = source.settings, labeller.outputs
    # Models return only the requested outputs, under names of their own.
    of_models = source.prompt is None and all(isinstance(one, str) for one in source.teachers)
    words = () if of_models else asked.outputs
    raise_problems([unknown("output", name, known) for name in words if name not in known])
    chosen = tuple(dict.fromkeys(words)) or known
    if taken := shards.RESERVED & {*chosen}:
        raise LimbeckError(
            f"the output {', '.join(taken)} has the name of a column of every store",
            "rename the labeller's output",
        )
    if clashing := {*texts} & {*chosen, *shards.RESERVED}:
        raise LimbeckError(
            f"the text column {', '.join(sorted(clashing))} has the name of another column of the store",
            "rename it in your file, or leave --with-text out",
        )
    # Models that are named were given it when they were loaded.
    named = source.teachers and all(isinstance(one, str) for one in source.teachers)
    batch = labeller.batch_size if named else asked.batch_size or labeller.batch_size
    return ShardContent(chosen, batch, tuple(texts), asked.missing_rows == "drop")


# From `--teacher`, `--prompt` and `--endpoint` to a labeller, and to its input.


_MAX_LENGTH = Recipe.model_fields["max_length"].default


@dataclass(frozen=True)
class LabellerSource:
    """Where a labeller comes from.

    Attributes:
        teachers: paths and names, or labellers themselves; several are a team.
        settings: of `label`.
        prompt: the prompt of language models; without it a model that is not causal is run as it was trained.
        written_task: the name with which the prompts of a text-to-text model begin, where rows have targets.
    """

    teachers: tuple[str | Labeller, ...]
    settings: LabelSettings
    prompt: BoundPrompt | None = None
    written_task: str | None = None

    @property
    def paths(self) -> list[str]:
        """The models that are named."""
        names = [one for one in self.teachers if isinstance(one, str)]
        return [path for name in names for path in members_at(name)]

    def load(self) -> Labeller:
        """The labeller, on the device of this process.

        Raises:
            LimbeckError: a model that cannot be read or used, or teachers that do not agree.
        """
        found: list[Labeller] = []
        paths: list[str] = []
        for given in self.teachers:
            if not isinstance(given, str):
                found.append(given)
                paths.append(given.name)
                continue
            for path, record in members_at(given).items():
                own = None if record is None else Recipe.recorded(record.recipe, path)
                found.append(self._model(path, own))
                paths.append(path)
        return found[0] if len(found) == 1 else TeamLabeller(found, words.short_names(paths))

    def _model(self, path: str, recipe: Recipe | None) -> Labeller:
        asked = self.settings
        shared: dict[str, Any] = {"max_length": asked.max_length, "precision": asked.precision}
        if asked.batch_size is not None:
            shared["batch_size"] = asked.batch_size
        if self.prompt is not None:
            return causal.load_causal_labeller(
                path, self.prompt, device_map=asked.device_map, **shared
            )
        loading = placement(asked.device_map)
        shared["name"] = words.short_name(path)
        shared["max_length"] = asked.max_length or (
            _MAX_LENGTH if recipe is None else recipe.max_length
        )
        processor = read_processor(path, TEXT_READING)
        if self.written_task is not None:
            model = load_model(path, head="required", auto=TEXT.auto, loading=loading)
            refuse_beyond(model, asked.max_length)
            written = TargetLabeller(
                model, processor, task=self.written_task, outputs=asked.outputs, **shared
            )
            return written.to(machine.device())
        known = TASKS.get(asked.task) if asked.task is not None else None
        answers = not asked.outputs or bool(
            {columns.LOGITS, columns.PROBABILITIES} & {*asked.outputs}
        )
        model = load_model(path, head="required" if answers else "optional", loading=loading)
        refuse_beyond(model, asked.max_length)
        classes = () if known is None else known.kind.class_names(known.labels)
        made = ModelLabeller(model, processor, outputs=asked.outputs, classes=classes, **shared)
        return made.to(machine.device())


def named(
    teacher: str | Path | Labeller | Sequence[str | Path | Labeller],
) -> tuple[str | Labeller, ...]:
    """One teacher or several as a tuple of names and labellers.

    Raises:
        LimbeckError: an object that is neither.
    """
    many: Any = teacher if isinstance(teacher, list | tuple) else [teacher]
    for one in many:
        if not isinstance(one, str | Path | Labeller):
            raise LimbeckError(
                f"teacher: a {type(one).__name__} is no labeller",
                "name a model's folder, or pass an object with the methods of limbeck.teachers.labeller.Labeller",
            )
    return tuple(str(one) if isinstance(one, Path) else one for one in many)


# Teachers that are given a prompt.


def endpoint_labeller(settings: EndpointSettings, prompt: BoundPrompt) -> EndpointLabeller:
    """The labeller of an endpoint, whose answers are kept in the cache.

    Raises:
        LimbeckError: the package of its client is not installed, or as `EndpointLabeller`.
    """
    try:
        from limbeck.labelling.language_models.endpoint import EndpointLabeller
    except ModuleNotFoundError as error:
        raise LimbeckError(
            f"labels from an endpoint need the package {error.name}, which is not installed",
            "pip install 'limbeck[endpoint]'",
        ) from error
    return EndpointLabeller(
        settings, prompt, journals=cache.default_store().folder / answers.JOURNALS
    )


def _prompt_of(paths: Sequence[str]) -> Prompt | None:
    """How the folder of a reranker defines its prompt; with several teachers there is no such prompt."""
    return causal.reranker_prompt(paths[0]) if len(paths) == 1 else None


def logged_source(asked: LabelSettings, prompt: str | Path | Prompt | None) -> LabellerSource:
    """The answers of a log as a labeller of its rows.

    Raises:
        LimbeckError: as `prompt_for` and `read_logged`.
    """
    made = read_prompt(prompt) if isinstance(prompt, str | Path) else prompt or Prompt()
    if made.text is None and columns_of(made) == ("text",):
        made = made.model_copy(update={"text": "{text}"})  # a log has no column to write before it
    bound = prompt_for(made, columns_of(made), asked.task)
    columns = [*asked.text_columns, *([asked.label_column] if asked.label_column else [])]
    return LabellerSource((logged.read_logged(asked.answers, bound, columns),), asked, bound)


# The words of Qwen3-Reranker's model card.
_RERANKER = """; for Qwen3-Reranker write
      system: Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note \
that the answer can only be "yes" or "no".
      template: |-
        <Instruct>: Given a web search query, retrieve relevant passages that answer the query
        <Query>: {{{}}}
        <Document>: {{{}}}
      score: ["no", "yes"]"""


def prompt_for(
    prompt: str | Path | Prompt | None, columns: Sequence[str], task: str | None
) -> BoundPrompt:
    """The prompt for some rows.

    Args:
        prompt: its file, or itself; None for the default one.
        columns: the user's names of their columns.
        task: a known task, which defines the classes; otherwise they are those with a verbalization, in their order.

    Raises:
        LimbeckError: no classes are known, or the problem with the prompt.
    """
    made = read_prompt(prompt) if isinstance(prompt, str | Path) else prompt or Prompt()
    known = TASKS.get(task) if task is not None else None
    classes = tuple(made.verbalizations or ()) if known is None else known.labels
    if not classes and made.score is None:
        raise LimbeckError(
            "the classes are not known, and a language model labels with classes",
            "name a --task with classes, or write verbalizations into the prompt: a line CLASS: WORDS for each class; "
            f"or score: [no, yes] for a number{_RERANKER.format(*columns) if len(columns) == 2 else ''}",
        )
    return bind_prompt(made, classes, columns)


# Whether a text-to-text teacher labels, so that rows need the text that its decoder writes.


def writes_targets(source: LabellerSource) -> bool:
    """Whether one of them answers in words; its layers alone need no targets."""
    words = source.settings.outputs
    if words and not any(word.split(":")[0] == columns.LOGITS for word in words):
        return False
    return any(hasattr(one, "kept_tokens") for one in source.teachers) or any(
        kind_of_config(read_config(path)) is TEXT for path in source.paths
    )


def target_rows(
    source: LabellerSource, data: str | Path | None, *, others: bool
) -> tuple[str, TextRows]:
    """The task's name in the prompts, by default the one of the teacher's own run, and rows with targets.

    Args:
        source: the teacher.
        data: labeled rows.
        others: whether unlabeled rows, or a table of labels, are requested too.

    Raises:
        LimbeckError: several teachers, rows without targets, a table of labels, a task without a name, or as
            `read_target_rows`.
    """
    asked, problems = source.settings, []
    if max(len(source.teachers), len(source.paths)) > 1:
        problems.append(
            Problem(
                "teacher: several, and of parts of a vocabulary there is no mean",
                "label with one text-to-text teacher",
            )
        )
    if others or data is None:
        problems.append(
            Problem(
                "unlabelled, to: a text-to-text teacher is run on each token of a row's target, so there are no "
                "unlabeled rows and no labels to write",
                "give labeled rows with --data alone; `limbeck predict` writes the model's own answers",
            )
        )
    if problems or data is None:
        raise LimbeckError(problems)
    task, (teacher,) = asked.task, source.teachers
    for path, record in members_at(teacher).items() if isinstance(teacher, str) else ():
        own = None if record is None else Recipe.recorded(record.recipe, path)
        task = task or (None if own is None else own.task)
    found, rows = read_target_rows(
        data, task=task, text_columns=asked.text_columns, label_column=asked.label_column
    )
    return found.name, rows
