"""Results tables: the records of many runs as methods × tasks, with spread and paired tests.

Tables are made from records alone.
"""

from limbeck.tables.against import Baseline
from limbeck.tables.build import build_table, check_by, collect
from limbeck.tables.facts import DEFAULT_FACTS, FACTS
from limbeck.tables.model import ResultsTable
from limbeck.tables.render import FORMATS, render, terminal

__all__ = [
    "DEFAULT_FACTS",
    "FACTS",
    "FORMATS",
    "Baseline",
    "ResultsTable",
    "build_table",
    "check_by",
    "collect",
    "render",
    "terminal",
]
