"""The splits of every source, in one shape, with seeded dev and test splits if it lacks them.

A split holds the task's text columns, its label column (absent where the source has no labels) and
"index", the row number. Between the readers (folder, Hub, own files) and the encoding. Conditions touch the training
split alone; everything is a function of the rows and the condition's own seed, so that runs with several seeds, and a
teacher and its student, share their rows (CR-ILD, §5 and Appendix C: ill-conditioned data).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from datasets import Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets.table import InMemoryTable

from limbeck.data.table import taken
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.tasks.abstract_type import absent_label, labelled_rows, no_unlabelled
from limbeck.tasks.task import Task

SHARE = 0.1
FEW = 100
"""No test split is made of fewer labeled rows, unless a share is set: a score on fewer than ten means nothing."""
_ARROW = (pa.Array, pa.ChunkedArray)
_AS_THEY_ARE = (*_ARROW, np.ndarray)
_PIECE = 10_000


class Division(NamedTuple):
    """Where dev and test rows come from: the recipe's keys of the same names.

    The dev rows select; the test rows select nothing, and are scored once.

    Attributes:
        dev: a file of the dev rows, in addition to the training rows' file.
        test: a file of the test rows.
        dev_share: share of the labeled rows that becomes dev if there are no dev rows; None: a tenth.
        test_share: the same for test; None: a tenth if dev is made of the same rows and these are `FEW` or more.
        group_column: a column whose equal values keep rows together in one split.
    """

    dev: str | Path | None = None
    test: str | Path | None = None
    dev_share: float | None = None
    test_share: float | None = None
    group_column: str | None = None

    @property
    def given(self) -> list[str]:
        """The keys that are set."""
        return [key for key, value in zip(self._fields, self, strict=True) if value is not None]

    def beside(self, splits: Iterable[str]) -> "Division":
        """The shares to cut from training rows, given the splits that exist; 0 for existing ones.

        Raises:
            LimbeckError: a share or a group column that would have no effect.
        """
        there = set(splits)
        problems = [
            Problem(
                f"{split}_share: {share:g}, and the {split} rows are in a file of their own",
                f"leave {split}_share out",
            )
            for split, share in (("dev", self.dev_share), ("test", self.test_share))
            if split in there and share
        ]
        dev = 0.0 if "dev" in there else self.dev_share or SHARE
        test = self.test_share
        if "test" in there or (test is None and not dev):
            test = 0.0
        if dev + (test or 0) >= 1:
            problems.append(
                Problem(
                    f"dev_share, test_share: {dev:g} and {test:g} leave no rows to train on",
                    "lower them",
                )
            )
        if self.group_column is not None and not dev and test == 0:
            problems.append(
                Problem(
                    "group_column: train, dev and test rows are in files of their own",
                    "leave group_column out",
                )
            )
        raise_problems(problems)
        return self._replace(dev_share=dev, test_share=test)


AS_USUAL = Division()
DEV_ALONE = Division(dev_share=SHARE, test_share=0.0)


class SplitRows(NamedTuple):
    """Row numbers of each split, ascending; a row without a label is in train or in none."""

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray


def make_split(
    task: Task, texts: Mapping[str, Sequence[Any]], labels: Sequence[Any] | None
) -> Dataset:
    """One split in memory, of text columns [n] (lists or Arrow) and labels [n].

    Labels are class ids or numbers, lists of tag ids, or answers; masked text has no labels of its own.
    """
    columns: dict[str, Any] = {name: texts[name] for name in task.text_columns}
    features = task.kind.features(task)
    one_label = task.kind.row_layout == "one label"
    if labels is not None:
        columns[task.label_column] = _checked(task, labels) if one_label else labels
    features = {name: feature for name, feature in features.items() if name in columns}
    rows = len(columns[task.text_columns[0]])
    columns["index"] = np.arange(rows)
    features["index"] = Value("int64")
    return in_memory(columns, Features(features))


def in_memory(columns: Mapping[str, Any], features: Features) -> Dataset:
    """A dataset of these columns; where all are Arrow's or numpy's, without a look at each value."""
    if not all(isinstance(values, _AS_THEY_ARE) for values in columns.values()):
        return Dataset.from_dict(dict(columns), features=features)
    table = pa.table(dict(columns)).cast(features.arrow_schema)
    # The datasets library would make a copy of all rows to take one of.
    own = digest_of(table)
    return Dataset(InMemoryTable(table), info=DatasetInfo(features=features), fingerprint=own)


def digest_of(table: pa.Table) -> str:
    """A digest of the values and their names, a piece at a time."""
    digest = xxhash.xxh3_64(str(table.schema).encode())
    for batch in table.to_batches():
        digest.update(batch.serialize())
    return digest.hexdigest()


def _checked(task: Task, labels: Sequence[Any]) -> pa.Array:
    """Class ids or numbers [n] in Arrow's memory; the datasets library looks at lists one by one.

    Raises LimbeckError for numbers outside the task's range.
    """
    if task.bounds is not None:
        low, high = task.bounds
        wrong = [row for row, value in enumerate(labels, start=1) if value < low or value > high]
        if wrong:
            raise LimbeckError(
                f"task {task.name!r}: {len(wrong)} of {len(labels)} scores are outside {low:g} to "
                f"{high:g}, the first in row {wrong[0]}: {labels[wrong[0] - 1]:g}",
                "fix those rows, or name a task of your own for scores of another range",
            )
    return pa.array(labels, pa.float64() if task.regression else pa.int64())


def hold_out(
    labels: Sequence[Any],
    stratify: bool,
    seed: int,
    division: Division = DEV_ALONE,
    groups: np.ndarray | None = None,
) -> SplitRows:
    """Row numbers of train, dev and test, by `seed`; without groups the dev rows do not depend on the test share.

    Rows without a label (−100, NaN) stay in train. With `stratify` each class gets its share of the rows, to one row;
    of dev at least one if the class has two or more (scikit-learn's own split fails for a class of one row; here such
    a row stays in train). A row of several labels counts for its rarest, and its class may have no dev row.

    Args:
        labels: class ids or numbers (n,), or a number for each class (n, C).
        stratify: whether they are classes.
        seed: of the draw.
        division: the shares, as `beside` gives them.
        groups: numbers (n,) of which equal ones keep rows together; each class's shares are then met as nearly as
            the groups allow, and a row without a label whose group is held out is in no split.

    Raises:
        LimbeckError: no row can be spared.
    """
    generator = np.random.default_rng(seed)
    values = np.asarray(labels)
    labelled = np.flatnonzero(labelled_rows(values))
    dev_share, test_share = division.dev_share or 0.0, division.test_share
    if test_share is None:
        test_share = SHARE if len(labelled) >= FEW else 0.0
    strata = _strata(values, labelled) if stratify else np.zeros(len(values), dtype=np.int64)
    if groups is None:
        dev, test = _drawn(
            labelled, strata, (dev_share, test_share), generator, some_of_each=values.ndim == 1
        )
    else:
        dev, test = _drawn_groups(labelled, strata, groups, (dev_share, test_share), generator)
    for split, share, rows in (("dev", dev_share, dev), ("test", test_share, test)):
        if share and not len(rows):
            raise LimbeckError(
                f"{len(labelled)} rows{' in these groups' if groups is not None else ''} are too few to keep some "
                f"back as a {split} split",
                f"give a folder with train and {split} files, or more rows",
            )
    kept = np.ones(len(values), dtype=bool)
    kept[dev] = kept[test] = False
    if groups is not None:
        kept &= ~np.isin(groups, groups[np.concatenate([dev, test])])
    return SplitRows(np.flatnonzero(kept), np.sort(dev), np.sort(test))


def hold_out_texts(
    labels: Sequence[Any], stratify: bool, seed: int, division: Division, texts: np.ndarray
) -> SplitRows:
    """As `hold_out`, of different texts: rows that repeat a text follow its first labeled row.

    A text with more rows than a usual share stays in train, unless all have as many. Too few different texts are
    divided row by row, and pre-flight warns.

    Args:
        labels: as for `hold_out`; so are `stratify`, `seed` and `division`.
        texts: numbers (n,), equal for equal texts (`equal_texts`).
    """
    labelled = np.flatnonzero(labelled_rows(np.asarray(labels)))
    _, first, rows_of = np.unique(texts[labelled], return_index=True, return_counts=True)
    few = rows_of <= max(SHARE * len(labelled), min(rows_of, default=0))
    drawn = np.sort(labelled[first[few]])
    try:
        parts = hold_out([labels[row] for row in drawn], stratify, seed, division)
    except LimbeckError:
        return hold_out(labels, stratify, seed, division)
    dev, test = (np.isin(texts, texts[drawn[part]]) for part in (parts.dev, parts.test))
    train = np.flatnonzero(~(dev | test))
    return SplitRows(train, *(labelled[part[labelled]] for part in (dev, test)))


def equal_texts(task: Task, texts: Mapping[str, Sequence[Any]]) -> np.ndarray | None:
    """Numbers (n,) of rows by text columns [n], equal for rows of equal texts; None if no text is repeated."""
    size, digests = len(texts[task.text_columns[0]]), []
    for start in range(0, size, _PIECE):
        piece = (values[start : start + _PIECE] for values in texts.values())
        lists = (one.to_pylist() if isinstance(one, _ARROW) else one for one in piece)
        for row in task.kind.compared_texts(task, dict(zip(texts, lists, strict=True))):
            said = repr([[plain_text(text) for text in part] for part in row])
            digests.append(xxhash.xxh3_64_intdigest(said.encode()))
    different, numbers = np.unique(np.array(digests, dtype=np.uint64), return_inverse=True)
    return numbers if 0 < len(different) < len(numbers) else None


def plain_text(text: str) -> str:
    """A text as it is compared with others: case and outer whitespace make no difference."""
    return text.strip().casefold()


def _strata(values: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """By row the class that it counts for (n,): its own, of several its rarest one."""
    if values.ndim == 1:
        return np.unique(values, return_inverse=True)[1]
    has = values == 1
    rows_of = has[labelled].sum(axis=0)
    rarest = np.where(has, rows_of, len(values) + 1).argmin(axis=1)
    found: np.ndarray = np.where(has.any(axis=1), rarest, values.shape[1])
    return found


def _drawn(
    labelled: np.ndarray,
    strata: np.ndarray,
    shares: tuple[float, float],
    generator: np.random.Generator,
    *,
    some_of_each: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of dev and of test, each class separately; dev has `some_of_each` that has two rows."""
    classes = [labelled[strata[labelled] == one] for one in np.unique(strata[labelled])]
    order = [generator.permutation(rows) for rows in classes]
    sizes = np.array([len(rows) for rows in order], dtype=np.int64)
    if some_of_each and shares[0]:
        wanted = np.maximum(1, [round(shares[0] * size) for size in sizes.tolist()])
        dev = np.minimum(wanted, sizes - 1).astype(np.int64)
    else:
        dev = _apportioned(sizes, shares[0], sizes - 1)
    test = _apportioned(sizes, shares[1], sizes - dev - 1)
    parts = list(zip(order, dev, test, strict=True))
    none = np.array([], dtype=np.int64)
    return (
        np.concatenate([none, *(rows[:first] for rows, first, _ in parts)]),
        np.concatenate([none, *(rows[first : first + more] for rows, first, more in parts)]),
    )


