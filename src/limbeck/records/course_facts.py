"""How a run went: its epochs and stages, the rows it saw, how the arithmetic was done, what it cost.

Part of `limbeck.records`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from limbeck.records.record_part import Numbers, RecordPart


class Epoch(RecordPart):
    """One epoch: mean training loss per named term, dev scores, and the layer pairs in use."""

    epoch: int
    """Counted from 1 in each stage."""
    stage: int = 1
    step: int = 0
    seconds: float | None = None
    train: Numbers = Field(default_factory=dict)
    labelled: int | None = None
    """Where some rows have no label: examples with one, of which `train` holds the means of terms that read labels."""
    dev: Numbers = Field(default_factory=dict)
    active_layers: dict[str, list[list[int]]] = Field(default_factory=dict)
    """Objective name → (student layer, teacher layer) pairs this epoch."""
    sampled: dict[str, int] = Field(default_factory=dict)
    """Teacher, of several that take turns → optimisation steps this epoch."""
    sampling_probabilities: Numbers = Field(default_factory=dict)
    """Teacher → its probability of being sampled at the end of this epoch."""


class StageFacts(RecordPart):
    """One stage of the training: what it trained on and what it cost."""

    stage: int
    task: str | None = None
    data: str | None = None
    rows: int | None = None
    tokens: float | None = None
    """Mean length of a training example."""
    truncated: int | None = None
    without_outputs: int = 0
    """Of rows that it alone has, those that were left out because stored teacher outputs say nothing of them."""
    teacher: str | None = None
    steps: int | None = None
    student_examples: float | None = None
    """Examples the student was trained on, every pass counted."""
    embeddings_trained: int | None = None
    """Word embeddings that took part in its steps, where those of words in no row were left out."""
    student_flops: float | None = None
    teacher_flops: float | None = None
    seconds: float | None = None
    """Of training, dev scores not counted."""


class Best(RecordPart):
    """An epoch of the last stage, and its primary dev score."""

    epoch: int
    primary: float | None = None


class Cost(RecordPart):
    """Where the run's time (seconds) and FLOPs went.

    The parts of the time add up to the total, earlier starts of the run included; what such a start
    did after its last checkpoint was lost with it and is not in them. Records of earlier versions
    know but the first three parts, which do not add up.
    """

    total_seconds: float | None = None
    student_seconds: float | None = None
    """Of training, but for the teacher."""
    teacher_seconds: float | None = None
    """Of training while the teacher ran or its stored outputs were read, and of storing them."""
    evaluation_seconds: float | None = None
    """Scoring dev after every epoch and at the end, student and teacher."""
    preparation_seconds: float | None = None
    """Loading, tokenising, pre-flight, and whatever no other part claims."""
    team_seconds: float | None = None
    """Ranking several teachers and the runs made first for it."""
    measuring_seconds: float | None = None
    """Latency and FLOPs."""
    saving_seconds: float | None = None
    """Checkpoints and the student."""
    embeddings_trained: int | None = None
    """Word embeddings that took part in its steps, where those of words in no row were left out."""
    student_flops: float | None = None
    teacher_flops: float | None = None
    student_examples: float | None = None
    """Examples the student was trained on in all stages, every pass counted."""


class Examples(RecordPart):
    """Rows per split of the task, and how many of them the length limit cut."""

    train: int | None = None
    dev: int | None = None
    test: int | None = None
    """Rows that chose nothing and were scored once, at the end; None where there were none."""
    truncated: dict[str, int] = Field(default_factory=dict)
    labels: Literal["teacher"] | None = None
    """Whose labels dev and test rows have: teacher means its own predictions, so that scores are agreement with it."""
    in_train: dict[str, int] = Field(default_factory=dict)
    """Split → how many of its rows are training rows too, by their texts without case and outer whitespace; records
    of earlier versions, and of images, have none."""
    labelled: int | None = None
    """Of the training rows those with a label; all of them in records of earlier versions."""
    unlabelled: int = 0
    """Of the training rows those without."""
    unlabelled_in_scored_splits: int = 0
    """Rows without a label that were left out because dev or test holds their texts."""
    unlabelled_repeated: int = 0
    """Rows without a label that were left out because another training row holds their texts."""
    unlabelled_blank: int = 0
    """Rows without a label that were left out because they hold no text."""
    relabelled: int = 0
    """Training rows that were given another class (`label_noise`)."""
    without_outputs: int = 0
    """Training rows that were left out because stored teacher outputs say nothing of them."""
    augmented: int = 0
    """Of the training rows those that are augmented examples (`augment`)."""
    fingerprints: dict[str, str] = Field(default_factory=dict)
    """Key of `scores` → digest of the rows that were scored (`limbeck.data.rows_fingerprint`);
    records of earlier versions have none."""


class Execution(RecordPart):
    """How the arithmetic was carried out, with nothing left open."""

    precision: Literal["fp32", "bf16"] | None = None
    """Type of matrix products."""
    training: dict[str, float] = Field(default_factory=dict)
    """Epochs and learning rate that the recipe left out → what they came to for these rows and this student."""
    attention: dict[str, str] = Field(default_factory=dict)
    """`student`, `teacher` → attention implementation."""
    teacher_outputs: dict[str, Literal["stored", "live"]] = Field(default_factory=dict)
    """Number of a stage → where its teacher's outputs came from."""
    live_because: dict[str, str] = Field(default_factory=dict)
    """Number of a stage → under `cache: auto`, why its teacher's outputs cannot be stored."""
    processes: tuple[int, ...] = ()
    """How many processes made the run; several numbers where others went on with it; none of earlier versions."""
    read: dict[str, str] = Field(default_factory=dict)
    """Rows and models → digest of what they were; a run goes on with no others."""
    files: dict[str, str] = Field(default_factory=dict)
    """Setting and place → checksum of the files there when the run began; none of earlier versions."""
    stored: list[str] = Field(default_factory=list)
    """Keys of the stored outputs that were made for this run, by any of its starts."""

    @property
    def processes_said(self) -> str:
        """`2`, or `2, then 1` of a run that another number went on with; nothing where one process made it."""
        return "" if set(self.processes) <= {1} else ", then ".join(map(str, self.processes))
