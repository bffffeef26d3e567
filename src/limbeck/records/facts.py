"""The contents of a record: the course of a run, its predictions' results, its measurements, its teachers.

Part of `limbeck.records`. Scores are percentages (0 to 100), probabilities 0 to 1, times seconds.
"""

import math
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from limbeck.support.cells import magnitude

Numbers = dict[str, float | None]
"""Named numbers; None represents a value that was not finite (JSON has no NaN)."""


class RecordPart(BaseModel):
    """A part of a run's facts."""

    # Unknown keys are kept: a record read, extended and saved again loses nothing.
    model_config = ConfigDict(extra="allow", validate_assignment=True, populate_by_name=True)


def finite(value: Any) -> Any:
    """The same structure with every float that is not finite replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    # NumPy and torch scalars: JSON knows only Python's own numbers.
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return finite(value.item())
    return value


class AnswerCounts(RecordPart):
    """With several labels per row, one class's counts: rows with the prediction or not, with the label or not."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int


class ClassFacts(RecordPart):
    """One class among the rows of a split; recall, precision and F1 0 to 100."""

    name: str
    rows: int
    recall: float | None = None
    precision: float | None = None
    """None where the class was never predicted."""
    f1: float | None = None
    teacher_recall: float | None = None
    teacher_precision: float | None = None
    teacher_f1: float | None = None
    counts: AnswerCounts | None = None
    """With several labels per row; with one class per row the confusion matrix is more informative."""
    teacher_counts: AnswerCounts | None = None


class ReliabilityPoint(RecordPart):
    """The rows predicted with a probability in (low, high]: how sure, and how often right."""

    low: float
    high: float
    rows: int
    confidence: float | None = None
    """Mean probability of these predictions, 0 to 1; None if there are no predictions."""
    accuracy: float | None = None
    """0 to 1."""


class CoverageFacts(RecordPart):
    """The accuracy of the most confident predictions alone."""

    coverage: float
    """The share of all rows, 0 to 1."""
    rows: int
    """At least that share, in complete rows."""
    accuracy: float
    """0 to 100. If only some of the rows with equal confidence count, each counts in part."""
    confidence: float
    """The lowest that counts, 0 to 1: a threshold for the same coverage."""
    tied: int = 0
    """Rows of that lowest confidence, where only some of them count."""


class ModelScores(RecordPart):
    """One model's predictions against the labels."""

    accuracy: float
    """With several labels per row, the share of rows with all classes right."""
    macro_f1: float
    """Mean F1 of the classes that have rows."""
    micro_f1: float | None = None
    """With several labels per row: F1 of all classes of all rows together."""
    confusion: list[list[int]] | None = None
    """Rows by label (outer) and prediction (inner), in the order of the classes; a last column counts
    predictions that name no class. None of more than 50 classes."""
    calibration_error: float | None = None
    """Expected calibration error, 0 to 100 (Naeini et al. 2015; Guo et al. 2017, Eq. 3), over the bins of
    `reliability`. None where no probabilities are known."""
    calibration_error_of_chance: float | None = None
    """The average for a perfectly calibrated model with the same probabilities on as many rows, 0 to 100."""
    reliability: list[ReliabilityPoint] = Field(default_factory=list)
    coverage: list[CoverageFacts] = Field(default_factory=list)


class Disagreement(RecordPart):
    """A row that student and teacher predict differently."""

    index: int
    """The row's number in the split, from 0."""
    label: str
    student: str
    teacher: str
    student_probability: float | None = None
    """Probability of the student's own prediction, 0 to 1."""
    teacher_probability: float | None = None
    distance: float | None = None
    """Total variation distance of both distributions over the classes, 0 to 1."""
    text: dict[str, str] | None = None
    """By column, the beginning; None where texts are not kept."""


