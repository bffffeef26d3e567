"""`--data digits`: 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn, offline.

A source of the data stage. The set is ordered by writer; the last 500 images are the dev split, so
it holds hands that training has not seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from datasets import DatasetDict
from sklearn.datasets import load_digits

from limbeck.data import splits
from limbeck.data.images import as_png
from limbeck.data.reader import DataReader, DataRequest, Loaded, data_reader
from limbeck.lab.pocket import RECOMMENDED, TEXT_STUDENT, TEXT_TEACHER, generate, lexicon
from limbeck.recipe.load import DATA_SETTINGS, DataSettings
from limbeck.students import names_cnn, starts_random
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

DIGITS = "digits"
"""The data source, and the name of the one task it holds."""

_DEV = 500
# The set counts ink from 0 to 16.
_MOST_INK = 16


@data_reader(DIGITS)
class DigitsSource(DataReader):
    """The one task of that name."""

    own_tasks = False

    def reads(self, request: DataRequest) -> bool:
        """The word `digits`."""
        return request.text == DIGITS

    def read(self, request: DataRequest) -> Loaded:
        """Its two splits."""
        task = replace(request, name=request.name or DIGITS).known_task()
        if task.name != DIGITS:
            raise LimbeckError(
                f"data source {DIGITS} holds the task {DIGITS}, not {task.name!r}",
                "leave task out",
            )
        return task, read_digits(task)


def read_digits(task: Task) -> DatasetDict:
    """Train (1,297 rows) and dev (500 rows)."""
    digits = load_digits()
    grey = np.rint(digits.images * (255 / _MOST_INK)).astype(np.uint8)
    images = [as_png(pixels) for pixels in grey]
    labels = digits.target.tolist()
    parts = {"train": slice(None, -_DEV), "dev": slice(-_DEV, None)}
    return DatasetDict(
        {
            name: splits.make_split(task, {task.text_columns[0]: images[part]}, labels[part])
            for name, part in parts.items()
        }
    )


_SMALL_SET_EPOCHS = 30


def pocket_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a pocket task's teacher, or students; of other tasks only the longest text."""
    task, student = recipe.get("task"), recipe.get("student")
    length = {"max_length": lexicon.MAX_LENGTH}
    if not isinstance(task, str) or task not in RECOMMENDED:
        return length
    from_scratch = isinstance(student, dict) and starts_random(student.get("init"))
    recommended = RECOMMENDED[task].teacher if from_scratch else RECOMMENDED[task].student
    if recipe.get("kind") == "text":
        recommended = TEXT_TEACHER if from_scratch else TEXT_STUDENT
    return {
        key: value for key, value in recommended._asdict().items() if value is not None
    } | length


def digits_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The one task, and few epochs of a CNN: there are 1,297 images."""
    student = recipe.get("student")
    init = student.get("init") if isinstance(student, dict) else None
    return {"task": DIGITS} | ({"epochs": _SMALL_SET_EPOCHS} if names_cnn(init) else {})


DATA_SETTINGS.register(generate.POCKET)(DataSettings(pocket_settings, toy="pocket"))
DATA_SETTINGS.register(DIGITS)(DataSettings(digits_settings))
