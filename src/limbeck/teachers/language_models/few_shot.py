"""Few-shot examples sampled from labelled rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from limbeck.support.errors import LimbeckError, Problem

Row = Mapping[str, str]
CLASS = "class"
"""The key of an example's class beside its columns."""


def sample_examples(
    rows: Sequence[Row],
    labels: Sequence[int],
    classes: Sequence[str],
    *,
    each: int,
    seed: int,
    excluded: Collection[tuple[str, ...]] = (),
) -> list[dict[str, str]]:
    """So many examples of each class, in an order of their own.

    Args:
        rows: the labelled training rows, by column.
        labels: their class ids; -1 for a row without a label.
        excluded: the texts of rows that must not be taken, such as those of the dev split.

    Raises:
        LimbeckError: a class has too few rows; all such classes are named.
    """
    generator = np.random.default_rng(seed)
    taken: list[int] = []
    problems = []
    known = set(excluded)
    ids = np.asarray(labels)
    for number, name in enumerate(classes):
        # A text that stands twice makes one example.
        texts: dict[tuple[str, ...], int] = {}
        for place in np.flatnonzero(ids == number).tolist():
            text = tuple(rows[place].values())
            if text not in known:
                texts.setdefault(text, place)
        places = list(texts.values())
        if len(places) < each:
            problems.append(
                Problem(
                    f"examples_per_class: {each}, but class {name!r} has {len(places)} labelled training rows "
                    "that are in no other split",
                    f"set it to {len(places)}, or write examples of your own",
                )
            )
            continue
        taken += generator.choice(places, each, replace=False).tolist()
    if problems:
        raise LimbeckError(problems)
    # Classes in blocks teach a model that the last class is what comes next (Zhao et al. 2021, §3).
    order = generator.permutation(len(taken))
    return [dict(rows[taken[at]]) | {CLASS: classes[ids[taken[at]]]} for at in order]
