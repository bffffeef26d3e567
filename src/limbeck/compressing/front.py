"""Which of the measured models to choose from, and which to recommend. Part of `limbeck.compressing`."""

from collections.abc import Sequence

from pydantic import BaseModel

from limbeck.compressing.budget import Budget, Costs, amount


class FrontPoint(BaseModel):
    """A model in one form, measured.

    Attributes:
        name: a description, in one line.
        kind: student, teacher or cascade.
        precision: of its weights.
        costs: measured.
        chosen_on: its primary score, 0 to 100, on the half of the dev rows that chose.
        score: on the half that chose nothing.
        seeds: scores, before the export, of one training a seed on the half that chose nothing.
        path: the folder that ships.
        run: the run whose student it is.
        fits: whether its costs are within the budget.
        on_front: whether no other one is as good on the rows that chose, as small and as fast.
        recommended: whether it is the one to ship.
    """

    name: str
    kind: str
    precision: str
    costs: Costs
    chosen_on: float
    score: float
    seeds: list[float] = []
    path: str = ""
    run: str = ""
    fits: bool = True
    on_front: bool = False
    recommended: bool = False


def dominates(one: FrontPoint, other: FrontPoint) -> bool:
    """Whether a point is at least as good in score, size and latency, and better in one of them."""
    first, second = (
        (point.chosen_on, -point.costs.size, -point.costs.latency) for point in (one, other)
    )
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))


def with_front(points: Sequence[FrontPoint], budget: Budget) -> list[FrontPoint]:
    """The points, marked by the budget and the other points: which fit, which are on the front."""
    return [
        point.model_copy(
            update={
                "fits": not budget.exceeded(point.costs),
                "on_front": not any(dominates(other, point) for other in points),
            }
        )
        for point in points
    ]


def recommended(
    points: Sequence[FrontPoint], budget: Budget, teacher: float
) -> tuple[FrontPoint, str] | None:
    """The point to ship and the reason; None where none of those with a folder fits.

    Args:
        points: as `with_front` returned them.
        budget: the user's.
        teacher: its score on the half that chose.
    """
    open_to = [one for one in points if one.fits and one.path]
    if not open_to:
        return None
    best = max(open_to, key=lambda one: (one.chosen_on, -one.costs.size))
    if budget.score is None:
        return (
            best,
            f"the best score on the rows that choose among {len(open_to)} that fit {budget}",
        )
    least = budget.score * teacher
    enough = [one for one in open_to if one.chosen_on >= least]
    if not enough:
        share = f"{100 * best.chosen_on / teacher:.1f} %" if teacher > 0 else "none of it"
        return best, (
            f"none keeps {100 * budget.score:g} % of the teacher's score on the rows that choose; the best of "
            f"{len(open_to)} that fit keeps {share}"
        )
    name = "latency" if "latency" in budget.limits and "size" not in budget.limits else "size"
    least_cost = min(enough, key=lambda one: (getattr(one.costs, name), -one.chosen_on))
    return least_cost, (
        f"the least {name}, {amount(name, getattr(least_cost.costs, name))}, of {len(enough)} that keep "
        f"{100 * budget.score:g} % of the teacher's score on the rows that choose"
    )
