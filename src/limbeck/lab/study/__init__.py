"""Many runs as one experiment: methods by tasks by seeds, settings chosen on dev, a paper's table.

`study_file` is the user's file, `study_plan` the runs that follow from it, `carry_out` makes them, and
`study_output` writes the table and the page.
"""

from limbeck.lab.study.carry_out import carry_out
from limbeck.lab.study.plan_builder import StudyPlan
from limbeck.lab.study.shared_runs import SharedRuns, StudyRun
from limbeck.lab.study.study_estimate import estimate
from limbeck.lab.study.study_fields import Study
from limbeck.lab.study.study_file import load_study, shipped
from limbeck.lab.study.study_output import study_table, write_study

__all__ = [
    "SharedRuns",
    "Study",
    "StudyPlan",
    "StudyRun",
    "carry_out",
    "estimate",
    "load_study",
    "shipped",
    "study_table",
    "write_study",
]
