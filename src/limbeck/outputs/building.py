"""A live teacher's outputs, stored before training in one pass over all rows, if it pays. Part of `limbeck.outputs`."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from limbeck.activations import Passes, Request, Trace
from limbeck.objectives import ModelShape
from limbeck.outputs import columns, shards
from limbeck.outputs.cache import Store, UnstorableError, describe
from limbeck.outputs.key import LIBRARIES, digest_of_model, library_versions
from limbeck.outputs.manifest import (
    EntryAbout,
    EntryRows,
    RowsIdentity,
    StoreManifest,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.outputs.mapped import MappedWriter
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.students import generic_labels, labels_of
from limbeck.support import files, machine, words
from limbeck.support.errors import LimbeckError
from limbeck.tasks import task_type_of
from limbeck.tasks.rules import thresholds_of
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

Batches = Iterable[Mapping[str, Tensor]]


def build(
    folder: Path,
    teacher: Teacher,
    batches: Batches,
    wanted: columns.Ask,
    *,
    precision: str,
    about: EntryAbout | None = None,
    advance: Callable[[int], None] = lambda examples: None,
) -> None:
    """Write the teacher's outputs about every example of `batches` into `folder`.

    Args:
        batches: with `index`; sorted by length they hold least padding.
        precision: fp32 or bf16: the autocast type the run's own passes would have.
        about: further fields of the entry's description.
        advance: called with the number of examples done since the last call.

    Raises:
        UnstorableError: a value that float16 cannot hold.
    """
    began, about = time.perf_counter(), about or EntryAbout()
    teacher.passes = Passes()
    rows = None if about.rows is None else about.rows()
    ids = None if rows is None else rows.ids
    writer: MappedWriter | None = None
    with ExitStack() as open_files:
        for batch in batches:
            trace = ask(teacher, batch, wanted.request, precision)
            if writer is None:
                layout, partial = columns.OutputLayout.of(trace, wanted), trace.partial
                writer = MappedWriter(folder, layout, row_ids=rows is not None)
                open_files.enter_context(writer)
            writer.add([*_arrays(layout, batch, trace, ids)])
            advance(len(batch[columns.INDEX]))
    if writer is None:
        raise LimbeckError("there are no rows for the teacher", "check the data")
    manifest = _manifest(teacher, about, rows, precision, writer.rows)
    kept = partial and TokensIdentity(
        kept=str(wanted.request.tokens), vocabulary=partial.vocabulary
    )
    facts = {
        "settings": {"precision": precision, "holds": wanted.names()},
        "columns": layout.columns,
        "costs": {"seconds": time.perf_counter() - began},
        "passes": tuple(teacher.passes.state()),
        "tokens": kept,
    }
    describe(folder, manifest.model_copy(update=facts), writer.rows)


def _arrays(
    layout: columns.OutputLayout, batch: Mapping[str, Tensor], trace: Trace, ids: np.ndarray | None
) -> Iterator[pa.Array]:
    """A batch without its padding, as it is stored."""
    index = batch[columns.INDEX].cpu().numpy()
    yield pa.array(index)
    if ids is not None:
        yield pa.array(ids[index])
    own = columns.places(trace.masks)
    for column in layout.columns:
        value, stored = column.of(trace).detach(), columns.storage_type(column)
        if value.dtype == torch.bfloat16 and value.device.type == "cpu":
            # Two conversions that exist as vector instructions beat one that does not.
            value = value.float()
        values = value.to(stored).cpu().numpy()
        array = shards.flat_values(
            column,
            values
            if column.fixed
            else [row[column.among_padding(one)] for row, one in zip(values, own, strict=True)],
        )
        if not np.isfinite(array.flatten().to_numpy(zero_copy_only=True)).all():
            raise UnstorableError(
                f"cache: the teacher's {column.seen or columns.LOGITS} is not finite, or beyond "
                f"float16, which ends at {columns.LARGEST_FLOAT16:.0f}",
                "run with cache=never",
            )
        yield array


def _manifest(
    teacher: Teacher, about: EntryAbout, rows: EntryRows | None, precision: str, count: int
) -> StoreManifest:
    """Whose outputs about which rows; where these have ids, by the identities that a labelled store has."""
    config, kind = teacher.config, task_type_of(teacher.model)
    classes = kind.class_names(labels_of(config))
    own = str(getattr(config, "name_or_path", "") or type(teacher.model).__name__)
    whose = TeacherIdentity(name=about.teacher or own, fingerprint={})
    which = RowsIdentity(count=count, fingerprint="")
    if rows is not None:
        if generic_labels(classes) and len(rows.classes) == len(classes):
            classes = rows.classes
        model = {"model": digest_of_model(teacher.model)}
        whose = TeacherIdentity(
            name=whose.name,
            fingerprint=model | {**rows.read_by, "precision": precision},
            shape=ModelShape.of(teacher.model).written(),
            thresholds=thresholds_of(config) or (),
        )
        which = rows.identity
    return StoreManifest(
        complete=False,
        kind=kind.name,
        task=about.task,
        classes=classes,
        teacher=whose,
        rows=which,
        keyed=columns.INDEX,
        row_ids=rows is not None,
        made_with=dict(zip(LIBRARIES, library_versions(), strict=True)),
    )


def ask(teacher: Teacher, batch: Mapping[str, Tensor], request: Request, precision: str) -> Trace:
    """The live teacher's outputs as a run of this precision would get them."""
    device = teacher.device.type
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        trace = teacher(batch, request)
    if request.tokens is not None and trace.logits is not None:
        numbers = machine.on_host(batch)[columns.INDEX].tolist()
        trace.partial, trace.logits = request.tokens.of(trace.logits, numbers), None
    if "main" not in trace.masks:  # for images whose layers are not requested
        trace.masks |= columns.token_masks(teacher.model, batch)
    return trace


