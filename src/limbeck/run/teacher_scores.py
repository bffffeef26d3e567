"""How good a run's teachers are on the run's own dev rows: what is recorded of these rows, or measured.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel

from limbeck.data.row_ids import ids_of
from limbeck.preflight import ask_teacher, recorded_scores, teacher_record
from limbeck.preflight.data_checks import REPEATED
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.records.facts import Numbers, OutputsFacts
from limbeck.run.known_rows import stored_results
from limbeck.run.prepared import TEST, Prepared, SplitsToScore
from limbeck.run.rows import add_unlabelled, load_rows
from limbeck.support.errors import LimbeckError
from limbeck.tasks import Processor, Task

log = logging.getLogger(__name__)


Kept = dict[str, Mapping[str, Sequence[Any]]]
"""Split → predictions by row."""


def teacher_scores(
    prepared: Prepared,
    place: int,
    *,
    scored: SplitsToScore | None = None,
    splits: Sequence[str] | None = None,
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """Scores by split, 0 to 100, of the teacher at a place of `prepared.named`; those it knows are not measured again.

    Of stored outputs those of splits of which they know every row.

    `scored`: the rows, the run's dev splits by default, and of them `splits` alone. `keep` gets the predictions of what
    is measured.

    Raises:
        LimbeckError: the teacher cannot be scored on these rows.
    """
    scored = scored or prepared.dev_rows
    one, known = prepared.named[place], prepared.scored.get(place, {})
    wanted = [split for split in scored.rows if splits is None or split in splits]
    missing = [split for split in wanted if split not in known]
    if one.stored:
        found: dict[str, Numbers] = {}
        task = prepared.task
        for split in missing:
            results = stored_results(one, task, scored.rows[split].raw)
            if results is not None:
                task = replace(task, thresholds=results.thresholds or task.thresholds)
                found[split] = dict(results.scores)
                if keep is not None:
                    keep[split] = results.predictions
        return {**known, **found}
    measured = scores_of(
        prepared, scored, one.path, lambda: (one.teacher.model, one.tokenizer), missing, keep
    )
    known = {**known, **measured}
    return {split: known[split] for split in wanted if split in known}


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
        if one.stored
    ]


def reference_scores(
    prepared: Prepared, scored: SplitsToScore, keep: Kept | None = None
) -> dict[str, Numbers]:
    """Scores of the teacher that the student is held against; none of a teacher without logits.

    `keep` gets the predictions of what is measured for it.
    """
    if not prepared.named:
        return {}
    try:
        return teacher_scores(prepared, prepared.reference, scored=scored, keep=keep)
    except LimbeckError as error:
        # The student is trained by now, and no term may ever have asked for the teacher's outputs.
        log.warning("the teacher has no score on these rows: %s", error)
        return {}


def scores_of(
    prepared: Prepared,
    scored: SplitsToScore,
    path: str,
    load: Callable[[], tuple[PreTrainedModel, Processor]],
    splits: Sequence[str],
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """A model's scores on splits of `scored`: from the record at `path`, else measured on all rows.

    Test rows come last, and by the thresholds of the dev rows; of a model that was trained on them there is no score.
    `keep` gets the predictions of what is measured.

    Raises:
        LimbeckError: as `ask_teacher`.
    """
    task = prepared.task
    rows = {split: scored.fingerprints[split] for split in splits}
    found = recorded_scores(path, task, rows)
    scores = {} if found is None else found[0]
    missing = [split for split in splits if split not in scores]
    if TEST in missing and _learned_from(path, task, scored.rows[TEST].raw):
        missing.remove(TEST)
    if missing:
        model, tokenizer = load()
        if TEST in splits and task.dev_splits[0] not in missing:
            task = task.kind.decided_by(task, model.config)
    for split in missing:
        raw, length = scored.rows[split].raw, prepared.recipe.max_length
        answers = ask_teacher(task, model, tokenizer, raw, length, rows=len(raw))
        task = replace(task, thresholds=answers.thresholds or task.thresholds)
        scores[split] = dict(answers.scores)
        if keep is not None:
            keep[split] = answers.by_row
    return scores


def _learned_from(path: str, task: Task, rows: Dataset) -> bool:
    """Whether a model was trained on some of these rows, which its run would not have called test; said if so."""
    if teacher_record(path, task) is None:
        return False
    try:
        place = Path(path) if (Path(path) / RECORD_NAME).is_file() else Path(path).parent
        recipe = Recipe.recorded(Record.load(place).recipe, str(place))
        # Rows that the teacher's own run scored are among its text, and were left out of training.
        trained = add_unlabelled(recipe, *load_rows(recipe))[0]["train"]
        known = np.isin(ids_of(task, rows), ids_of(task, trained))
    except (LimbeckError, KeyError):  # its rows are not there any more
        return False
    if known.mean() <= REPEATED:  # as many repetitions as data have of their own
        return False
    log.warning(
        "the teacher %s was trained on %d of the %d test rows, so that it has no score there: fine-tune it again with "
        "the same data settings as the student",
        path, known.sum(), len(rows),
    )  # fmt: skip
    return True
