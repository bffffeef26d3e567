"""How good a run's teachers are on the run's own dev rows: what is recorded of these rows, or measured.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from limbeck.errors import LimbeckError
from limbeck.preflight import ask_teacher, recorded_scores
from limbeck.reporting.records import Numbers, OutputsFacts
from limbeck.run.known_rows import stored_results
from limbeck.run.prepared import Prepared
from limbeck.tasks import Processor
from limbeck.teachers.outputs.stored_teacher import StoredTeacher

log = logging.getLogger(__name__)


Kept = dict[str, Mapping[str, Sequence[Any]]]
"""Split → predictions by row."""


def teacher_scores(
    prepared: Prepared,
    place: int,
    *,
    splits: Sequence[str] | None = None,
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """Scores by split, 0 to 100, of the teacher at a place of `prepared.named`; those it knows are not measured again.

    Of stored outputs those of splits of which they know every row.

    `splits`: the run's dev splits by default. `keep` gets the predictions of what is measured.

    Raises:
        LimbeckError: the teacher cannot be scored on these rows.
    """
    one, known = prepared.named[place], prepared.scored.get(place, {})
    wanted = [split for split in prepared.fingerprints if splits is None or split in splits]
    missing = [split for split in wanted if split not in known]
    if one.stored:
        found: dict[str, Numbers] = {}
        for split in missing:
            results = stored_results(one, prepared.task, prepared.splits[split])
            if results is not None:
                found[split] = dict(results.scores)
                if keep is not None:
                    keep[split] = results.predictions
        return {**known, **found}
    measured = scores_of(
        prepared, one.path, lambda: (one.teacher.model, one.tokenizer), missing, keep
    )
    return {split: known[split] if split in known else measured[split] for split in wanted}


def outputs_facts(prepared: Prepared) -> list[OutputsFacts]:
    """What the record keeps of stored outputs in teachers' places."""
    return [
        OutputsFacts(
            name=one.name,
            path=one.path,
            what=one.teacher.outputs.what,
            about=one.teacher.outputs.about,
            scores=teacher_scores(prepared, place),
        )
        for place, one in enumerate(prepared.named)
        if isinstance(one.teacher, StoredTeacher)
    ]


def reference_scores(prepared: Prepared, keep: Kept | None = None) -> dict[str, Numbers]:
    """Scores of the teacher that the student is held against; none of a teacher without logits.

    `keep` gets the predictions of what is measured for it.
    """
    if not prepared.named:
        return {}
    try:
        return teacher_scores(prepared, prepared.reference, keep=keep)
    except LimbeckError as error:
        # The student is trained by now, and no term may ever have asked for the teacher's outputs.
        log.warning("the teacher has no score on these rows: %s", error)
        return {}


def scores_of(
    prepared: Prepared,
    path: str,
    load: Callable[[], tuple[PreTrainedModel, Processor]],
    splits: Sequence[str],
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """A model's scores on splits of the run: from the record at `path`, else measured on all rows.

    `keep` gets the predictions of what is measured.

    Raises:
        LimbeckError: as `ask_teacher`.
    """
    rows = {split: prepared.fingerprints[split] for split in splits}
    found = recorded_scores(path, prepared.task, rows)
    scores = {} if found is None else found[0]
    missing = [split for split in splits if split not in scores]
    if missing:
        model, tokenizer = load()
    for split in missing:
        dev, length = prepared.splits[split], prepared.recipe.max_length
        answers = ask_teacher(prepared.task, model, tokenizer, dev, length, rows=len(dev))
        scores[split] = dict(answers.scores)
        if keep is not None:
            keep[split] = answers.by_row
    return scores
