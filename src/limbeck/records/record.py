"""One JSON record per run: its recipe, its machine, its results and its cost.

The run fills a `Record` and saves it as
it goes, and everything after it (tables, report, evaluation) reads records and checkpoints only.
Scores are percentages (0..100), times seconds, FLOPs count a multiply-add as 2. A failed run keeps
its record, so that a table shows the gap instead of hiding it.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from limbeck.records import facts
from limbeck.support import files, manifest, plain
from limbeck.support.errors import LimbeckError

SCHEMA = 1
RECORD_NAME = "record.json"


class Record(facts.RecordPart):
    """Everything that is known about one run; the schema of `record.json`."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    status: Literal["running", "finished", "failed"] = "running"
    error: str | None = None
    kind: Literal["finetune", "distill"]
    method: str
    task: str
    data: str
    seed: int
    settings: str = "quick"
    """Whose training settings the run started from: quick, paper, released, or a paper's name."""
    departures: list[str] = Field(default_factory=list)
    """Keys that those settings state and the run had otherwise."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str | None] = Field(default_factory=dict)
    hardware: dict[str, Any] = Field(default_factory=dict)
    execution: facts.Execution = Field(default_factory=facts.Execution)
    examples: facts.Examples = Field(default_factory=facts.Examples)
    epochs: list[facts.Epoch] = Field(default_factory=list)
    stages: list[facts.StageFacts] = Field(default_factory=list)
    best: facts.Best | None = None
    """The epoch whose weights were kept."""
    last: facts.Best | None = None
    """The epoch the run ended with."""
    scores: dict[str, facts.Numbers] = Field(default_factory=dict)
    """Split or out-of-domain task → metric → score."""
    class_weights: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Term → class → what its loss was multiplied by; of terms for which not all classes count alike."""
    thresholds: dict[str, float] | None = None
    """With several labels per row: the probability from which a row is of a class, 0 to 1, as tuned on the
    first split."""
    kept: facts.KeptFacts | None = None
    """None without a teacher, or of a task type whose score cannot be sampled again."""
    classification: dict[str, facts.ClassificationScores] = Field(default_factory=dict)
    """For a classifier, by the same names as `scores`."""
    row_tests: dict[str, facts.RowTests] = Field(default_factory=dict)
    """Student less teacher over the same rows, by the same names."""
    floor: facts.FloorFacts | None = None
    """Scores of a linear model on words on the same rows; None if not supported, or `floor` is off."""
    best_constant: facts.ConstantFacts | None = None
    """None if the primary dev score is above the best constant prediction's."""
    student: facts.ModelFacts = Field(default_factory=facts.ModelFacts)
    teacher: facts.TeacherFacts | None = None
    vocabulary: facts.VocabularyFacts | None = None
    """For a student with `student.vocabulary`."""
    picked_layers: dict[str, list[int]] | None = None
    """For a student with `student.pick: importance`: by stack the layers that it kept, counted from 1."""
    layer_similarity: list[list[float | None]] | None = None
    """Student layers by teacher layers, as the report draws them."""
    bench: facts.BenchFacts | None = None
    outputs: list[facts.OutputsFacts] = Field(default_factory=list)
    """If there are several, the best on dev."""
    team: facts.TeamFacts | None = None
    cost: facts.Cost = Field(default_factory=facts.Cost)
    _path: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file this record was loaded from or last saved to."""
        return self._path

    def fail(self, error: BaseException | str) -> None:
        """Mark the run as failed and keep the reason."""
        self.status = "failed"
        self.error = error if isinstance(error, str) else str(error).strip() or type(error).__name__

    @property
    def classes(self) -> list[facts.ClassFacts]:
        """For a classifier each class of the first split that was scored."""
        first = next(iter(self.classification.values()), None)
        if first is not None:
            return first.classes
        # A record of an earlier version has them alone.
        older = (self.model_extra or {}).get("classes") or []
        return [facts.ClassFacts.model_validate(one) for one in older]

    @property
    def row_tests_alone(self) -> dict[str, facts.RowTests]:
        """Tests on splits whose predictions are of no classes: of numbers, similarities, ranks, spans."""
        return {
            split: one for split, one in self.row_tests.items() if split not in self.classification
        }

    def primary_score(self, split: str = "dev") -> float | None:
        """The split's primary score, or None if it has no such score."""
        return self.scores.get(split, {}).get("primary")

    def save(self, path: str | Path) -> Path:
        """Write the record to a run folder or a `.json` file, atomically.

        Numbers that are not finite become null. Raises LimbeckError when the place is not writable.
        """
        target = _record_file(Path(path))
        plain = facts.finite(self.model_dump(mode="python", by_alias=True))
        text = (
            json.dumps(manifest.sealed(plain), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        )
        files.write_whole(target, text)
        self._path = target
        return target

    @classmethod
    def load(cls, path: str | Path) -> "Record":
        """Read a run folder's record or a record file.

        Raises LimbeckError for a file that is missing, not JSON, not a record of this schema, or changed since it was
        written.
        """
        source = _record_file(Path(path))
        try:
            # A pipe would be waited for.
            file = plain.regular(source) if source.exists() else source
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise LimbeckError(
                f"no record at {source}",
                "name a run folder (one that holds record.json) or a record file",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise LimbeckError(
                f"cannot read {source}: {error}", "check the file and its permissions"
            ) from None
        # Other writers' NaN and Infinity read as "no number", as our own null does.
        content = plain.read_json(text, str(source), constant=lambda _: None)
        return cls.of(content, source)

    @classmethod
    def of_finished(cls, run: str | Path) -> "Record":
        """As `load`. Raises LimbeckError too for a run that is not finished."""
        record = cls.load(run)
        if record.status != "finished":
            raise LimbeckError(f"run {run} is {record.status}", "finish it first")
        return record

    @classmethod
    def of(cls, content: object, source: Path) -> "Record":
        """A record read from elsewhere as plain JSON; `source` becomes its `path`.

        Raises LimbeckError if it is not a record of this schema, or has changed since it was written.
        """
        record = _validated(cls, manifest.verified(content, source), source)
        record._path = source
        return record


def _validated(kind: type[Record], content: object, source: Path) -> Record:
    not_ours = "name a record.json that limbeck wrote"
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise LimbeckError(f"{source} is not a limbeck record (it has no schema number)", not_ours)
    if content["schema"] != SCHEMA:
        raise LimbeckError(
            f"{source} has record schema {content['schema']}; this limbeck reads {SCHEMA}",
            "use the limbeck version that wrote it",
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors()[:5]
        )
        raise LimbeckError(f"{source} is not a limbeck record ({wrong})", not_ours) from None


def _record_file(path: Path) -> Path:
    return path if path.suffix == ".json" and not path.is_dir() else path / RECORD_NAME


# The records of many runs in one compressed file: a study to keep, to send, or to commit. Gzipped
# JSON lines, one run a line as `{"name": …, "record": {…}}`, sorted by name. The same records
# always make the same bytes.


SUFFIX = ".jsonl.gz"


def is_collection(path: Path) -> bool:
    """Whether a path is named as a file of many records."""
    return path.name.endswith(SUFFIX)


def read_collection(path: str | Path) -> dict[str, Record]:
    """Every record of the file, by the run's name.

    A record's `path` is where its run folder would be below the file.

    Raises:
        LimbeckError: no such file, not compressed JSON lines, or a line that is no record.
    """
    return {
        name: Record.of(content, Path(path) / name / RECORD_NAME)
        for name, content in _lines(Path(path))
    }


def read_raw(path: Path) -> dict[str, dict[str, Any]]:
    """As `read_collection`, as plain JSON; empty where there is no file yet."""
    return dict(_lines(path)) if path.exists() else {}


def write_collection(path: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Write plain JSON records by name, atomically.

    Raises:
        LimbeckError: the place is not writable.
    """
    lines = (
        json.dumps({"name": name, "record": records[name]}, ensure_ascii=False, allow_nan=False)
        for name in sorted(records)
    )
    text = "".join(f"{line}\n" for line in lines)
    # Without a time stamp, so that unchanged records are an unchanged file.
    files.write_whole(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                yield _named(line, path, number)
    except FileNotFoundError:
        raise LimbeckError(f"no records at {path}", "name a file of records") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise LimbeckError(
            f"cannot read {path}: {error}", f"name a {SUFFIX} file that limbeck wrote"
        ) from None


def _named(line: str, path: Path, number: int) -> tuple[str, dict[str, Any]]:
    try:
        # Other writers' NaN and Infinity read as "no number", as in a single record.
        content = plain.read_json(line, f"{path}, line {number},", constant=lambda _: None)
        return str(content["name"]), content["record"]
    except (TypeError, KeyError):
        raise LimbeckError(
            f"{path}, line {number}, is no named record",
            f"name a {SUFFIX} file that limbeck wrote, or take the line out",
        ) from None
