"""One self-contained HTML page that shows a run, a study or a team: tables, curves, layers, cost.

Pages are made from records and measurements alone.
"""

from limbeck.report.page import write_report
from limbeck.report.team import team_sections, write_team_page

__all__ = ["team_sections", "write_report", "write_team_page"]
