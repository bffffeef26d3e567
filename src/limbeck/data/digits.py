"""`--data digits`: 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn, offline.

A source of the data stage. The set is ordered by writer; the last 500 images are the dev split, so
it holds hands that training has not seen.
"""

from __future__ import annotations

import numpy as np
from datasets import DatasetDict
from sklearn.datasets import load_digits

from limbeck.data.pictures import as_png
from limbeck.data.splits import make_split
from limbeck.tasks.task import Task

_DEV = 500
# The set counts ink from 0 to 16.
_MOST_INK = 16


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