def _apportioned(sizes: np.ndarray, share: float, most: np.ndarray) -> np.ndarray:
    """A share of all, in proportion to sizes: rounded down, then the largest remainders, never more than `most`."""
    most = most.clip(0)
    total = min(max(1, round(share * int(sizes.sum()))), int(most.sum())) if share else 0
    quotas, remainders = np.divmod(sizes * total, max(int(sizes.sum()), 1))
    quotas = np.minimum(quotas, most)
    order = np.argsort(-remainders, kind="stable")
    while quotas.sum() < total:
        for place in order:
            if quotas.sum() < total and quotas[place] < most[place]:
                quotas[place] += 1
    found: np.ndarray = quotas
    return found


def _drawn_groups(
    labelled: np.ndarray,
    strata: np.ndarray,
    groups: np.ndarray,
    shares: tuple[float, float],
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Split complete groups, large ones first: each goes where every class is then nearest to its share."""
    _, group_of = np.unique(groups[labelled], return_inverse=True)
    _, stratum_of = np.unique(strata[labelled], return_inverse=True)
    totals = np.bincount(stratum_of).tolist()
    members = _by_number(group_of)
    order = sorted(generator.permutation(len(members)).tolist(), key=lambda one: -len(members[one]))
    wanted = (1 - sum(shares), *shares)
    have = [[0] * len(totals) for _ in wanted]
    parts: tuple[list[int], ...] = ([], [], [])
    for one in order:
        counts = np.unique(stratum_of[members[one]], return_counts=True)
        pairs = list(zip(*(column.tolist() for column in counts), strict=True))
        # The growth of the squared distances to the shares, in Python's own floats: the same on every machine.
        grown = [
            sum(
                rows * (2 * (have[place][own] - share * totals[own]) + rows) / totals[own]
                for own, rows in pairs
            )
            if share or not place
            else float("inf")
            for place, share in enumerate(wanted)
        ]
        best = grown.index(min(grown))
        parts[best].extend(labelled[members[one]].tolist())
        for own, rows in pairs:
            have[best][own] += rows
    return np.array(parts[1], dtype=np.int64), np.array(parts[2], dtype=np.int64)


def halved(count: int, groups: Sequence[Any] | np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Places of a random half of `count` rows, and of the others; rows of one group stay together."""
    numbers = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    second = (np.random.default_rng(0).permutation(numbers.max() + 1) % 2 == 1)[numbers]
    return np.flatnonzero(~second), np.flatnonzero(second)


def _by_number(numbers: np.ndarray) -> list[np.ndarray]:
    """Places of each number 0, 1, …"""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers))[:-1]) if len(numbers) else []


