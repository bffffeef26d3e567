"""`--data digits`: 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn, offline.

A source of the data stage. The set is ordered by writer; the last 500 images are the dev split, so
it holds hands that training has not seen.
"""

from dataclasses import replace

import numpy as np
from datasets import DatasetDict
from sklearn.datasets import load_digits

from limbeck.data.images import as_png
from limbeck.data.reader import DataReader, DataRequest, Loaded, data_reader
from limbeck.data.splits import make_split
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
            name: make_split(task, {task.text_columns[0]: images[part]}, labels[part])
            for name, part in parts.items()
        }
    )
