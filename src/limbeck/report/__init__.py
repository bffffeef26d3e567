"""One self-contained HTML page that shows a run or a study: tables, curves, layers, cost.

Pages are made from records and measurements alone.
"""

from limbeck.report.page import write_report

__all__ = ["write_report"]