def with_held_out_dev(
    task: Task, texts: Mapping[str, Sequence[Any]], labels: Sequence[Any], seed: int
) -> DatasetDict:
    """Train and dev splits out of one set of labeled rows; see `hold_out`."""
    return with_held_out(task, texts, labels, seed, DEV_ALONE)


def with_held_out(
    task: Task,
    texts: Mapping[str, Sequence[Any]],
    labels: Sequence[Any],
    seed: int,
    division: Division,
    groups: np.ndarray | None = None,
    draw: Callable[..., SplitRows] = hold_out,
) -> DatasetDict:
    """Train, and dev and test as far as `division` (as `beside` gives it) has a share for them, as `draw` does."""
    if not division.dev_share and division.test_share == 0:
        return DatasetDict({"train": make_split(task, texts, labels)})
    stratify = bool(task.kind.row_classes(task))
    known = labels if stratify or task.regression else range(len(labels))
    parts = draw(known, stratify, seed, division, groups)
    splits = DatasetDict()
    for name, rows in parts._asdict().items():
        if name == "train" or len(rows):
            chosen = {column: taken(values, rows) for column, values in texts.items()}
            splits[name] = make_split(task, chosen, [labels[row] for row in rows])
    return splits


def with_test_as_dev(task: Task, splits: DatasetDict) -> DatasetDict:
    """The test split under the name of dev, for a task whose papers score every epoch on it."""
    if task.dev_is_test and "dev" not in splits and "test" in splits:
        splits["dev"] = splits.pop("test")
    return splits


