"""`label(teacher, data, out=…)`: a teacher's outputs about any rows, in a store. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from limbeck.data import MAX_ROWS
from limbeck.data.text_rows import TextRows, joined, read_text_rows, row_files, stands_for
from limbeck.labelling.by_ray import found_anywhere, imported_ray, ray_maker
from limbeck.labelling.fill import LabelWork, fill, local_maker
from limbeck.labelling.language_models import EndpointSettings, Prompt
from limbeck.labelling.plain_table import (
    check_labels,
    check_rows,
    check_target,
    write_plain_labels,
)
from limbeck.labelling.teachers import (
    PRECISIONS,
    LabellerSource,
    check_speaking,
    endpoint_labeller,
    named,
    prompt_for,
    speaks,
    target_rows,
    writes_targets,
)
from limbeck.outputs import OutputStore, StoreFiles, open_store
from limbeck.outputs.scored_shard import ShardContent
from limbeck.outputs.shards import RESERVED
from limbeck.run.given_rows import read_rows_to_label
from limbeck.run.objects import unlabelled_places
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.given import Write, at_hand
from limbeck.support.terminal import messages
from limbeck.teachers.labeller import Labeller

ENGINES = ("local", "ray")
MISSING_ROWS = ("error", "drop")


@dataclass(frozen=True)
class RowSources:
    """Where rows are read: files, folders and patterns of them, and rows given as objects.

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
        row_files([str(source) for source in self.unlabelled], "unlabelled")
        given: dict[str, Any] = {"task": self.task, "text_columns": self.text_columns}
        return joined([read_text_rows(one, **given, max_rows=max_rows) for one in self.all])

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
        engine: `local`, or `ray` for Ray.
        workers: processes of Ray; by default, and at most, as many as its cluster has room for.
        missing_rows: what becomes of rows that an endpoint, or a labeller of your own, has no outputs for: `error`
            makes no shard with one of them and says so in the end, `drop` makes it without them.
        max_rows: of a file; more are refused.
        show: print the pre-flight and a progress bar.

    Raises:
        LimbeckError: whatever is wrong with teacher, rows or settings, or another store in `out`.
    """
    sources = RowSources.of(data, unlabelled, task, text_columns)
    asked = None if outputs is None else tuple(listed(outputs))
    table = None if to is None else Path(to)
    problems = [] if to is None else check_target(to)
    if out is None and to is None:
        problems.append(Problem("no store is named", "--out FOLDER_OR_URL"))
    if not sources.all:
        problems.append(Problem("no rows are named", "--data, or --unlabelled FILE"))
    choices = {
        "engine": (engine, ENGINES),
        "precision": (precision, PRECISIONS),
        "missing_rows": (missing_rows, MISSING_ROWS),
    }
    problems += [
        unknown(name, value, known)
        for name, (value, known) in choices.items()
        if value not in known
    ]
    counts = {
        "shard_rows": shard_rows, "batch_size": batch_size, "max_length": max_length, "max_rows": max_rows,
        "workers": workers,
    }  # fmt: skip
    problems += [
        Problem(f"{name} {value}: it is a number of 1 or more", "give one, or leave it out")
        for name, value in counts.items()
        if value is not None and (type(value) is not int or value < 1)
    ]
    if workers is not None and engine != "ray":
        problems.append(
            Problem(f"workers {workers}: they are processes of Ray", "use them with --engine ray")
        )
    if problems:
        raise LimbeckError(problems)
    warn_of_emulated_bf16(precision)
    teachers = named(teacher)
    source = LabellerSource(
        teachers, task, asked, max_length=max_length, precision=precision, batch_size=batch_size
    )
    with ExitStack() as stack:
        stack.enter_context(at_hand(sources.writers))
        if prompt is None and endpoint is None and writes_targets(teachers, asked):
            written_task, rows = target_rows(
                teachers, sources.data, task=task, text_columns=sources.text_columns, label_column=label_column,
                others=bool(sources.unlabelled or to), max_rows=max_rows,
            )  # fmt: skip
            source = replace(source, written_task=written_task)
        else:
            rows = sources.read(max_rows)
        if table is not None:
            check_rows(table, rows)
            sources.check_apart(table)
        check_speaking(source, prompt, endpoint, engine)
        if engine == "ray":
            imported_ray()
            source = replace(source, teachers=found_anywhere(teachers))
        if prompt is not None or endpoint is not None or speaks(teachers):
            bound = prompt_for(
                prompt, rows, task=task, data=sources.data, text_columns=sources.text_columns,
                label_column=label_column, max_rows=max_rows,
            )  # fmt: skip
            source = replace(source, prompt=bound)
            if endpoint is not None:
                served = stack.enter_context(endpoint_labeller(endpoint, bound))
                source = replace(source, teachers=(served,))
        elif label_column is not None and source.written_task is None:
            raise LimbeckError(
                "label_column: labels are read for the examples of a language model's prompt, and by a text-to-text "
                "teacher, alone",
                "leave it out, or give a prompt with examples_per_class",
            )
        labeller = source.load()
        # Models give what is asked for and nothing else, in names of their own.
        of_models = source.prompt is None and all(isinstance(one, str) for one in source.teachers)
        texts = rows.names if with_text else ()
        content = ShardContent(
            _chosen(labeller, () if of_models else asked or (), texts),
            batch_size or labeller.batch_size,
            texts,
            missing_rows == "drop",
        )
        files = StoreFiles(str(out if out is not None else f"{to}.store"))
        known = task or source.written_task
        work = LabelWork(files, rows, labeller, content, known, source, workers)
        if table is not None:
            check_labels(table, labeller, rows, decides=work.decides, outputs=content.outputs)
        console = messages(shown=show)
        made = fill(work, shard_rows, console, ray_maker if engine == "ray" else local_maker)
        if made.truncated_rows:
            console.print(
                f"{made.truncated_rows:,} of {made.stored_rows:,} rows lost the end of their longest text: "
                "with what stands around it, it was longer than the model reads (--max-length)"
            )
    store = open_store(files.url)
    if table is not None:
        tied = write_plain_labels(table, store, rows)
        none = f", {tied:,} without a label: several classes are equally likely" if tied else ""
        console.print(f"{to}: {len(rows):,} rows{none}")
    return store


def _chosen(labeller: Labeller, asked: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Which outputs are stored: those named, or all that a labeller gives.

    Args:
        texts: names of the text columns that stand beside them.

    Raises:
        LimbeckError: outputs that it does not give, or that have the name of another column.
    """
    known = labeller.outputs
    if problems := [unknown("output", name, known) for name in asked if name not in known]:
        raise LimbeckError(problems)
    chosen = tuple(dict.fromkeys(asked)) or known
    if taken := RESERVED & {*chosen}:
        raise LimbeckError(
            f"the output {', '.join(taken)} has the name of a column of every store",
            "rename the labeller's output",
        )
    if clashing := {*texts} & {*chosen, *RESERVED}:
        raise LimbeckError(
            f"the text column {', '.join(sorted(clashing))} has the name of another column of the store",
            "rename it in your file, or leave --with-text out",
        )
    return chosen