# Bytes a second: mapped pages copied and widened. Slower disks are hidden by the page cache.
_READ_RATE = 5e8


@dataclass(frozen=True)
class Estimate:
    """What storing takes: room on disk, and seconds of one teacher pass and of reading it back."""

    bytes: int
    teacher_seconds: float
    read_seconds: float

    def saved(self, passes: float) -> float:
        """Seconds that `passes` over the rows save, the pass that stores them counted."""
        return passes * (self.teacher_seconds - self.read_seconds) - self.teacher_seconds


def measure(
    teacher: Teacher,
    batch: Mapping[str, Tensor],
    wanted: columns.Ask,
    lengths: columns.Lengths,
    *,
    precision: str,
) -> Estimate:
    """From one batch of examples, and the lengths of all."""
    trace = ask(teacher, batch, wanted.request, precision)
    began = time.perf_counter()
    ask(teacher, batch, wanted.request, precision)
    seconds = time.perf_counter() - began
    per_token = seconds / int(trace.mask().sum())
    size = columns.OutputLayout.of(trace, wanted).bytes(lengths)
    return Estimate(size, per_token * float(lengths["main"].sum()), size / _READ_RATE)


# Whether outputs are stored before training: one decision for runs and for trainers.


# Smaller savings do not justify a file.
_WORTH_SECONDS = 5.0
# Rows of all lengths to measure by.
_SAMPLE = 16
_GIB = 2**30

Watch = Callable[[str, int], Callable[[int], None]]
"""Makes the function that reports progress, from the unit and the total number."""


