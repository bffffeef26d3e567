"""Before the first step: one list of everything wrong or suspicious, each with its fix.

`check` runs all checks once data, teachers, students and objectives are loaded, before the first step.
Each check is also a function of plain arguments.
"""

from limbeck.preflight.checking import (
    Method,
    TeacherSide,
    check,
    check_influence,
    check_share,
    check_start,
    check_weights,
    check_workers,
    errors_of,
    show,
)
from limbeck.preflight.data_checks import (
    check_conditions,
)
from limbeck.preflight.model_checks import (
    INPUT_CHECKS,
    check_labels,
    check_padding,
    check_request,
    check_vocabulary,
    positions_of,
    refuse_beyond,
    refuse_unfit,
)
from limbeck.preflight.score_checks import (
    TeacherOutputs,
    ask_teacher,
    check_class_order,
    recorded_scores,
    teacher_record,
)

__all__ = [
    "INPUT_CHECKS",
    "Method",
    "TeacherOutputs",
    "TeacherSide",
    "ask_teacher",
    "check",
    "check_class_order",
    "check_conditions",
    "check_influence",
    "check_labels",
    "check_padding",
    "check_request",
    "check_share",
    "check_start",
    "check_vocabulary",
    "check_weights",
    "check_workers",
    "errors_of",
    "positions_of",
    "recorded_scores",
    "refuse_beyond",
    "refuse_unfit",
    "show",
    "teacher_record",
]
