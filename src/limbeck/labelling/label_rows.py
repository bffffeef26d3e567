"""`label(teacher, data, out=…)`: a teacher's outputs about any rows, in a store. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.data.text_rows import TextRows, joined, read_text_rows
from limbeck.labelling.fill import LabelWork, fill
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt
from limbeck.labelling.plain_table import (
    FORMATS,
    check_labels,
    check_place,
    write_plain_labels,
)
from limbeck.labelling.settings import LabelSettings
from limbeck.labelling.teachers import (
    LabellerSource,
    endpoint_labeller,
    named,
    prompt_for,
    speaks,
    target_rows,
    writes_targets,
)
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.scored_shard import ShardContent
from limbeck.outputs.shards import RESERVED
from limbeck.outputs.store import OutputStore, open_store
from limbeck.run.objects import read_rows, unlabelled_places
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.given import at_hand
from limbeck.support.terminal import messages
from limbeck.teachers.labeller import Labeller


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
    """Store what a teacher puts out about rows of text; called again after a kill it goes on.

    Args:
        teacher: a model's folder or Hub name, a run folder, several of them, or objects that follow
            `limbeck.teachers.labeller.Labeller`.
        data: rows, of all splits: `hub`, `pocket`, a folder in GLUE's layout, a file or a folder of files of your own,
            a `Dataset`, a `DatasetDict`, rows by split; labels are not looked at, but by a text-to-text teacher, whose
            decoder reads them.
        unlabelled: more rows: a file, a `Dataset`, or several of them.
        prompt: what a language model is asked, or the YAML file of that; without it a causal model and an endpoint get
            the default prompt.
        endpoint: an OpenAI-compatible server and how to ask it, instead of a teacher.
        show: print the pre-flight and a progress bar.
        settings: of `limbeck.labelling.settings.LabelSettings`: out, to, task, text_columns, outputs, ….

    Raises:
        LimbeckError: whatever is wrong with teacher, rows or settings, or another store in `out`.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    asked, console = LabelSettings.checked(given), messages(shown=show)
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        if data is not None and not isinstance(data, str | Path):
            held = read_rows(data, training=False)
            writers[held.reference], data = held.write, held.reference
        more = unlabelled_places(unlabelled, asked.task, writers)
        stack.enter_context(at_hand(writers))
        source = LabellerSource(named(teacher), asked)
        _check(asked, source, [one for one in (data, *more) if one is not None], prompt, endpoint)
        if prompt is None and endpoint is None and writes_targets(source):
            written_task, rows = target_rows(source, data, others=bool(more or asked.to))
            source = replace(source, written_task=written_task)
        else:
            rows = _read([*([] if data is None else [data]), *more], asked)
        if asked.to is not None and (wrong := check_place(asked.to, FORMATS, rows.source)):
            raise LimbeckError(wrong)
        warn_of_emulated_bf16(asked.precision)
        if prompt is not None or endpoint is not None or speaks(source):
            # A prompt calls the columns as the user does.
            rows = replace(rows, columns=dict(zip(rows.names, rows.columns.values(), strict=True)))
            source = replace(source, prompt=prompt_for(prompt, rows, asked.task))
            if endpoint is not None:
                served = stack.enter_context(endpoint_labeller(endpoint, source))
                source = replace(source, teachers=(served,))
        elif asked.label_column is not None and source.written_task is None:
            raise LimbeckError(
                "label_column: only a text-to-text teacher reads labels", "leave it out"
            )
        labeller = source.load()
        content = _content(labeller, source, rows.names if asked.with_text else ())
        files = StoreFiles(asked.out or f"{asked.to}.store")
        work = LabelWork(files, rows, labeller, content, asked.task or source.written_task)
        if asked.to is not None:
            check_labels(asked.to, work)
        made = fill(work, asked.shard_rows, console)
        if made.truncated_rows:
            console.print(
                f"{made.truncated_rows:,} of {made.stored_rows:,} rows lost the end of their longest text: "
                "with what stands around it, it was longer than the model reads (--max-length)"
            )
    store = open_store(files.url)
    if asked.to is not None:
        tied = write_plain_labels(Path(asked.to), store, rows)
        none = f", {tied:,} without a label: several classes are equally likely" if tied else ""
        console.print(f"{asked.to}: {len(rows):,} rows{none}")
    return store


def _check(
    asked: LabelSettings,
    source: LabellerSource,
    rows: Sequence[str | Path],
    prompt: object,
    endpoint: EndpointSettings | None,
) -> None:
    """Raise LimbeckError for what is missing, and for what nobody would read, before any row is read."""
    problems = []
    if asked.out is None and asked.to is None:
        problems.append(Problem("no store is named", "--out FOLDER_OR_URL"))
    if not rows:
        problems.append(Problem("no rows are named", "--data, or --unlabelled FILE"))
    if asked.to is not None:
        problems += check_place(asked.to, FORMATS)
    models = any(isinstance(one, str) for one in source.teachers)
    if endpoint is None and prompt is not None and not models:
        problems.append(
            Problem(
                "prompt: the teacher is no language model that is read from a folder",
                "leave it out, or name a folder or an endpoint",
            )
        )
    if endpoint is not None:
        problems += endpoint.problems()
        unread = sorted({"max_length", "precision"} & asked.model_fields_set)
        unread += ["teacher"] if source.teachers else []
        problems += [
            Problem(f"{name}: an endpoint does not read it", "leave it out") for name in unread
        ]
    elif not source.teachers:
        problems.append(Problem("no teacher is named", "--teacher MODEL, or --endpoint URL"))
    if problems:
        raise LimbeckError(problems)


def _read(sources: Sequence[str | Path], asked: LabelSettings) -> TextRows:
    """The rows of all sources, one after another."""
    given: dict[str, Any] = {"task": asked.task, "text_columns": asked.text_columns}
    return joined([read_text_rows(one, **given) for one in sources])


def _content(labeller: Labeller, source: LabellerSource, texts: Sequence[str]) -> ShardContent:
    """What a shard holds: the outputs that are named, or all that a labeller gives.

    Args:
        labeller: the teacher.
        source: where it comes from.
        texts: names of the text columns that stand beside them.

    Raises:
        LimbeckError: outputs that it does not give, or that have the name of another column.
    """
    asked, known = source.settings, labeller.outputs
    # Models give what is asked for and nothing else, in names of their own.
    of_models = source.prompt is None and all(isinstance(one, str) for one in source.teachers)
    words = () if of_models else asked.outputs
    if problems := [unknown("output", name, known) for name in words if name not in known]:
        raise LimbeckError(problems)
    chosen = tuple(dict.fromkeys(words)) or known
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
    batch = asked.batch_size or labeller.batch_size
    return ShardContent(chosen, batch, tuple(texts), asked.missing_rows == "drop")
