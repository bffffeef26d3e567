"""Who takes part in a bench: every model named, on every backend that can run it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig

from limbeck.activations.compat import TEXT_TO_TEXT
from limbeck.evaluation.measuring import decoder_start, random_batch
from limbeck.records import Record
from limbeck.runtimes import sessions
from limbeck.runtimes.cascade import is_cascade, read_cascade
from limbeck.runtimes.manifest import EXPORTS, exports_of, is_export, read_export, weight_bytes
from limbeck.scoring.scored_model import finished_run
from limbeck.students import read_config, resolve_checkpoint
from limbeck.students.adapters import find_adapter
from limbeck.support import files, words
from limbeck.support.errors import LimbeckError, Problem, raise_problems, unknown
from limbeck.support.positions import positions_by_config

BACKENDS = ("torch", "compiled", *sessions.RUNTIMES)


@dataclass(frozen=True)
class Contender:
    """One model on one backend.

    Attributes:
        model: as the table calls it.
        backend: one of `BACKENDS`.
        form: the file's number format: `fp32`, `int8 dynamic, per channel`, …
        path: the file or folder that the worker opens.
        config: the model's configuration, which inputs are made by.
        inputs: names of the model's inputs; None if the configuration decides.
        score: its primary dev score, if it is known; `rows` the fingerprint of the rows it was
            measured on.
    """

    model: str
    backend: str
    form: str
    path: Path
    config: Any
    inputs: tuple[str, ...] | None = None
    score: float | None = None
    rows: str | None = None
    run: Path | None = None
    """The run whose student it is, in torch."""
    checksum: str | None = None
    """The checksum of an exported model's file."""
    bytes: int = 0
    """The bytes of its weights on disk."""

    @property
    def name(self) -> str:
        """In one line."""
        return f"{self.model} · {self.backend} · {self.form}"


def contenders(models: Sequence[str], backends: Sequence[str] | None = None) -> list[Contender]:
    """All models on the backends that are wanted.

    Args:
        models: run folders (each for its student and its exported models), checkpoints,
            exported folders.
        backends: by default torch for checkpoints, and each exported folder's own.

    Raises:
        LimbeckError: an unknown backend, a model that cannot be read, a model twice, or a backend
            that none of the models can run on.
    """
    wanted = tuple(backends or ())
    problems = [unknown("backend", name, BACKENDS) for name in wanted if name not in BACKENDS]
    if not models:
        problems.append(Problem("bench: no model is named", "name runs, checkpoints or exports"))
    raise_problems(problems)
    for name in sessions.RUNTIMES:
        if name in wanted:
            sessions.need_extra(name, f"the backend {name}")
    found = [one for model in models for one in _of(model, wanted)]
    lacking = [name for name in wanted if name not in {one.backend for one in found}]
    if lacking:
        raise LimbeckError(
            f"bench: none of the models runs on {', '.join(lacking)}",
            "limbeck export MODEL makes what onnxruntime and openvino run; openvino also "
            "runs onnx that was written with --no-fused",
        )
    return _named_apart(found)


def _of(model: str, wanted: tuple[str, ...]) -> list[Contender]:
    folder = files.at_home(model)
    if is_cascade(folder):  # the rows decide which of them answers: each is timed separately
        made = read_cascade(folder)
        models = [made.place_of(one) for one in made.members if not one.stored]
        return [one for place in models for one in _of(place, wanted)]
    if is_export(folder):
        return _exported(folder, wanted)
    run = finished_run(folder)
    if run is None:
        return _checkpoint(model, None, wanted)
    exported = [one for path in exports_of(folder) for one in _exported(path, wanted)]
    return [*_checkpoint(model, run[0], wanted), *exported]


