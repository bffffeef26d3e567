"""How good a run's teachers are on the run's own dev rows: what is recorded of these rows, or measured.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from transformers import PreTrainedModel

from limbeck.errors import LimbeckError
from limbeck.preflight import ask_teacher, recorded_scores
from limbeck.reporting.records import Numbers
from limbeck.run.assemble import Assembly
from limbeck.tasks import Processor

log = logging.getLogger(__name__)


def teacher_scores(
    assembly: Assembly, place: int, max_length: int, *, splits: Sequence[str] | None = None
) -> dict[str, Numbers]:
    """Scores by split, 0 to 100, of the teacher at a place of `assembly.named`, each measured once.

    `splits`: the run's dev splits by default.

    Raises:
        LimbeckError: the teacher cannot be scored on these rows.
    """
    one = assembly.named[place]
    wanted = [split for split in assembly.fingerprints if splits is None or split in splits]
    known = assembly.scored.setdefault(place, {})
    missing = [split for split in wanted if split not in known]
    known |= scores_of(
        assembly, one.path, lambda: (one.teacher.model, one.tokenizer), max_length, missing
    )
    return {split: known[split] for split in wanted}


def reference_scores(assembly: Assembly, max_length: int) -> dict[str, Numbers]:
    """Scores of the teacher that the student is held against; none of a teacher without answers."""
    if not assembly.named:
        return {}
    try:
        return teacher_scores(assembly, assembly.reference, max_length)
    except LimbeckError as error:
        # The student is trained by now, and no term may ever have asked for the teacher's answers.
        log.warning("the teacher has no score on these rows: %s", error)
        return {}


def scores_of(
    assembly: Assembly,
    path: str,
    load: Callable[[], tuple[PreTrainedModel, Processor]],
    max_length: int,
    splits: Sequence[str],
) -> dict[str, Numbers]:
    """A model's scores on splits of the run: from the record at `path`, else measured on all rows.

    Raises:
        LimbeckError: as `ask_teacher`.
    """
    rows = {split: assembly.fingerprints[split] for split in splits}
    found = recorded_scores(path, assembly.task, rows)
    scores = {} if found is None else found[0]
    missing = [split for split in splits if split not in scores]
    if missing:
        model, tokenizer = load()
    for split in missing:
        dev = assembly.rows[split]
        answers = ask_teacher(assembly.task, model, tokenizer, dev, max_length, rows=len(dev))
        scores[split] = dict(answers.scores)
    return scores
