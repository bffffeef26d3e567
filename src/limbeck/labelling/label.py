"""`label(teacher, data, out=…)`: a teacher's outputs about any rows, in a store. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from limbeck.data import MAX_ROWS
from limbeck.data.text_rows import TextRows, joined, read_text_rows, stands_for
from limbeck.data.unlabelled import text_files
from limbeck.labelling.by_ray import found_anywhere, imported_ray
from limbeck.labelling.fill import ENGINES, LabelWork, fill
from limbeck.labelling.language_models import BoundPrompt, EndpointSettings, Prompt
from limbeck.labelling.missing_rows import MISSING_ROWS
from limbeck.labelling.plain_table import (
    check_columns,
    check_free,
    check_target,
    check_unread,
    columns_beside,
    write_plain_labels,
)
from limbeck.labelling.plan import LabelPlan, outputs_asked
from limbeck.labelling.prompted import check_speaking, endpoint_labeller, prompt_for, speaks
from limbeck.labelling.target_labeller import target_rows, writes_targets
from limbeck.labelling.teachers_named import PRECISIONS, LabellerSource, named
from limbeck.outputs import OutputStore, StoreFiles, StoreManifest, open_store
from limbeck.run.given_rows import read_rows_to_label
from limbeck.run.objects import unlabelled_places
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.given import Write, at_hand
from limbeck.support.terminal import messages
from limbeck.tasks import get_task_type
from limbeck.teachers.labeller import Labeller

# Which rows `label` reads: files, folders and patterns of them, and rows given as objects.


@dataclass(frozen=True)
class RowSources:
    """Where rows are read.

    Attributes:
        data: a source that `read_text_rows` knows, or the reference of an object; None for no such rows.
        unlabelled: files, folders, patterns and references of more.
        task: a known task, whose columns they are.
        text_columns: the columns that hold text.
        writers: what writes the object behind each reference (`limbeck.support.given.at_hand`).
    """

    data: str | Path | None
    unlabelled: tuple[str, ...]
    task: str | None
    text_columns: tuple[str, ...]
    writers: Mapping[str, Write]

    @classmethod
    def of(cls, data: Any, unlabelled: Any, task: str | None, text_columns: Any) -> RowSources:
        """From the arguments of `label`, in which one name may stand where several can.

        Raises:
            LimbeckError: an object that holds no rows, a column that is named twice.
        """
        columns = tuple(listed(text_columns))
        if len({*columns}) < len(columns):
            raise LimbeckError(
                f"text_columns: {', '.join(columns)} names one column twice", "name two, or one"
            )
        writers: dict[str, Write] = {}
        if data is not None and not isinstance(data, str | Path):
            rows = read_rows_to_label(data)
            writers[rows.reference] = rows.write
            data = rows.reference
        more = unlabelled_places(unlabelled, task, writers)
        return cls(data, tuple(more), task, columns, writers)

    @property
    def all(self) -> list[str | Path]:
        """Every source that is named, in order."""
        return [*([] if self.data is None else [self.data]), *self.unlabelled]

    def read(self, max_rows: int) -> TextRows:
        """The rows of all sources. Raises LimbeckError as `read_text_rows`."""
        # Names of files alone, where `data` may be more than that.
        text_files([source for source in self.unlabelled if not Path(source).is_dir()])
        return joined(
            [
                read_text_rows(
                    source, task=self.task, text_columns=self.text_columns, max_rows=max_rows
                )
                for source in self.all
            ]
        )

    def check_apart(self, path: Path) -> None:
        """Raise LimbeckError for a table that the next start would read as rows: the same command is to go on."""
        for source in self.all:
            if stands_for(source, path, task=self.task, text_columns=self.text_columns):
                raise LimbeckError(
                    f"--to {path} would be one of the files of {source}, so that the same command would read it as "
                    "rows when it is given again",
                    "name a file that lies elsewhere",
                )


def listed(given: Any) -> Sequence[Any]:
    """Several names; one may stand alone."""
    return [given] if isinstance(given, str | Path) else given


def label(
    teacher: str | Path | Labeller | Sequence[str | Path | Labeller] = (),
    data: Any = None,
    *,
    out: str | Path | None = None,
    to: str | Path | None = None,
    task: str | None = None,
    unlabelled: Any = (),
    text_columns: str | Sequence[str] = (),
    label_column: str | None = None,
    prompt: str | Path | Prompt | None = None,
    endpoint: EndpointSettings | None = None,
    outputs: str | Sequence[str] | None = None,
    with_text: bool = False,
    shard_rows: int | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    precision: str = "fp32",
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    missing_rows: Literal["error", "drop"] = "error",
    max_rows: int = MAX_ROWS,
    show: bool = False,
) -> OutputStore:
    """Store what a teacher puts out about rows of text; called again after a kill it goes on.

    Args:
        teacher: a model's folder or Hub name, a run folder, several of them, or objects that follow
            `limbeck.teachers.labeller.Labeller`.
        data: rows, of all splits: `hub`, `pocket`, a folder in GLUE's layout, a file or a folder of files of your own,
            a `Dataset`, a `DatasetDict`, rows by split; labels are not looked at, but by a text-to-text teacher, whose
            decoder reads them.
        out: the store, a folder or any URL that fsspec knows; needed unless `to` is given, beside which it lies then.
        to: also write a plain table (.csv, .jsonl or .parquet) of text, label and confidence, a row for every row
            read; a file of this machine, and none that is read. A row whose likeliest classes are several has no label.
        task: a known task, whose columns and classes they are.
        unlabelled: more rows: a file, a `Dataset`, or several of them.
        text_columns: the columns that hold text, or the one that does.
        label_column: the labels of a file of your own; read for a prompt's `examples_per_class` and by a text-to-text
            teacher alone.
        prompt: what a language model is asked, or the YAML file of that; without it a causal model and an endpoint get
            the default prompt.
        endpoint: an OpenAI-compatible server and how to ask it, instead of a teacher.
        outputs: words of `limbeck.outputs.columns`, such as `logits`, `probabilities`, `hidden:LAYER[:POOL]`; of a
            text-to-text teacher `logits:topK` or `logits:sampleN`; what a labeller of its own gives.
        with_text: store the texts too.
        shard_rows: rows of a shard; by default as many as make 64 MiB, at most 4096.
        batch_size: rows of a pass.
        max_length: tokens of a row; by default those of the run, or 128.
        precision: fp32 or bf16.
        engine: `local`, or `ray` for Ray Data.
        workers: processes of Ray; by default as many as its cluster has room for.
        missing_rows: what becomes of rows that an endpoint, or a labeller of your own, has no outputs for: `error`
            makes no shard with one of them and says so in the end, `drop` makes it without them.
        max_rows: of a file; more are refused.
        show: print the pre-flight and a progress bar.

    Raises:
        LimbeckError: whatever is wrong with teacher, rows or settings, or another store in `out`.
    """
    sources = RowSources.of(data, unlabelled, task, text_columns)
    outputs = None if outputs is None else listed(outputs)
    counts = {
        "shard_rows": shard_rows, "batch_size": batch_size, "max_length": max_length, "max_rows": max_rows,
    }  # fmt: skip
    _check(out, to, engine, precision, workers, missing_rows, sources, counts)
    warn_of_emulated_bf16(precision)
    place = str(out if out is not None else f"{to}.store")
    teachers = named(teacher)
    with at_hand(sources.writers):
        written_task = None
        if prompt is None and endpoint is None and writes_targets(teachers, outputs):
            written_task, rows = target_rows(
                teachers, sources.data, task=task, text_columns=sources.text_columns, label_column=label_column,
                unlabelled=sources.unlabelled, to=to, max_rows=max_rows,
            )  # fmt: skip
        else:
            rows = sources.read(max_rows)
        if to is not None:
            check_columns(rows.names)
            check_unread(Path(to), rows)
            sources.check_apart(Path(to))
        check_speaking(teachers, prompt, endpoint, engine, max_length, precision)
        if engine == "ray":
            imported_ray()
            teachers = found_anywhere(teachers)
        asked = prompt is not None or endpoint is not None or speaks(teachers)
        bound = None
        if asked or written_task is None:
            bound = _prompt(prompt, rows, sources, label_column, max_rows, asked=asked)
        console = _console(show)
        with _served(teachers, endpoint, bound) as labellers:
            source = LabellerSource(
                labellers,
                task=task,
                outputs=tuple(outputs) if outputs else None,
                max_length=max_length,
                precision=precision,
                batch_size=batch_size,
                prompt=bound,
                written_task=written_task,
            )
            work = _work(
                source, rows, outputs, with_text, StoreFiles(place), engine, workers, missing_rows
            )
            if to is not None:
                _check_table(work, Path(to))
            _say_truncated(fill(work, shard_rows, console), console)
        return _finished(place, rows, to, console)


def _check_table(work: LabelWork, to: Path) -> None:
    """Raise LimbeckError for outputs that come to no label, or to several, which a plain table cannot hold.

    And where the table would take another file's place.
    """
    labeller, rows = work.labeller, work.plan.rows
    if get_task_type(labeller.kind).several_classes:
        raise LimbeckError(
            f"to: {labeller.name} gives a row any number of classes, and {to} would have one",
            "leave --to out, the store has every class's probability; or limbeck predict, which writes all "
            "classes of a row",
        )
    if not work.plan.decides(labeller.kind):
        raise LimbeckError(
            f"to: {', '.join(work.plan.outputs)} come to no label, and {to} is a table of labels",
            "add --outputs probabilities, or leave --to out",
        )
    check_free(to, rows, columns_beside(labeller.kind, labeller.classes, rows.names))


def _prompt(
    prompt: str | Path | Prompt | None,
    rows: TextRows,
    sources: RowSources,
    label_column: str | None,
    max_rows: int,
    *,
    asked: bool,
) -> BoundPrompt | None:
    """What a language model is asked about the rows; None where none is."""
    if asked:
        return prompt_for(
            prompt,
            rows,
            task=sources.task,
            data=sources.data,
            text_columns=sources.text_columns,
            label_column=label_column,
            max_rows=max_rows,
        )
    if label_column is not None:
        raise LimbeckError(
            "label_column: labels are read for the examples of a language model's prompt, and by a text-to-text "
            "teacher, alone",
            "leave it out, or give a prompt with examples_per_class",
        )
    return None


def _console(show: bool) -> Console:
    return messages(shown=show)


def _finished(place: str, rows: TextRows, to: str | Path | None, console: Console) -> OutputStore:
    """The store, opened, and the plain table beside it where one is asked for."""
    store = open_store(place)
    if to is not None:
        tied = write_plain_labels(Path(to), store, rows)
        none = f", {tied:,} without a label: several classes are equally likely" if tied else ""
        console.print(f"{to}: {len(rows):,} rows{none}")
    return store


@contextmanager
def _served(
    teachers: tuple[str | Labeller, ...],
    endpoint: EndpointSettings | None,
    bound: BoundPrompt | None,
) -> Iterator[tuple[str | Labeller, ...]]:
    """The teachers, or the one behind an endpoint, whose connections are closed in the end."""
    if endpoint is None:
        yield teachers
        return
    assert bound is not None
    with endpoint_labeller(endpoint, bound) as labeller:
        yield (labeller,)


def _work(
    source: LabellerSource,
    rows: TextRows,
    outputs: Sequence[str] | None,
    with_text: bool,
    files: StoreFiles,
    engine: str,
    workers: int | None,
    missing_rows: str,
) -> LabelWork:
    """Load the labeller and plan what it is to do."""
    labeller = source.load()
    of_models = source.prompt is None and all(isinstance(one, str) for one in source.teachers)
    plan = LabelPlan(
        rows,
        outputs_asked(labeller, None if of_models else outputs, rows.names if with_text else ()),
        source.batch_size or labeller.batch_size,
        with_text,
        source.task or source.written_task,
        missing_rows == "drop",
    )
    return LabelWork(files, plan, labeller, source, engine, workers)


def _say_truncated(made: StoreManifest, console: Console) -> None:
    """Of how many stored rows, of this start and those before it, a model did not read all."""
    if made.truncated_rows:
        console.print(
            f"{made.truncated_rows:,} of {made.stored_rows:,} rows lost the end of their longest text: "
            "with what stands around it, it was longer than the model reads (--max-length)"
        )


def _check(
    out: object,
    to: str | Path | None,
    engine: str,
    precision: str,
    workers: int | None,
    missing_rows: str,
    sources: RowSources,
    counts: Mapping[str, int | None],
) -> None:
    """Raise for what is wrong with the settings themselves, all of it together."""
    problems = []
    if out is None and to is None:
        problems.append(Problem("no store is named", "--out FOLDER_OR_URL"))
    if not sources.all:
        problems.append(Problem("no rows are named", "--data, or --unlabelled FILE"))
    if engine not in ENGINES:
        problems.append(unknown("engine", engine, ENGINES))
    if precision not in PRECISIONS:
        problems.append(unknown("precision", precision, PRECISIONS))
    if missing_rows not in MISSING_ROWS:
        problems.append(unknown("missing_rows", missing_rows, MISSING_ROWS))
    if workers is not None and (engine != "ray" or workers < 1):
        problems.append(
            Problem(f"workers {workers}: they are processes of Ray", "use them with --engine ray")
        )
    problems += [
        Problem(f"{name} {value}: it is a number of 1 or more", "give one, or leave it out")
        for name, value in counts.items()
        if value is not None and (type(value) is not int or value < 1)
    ]
    if to is not None:
        problems += check_target(to)
    if problems:
        raise LimbeckError(problems)
