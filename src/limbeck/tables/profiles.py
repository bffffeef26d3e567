"""The printed names of the known tasks, and how the papers average: nine named ways to make columns of scores.

Part of `limbeck.tables`; loads no torch. The papers report different metrics of the same tasks and average
over different tasks, so that a table without its profile's name cannot be compared with theirs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from limbeck.support.errors import check_choice
from limbeck.support.plain import read_yaml

Scores = Mapping[str, Mapping[str, float | None]]
"""A run's scores by split and metric, as records keep them: {"dev": {"accuracy": 88.1, …}, …}."""

# The tasks' own file: `limbeck.tasks` would load torch.
_TASKS = read_yaml(
    (Path(__file__).parents[1] / "tasks" / "datasets.yaml").read_text("utf-8"), "datasets.yaml"
)
TITLES = {name: one["title"] for name, one in _TASKS.items()}
"""Name of each known task → its printed name, in the order of a table's columns."""


@dataclass(frozen=True)
class ProfileColumn:
    """One column of a table: the mean of some metrics over some dev splits of a task.

    `weight`: how often it counts in the average over all columns.
    """

    title: str
    metrics: str
    splits: tuple[str, ...] = ("dev",)
    weight: int = 1

    def value(self, scores: Scores) -> float | None:
        """The number in that column, None where a split or a metric was not scored."""
        found = [
            scores.get(split, {}).get(name)
            for split in self.splits
            for name in self.metrics.split("+")
        ]
        values = [value for value in found if value is not None]
        return fmean(values) if len(values) == len(found) else None


@dataclass(frozen=True)
class Profile:
    """The columns of each task that a paper's table shows, in the order of GLUE."""

    name: str
    summary: str
    columns: Mapping[str, tuple[ProfileColumn, ...]]


_MATCHED, _MISMATCHED = ("dev",), ("dev_mismatched",)
_ORDER = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
_EIGHT = _ORDER[:-1]


def _profile(
    name: str, summary: str, tasks: Collection[str], **metrics: str | tuple[ProfileColumn, ...]
) -> Profile:
    """GLUE's own columns for `tasks`, but for those given by name; MNLI both sets in one."""
    columns: dict[str, tuple[ProfileColumn, ...]] = {}
    for key in _ORDER:
        if key not in tasks:
            continue
        chosen = metrics.get(key, _TASKS[key]["primary"])
        if not isinstance(chosen, str):
            columns[key] = chosen
        elif key == "mnli":
            columns[key] = (ProfileColumn("MNLI", chosen, _MATCHED + _MISMATCHED),)
        else:
            columns[key] = (ProfileColumn(TITLES[key], chosen),)
    return Profile(name, summary, columns)


_MNLI_M = (ProfileColumn("MNLI-m", "accuracy", _MATCHED),)
_MNLI_TWICE = (ProfileColumn("MNLI", "accuracy", _MATCHED + _MISMATCHED, weight=2),)
_MNLI_BOTH = (*_MNLI_M, ProfileColumn("MNLI-mm", "accuracy", _MISMATCHED))


_STSB_BOTH = (ProfileColumn("STS-B Pear", "pearson"), ProfileColumn("STS-B Spea", "spearman"))


def _f1_and_accuracy(title: str) -> tuple[ProfileColumn, ...]:
    return ProfileColumn(f"{title} F1", "f1"), ProfileColumn(f"{title} acc", "accuracy")


def _accuracy_and_f1(title: str) -> tuple[ProfileColumn, ...]:
    return ProfileColumn(f"{title} acc", "accuracy"), ProfileColumn(f"{title} F1", "weighted_f1")


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        _profile(
            "glue",
            "the benchmark's own: nine tasks, two metrics or MNLI's two sets averaged first",
            _ORDER,
        ),
        _profile(
            "rail",
            "RAIL-KD: the benchmark's metrics on eight tasks, MNLI counted twice in the average, as "
            "in its Tables 2 and 4; Table 4 is without STS-B",
            _EIGHT,
            mnli=_MNLI_TWICE,
        ),
        _profile(
            "rail-once",
            "RAIL-KD, Table 3: the benchmark's metrics on eight tasks, each counted once",
            _EIGHT,
        ),
        _profile(
            "alp",
            "ALP-KD: accuracy for MRPC and QQP, Pearson for STS-B, MNLI matched",
            _EIGHT,
            mrpc="accuracy",
            qqp="accuracy",
            stsb="pearson",
            mnli=_MNLI_M,
        ),
        _profile(
            "internal",
            "internal-kd: its four tasks, accuracy and F1 weighted by class of MRPC and QQP side by side",
            ("cola", "qqp", "mrpc", "rte"),
            mrpc=_accuracy_and_f1("MRPC"),
            qqp=_accuracy_and_f1("QQP"),
        ),
        _profile(
            "cr-ild",
            "CR-ILD: F1 for MRPC, accuracy for QQP, Spearman for STS-B; no STS-B under noise",
            _EIGHT,
            mrpc="f1",
            qqp="accuracy",
            stsb="spearman",
            mnli=_MNLI_M,
        ),
        _profile(
            "skd-dev",
            "SKD, Table 10: means of accuracy and F1 and of both correlations, MNLI matched",
            ("mrpc", "rte", "stsb", "sst2", "qqp", "qnli", "mnli"),
            mnli=_MNLI_M,
        ),
        _profile(
            "skd-both",
            "SKD, Table 3: F1 and accuracy, Pearson and Spearman, MNLI's two sets side by side",
            ("mrpc", "rte", "stsb", "sst2", "qqp", "qnli", "mnli"),
            mrpc=_f1_and_accuracy("MRPC"),
            qqp=_f1_and_accuracy("QQP"),
            stsb=_STSB_BOTH,
            mnli=_MNLI_BOTH,
        ),
        _profile(
            "skd-test",
            "SKD, Table 2: F1 for MRPC and QQP, Spearman for STS-B, MNLI's two sets apart",
            ("mrpc", "rte", "stsb", "sst2", "qqp", "qnli", "mnli"),
            mrpc="f1",
            qqp="f1",
            stsb="spearman",
            mnli=_MNLI_BOTH,
        ),
    )
}


def get_profile(name: str) -> Profile:
    """The profile of that name; raises LimbeckError with the nearest name if it does not exist."""
    check_choice("profile", name, PROFILES)
    return PROFILES[name]


def knows(task: str) -> bool:
    """Whether profiles define a task's scores; other tasks have their primary score."""
    return task in PROFILES["glue"].columns


def columns_of_task(profile: str, task: str) -> tuple[ProfileColumn, ...]:
    """The columns of a task; none where the profile lacks it, of a user's own its primary dev score."""
    if not knows(task):
        return (ProfileColumn(TITLES.get(task, task), "primary"),)
    return get_profile(profile).columns.get(task, ())


def profile_score(profile: str, task: str, scores: Scores) -> float | None:
    """One number for a task: its column, or the mean of its columns.

    None where the profile lacks the task or the run lacks a score it needs.
    """
    columns = get_profile(profile).columns.get(task, ())
    return weighted_mean([(column.weight, column.value(scores)) for column in columns])


def weighted_mean(values: Sequence[tuple[int, float | None]]) -> float | None:
    """The mean of (weight, value); None without any value, or where one is missing: it would be another number."""
    known = [(weight, value) for weight, value in values if value is not None]
    total = sum(weight for weight, _ in known)
    if not total or len(known) < len(values):
        return None
    return sum(weight * value for weight, value in known) / total