def _checkpoint(model: str, record: Record | None, wanted: tuple[str, ...]) -> list[Contender]:
    name = resolve_checkpoint(model)
    path, config, adapter = Path(name).resolve(), read_config(model), find_adapter(name)
    folders = [path, *([Path(resolve_checkpoint(adapter.base))] if adapter else [])]
    return [
        Contender(
            model=Path(model).name,
            backend=backend,
            form="fp32",
            path=path,
            config=config,
            score=None if record is None else record.scores.get("dev", {}).get("primary"),
            rows=None if record is None else record.examples.fingerprints.get("dev"),
            run=None if record is None else files.at_home(model),
            bytes=sum(file.stat().st_size for one in folders for file in one.glob("*.safetensors")),
        )
        for backend in ("torch", "compiled")
        if backend in (wanted or ("torch",))
    ]


def _exported(folder: Path, wanted: tuple[str, ...]) -> list[Contender]:
    manifest = read_export(folder)
    place = folder.resolve()
    # A run's exports are called as the run is.
    inside = place.parent.name == EXPORTS
    name = place.parent.parent.name if inside else Path(manifest.source).name
    backends = [
        name for name in sessions.readers_of(manifest) if name in (wanted or (manifest.runtime,))
    ]
    return [
        Contender(
            model=name,
            backend=sessions.check_reader(manifest, backend),
            form=manifest.conversion.name,
            path=place,
            config=AutoConfig.from_pretrained(folder, trust_remote_code=False),
            inputs=tuple(manifest.inputs),
            score=manifest.measured.scores.get("primary"),
            rows=manifest.gate.fingerprint,
            checksum=manifest.checksums.get(manifest.file),
            bytes=weight_bytes(manifest.path),
        )
        for backend in backends
    ]


def _named_apart(found: Sequence[Contender]) -> list[Contender]:
    """Name models of one name by the ends of their paths.

    Raises:
        LimbeckError: the same file on the same backend twice.
    """
    for at, one in enumerate(found):
        if (one.path, one.backend) in [(other.path, other.backend) for other in found[:at]]:
            raise LimbeckError(f"bench: {one.path} is named twice", "name every model once")
    names = [one.name for one in found]
    alike = [one for one in found if names.count(one.name) > 1]
    ends = words.short_names([str(one.path) for one in alike])
    called = {one.path: end for one, end in zip(alike, ends, strict=True)}
    return [replace(one, model=called.get(one.path, one.model)) for one in found]


# The inputs of timed models: random token ids of one length, or random pixels. Every
# row is full, so that the length is exact; a model's own vocabulary decides the ids.


_TEXT = ("input_ids", "attention_mask", "token_type_ids")


def inputs_of(one: Contender, batch: int, length: int) -> dict[str, np.ndarray]:
    """A batch for a contender: (batch, length) ids, mask and segments, or pixels.

    A text-to-text model's decoder gets its start token alone, so a pass is an answer's first token.

    Raises:
        LimbeckError: the model has fewer positions than `length`.
    """
    config = one.config.get_text_config()
    limit = positions_by_config(config)
    if limit is not None and limit < length:
        raise LimbeckError(
            f"bench: {one.model} reads {limit} tokens, not {length}",
            f"measure shorter lengths, such as --lengths {limit}",
        )
    made = {name: one.numpy() for name, one in random_batch(config, length, batch).items()}
    if "pixel_values" in made:
        return made
    made["token_type_ids"] = np.zeros_like(made["input_ids"])
    made["decoder_input_ids"] = np.full((batch, 1), decoder_start(config), np.int64)
    return {name: made[name] for name in one.inputs or _read_by(config)}


def _read_by(config: Any) -> tuple[str, ...]:
    """The inputs of a checkpoint of this configuration."""
    if (
        getattr(config, "is_encoder_decoder", False)
        and {*(config.architectures or ())} & TEXT_TO_TEXT
    ):
        return (*_TEXT[:2], "decoder_input_ids")
    return _TEXT if getattr(config, "type_vocab_size", 0) > 1 else _TEXT[:2]