def stacked(rows: Dataset, more: Dataset) -> Dataset:
    """Rows with others of the same columns below them; text that is stored in files stays there."""
    wide = {
        name: Value("large_string") if _is_text(kind) else kind
        for name, kind in rows.features.items()
    }
    features = Features(wide)
    tables = [
        part.with_format("arrow")[:].select(list(features)).cast(features.arrow_schema)
        for part in (rows, more)
    ]
    own = xxhash.xxh3_64(f"{rows._fingerprint} {more._fingerprint}".encode()).hexdigest()
    table = InMemoryTable(pa.concat_tables(tables))
    return Dataset(table, info=DatasetInfo(features=features), fingerprint=own)


def _is_text(kind: Any) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("string", "large_string")


def with_label_column(task: Task, rows: Dataset) -> Dataset:
    """Training rows with a label column in which none has a label, where they come without one."""
    if task.label_column in rows.column_names or no_unlabelled(task.kind) is not None:
        return rows
    features = Features({**task.kind.features(task), "index": Value("int64")})
    table: pa.Table = rows.with_format("arrow")[:]
    columns = {name: table.column(name) for name in table.column_names}
    absent = absent_label(task)
    columns[task.label_column] = pa.array(
        [absent] * len(rows) if isinstance(absent, list) else np.full(len(rows), absent)
    )
    return in_memory({name: columns[name] for name in features}, features)


