"""Whether a teacher's outputs are stored before training, and how: one decision for runs and for trainers.

Part of `limbeck.outputs`.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from limbeck.outputs.building import Estimate, UnstorableError, build, measure
from limbeck.outputs.cache import FOLDER_VARIABLE, Store, StoredEntry
from limbeck.outputs.columns import Ask, Lengths
from limbeck.outputs.manifest import EntryAbout
from limbeck.outputs.read import CachedTeacher
from limbeck.support.errors import LimbeckError
from limbeck.support.files import is_full
from limbeck.support.machine import agreed, largest
from limbeck.support.words import human_size
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

# Less is not worth a file.
_WORTH_SECONDS = 5.0
# Rows of all lengths to measure by.
_SAMPLE = 16
_GIB = 2**30

Watch = Callable[[str, int], Callable[[int], None]]
"""Given what is counted and how many there are, what is told of progress."""


@dataclass(frozen=True)
class StoringQuestion:
    """One teacher, asked about the same rows in every epoch.

    Attributes:
        teacher: the live one.
        wanted: all that training may ask of it.
        precision: fp32 or bf16: of its passes.
        key: what the entry is found by.
        lengths: tokens of each row.
        batches: of the rows at some places, on the teacher's device.
        passes: how often training goes through the rows.
        limit: bytes that all entries together may take.
        setting: what demands that outputs are stored, in words; None: they are where that saves time.
        about: what the entry says of itself.
        title: what messages call it.
    """

    teacher: Teacher
    wanted: Ask
    precision: str
    key: str
    lengths: Lengths
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
    """The teacher that reads its stored outputs, found or made now; None where it is better asked live.

    Of several processes the first decides, one makes the entry and the others wait.

    Args:
        ours: keys of entries that an earlier start of the same training made, whose cost is its own.
        starting: called with the key before an entry is made.
        say: told what is found or about to be made, in a line.
        watching: shows progress while an entry is made.

    Raises:
        LimbeckError: outputs are to be stored and cannot be.
    """
    entry, rows = store.find(question.key), len(question.lengths["main"])
    if agreed(entry is not None) and entry is not None:
        say(f"{question.title}: {human_size(entry.bytes)}, found")
        return CachedTeacher(question.teacher, entry, fresh=rows if question.key in ours else 0)
    few = next(question.batches(question.order[:: math.ceil(rows / _SAMPLE)].tolist()))
    estimate = measure(
        question.teacher, few, question.wanted, question.lengths, precision=question.precision
    )
    saved = estimate.saved(question.passes)
    too_large, saves = agreed(
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
        f"{question.title}: {human_size(estimate.bytes)}, one pass of about "
        f"{estimate.teacher_seconds:.0f} s now saves about {max(saved, 0):.0f} s"
    )
    starting(question.key)
    try:
        return _stored(question, store, estimate, watching)
    except UnstorableError as reason:
        if question.setting is not None:
            raise
        logger.warning("teacher cache: not used, %s", reason)
        return None


def _stored(
    question: StoringQuestion,
    store: Store,
    estimate: Estimate,
    watching: Callable[[], AbstractContextManager[Watch]],
) -> CachedTeacher:
    """The entry, built by one process while the others wait."""
    with store.lock(question.key):
        # Another process may have built it while this one waited.
        entry, fresh = store.find(question.key), 0
        if entry is None:
            store.sweep()
            for removed in store.make_room(estimate.bytes, int(question.limit)):
                logger.info(
                    "teacher cache: removed %s (%s)", removed.key, human_size(removed.bytes)
                )
            entry, fresh = _built(question, store, watching), len(question.lengths["main"])
    # Whichever of the processes it was.
    return CachedTeacher(question.teacher, entry, fresh=largest(fresh))


def _built(
    question: StoringQuestion,
    store: Store,
    watching: Callable[[], AbstractContextManager[Watch]],
) -> StoredEntry:
    order = question.order.tolist()
    try:
        with store.writing(question.key) as folder, watching() as watch:
            build(
                folder,
                question.teacher,
                question.batches(order),
                question.wanted,
                precision=question.precision,
                about=question.about,
                advance=watch("teacher", len(order)),
            )
    except OSError as error:
        if not is_full(error):
            raise
        raise UnstorableError(
            f"cache: the disk is full: {store.folder} has no room for the teacher's outputs",
            f"make room there, name another folder by {FOLDER_VARIABLE}, or run with cache=never",
        ) from error
    entry = store.find(question.key, just_written=True)
    assert entry is not None  # just renamed into its place
    return entry


def _too_large(estimate: Estimate, limit: float, store: Store) -> str | None:
    """Why there is no room, if there is none."""
    if estimate.bytes > limit:
        return f"it would take {human_size(estimate.bytes)}, more than cache_limit {limit / _GIB:g} GiB"
    free = shutil.disk_usage(_existing(store.folder)).free
    if estimate.bytes > free / 2:
        return f"it would take {human_size(estimate.bytes)} of {human_size(free)} free"
    return None


def _existing(place: Path) -> Path:
    while not place.exists():
        place = place.parent
    return place


def _unwatched(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None
