"""The malformed inputs, by kind. Each kind is a function from an empty folder to its cases."""

from __future__ import annotations

from attacks.case import Case
from attacks.data import conll_files, glue_folders, labels, spans_and_text, tables
from attacks.folders import caches, checkpoints, records
from attacks.recipes import flags, json_like_recipes, recipes, settings

KINDS = {
    "recipes": recipes,
    "recipes of odd YAML": json_like_recipes,
    "key=value settings": settings,
    "flags": flags,
    "CSV, TSV, JSON lines, Parquet": tables,
    "labels": labels,
    "CoNLL files": conll_files,
    "SQuAD and plain text": spans_and_text,
    "GLUE folders": glue_folders,
    "checkpoints": checkpoints,
    "records": records,
    "stored outputs": caches,
}

__all__ = ["KINDS", "Case"]
