"""The description of an exported folder, `export.json`: how it was made, measured and checked.

Everything that reads an exported folder (the predictor, `evaluate`, the bench, a model card) reads
this one file first.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.manifest import Manifest

Described = TypeVar("Described", bound=BaseModel)
EXPORT_NAME = "export.json"
SCHEMA = 1


class Conversion(BaseModel):
    """How the file was made of the torch model."""

    name: str
    """In words: `int8 dynamic, per channel`."""
    precision: str = "fp32"
    """Precision of the weights: fp32, int8 or int4."""
    fused: bool = True
    """Whether the graph contains ONNX Runtime's own operators."""
    per_channel: bool = False
    reduce_range: bool = False
    """Whether weights have 7 bits, which no processor without VNNI overflows with."""
    four_bits: list[str] = Field(default_factory=list)
    """Operators whose weights have 4 bits: `Gather` of embedding tables, `MatMul`."""
    block: int = 32
    """Weights of 4 bits that share a scale."""
    kept_in_float: list[str] = Field(default_factory=list)
    """Nodes of the graph that were not quantised."""


class LogitParity(BaseModel):
    """Logits of the exported model against the torch model's, on real positions."""

    rows: int
    largest_difference: float
    mean_difference: float
    scale: float
    """Standard deviation of the torch model's logits."""


class GateMeasure(BaseModel):
    """One file's scores on the dev rows, 0 to 100, next to the torch model's."""

    scores: dict[str, float | None]
    torch_scores: dict[str, float | None]
    drop: float
    """Points of the primary score that are lost; below 0 the exported model is better."""
    agreement: float | None = None
    """Share of rows, 0 to 1, that both predict alike; None where predictions are numbers."""
    recall: dict[str, list[float]] = Field(default_factory=dict)
    """Class → recall (0 to 100) of the torch model and of the exported one."""
    logits: LogitParity | None = None


class Attempt(BaseModel):
    """One way the model was converted, and how it did at the gate."""

    conversion: Conversion
    measured: GateMeasure | None = None
    """None where no file came out."""
    passed: bool = False
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""


class GateRowsFacts(BaseModel):
    """The rows of the gate."""

    task: str
    data: str
    split: str
    rows: int
    fingerprint: str
    text_columns: list[str] = Field(default_factory=list)
    label_column: str | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    """For a run's own rows, the settings that identify them; empty for rows that were named."""
    batch_size: int = 32


class HeldOutScores(BaseModel):
    """Scores, 0 to 100, on a run's test rows, which chose nothing: the exported file's, and the run's in torch."""

    scores: dict[str, float | None]
    torch_scores: dict[str, float | None]


class ExportManifest(BaseModel):
    """`export.json`. `folder` is where it was read from."""

    schema_version: int = SCHEMA
    format: str = Field(pattern="^(onnx(-int[48])?|openvino|(numpy|model2vec)(-int8)?)$")
    file: str
    """The model's file in the folder."""
    decoder: None = None
    """A second file, in text-to-text models that earlier versions exported: such folders raise an error."""
    kind: str
    """Task type, as a recipe calls it."""
    architecture: str
    source: str
    """The run, folder or Hub name that was exported."""
    weights: dict[str, str] = Field(default_factory=dict)
    """Files of weights that it was made of and their checksums; none of a Hub name."""
    labels: list[str] = Field(default_factory=list)
    """Class names in id order; none of a regression."""
    texts: int = 1
    """How many texts an example holds."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """For embedding models with prompts: the prefix of a sentence, a query and a passage."""
    max_length: int = 512
    """Tokens that a text is cut to."""
    inputs: list[str] = Field(default_factory=list)
    conversion: Conversion
    gate: GateRowsFacts
    measured: GateMeasure
    cross_fitted: dict[str, float | None] | None = None
    """Scores, 0 to 100, of the gate's choice on rows that did not choose it: each half of the rows by the file that
    the other half would have shipped. None if rows cannot be halved, and in older exports."""
    test: HeldOutScores | None = None
    """None without test rows, for rows that were named, and in older exports."""
    max_drop: float
    times_faster: float | None = None
    """Than the graph in float, in batches as the gate's; None where it is not quantised, and of older ones."""
    tried: list[Attempt] = Field(default_factory=list)
    bytes: int = 0
    """Bytes of the model's file and its external data."""
    torch_bytes: int = 0
    """Bytes of the torch model's weights in float32."""
    versions: dict[str, str | None] = Field(default_factory=dict)
    machine: str | None = None
    checksums: dict[str, str] = Field(default_factory=dict)
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def unchosen(self) -> float | None:
        """The primary score on rows that did not choose the file, where there were several to choose from."""
        several = sum(one.measured is not None for one in self.tried) > 1
        return self.cross_fitted["primary"] if several and self.cross_fitted else None

    @property
    def path(self) -> Path:
        """The model's file."""
        return self.folder / self.file

    @property
    def runtime(self) -> str:
        """The runtime that the folder was measured with, and is for."""
        named = self.format.removesuffix("-int8").removesuffix("-int4")
        return "onnxruntime" if named == "onnx" else named

    def write(self, folder: Path) -> None:
        """Write it into a folder, atomically."""
        files.write_whole(folder / EXPORT_NAME, json.dumps(self.model_dump(), indent=1) + "\n")


