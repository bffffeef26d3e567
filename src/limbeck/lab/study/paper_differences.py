"""What is other in a study than in its paper, said of what is run and not of what its file hoped for.

The study's own scale `paper` is what it is held against: tasks, seeds, training rows, epochs. What no key
shows stands in the file, under `differs`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from limbeck.lab.study.study_fields import Study
from limbeck.lab.study.study_file import student_settings
from limbeck.support.words import count_of
from limbeck.tables.model import task_title

Values = tuple[float, ...]
"""Of one setting on one task: those of all methods, each once."""

_COUNTED = {
    "train_rows": "{} training row",
    "epochs": "{} epoch",
    "first_stage.epochs": "a first stage of {} epoch",
}
"""Recipe key → how its number is said of one."""


def paper_differences(study: Study) -> list[str]:
    """Sentences on what is other than in the paper: first what its keys say, then its own `differs`."""
    said = []
    if study.published is not None:
        said += _tasks(study.tasks, study.published.tasks)
        said += _seeds(len(study.seeds), len(study.published.seeds))
        for key, form in _COUNTED.items():
            if key not in study.axes:
                said += _numbers(_values(study, key), _values(study.published, key, study), form)
    return [*said, *study.differs]


def given_otherwise(study: Study) -> list[str]:
    """What was asked for otherwise than the study's file has it, `key=value`; tasks and seeds are said above."""
    shown = {"tasks", "seeds", "data", "model", "jobs", "keep_students"}
    return [f"{key}={value}" for key, value in study.given.items() if key not in shown]


def _tasks(ours: list[str], theirs: list[str]) -> list[str]:
    if set(theirs) <= set(ours):
        return []
    if set(ours) <= set(theirs):
        return [f"{len(ours)} of {count_of(len(theirs), 'task')}"]
    here, there = (", ".join(map(task_title, names)) for names in (ours, theirs))
    return [f"{here} in place of {there}"]


def _seeds(ours: int, theirs: int) -> list[str]:
    return [f"{ours} of {theirs} seeds"] if ours < theirs else []


def _values(study: Study, key: str, of: Study | None = None) -> dict[str, Values]:
    """Task → what a key is set to by the methods, on the tasks and for the methods of `of`."""
    of = of or study
    found = {}
    for task in of.tasks:
        settings = (
            student_settings(study, row, task, {}) for row in of.methods if row in study.methods
        )
        found[task] = tuple(sorted({one[key] for one in settings if _is_number(one.get(key))}))
    return found


def _numbers(ours: Mapping[str, Values], theirs: Mapping[str, Values], form: str) -> list[str]:
    """What a number is on the tasks on which it is another: `2 epochs (SST-2: 1)`."""
    other = {task: values for task, values in ours.items() if values and values != theirs[task]}
    if not other:
        return []
    common = Counter(other.values()).most_common(1)[0][0]
    text = form.format(_words(common)) + ("" if common == (1,) else "s")
    if len(other) < len(ours):
        text += f" of {', '.join(task_title(task) for task in other if other[task] == common)}"
    rest = [f"{task_title(t)}: {_words(v)}" for t, v in other.items() if v != common]
    return [text + (f" ({', '.join(rest)})" if rest else "")]


def _words(values: Values) -> str:
    return " or ".join(f"{value:,}" for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
