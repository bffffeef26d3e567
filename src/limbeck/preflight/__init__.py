"""Before the first step: one list of everything wrong or suspicious, each with its fix.

`check` runs all checks once data, teachers, students and objectives are loaded, before the first step.
Each check is also a function of plain arguments.
"""

from limbeck.preflight.checking import (
    Method,
    TeacherSide,
    check,
    check_output,
    check_share,
    check_workers,
    errors_of,
    render,
    show,
)
from limbeck.preflight.data_checks import (
    check_columns,
    check_conditions,
    check_ids,
    check_truncation,
    check_values,
)
from limbeck.preflight.influence import check_influence, check_start, check_weights
from limbeck.preflight.model_checks import (
    INPUT_CHECKS,
    check_labels,
    check_padding,
    check_positions,
    check_request,
    check_tokenizers,
    check_vocabulary,
    positions_of,
    refuse_beyond,
    refuse_unfit,
)
from limbeck.preflight.score_checks import (
    TeacherOutputs,
    TeacherScore,
    ask_teacher,
    check_class_order,
    check_teacher_score,
    constant_baseline,
    measured_score,
    recorded_score,
    recorded_scores,
    teacher_record,
)

__all__ = [
    "INPUT_CHECKS",
    "Method",
    "TeacherOutputs",
    "TeacherScore",
    "TeacherSide",
    "ask_teacher",
    "check",
    "check_class_order",
    "check_columns",
    "check_conditions",
    "check_ids",
    "check_influence",
    "check_labels",
    "check_output",
    "check_padding",
    "check_positions",
    "check_request",
    "check_share",
    "check_start",
    "check_teacher_score",
    "check_tokenizers",
    "check_truncation",
    "check_values",
    "check_vocabulary",
    "check_weights",
    "check_workers",
    "constant_baseline",
    "errors_of",
    "measured_score",
    "positions_of",
    "recorded_score",
    "recorded_scores",
    "refuse_beyond",
    "refuse_unfit",
    "render",
    "show",
    "teacher_record",
]
