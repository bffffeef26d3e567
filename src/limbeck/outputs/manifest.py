"""The description of a store of teacher outputs: `manifest.json`. Part of `limbeck.outputs`.

It is written atomically after every shard, so that the shards it names exist; a shard that it does not name counts as
missing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives import ModelShape
from limbeck.outputs.columns import OutputColumn, OutputLayout
from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES

MANIFEST = "manifest.json"
MISSING = "missing.json"
"""Beside it, where rows have no outputs: which they are, and why (`limbeck.labelling.missing_rows`)."""
FORMAT = 1
_OWN_SUM = "checksum"
_OUTPUTS: Literal["limbeck teacher outputs"] = "limbeck teacher outputs"
_EXAMPLES: Literal["limbeck augmented examples"] = "limbeck augmented examples"


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardRecord(_Written):
    """A file of rows: its name in the store, its rows and bytes, and a checksum of them.

    `missing`: rows of it that have no outputs and were left out, by their ids, and why.
    `truncated`: the number of rows that the labeller reported as truncated.
    """

    name: str
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    checksum: str
    missing: tuple[tuple[int, str], ...] = ()
    truncated: int = Field(default=0, ge=0)

    @field_validator("name")
    @classmethod
    def _stays_inside(cls, name: str) -> str:
        if not name or PurePosixPath(name).name != name or "\\" in name or name.startswith("."):
            raise ValueError(f"{name!r} is not the name of a file in the store")
        return name


class TeacherIdentity(_Written):
    """The model of the outputs: `name` for people, `fingerprint` for everything that the outputs follow from.

    `shape` describes its layers (`limbeck.objectives.ModelShape`), if it has some. `thresholds`: with several
    labels per row the probability from which each class is predicted, in the order of the store's classes; () for ½.
    """

    name: str
    fingerprint: dict[str, Any]
    shape: dict[str, Any] | None = None
    thresholds: tuple[float, ...] = ()


class RowsIdentity(_Written):
    """The rows: how many different ones, a digest of their ids in order, where they were read, their text columns.

    `target`: the last of these is the target of a decoder, which is in the rows' ids too
    (`limbeck.data.text_rows`).
    """

    count: int = Field(ge=0)
    fingerprint: str
    source: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    target: bool = False


class TokensIdentity(_Written):
    """The rule for logits over a vocabulary: `kept` as `top64@2`, and the number of tokens."""

    kept: str
    vocabulary: int = Field(gt=0)

    @field_validator("kept")
    @classmethod
    def _is_known(cls, word: str) -> str:
        try:
            KeptTokens.parse(word)
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        return word

    @property
    def rule(self) -> KeptTokens:
        """By which it was kept."""
        return KeptTokens.parse(self.kept)


class ShardsManifest(_Written):
    """The common fields of every folder of shards.

    Attributes:
        format: the format of its shards.
        complete: whether all rows are there, except for the rows that were left out.
        settings: further settings that the outputs depend on: precision, length limit, rows per shard.
        costs: the cost of making them: `seconds`, and a labeller's own counts; over all starts.
        made_with: versions of libraries, by name.
    """

    format: str
    version: int = FORMAT
    complete: bool
    settings: dict[str, Any] = Field(default_factory=dict)
    shards: tuple[ShardRecord, ...] = ()
    costs: dict[str, float] = Field(default_factory=dict)
    made_with: dict[str, str] = Field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def stored_rows(self) -> int:
        """Rows in shards that are there."""
        return sum(shard.rows for shard in self.shards)

    @property
    def missing_rows(self) -> dict[int, str]:
        """Why rows were left out, by their ids."""
        return {row: reason for shard in self.shards for row, reason in shard.missing}

    @property
    def truncated_rows(self) -> int:
        """Rows in existing shards that the labeller reported as truncated."""
        return sum(shard.truncated for shard in self.shards)

    @property
    def content(self) -> str:
        """A description of its content."""
        return self.format.removeprefix("limbeck ")

    def written(self) -> str:
        """As text, with a checksum of itself."""
        content = self.model_dump(mode="json")
        return json.dumps(content | {_OWN_SUM: _sum(content)}, indent=1, ensure_ascii=False) + "\n"


class StoreManifest(ShardsManifest):
    """A store's teacher outputs: their teacher, their rows.

    Attributes:
        kind: the task type.
        classes: names in id order; () where the answer is a number or a token.
        columns: of outputs; () until the first shard is written.
        keyed: `row` where rows are found by `limbeck.data.row_ids`, `index` by their position in training.
        row_ids: whether the column `row` also identifies these rows elsewhere.
        text: whether the rows' texts are stored too.
        labelled: whether the column `label` holds the labels that follow from the outputs.
        tokens: the rule for logits over a vocabulary, if they are not stored completely.
        passes: of the teacher, as `limbeck.activations.Passes` has them.
    """

    format: Literal["limbeck teacher outputs"] = _OUTPUTS
    kind: str
    task: str | None = None
    classes: tuple[str, ...]
    teacher: TeacherIdentity
    rows: RowsIdentity
    columns: tuple[OutputColumn, ...] = ()
    keyed: Literal["row", "index"] = "row"
    row_ids: bool = False
    text: bool = False
    labelled: bool = False
    tokens: TokensIdentity | None = None
    passes: tuple[dict[str, Any], ...] = ()

    @property
    def layout(self) -> OutputLayout:
        """Its columns."""
        return OutputLayout(self.columns)

    def column(self, name: str) -> OutputColumn | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)

    @classmethod
    def read(cls, text: bytes, where: str) -> "StoreManifest":
        """From what `written` gave.

        Raises:
            LimbeckError: it is not a manifest of teacher outputs, is damaged, or is of a format that this version
                does not read.
        """
        manifest = read_any_manifest(text, where)
        if not isinstance(manifest, StoreManifest):
            raise LimbeckError(
                f"{where} is not the manifest of a store of teacher outputs but of {manifest.content}",
                "name another folder",
            )
        return manifest


class ExamplesManifest(ShardsManifest):
    """A folder of augmented examples: `model` made this number of `rows` for a task."""

    format: Literal["limbeck augmented examples"] = _EXAMPLES
    model: str
    task: str | None = None
    rows: int = Field(ge=0)


def read_any_manifest(text: bytes, where: str) -> StoreManifest | ExamplesManifest:
    """From what `written` gave, whatever the shards hold.

    Raises:
        LimbeckError: as `StoreManifest.read`.
    """
    content = _content(text, where)
    known: dict[Any, type[StoreManifest | ExamplesManifest]] = {
        _OUTPUTS: StoreManifest,
        _EXAMPLES: ExamplesManifest,
    }
    if not isinstance(content, dict) or content.get("format") not in known:
        raise LimbeckError(
            f"{where} is not the manifest of a store of teacher outputs", "name another folder"
        )
    if content.get("version") != FORMAT:
        raise LimbeckError(
            f"{where}: the store is of format {content.get('version')!r}, and this limbeck reads format {FORMAT}",
            f"read it with the limbeck that wrote it; or {_way_out(where)}",
        )
    if content.pop(_OWN_SUM, None) != _sum(content):
        raise LimbeckError(
            f"{where} is damaged: its content has changed since it was written", _way_out(where)
        )
    try:
        manifest = known[content["format"]].model_validate(content)
        if isinstance(manifest, StoreManifest):
            if manifest.teacher.shape is not None:
                ModelShape.read(manifest.teacher.shape)
            if not has_one_label(manifest.kind):
                # Earlier versions wrote the likeliest class for rows with any number of them: nothing reads it.
                manifest = manifest.model_copy(update={"labelled": False})
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        reason = str(error).replace("\n", " ")
        raise LimbeckError(f"{where}: {reason:.300}", _way_out(where)) from None
    return manifest


def has_one_label(kind: str) -> bool:
    """Whether a row of this task type is of one class, or has one number, rather than any number of classes.

    A type that is not known here, of a plugin that is not loaded, is taken to.
    """
    return kind not in TASK_TYPES or TASK_TYPES.get(kind).problem_type is None


def _content(text: bytes, where: str) -> Any:
    try:
        return plain.read_json(text, where)
    except LimbeckError as error:
        fix = _way_out(where)
        raise LimbeckError([replace(problem, fix=fix) for problem in error.problems]) from None


def _way_out(where: str) -> str:
    """The fix for an unreadable manifest: the command that made it does not resume from it."""
    folder = where.removesuffix(MANIFEST).rstrip("/") or "."
    return f"delete the folder {folder} and run the command that made it again, or run that with another folder: --out"


def _sum(content: dict[str, Any]) -> str:
    return files.checksum_of_text(json.dumps(content, sort_keys=True))


# The description of a training's entry, in addition to its outputs.


@dataclass(frozen=True)
class EntryRows:
    """Which rows an entry's examples are, so that it can be read, and travel, as a store that was labelled.

    Attributes:
        ids: of the example with each `index`, int64 (n,), as `limbeck.data.output_keys` gives them; −1 if it has no id.
        identity: a labelled store's description of these rows.
        classes: in id order, for a teacher whose own names are generic (`LABEL_0`).
        read_by: the teacher's fingerprint without its weights: digest of its `tokenizer`, `max_length`;
            of a text-to-text model the `task` that prompts begin with.
    """

    ids: np.ndarray
    identity: RowsIdentity
    classes: tuple[str, ...] = ()
    read_by: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryAbout:
    """Attributes: names of the teacher and the task, for people; what gives the rows, None where they have no ids."""

    teacher: str | None = None
    task: str | None = None
    rows: Callable[[], EntryRows] | None = None
