"""Columns of encoded rows and of batches that limbeck adds. Part of `limbeck.tasks`."""

from __future__ import annotations

EXAMPLE_WEIGHTS = "example_weights"
"""The column of a batch that says how much each example counts (B,), for the terms that learn from a
teacher's logits; without it all count alike."""

CUT = "__truncated__"
"""The column in which `TaskType.encode` says whether an example lost text to the length limit."""

ROW = "row"
"""The column that says which row of the split an encoded example is a part of, where one row can
become several; the examples are then numbered again."""
