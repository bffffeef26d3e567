"""Who takes part in a bench: every model named, on every backend that can run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from limbeck.records import Record
from limbeck.runtimes.manifest import (
    EXPORTS,
    ExportManifest,
    exports_of,
    is_export,
    read_export,
    weight_bytes,
)
from limbeck.runtimes.sessions import RUNTIMES, check_reader, need_extra, readers_of
from limbeck.scoring.scored_model import finished_run
from limbeck.students import read_config, resolve_checkpoint
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import at_home

BACKENDS = ("torch", "compiled", *RUNTIMES)


@dataclass(frozen=True)
class Contender:
    """One model on one backend.

    Attributes:
        model: as the table calls it.
        backend: one of `BACKENDS`.
        form: what the file is: `fp32`, `int8 dynamic, per tensor`, …
        path: what the worker opens.
        config: the model's configuration, which inputs are made by.
        inputs: names of what the model reads; None where the configuration decides.
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
    """Of an exported model's file."""
    bytes: int = 0
    """Of its weights on disk."""

    @property
    def name(self) -> str:
        """In one line."""
        return f"{self.model} · {self.backend} · {self.form}"


def contenders(models: Sequence[str], backends: Sequence[str] | None = None) -> list[Contender]:
    """All models on the backends that are wanted.

    Args:
        models: run folders (each stands for its student and what was exported of it), checkpoints,
            exported folders.
        backends: by default torch for checkpoints, and what each exported folder is for.

    Raises:
        LimbeckError: an unknown backend, a model that cannot be read, a model twice, or a backend
            that none of the models can run on.
    """
    wanted = tuple(backends or ())
    problems = [unknown("backend", name, BACKENDS) for name in wanted if name not in BACKENDS]
    if not models:
        problems.append(Problem("bench: no model is named", "name runs, checkpoints or exports"))
    if problems:
        raise LimbeckError(problems)
    for name in RUNTIMES:
        if name in wanted:
            need_extra(name, f"the backend {name}")
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
    folder = at_home(model)
    if is_export(folder):
        return _exported(folder, wanted)
    run = finished_run(folder)
    exported = exports_of(folder) if run is not None else []
    record = None if run is None else run[0]
    return [
        *_checkpoint(model, record, wanted),
        *(one for path in exported for one in _exported(path, wanted)),
    ]


def _checkpoint(model: str, record: Record | None, wanted: tuple[str, ...]) -> list[Contender]:
    path = Path(resolve_checkpoint(model))
    config = read_config(model)
    return [
        Contender(
            model=Path(model).name,
            backend=backend,
            form="fp32",
            path=path,
            config=config,
            score=None if record is None else record.scores.get("dev", {}).get("primary"),
            rows=None if record is None else record.examples.fingerprints.get("dev"),
            run=None if record is None else at_home(model),
            bytes=sum(file.stat().st_size for file in path.glob("*.safetensors")),
        )
        for backend in ("torch", "compiled")
        if backend in (wanted or ("torch",))
    ]


def _exported(folder: Path, wanted: tuple[str, ...]) -> list[Contender]:
    manifest = read_export(folder)
    backends = [name for name in readers_of(manifest) if name in (wanted or (manifest.runtime,))]
    return [
        Contender(
            model=_name_of(folder, manifest),
            backend=check_reader(manifest, backend),
            form=manifest.conversion.name,
            path=folder,
            config=AutoConfig.from_pretrained(folder, trust_remote_code=False),
            inputs=tuple(manifest.inputs),
            score=manifest.measured.scores.get("primary"),
            rows=manifest.gate.fingerprint,
            checksum=manifest.checksums.get(manifest.file),
            bytes=sum(map(weight_bytes, manifest.files)),
        )
        for backend in backends
    ]


def _name_of(folder: Path, manifest: ExportManifest) -> str:
    """A run's exports are called as the run is."""
    resolved = folder.resolve()
    inside = resolved.parent.name == EXPORTS
    return resolved.parent.parent.name if inside else Path(manifest.source).name


def _named_apart(found: Sequence[Contender]) -> list[Contender]:
    """Raises LimbeckError for the same file on the same backend twice."""
    seen: dict[tuple[str, str], Contender] = {}
    for one in found:
        key = str(one.path.resolve()), one.backend
        if key in seen:
            raise LimbeckError(f"bench: {one.path} is named twice", "name every model once")
        seen[key] = one
    for further in (_home, lambda one: one.path.name, lambda one: str(one.path)):
        names = [one.name for one in found]
        found = [
            replace(one, model=f"{further(one)}/{one.model}") if names.count(one.name) > 1 else one
            for one in found
        ]
    return list(found)


def _home(one: Contender) -> str:
    """The folder that a run, a checkpoint or an exported folder lies in."""
    place = one.path.resolve()
    if place.parent.name == EXPORTS:
        place = place.parent.parent
    return (place.parent if one.run is not None else place).parent.name
