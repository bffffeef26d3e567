"""The real files, where LIMBECK_GLUE names a GLUE folder; counts were taken with shell tools."""

import os
from collections import Counter

import pytest

from limbeck.data import load_task

GLUE = os.environ.get("LIMBECK_GLUE")
pytestmark = pytest.mark.skipif(not GLUE, reason="LIMBECK_GLUE names no GLUE folder")

# task: rows of train, dev, test; classes of dev by id. MRPC's train file is published with one
# row more or less.
PUBLISHED = {
    "cola": ((8551,), 1043, 1063, {0: 322, 1: 721}),
    "sst2": ((67349,), 872, 1821, {0: 428, 1: 444}),
    "mrpc": ((3667, 3668), 408, 1725, {0: 129, 1: 279}),
    "stsb": ((5749,), 1500, 1379, None),
    "rte": ((2490,), 277, 3000, {0: 146, 1: 131}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_and_classes(name):
    train, dev, test, classes = PUBLISHED[name]
    task, splits = load_task(name, GLUE)
    assert len(splits["train"]) in train
    assert (len(splits["dev"]), len(splits["test"])) == (dev, test)
    assert task.label_column not in splits["test"].column_names
    if classes is None:
        labels = splits["train"]["label"][:] + splits["dev"]["label"][:]
        assert (min(labels), max(labels)) == (0.0, 5.0)
    else:
        assert Counter(splits["dev"]["label"]) == classes
    for split in splits.values():
        assert all(text for column in task.text_columns for text in split[column])
        assert not any("\t" in text for column in task.text_columns for text in split[column])


def test_first_rows():
    assert load_task("cola", GLUE)[1]["dev"][0] == {
        "sentence": "The sailors rode the breeze clear of the rocks.", "label": 1, "index": 0,
    }  # fmt: skip
    first = load_task("mrpc", GLUE)[1]["dev"][0]
    assert first["sentence2"].startswith('" The foodservice pie business')
    assert load_task("stsb", GLUE)[1]["dev"][1]["label"] == 4.75