class ClassificationScores(RecordPart):
    """A split's predictions of classes, by one model or by two."""

    rows: int
    """Labelled rows; of a tagger, words."""
    unit: str = "rows"
    """Their name, in the plural."""
    names: list[str] = Field(default_factory=list)
    """All classes in the order of their ids, which is the order of `confusion` too."""
    student: ModelScores
    teacher: ModelScores | None = None
    classes: list[ClassFacts] = Field(default_factory=list)
    """Those that have rows; a file holds them in columns, as a run may have ten thousand."""
    agreement: float | None = None
    """Rows that both predict alike, 0 to 100, right or wrong."""
    divergence: float | None = None
    """Mean Jensen-Shannon divergence of both models' probabilities in bits, 0 to 1; None where some are not known."""
    labels: Literal["teacher"] | None = None
    """Whose labels the rows have: teacher means its own predictions, and accuracy is agreement with it."""
    disagreements: list[Disagreement] = Field(default_factory=list)
    """The rows with the largest distance first; without probabilities the rows of which the student is surest,
    and without any in the order of the rows."""

    @field_validator("classes", mode="before")
    @classmethod
    def _of_columns(cls, found: Any) -> Any:
        """Columns as rows; records of earlier versions have rows."""
        if not isinstance(found, dict):
            return found
        columns = [column if isinstance(column, list) else [column] for column in found.values()]
        return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]

    @field_serializer("classes")
    def _in_columns(self, classes: list[ClassFacts]) -> dict[str, list[Any]]:
        rows = [one.model_dump(exclude_none=True) for one in classes]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def without_texts(self) -> "ClassificationScores":
        """The same, with no text of any row."""
        bare = [one.model_copy(update={"text": None}) for one in self.disagreements]
        return self.model_copy(update={"disagreements": bare})


class DifferenceFacts(RecordPart):
    """The difference of a primary score, one model less the other, with a 95 % interval over rows or queries."""

    difference: float
    """Points."""
    low: float
    high: float
    level: float = 0.95
    """Confidence of the interval, 0 to 1."""
    samples: int = 0
    seed: int = 0
    method: Literal["bootstrap", "score"] = "bootstrap"
    """score: Tango's interval of a difference of two accuracies, for few rows."""


class McNemarFacts(RecordPart):
    """McNemar's exact test: of the rows that one model alone has right, are they one model's more often?"""

    only_first: int
    only_second: int
    p: float
    """Two-sided."""


class RowTests(RecordPart):
    """One model against another over the same rows: how far chance in the rows explains their difference."""

    rows: int
    unit: str = "rows"
    """The unit that is counted and sampled: rows, pairs of texts, or queries."""
    difference: DifferenceFacts | None = None
    """None for a primary score that samples leave undefined, or that the predictions do not determine."""
    mcnemar: McNemarFacts | None = None
    """None where predictions are not of classes."""


# The measurements of a run's models: size, speed, the share kept, benches.


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
    """For an example of the mean length of the run's rows."""
    flops_at_128: float | None = None
    """For an example of 128 tokens, the length at which papers state FLOPs."""
    latency_ms: Latency | None = None
    """As the run timed it, in turns with its own teacher or student."""
    bench_ms: Latency | None = None
    """As `limbeck bench` timed it, in turns with the models of other runs."""


class TextLengths(RecordPart):
    """How a text is read with a smaller vocabulary."""

    coverage: float
    """Share of its tokens that are still one token, 0 to 1."""
    before: float
    """Mean length in tokens of a text, special ones left out."""
    after: float
    unknown_before: int = 0
    """Unknown tokens in the texts that were counted."""
    unknown_after: int = 0


