"""Before the first step: one list of everything wrong or suspicious, each with its fix.

`check` runs all checks once data, teachers, students and objectives are loaded, before the first step.
Each check is also a function of plain arguments, in the modules of this package.
"""

from limbeck.preflight.checking import Method, TeacherSide, check, errors_of, show
from limbeck.preflight.model_checks import refuse_beyond, refuse_unfit
from limbeck.preflight.score_checks import (
    TeacherOutputs,
    ask_teacher,
    recorded_scores,
    teacher_record,
)

__all__ = [
    "Method",
    "TeacherOutputs",
    "TeacherSide",
    "ask_teacher",
    "check",
    "errors_of",
    "recorded_scores",
    "refuse_beyond",
    "refuse_unfit",
    "show",
    "teacher_record",
]