def check_splits(task: Task, splits: DatasetDict, origin: str, *, for_training: bool) -> None:
    """Raise LimbeckError when a split is missing, empty or lacks its labels.

    Training needs train and every dev split; scoring alone needs one labelled split. Where the dev splits have
    labels the rows of train may go without, if the task type can learn from a teacher alone.
    """
    labelled = [name for name, split in splits.items() if task.label_column in split.column_names]
    empty = [name for name, split in splits.items() if len(split) == 0]
    if empty:
        raise LimbeckError(
            f"task {task.name!r}: the split{'s' if len(empty) > 1 else ''} {', '.join(empty)} of {origin} hold no rows",
            "check the files, or fetch them again",
        )
    needed = ("train", *task.dev_splits) if for_training else ()
    missing = [name for name in needed if name not in labelled]
    if missing == ["train"] and "train" in splits and no_unlabelled(task.kind) is None:
        missing = []
    if missing or not task.evaluation_splits(labelled):
        wanted = ", ".join(missing) or " or ".join((*task.dev_splits, "test"))
        raise LimbeckError(
            f"task {task.name!r}: {origin} has no labelled split {wanted}",
            f"labelled splits that are there: {', '.join(labelled) or 'none'}",
        )


# ---- conditions of the training rows: fewer of them, and rows with a wrong label ----


# Keeps the draws of one seed apart.
_ROWS, _NOISE = 1, 2


