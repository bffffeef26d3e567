"""One self-contained HTML page that shows a run or a study: tables, curves, layers, cost.

Last on the way of a training step but the command line; reads records only.
"""

from limbeck.report.page import write_report

__all__ = ["write_report"]