class VocabularyFacts(RecordPart):
    """A student's vocabulary before and after tokens left it."""

    before: int
    """Rows of the table of embeddings."""
    after: int
    megabytes_before: float
    """Size of the table, in the model's precision."""
    megabytes_after: float
    texts: dict[str, TextLengths] = Field(default_factory=dict)
    """By the texts that were read, the training text first."""

    @property
    def said(self) -> str:
        """What stayed, in words."""
        after, before = (
            magnitude(1e6 * one) for one in (self.megabytes_after, self.megabytes_before)
        )
        size = f"{after}B of {before}B of embeddings"
        shares = ", ".join(f"{name} {100 * one.coverage:.1f} %" for name, one in self.texts.items())
        return f"{self.after:,} of {self.before:,} tokens, {size}; of the tokens of texts {shares}"

    @property
    def lengths(self) -> str:
        """How long texts become, in words, and how much of them no token spells."""
        found = []
        for name, one in self.texts.items():
            unknown = f"; unknown: {one.unknown_after:,} in all, before: {one.unknown_before:,}"
            said = f"before: {one.before:.1f}{unknown * bool(one.unknown_after)}"
            found.append(f"{name} {one.after:.1f} tokens a text ({said})")
        return ", ".join(found)


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
    """Their unit: rows, pairs of texts, or queries."""
    paired: bool = True
    """Whether both sides' predictions were sampled together; otherwise the teacher's score counts as exact."""
    method: Literal["bootstrap", "score"] = "bootstrap"
    """score: Tango's interval of the difference of the two accuracies, over the teacher's."""

    @property
    def interval(self) -> str:
        """The interval in words, and how it was found."""
        how = "" if self.paired else ", the teacher's score taken as exact"
        found = "bootstrap" if self.method == "bootstrap" else "score interval"
        return (
            f"{100 * self.level:.0f} % interval {100 * self.low:.1f} to {100 * self.high:.1f}, "
            f"{found} over {self.rows:,} dev {self.unit}{how}"
        )


class ConstantFacts(RecordPart):
    """The best constant prediction for dev rows, of a model that scores no better."""

    prediction: str
    score: float
    """Its primary score, 0 to 100."""


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


def busy_note(waited: float | None) -> str:
    """A sentence if a bench's passes waited for a core, with the share of their time; otherwise empty."""
    if waited is None or waited <= 0.1:
        return ""
    return (
        f"The machine was busy: passes waited for a core for up to {100 * waited:.0f} % of their time. "
        "Wall-clock times are unreliable, CPU times are not. Measure again when nothing else runs."
    )


class BenchRow(RecordPart):
    """One line of a bench: a model on a backend under a condition; times are milliseconds of a pass."""

    model: str
    role: Literal["student", "export", "teacher"]
    backend: str
    form: str
    export: str | None = None
    """For an exported model, its file's checksum."""
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
    """The measurements of a run's student, exports and teacher, in turns, by its last bench."""

    identity: str
    when: str
    processor: str | None = None
    waited: float | None = None
    """The largest share of its time, 0 to 1, for which a model's passes waited for a core."""
    rows: list[BenchRow] = Field(default_factory=list)

    @property
    def said(self) -> str:
        """When and where it timed, in sentences."""
        timed = f"Timed in turns by one bench ({self.identity}, {self.when}) on {self.processor}."
        return f"{timed} {busy_note(self.waited)}".rstrip()


# Who taught a run: a model, stored outputs, or a team of several.


class TeacherFacts(ModelFacts):
    """The teacher's size and speed, where it came from and its own scores by split."""

    path: str | None = None
    scores: dict[str, Numbers] = Field(default_factory=dict)


class OutputsFacts(RecordPart):
    """Stored outputs that a teacher gave in its model's place."""

    name: str
    path: str
    what: str
    """logits, probabilities, votes, score."""
    about: dict[str, Any] = Field(default_factory=dict)
    """For a store its manifest's fingerprints and its teacher's name, for a file its name and checksum."""
    scores: dict[str, Numbers] = Field(default_factory=dict)
    """By split, for the splits of which they cover every row."""


class TeamMember(RecordPart):
    """One of several teachers: its size, its scores and its part in the run."""

    name: str
    path: str
    parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    score: float | None = None
    """On dev, by the `skd-dev` profile, or the task's primary score where that has no column."""
    student_score: float | None = None
    """The same score of a student distilled from this teacher alone."""
    share: float | None = None
    """Probability of being sampled, or weight in the mean, at the start of the run."""
    sampled: int | None = None
    """Optimisation steps it taught alone."""


