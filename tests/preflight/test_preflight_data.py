"""Rows, labels, ids, lengths and the output folder, with one thing wrong each."""

from __future__ import annotations

from datasets import Dataset
from preflight_runs import SST2, rows, tokenizer

from limbeck.preflight.data_checks import check_truncation, check_values
from limbeck.tasks import get_task


def test_values():
    assert check_values(SST2, "train", rows()) == []
    blank = check_values(SST2, "train", rows(4, sentence=["a film", " ", None, "plot"]))
    assert "2 of 4 rows have no text" in blank[0].message and blank[0].severity == "warning"
    (nothing,) = check_values(SST2, "train", rows(2, sentence=["", " "], label=[0, 1]))
    assert "2 of 2 rows have no text" in nothing.message and nothing.severity == "error"
    unlabelled = check_values(SST2, "dev", rows(4, label=[0, -1, 1, 2]))
    assert "2 of 4 labels are not 0..1: -1.0, 2.0" in unlabelled[0].message
    missing = check_values(SST2, "dev", rows(3, label=[0, None, 1]))
    assert "1 of 3 labels" in missing[0].message
    one = check_values(SST2, "dev", rows(3, label=[1, 1, 1]))
    assert "same label, positive" in one[0].message and one[0].severity == "warning"
    stsb = get_task("stsb")
    numbers = Dataset.from_dict(
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [0.5, float("nan")]}
    )
    assert "1 of 2 labels are not a number" in check_values(stsb, "dev", numbers)[0].message


def test_truncation_counts_and_names_the_longest():
    texts = ["a film", "a very very very bad plot", "good"]
    data = {"train": rows(3, sentence=texts, label=[0, 0, 1])}
    assert check_truncation(SST2, data, {"train": 0}, tokenizer(), 5) == []
    found = check_truncation(SST2, data, {"train": 1, "dev_mismatched": 3}, tokenizer(), 5)
    assert len(found) == 1 and found[0].severity == "warning"
    # Six words and two special tokens.
    assert "train: 1 of 3 examples (33.3 %)" in found[0].message
    assert "longest has 8 tokens" in found[0].message
