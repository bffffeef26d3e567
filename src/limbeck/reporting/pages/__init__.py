"""One self-contained HTML page that shows a run, a study or a team: tables, curves, layers, cost.

Last on the way of a training step but the command line; reads records and what was measured only.
"""

from limbeck.reporting.pages.run_page import write_report
from limbeck.reporting.pages.team_page import team_sections, write_team_page

__all__ = ["team_sections", "write_report", "write_team_page"]