class TeamFacts(RecordPart):
    """Several teachers, and how they taught."""

    use: str
    by: str | None = None
    members: list[TeamMember] = Field(default_factory=list)
    runs: list[str] = Field(default_factory=list)
    """Folders of the runs made first: assistants in their order, a student of each teacher, or a run
    with each distribution."""
    chosen: str | None = None
    """Among the runs with each distribution, the one that provides this run's student: best on dev."""


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
    """One stage of the training: its rows and its cost."""

    stage: int
    task: str | None = None
    data: str | None = None
    rows: int | None = None
    tokens: float | None = None
    """Mean length of a training example."""
    truncated: int | None = None
    without_outputs: int = 0
    """Of its own rows, the number left out because stored teacher outputs lack them."""
    teacher: str | None = None
    steps: int | None = None
    student_examples: float | None = None
    """Examples the student was trained on, every pass counted."""
    embeddings_trained: int | None = None
    """Word embeddings that took part in its steps, if the embeddings of words in no row were left out."""
    student_flops: float | None = None
    teacher_flops: float | None = None
    seconds: float | None = None
    """Seconds of training, dev scores not counted."""


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
    """Seconds of training, except for the teacher."""
    teacher_seconds: float | None = None
    """Seconds of training while the teacher ran or its stored outputs were read, and of storing them."""
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
    """Word embeddings that took part in its steps, if the embeddings of words in no row were left out."""
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
    """Split → how many of its rows are training rows too, by their texts without case and outer whitespace; of rows
    scored later how many are training or dev rows, if many are. Empty in records of earlier versions and of images."""
    labelled: int | None = None
    """Training rows with a label; all of them in records of earlier versions."""
    unlabelled: int = 0
    """Training rows without a label."""
    unlabelled_in_scored_splits: int = 0
    """Rows without a label that were left out because dev or test holds their texts."""
    unlabelled_repeated: int = 0
    """Rows without a label that were left out because another training row holds their texts."""
    unlabelled_blank: int = 0
    """Rows without a label that were left out because they hold no text."""
    relabelled: int = 0
    """Training rows that were given another class (`label_noise`)."""
    without_outputs: int = 0
    """Training rows that were left out because stored teacher outputs do not cover them."""
    augmented: int = 0
    """Training rows that are augmented examples (`augment`)."""
    fingerprints: dict[str, str] = Field(default_factory=dict)
    """Key of `scores` → digest of the rows that were scored (`limbeck.data.rows_fingerprint`);
    empty in records of earlier versions."""


class Execution(RecordPart):
    """How the arithmetic was carried out, with nothing left open."""

    precision: Literal["fp32", "bf16"] | None = None
    """Type of matrix products."""
    training: dict[str, float] = Field(default_factory=dict)
    """Epochs and learning rate that the recipe left out → their values for these rows and this student."""
    attention: dict[str, str] = Field(default_factory=dict)
    """`student`, `teacher` → attention implementation."""
    teacher_outputs: dict[str, Literal["stored", "live"]] = Field(default_factory=dict)
    """Number of a stage → where its teacher's outputs came from."""
    live_because: dict[str, str] = Field(default_factory=dict)
    """Number of a stage → under `cache: auto`, why its teacher's outputs cannot be stored."""
    processes: tuple[int, ...] = ()
    """Number of processes of the run; several numbers if others continued it; empty in earlier versions."""
    read: dict[str, str] = Field(default_factory=dict)
    """Rows and models → their digests; a run resumes with no others."""
    files: dict[str, str] = Field(default_factory=dict)
    """Setting and place → checksum of the files there when the run began; none of earlier versions."""
    stored: list[str] = Field(default_factory=list)
    """Keys of the stored outputs that were made for this run, by any of its starts."""

    @property
    def processes_said(self) -> str:
        """`2`, or `2, then 1` for a run that another number continued; empty for one process."""
        return "" if set(self.processes) <= {1} else ", then ".join(map(str, self.processes))