def weight_bytes(path: Path) -> int:
    """Checksums of a model's file and its external data."""
    beside = path.with_name(f"{path.name}.data"), path.with_suffix(".bin")
    return sum(file.stat().st_size for file in (path, *beside) if file.is_file())


def is_export(folder: str | Path) -> bool:
    """Whether a folder holds an exported model of limbeck's."""
    return (files.at_home(folder) / EXPORT_NAME).is_file()


def exports_of(run: Path) -> list[Path]:
    """The exported models below a run's `exported` folder."""
    place = run / EXPORTS
    return sorted(path for path in place.iterdir() if is_export(path)) if place.is_dir() else []


def exports_of_student(run: Path) -> tuple[list[ExportManifest], list[Problem]]:
    """The exports of a run's student, and the problems with exports of another student.

    Raises:
        LimbeckError: a manifest that cannot be read.
    """
    found, problems = [], []
    for folder in exports_of(run):
        manifest = _read(folder)
        problem = other_student(folder, manifest.format, manifest.weights)
        if problem is None:
            found.append(manifest)
        else:
            problems.append(problem)
    return found, problems


def read_export(folder: str | Path, *, check: bool = True) -> ExportManifest:
    """The manifest of an exported folder; with `check` every file is held against its checksum.

    Raises:
        LimbeckError: no exported folder, a manifest that cannot be read, damaged files, or a folder in a run
            that was made from another student than the run holds.
    """
    manifest = _read(folder)
    problem = other_student(manifest.folder, manifest.format, manifest.weights)
    if problem is not None:
        raise LimbeckError([problem])
    broken = files.damaged(manifest.folder, manifest.checksums) if check else []
    if broken:
        raise LimbeckError(
            f"exported model {str(folder)!r} is damaged: {', '.join(broken)}",
            "copy the folder again, or export the model again with --overwrite",
        )
    return manifest


def remove_export(folder: Path) -> None:
    """Remove the files that an exported folder names, its manifest last, and the folder if it is empty then."""
    Manifest((), _read(folder).checksums).delete(folder)
    (folder / EXPORT_NAME).unlink()
    with suppress(OSError):  # it holds something else
        folder.rmdir()


def read_as(kind: type[Described], path: Path, fix: str) -> Described:
    """A description from a file of JSON.

    Raises:
        LimbeckError: a file that cannot be read, or a description of another form, with this fix.
    """
    try:
        return kind.model_validate(plain.read_json(plain.read_text(path), str(path)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise LimbeckError(f"{path}: {place}: {first['msg']}", fix) from None


def _read(folder: str | Path) -> ExportManifest:
    place = files.at_home(folder)
    if not is_export(place):
        raise LimbeckError(
            f"{str(folder)!r} holds no exported model (no {EXPORT_NAME})",
            "name a folder that limbeck export wrote",
        )
    manifest = read_as(ExportManifest, place / EXPORT_NAME, "export the model again")
    manifest.folder = place
    if Path(manifest.file).name != manifest.file:
        raise LimbeckError(
            f"{place / EXPORT_NAME}: file {manifest.file!r} is outside the folder",
            "export the model again",
        )
    return manifest


# Compares the student an exported folder was made of with the run's current one. A run
# may be trained again in the same folder: exports of the earlier student must not pass for the
# new one's. A run's manifest knows its weights by their checksums, so nothing large is read.


EXPORTS = "exported"
"""The folder of a run that holds its exported models."""
_WEIGHTS = ".safetensors"
_STUDENT = "student/"


def weights_of(folder: Path) -> dict[str, str]:
    """Names and checksums of the files of weights in a checkpoint's folder; of a Hub name none.

    An embedding model's linear map has a folder of its own, `2_Dense`.
    """
    found = [*folder.glob(f"*{_WEIGHTS}"), *folder.glob(f"[0-9]*_*/*{_WEIGHTS}")]
    return {path.relative_to(folder).as_posix(): files.checksum(path) for path in sorted(found)}


def shipped_weights(run: Path) -> dict[str, str] | None:
    """The same of a run's student, as its manifest has them: none while it is trained; None of no run."""
    manifest = Manifest.read(run)
    if manifest is None:
        return None
    return {
        name.removeprefix(_STUDENT): known
        for name, known in sorted(manifest.checksums.items())
        if name.startswith(_STUDENT) and name.endswith(_WEIGHTS)
    }


def other_student(folder: Path, format: str, weights: Mapping[str, str]) -> Problem | None:
    """The problem with a folder in a run's `exported` that was made of another student; None if it was not.

    Args:
        folder: the exported folder.
        format: its export format.
        weights: the exported model's, as `weights_of` gives them; empty if they were not recorded.
    """
    place = folder.resolve()
    run = place.parent.parent
    now = shipped_weights(run) if place.parent.name == EXPORTS else None
    if now is None or (weights and now == dict(weights)):
        return None
    said = "was made from another student than the run holds" if weights else (
        "does not record the student it was made from"
    )  # fmt: skip
    out = "" if place.name == format else f" --out {folder}"
    again = f"limbeck export {folder.parent.parent} --format {format}{out} --overwrite"
    return Problem(f"exported model {str(folder)!r} {said}", f"export again ({again})")
