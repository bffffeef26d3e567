"""Results tables: the records of many runs as methods × tasks, with spread and paired tests.

Tables are made from records alone.
"""

from limbeck.reporting.tables.collect import collect
from limbeck.reporting.tables.from_records import build_table, check_by
from limbeck.reporting.tables.measured_columns import DEFAULT_FACTS, FACTS
from limbeck.reporting.tables.model import Fact, ResultsTable, Row, TableCell, TableColumn
from limbeck.reporting.tables.render import FORMATS, render, terminal

__all__ = [
    "DEFAULT_FACTS",
    "FACTS",
    "FORMATS",
    "Fact",
    "ResultsTable",
    "Row",
    "TableCell",
    "TableColumn",
    "build_table",
    "check_by",
    "collect",
    "render",
    "terminal",
]
