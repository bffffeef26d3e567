"""Results tables: the records of many runs as methods × tasks, with spread and paired tests.

After the records on the way of a training step; reads nothing but records.
"""

from limbeck.table.build import build_table
from limbeck.table.collect import collect
from limbeck.table.facts import DEFAULT_FACTS, FACTS
from limbeck.table.model import Cell, Column, Fact, Row, Table
from limbeck.table.render import FORMATS, render, terminal

__all__ = [
    "DEFAULT_FACTS",
    "FACTS",
    "FORMATS",
    "Cell",
    "Column",
    "Fact",
    "Row",
    "Table",
    "build_table",
    "collect",
    "render",
    "terminal",
]
