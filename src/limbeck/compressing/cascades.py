"""Cascades of measured models: a fast model answers the rows it is sure of, and sends others to a better one.

Part of `limbeck.compressing`. No model runs for them: each one's outputs about both halves of the dev rows are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.front import FrontPoint, with_front
from limbeck.exporting.cascade import USUAL_DROP, MembersAnswers, write_members
from limbeck.exporting.folder import folder_in_work
from limbeck.runtimes.cascade import centred, confidence_problems
from limbeck.scoring.scored_model import Scored, ScoredModel
from limbeck.support import files
from limbeck.support.cells import percent
from limbeck.support.errors import LimbeckError

Halves = Sequence[Scored]
"""A model's outputs for the rows that choose, and for the rows that score."""


def cascades(
    points: Sequence[FrontPoint], outputs: Mapping[str, Halves], budget: Budget, folder: Path
) -> list[FrontPoint]:
    """The cascades of two points that fit the budget and are on the front, each written as a folder.

    Args:
        points: as measured, the teacher's among them.
        outputs: of each point that ships, by its folder.
        budget: also determines the thresholds' objective.
        folder: for the cascades.
    """
    teacher = next(one for one in points if one.kind == "teacher")
    forms: dict[str, FrontPoint] = {}
    for one in points:  # each student in its first form, the teacher in all that ship
        if one.path:
            forms.setdefault(one.run or one.path, one)
    made: dict[str, tuple[FrontPoint, MembersAnswers, tuple[str, float]]] = {}
    for fast in (one for one in forms.values() if one.kind == "student"):
        for slow in forms.values():
            better = slow.chosen_on > fast.chosen_on and slow.costs.latency > fast.costs.latency
            if not better or budget.exceeded(_costs(fast, slow, 0.0)):
                continue
            wish = _wish(budget, teacher.chosen_on, slow.costs.latency)
            pair = fast, slow
            halves = [_answers(pair, [outputs[one.path][half] for one in pair]) for half in (0, 1)]
            if found := _point(pair, halves, wish):
                place = str(folder / files.checksum_of_text(f"{fast.path} {slow.path}")[:8])
                made[place] = found.model_copy(update={"path": place}), halves[0], wish
    every = with_front([*points, *(one for one, *_ in made.values())], budget)
    kept = [one for one in every if one.path in made and one.fits and one.on_front]
    for one in kept:
        _, choosing, wish = made[one.path]
        with folder_in_work(Path(one.path)) as part:
            write_members(choosing.measured(*wish), choosing.members, part)
            files.put_in_place(part, Path(one.path))
    return kept


def _wish(budget: Budget, teacher: float, slow: float) -> tuple[str, float]:
    """The thresholds' objective: a share of the score to keep, otherwise the latency, otherwise the teacher's score."""
    if budget.score is not None:
        return "score", budget.score * teacher
    if (limit := budget.limits.get("latency")) is not None:
        return "cost", min(100.0, 100 * limit / slow)
    return "max_drop", USUAL_DROP


def _answers(pair: Sequence[FrontPoint], scored: Halves) -> MembersAnswers:
    reads = [one.split for one in scored]
    logits = [centred(one.outputs, one.task.thresholds) for one in scored]
    members = [
        replace(ScoredModel.open(one.path), name=f"{one.name}, {one.precision}") for one in pair
    ]
    return MembersAnswers(members, reads, logits, [one.costs.latency / 1e3 for one in pair])


def _point(
    pair: Sequence[FrontPoint], halves: Sequence[MembersAnswers], wish: tuple[str, float]
) -> FrontPoint | None:
    """A cascade with the thresholds that one half chooses; None where one of the two does as well alone."""
    (fast, slow), (choosing, scoring) = pair, halves
    try:
        manifest = choosing.measured(*wish)
    except LimbeckError:  # no threshold meets the objective
        return None
    (sent,) = manifest.chosen.sent
    if not 0 < sent < 1:
        return None
    rows, _ = scoring.rows()
    places = np.arange(len(rows.labels))
    temperatures = [one.temperature for one in manifest.members[:-1]]
    answering = rows.answering(places, temperatures, np.array([manifest.chosen.thresholds]))
    (found,) = rows.points_of(places, answering)
    # The best of many thresholds is better on the rows that chose it than on others; a score to keep is kept on them.
    shown = manifest.chosen if wish[0] == "score" else manifest.shown
    return FrontPoint(
        name=f"{fast.name}, then {slow.name} for {percent(found.sent[0])} of the rows",
        kind="cascade",
        precision=f"{fast.precision}, {slow.precision}",
        costs=_costs(fast, slow, sent),
        chosen_on=shown.score,
        score=found.score,
    )


def _costs(fast: FrontPoint, slow: FrontPoint, sent: float) -> Costs:
    """The cost of both together, if the slow one runs for a share of the rows."""
    both = {name: value + getattr(slow.costs, name) for name, value in vars(fast.costs).items()}
    return Costs(**{**both, "latency": fast.costs.latency + sent * slow.costs.latency})


def have_confidence(scored: Scored) -> bool:
    """Whether a model has a confidence."""
    return not confidence_problems(scored.task.kind, scored.outputs.shape[-1], "")