class Conditions(NamedTuple):
    """The changes to the training rows: the recipe's keys of the same names."""

    train_rows: int | None = None
    train_rows_seed: int = 0
    stratified: bool = False
    label_noise: float = 0.0
    label_noise_seed: int = 0

    def apply(self, rows: Dataset, task: Task, *, labels_read: bool = True) -> Dataset:
        """The training rows under these conditions: first fewer of them, then the noise.

        They are conditions of the labeled rows; those without a label stay behind these, as they are.

        Args:
            labels_read: False if the labels are not used, so that a row counts with or without one.

        Raises:
            LimbeckError: more rows are requested than exist, or classes of rows without classes.
        """
        labelled, others = divided(rows, task) if labels_read else (rows, None)
        if others is not None and (self.train_rows is not None or self.label_noise):
            self._check_enough(labelled, "training rows with a label")
            return stacked(self.apply(labelled, task), others)
        if self.train_rows is not None:
            self._check_enough(rows, "training rows")
            rows = self._fewer(rows, task, self.train_rows)
        if self.label_noise:
            labels = self._classes(rows, task, "label_noise: there is no other class to give")
            noisy = with_noise(labels, len(task.labels), self.label_noise, self.label_noise_seed)
            rows = with_labels(rows, task.label_column, noisy)
        return rows

    def relabelled(self, rows: int) -> int:
        """How many of that many training rows get another class: the exact share, half up."""
        share = Decimal(str(self.label_noise)) * rows
        return int(share.quantize(Decimal(1), ROUND_HALF_UP))

    def _check_enough(self, rows: Dataset, what: str) -> None:
        if self.train_rows is not None and self.train_rows > len(rows):
            raise LimbeckError(
                f"train_rows: {self.train_rows} of {len(rows)} {what}",
                "request fewer" if len(rows) else "leave it out",
            )

    def _fewer(self, rows: Dataset, task: Task, wanted: int) -> Dataset:
        if not self.stratified:
            return rows.shuffle(seed=self.train_rows_seed).select(range(wanted))
        labels = self._classes(rows, task, "stratified: there are no classes to keep in proportion")
        return rows.select(stratified_rows(labels, wanted, self.train_rows_seed).tolist())

    def _classes(self, rows: Dataset, task: Task, trouble: str) -> np.ndarray:
        """The rows' class ids."""
        labels = None if task.regression else rows[task.label_column][:]
        if labels is None or not all(isinstance(label, int) for label in labels):
            raise LimbeckError(f"{trouble}: {task.name} has no class for each row", "leave it out")
        return np.asarray(labels, dtype=np.int64)


def divided(rows: Dataset, task: Task) -> tuple[Dataset, Dataset | None]:
    """The labeled rows and the others; None where there are no others, or the task type takes none."""
    column = rows.features.get(task.label_column)
    if no_unlabelled(task.kind) is not None or column is None:
        return rows, None
    labelled = labelled_rows(rows.with_format("numpy")[task.label_column][:])
    if labelled.all():
        return rows, None
    chosen = (np.flatnonzero(which) for which in (labelled, ~labelled))
    first, second = (rows.select(places) for places in chosen)
    return first, second


def stratified_rows(labels: np.ndarray, wanted: int, seed: int) -> np.ndarray:
    """Row numbers (wanted), in random order, with the classes in proportion.

    Each class gets its exact share rounded down; the rows then missing go to the largest remainders
    (ties to the lower class id), so no class is more than one row off.
    """
    classes, counts = np.unique(labels, return_counts=True)
    quotas, remainders = np.divmod(counts * wanted, len(labels))
    quotas[np.argsort(-remainders, kind="stable")[: wanted - quotas.sum()]] += 1
    generator = np.random.default_rng([seed, _ROWS])
    chosen = [
        generator.permutation(np.flatnonzero(labels == label))[:quota]
        for label, quota in zip(classes, quotas, strict=True)
    ]
    return generator.permutation(np.concatenate(chosen))


def with_noise(labels: np.ndarray, classes: int, rate: float, seed: int) -> np.ndarray:
    """The labels, a share of them, the exact number, replaced by another class sampled uniformly."""
    count = Conditions(label_noise=rate).relabelled(len(labels))
    if count and classes < 2:
        raise LimbeckError("label_noise: there is a single class", "leave label_noise out")
    generator = np.random.default_rng([seed, _NOISE])
    rows = generator.permutation(len(labels))[:count]
    noisy = labels.copy()
    # Adding 1..classes−1 round the circle reaches every other class, and never the old one.
    noisy[rows] = (noisy[rows] + generator.integers(1, max(classes, 2), size=count)) % classes
    return noisy


def with_labels(rows: Dataset, column: str, labels: np.ndarray) -> Dataset:
    """The same rows with other class ids or numbers, columns and features in their places."""
    order, feature = rows.column_names, rows.features[column]
    changed = rows.remove_columns(column).add_column(column, labels.tolist(), feature=feature)
    return changed.select_columns(order)