@dataclass(frozen=True)
class StoringQuestion:
    """One teacher that sees the same rows in every epoch.

    Attributes:
        teacher: the live one.
        wanted: all activations that training may request of it.
        precision: fp32 or bf16: of its passes.
        key: the entry's key.
        lengths: tokens of each row.
        batches: of the rows at some places, on the teacher's device.
        passes: how often training goes through the rows.
        limit: bytes that all entries together may take.
        setting: the setting that requires stored outputs, in words; None: store them if that saves time.
        about: the entry's description.
        title: its name in messages.
    """

    teacher: Teacher
    wanted: columns.Ask
    precision: str
    key: str
    lengths: columns.Lengths
    batches: Callable[[Sequence[int]], Iterator[dict[str, Tensor]]]
    passes: float
    limit: float
    setting: str | None
    about: EntryAbout
    title: str = "teacher cache"

    @property
    def order(self) -> np.ndarray:
        """The longest rows first, so that batches hold least padding."""
        return np.lexsort((-self.lengths["decoder"], -self.lengths["main"]))


def stored_if_it_pays(
    question: StoringQuestion,
    store: Store,
    *,
    ours: Sequence[str] = (),
    starting: Callable[[str], None] = lambda key: None,
    say: Callable[[str], None] = lambda line: None,
    watching: Callable[[], AbstractContextManager[Watch]] = lambda: nullcontext(_unwatched),
) -> CachedTeacher | None:
    """The teacher that reads its stored outputs, found or made now; None if running it live is better.

    With several processes, the first decides, one makes the entry and the others wait.

    Args:
        ours: keys of entries that an earlier start of the same training made, whose cost is its own.
        starting: called with the key before an entry is made.
        say: called with a line about the entry that was found or will be made.
        watching: shows progress while an entry is made.

    Raises:
        LimbeckError: outputs are to be stored and cannot be.
    """
    entry, rows = store.find(question.key), len(question.lengths["main"])
    if machine.agreed(entry is not None) and entry is not None:
        say(f"{question.title}: {words.human_size(entry.bytes)}, found")
        return CachedTeacher(question.teacher, entry, fresh=rows if question.key in ours else 0)
    # Its batches hold its own tokens already: there is nothing to align.
    asked = question.teacher.reading(question.teacher.inputs)
    few = next(question.batches(question.order[:: math.ceil(rows / _SAMPLE)].tolist()))
    estimate = measure(asked, few, question.wanted, question.lengths, precision=question.precision)
    saved = estimate.saved(question.passes)
    too_large, saves = machine.agreed(
        (_too_large(estimate, question.limit, store), saved >= _WORTH_SECONDS)
    )
    if question.setting is None and (too_large or not saves):
        logger.info("teacher cache: not used, %s", too_large or "it saves no time to speak of")
        return None
    if too_large:
        raise LimbeckError(
            f"{question.setting}, but {too_large}",
            "raise cache_limit, make room, or set it to auto",
        )
    say(
        f"{question.title}: {words.human_size(estimate.bytes)}, one pass of about "
        f"{estimate.teacher_seconds:.0f} s now saves about {max(saved, 0):.0f} s"
    )
    starting(question.key)
    order = question.order.tolist()

    def make(folder: Path) -> None:
        with watching() as watch:
            build(
                folder,
                asked,
                question.batches(order),
                question.wanted,
                precision=question.precision,
                about=question.about,
                advance=watch("teacher", rows),
            )

    try:
        entry, ours_now = store.made(question.key, make, int(question.limit))
    except UnstorableError as reason:
        if question.setting is not None:
            raise
        logger.warning("teacher cache: not used, %s", reason)
        return None
    # Whichever of the processes made it.
    return CachedTeacher(question.teacher, entry, fresh=machine.largest(rows if ours_now else 0))


def _too_large(estimate: Estimate, limit: float, store: Store) -> str | None:
    """Why there is not enough space, or None."""
    if estimate.bytes > limit:
        return f"it would take {words.human_size(estimate.bytes)}, more than cache_limit {limit / _GIB:g} GiB"
    free = files.free_bytes(store.folder)
    if estimate.bytes > free / 2:
        return f"it would take {words.human_size(estimate.bytes)} of {words.human_size(free)} free"
    return None


def _unwatched(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None
