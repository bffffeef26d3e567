"""What was measured of a run's models: size, speed, the share kept, benches.

Part of `limbeck.reporting.records`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from limbeck.reporting.records.classification_facts import RowTests
from limbeck.reporting.records.record_part import Numbers, RecordPart


class Latency(RecordPart):
    """Forward time of one batch, in milliseconds."""

    median: float
    spread: float
    """Distance between the quartiles of the repeats."""
    batch_size: int = 1
    tokens: int | None = None
    repeats: int | None = None
    threads: int | None = None
    device: str | None = None
    bench: str | None = None
    """The bench that timed it, in turns with the others that name the same."""


class ModelFacts(RecordPart):
    """Size and speed of one model."""

    parameters: int | None = None
    embedding_parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    flops_per_example: float | None = None
    """Of an example of the mean length of the run's rows."""
    flops_at_128: float | None = None
    """Of an example of 128 tokens, the length at which papers state FLOPs."""
    latency_ms: Latency | None = None
    """As the run timed it, in turns with its own teacher or student."""
    bench_ms: Latency | None = None
    """As `limbeck bench` timed it, in turns with the models of other runs."""


class KeptFacts(RecordPart):
    """The student's share of the teacher's primary dev score, with a bootstrap interval over dev rows, or queries."""

    share: float
    """Student over teacher, 0 to 1 and above."""
    low: float
    high: float
    level: float = 0.95
    """Confidence of the interval, 0 to 1."""
    rows: int = 0
    """Units of dev that were sampled again."""
    unit: str = "rows"
    """What they are: rows, pairs of texts, or queries."""
    paired: bool = True
    """Whether both sides' predictions were sampled together; else the teacher's score counts as exact."""


class FloorFacts(RecordPart):
    """A linear model on TF-IDF of the same training rows and labels: what words alone reach."""

    scores: dict[str, Numbers] = Field(default_factory=dict)
    """By split, as the student's."""
    rows: int
    """Training rows that it was fitted on."""
    given: int
    """Training rows with a label, or a teacher's; above `rows` where they were too many."""
    taught: int = 0
    """Of `rows` those whose labels are the teacher's."""
    student_tests: dict[str, RowTests] = Field(default_factory=dict)
    """By split, the student less the floor over the same rows."""
    teacher_tests: dict[str, RowTests] = Field(default_factory=dict)
    """By split, the teacher less the floor, where the teacher's predictions are known."""
    seconds: float | None = None


BUSY = 0.1
"""Above this share of waiting a clock measures the machine's other work."""


class BenchRow(RecordPart):
    """One line of a bench: a model on a backend under a condition; times are milliseconds of a pass."""

    model: str
    role: Literal["student", "export", "teacher"]
    backend: str
    form: str
    export: str | None = None
    """Of an exported model, its file's checksum."""
    batch_size: int
    tokens: int
    threads: int
    p50: float
    p95: float | None = None
    rows_per_second: float | None = None
    memory_mib: float | None = None
    """Beyond the imported libraries, without files that are mapped."""
    mapped_mib: float | None = None
    """Pages of the model's files in memory."""
    disk_mib: float | None = None
    score: float | None = None
    """Primary dev score, where it was measured on the run's dev rows."""


class BenchFacts(RecordPart):
    """What the last bench that a run took part in measured of its student, exports and teacher, in turns."""

    identity: str
    when: str
    processor: str | None = None
    waited: float | None = None
    """The largest share of its time, 0 to 1, for which a model's passes waited for a core."""
    rows: list[BenchRow] = Field(default_factory=list)

    @property
    def caution(self) -> str:
        """A sentence where something else ran meanwhile; else nothing."""
        if self.waited is None or self.waited <= BUSY:
            return ""
        return (
            f" The machine was busy: passes waited for a core for up to {100 * self.waited:.0f} % of their "
            "time, so the times say little."
        )
