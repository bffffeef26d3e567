"""One JSON record a run: the last thing a training run writes and the first that tables read."""

from limbeck.reporting.records.classification_facts import (
    AnswerCounts,
    ClassFacts,
    ClassificationScores,
    CoverageFacts,
    DifferenceFacts,
    Disagreement,
    McNemarFacts,
    ModelScores,
    ReliabilityPoint,
    RowTests,
)
from limbeck.reporting.records.collection import is_collection, read_collection, write_collection
from limbeck.reporting.records.course_facts import (
    Best,
    Cost,
    Epoch,
    Examples,
    Execution,
    StageFacts,
)
from limbeck.reporting.records.machine import hardware, versions
from limbeck.reporting.records.measured_facts import (
    BenchFacts,
    BenchRow,
    FloorFacts,
    KeptFacts,
    Latency,
    ModelFacts,
)
from limbeck.reporting.records.record import RECORD_NAME, SCHEMA, Record
from limbeck.reporting.records.record_part import Numbers, finite
from limbeck.reporting.records.teacher_facts import (
    OutputsFacts,
    TeacherFacts,
    TeamFacts,
    TeamMember,
)
from limbeck.support.files import write_whole

__all__ = [
    "RECORD_NAME",
    "SCHEMA",
    "AnswerCounts",
    "BenchFacts",
    "BenchRow",
    "Best",
    "ClassFacts",
    "ClassificationScores",
    "Cost",
    "CoverageFacts",
    "DifferenceFacts",
    "Disagreement",
    "Epoch",
    "Examples",
    "Execution",
    "FloorFacts",
    "KeptFacts",
    "Latency",
    "McNemarFacts",
    "ModelFacts",
    "ModelScores",
    "Numbers",
    "OutputsFacts",
    "Record",
    "ReliabilityPoint",
    "RowTests",
    "StageFacts",
    "TeacherFacts",
    "TeamFacts",
    "TeamMember",
    "finite",
    "hardware",
    "is_collection",
    "read_collection",
    "versions",
    "write_collection",
    "write_whole",
]
