"""Which layers a student takes from the model it starts from, as plain numbers.

The result is a list of 1-based layer numbers, lowest
first, because a stack keeps its order; everything that copies weights or configuration entries
reads this list and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from limbeck.support.errors import LimbeckError, Problem, unknown


def _first(keep: int, total: int) -> list[int]:
    return list(range(1, keep + 1))


def _last(keep: int, total: int) -> list[int]:
    return list(range(total - keep + 1, total + 1))


def _skip(keep: int, total: int) -> list[int]:
    # j * total / keep, rounded half up without leaving the integers.
    return [(2 * j * total + keep) // (2 * keep) for j in range(1, keep + 1)]


def _upper(keep: int, total: int) -> list[int]:
    small, larger_groups = divmod(total, keep)
    uppers, top = [], 0
    for group in range(keep):
        top += small + (1 if group < larger_groups else 0)
        uppers.append(top)
    return uppers


PICKS: dict[str, Callable[[int, int], list[int]]] = {
    "first": _first,
    "last": _last,
    "skip": _skip,
    "upper": _upper,
}


def pick_layers(pick: str | Sequence[int], keep: int | None, total: int) -> list[int]:
    """Numbers of the picked layers, 1-based and ascending.

    `pick` is a rule or the layers themselves; `keep` is how many a rule keeps (None: all):

    * `first`, `last`: the `keep` layers at that end.
    * `skip`: every (total / keep)-th: 12 to 6 gives 2, 4, 6, 8, 10, 12. A step that is not whole is
      rounded half up: 12 to 5 gives 2, 5, 7, 10, 12.
    * `upper`: the upper layer of each of `keep` contiguous groups, of which the first
      `total mod keep` hold one layer more: 12 to 5 gives 3, 6, 8, 10, 12. Equal to `skip` when
      `total / keep` is whole.

    Raises LimbeckError for an unknown rule, for a count outside 1..total, and for listed layers
    that do not exist or occur twice.
    """
    if isinstance(pick, str):
        if pick not in PICKS:
            problem = unknown("student.pick", pick, list(PICKS))
            raise LimbeckError(problem.message, f"{problem.fix}; or list layers in student.layers")
        keep = total if keep is None else keep
        if not 1 <= keep <= total:
            raise LimbeckError(
                f"student.layers: {keep} layers asked for, but the model has {total}",
                f"choose a number from 1 to {total}",
            )
        return PICKS[pick](keep, total)
    return _listed(list(pick), keep, total)


def _listed(listed: list[int], keep: int | None, total: int) -> list[int]:
    """Check layers that were named one by one."""
    absent = [layer for layer in listed if not 1 <= layer <= total]
    problems = []
    if absent:
        problems.append(
            Problem(
                f"student.layers: {_numbers(absent)} asked for, but the model's layers are "
                f"1..{total}",
                f"name layers from 1 to {total} (the first layer is 1, not 0)",
            )
        )
    if len(set(listed)) < len(listed):
        problems.append(
            Problem(f"student.layers: {listed} names a layer twice", "name each layer once")
        )
    if not listed:
        problems.append(Problem("student.layers is empty", "name at least one layer"))
    if keep is not None and keep != len(listed):
        problems.append(
            Problem(
                f"student.layers: {keep} layers asked for, but {len(listed)} are listed: {listed}",
                "give the count or the list, not both",
            )
        )
    if problems:
        raise LimbeckError(problems)
    return sorted(listed)


def _numbers(layers: Sequence[int]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
