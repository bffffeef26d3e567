"""Who takes part in a bench: every model named, on every backend that can run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from limbeck.records import RECORD_NAME, Record
from limbeck.runtimes import (
    EXPORTS,
    RUNTIMES,
    ExportManifest,
    exports_of,
    is_export,
    need_extra,
    read_export,
    readers_of,
)
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
            "limbeck export MODEL makes what onnxruntime, openvino and executorch run; openvino also "
            "runs onnx that was written with --no-fused",
        )
    return _named_apart(found)


def _of(model: str, wanted: tuple[str, ...]) -> list[Contender]:
    folder = at_home(model)
    if is_export(folder):
        return _exported(folder, wanted)
    if (folder / RECORD_NAME).is_file():
        exported = [one for path in exports_of(folder) for one in _exported(path, wanted)]
        return [*_checkpoint(model, wanted), *exported]
    return _checkpoint(model, wanted)


def _checkpoint(model: str, wanted: tuple[str, ...]) -> list[Contender]:
    config = read_config(model)
    score, rows = _scored(at_home(model))
    run = at_home(model) if (at_home(model) / RECORD_NAME).is_file() else None
    return [
        Contender(
            model=Path(model).name,
            backend=backend,
            form="fp32",
            path=Path(resolve_checkpoint(model)),
            config=config,
            score=score,
            rows=rows,
            run=run,
        )
        for backend in ("torch", "compiled")
        if backend in (wanted or ("torch",))
    ]


def _scored(folder: Path) -> tuple[float | None, str | None]:
    """A run's primary dev score, and the rows' fingerprint."""
    if not (folder / RECORD_NAME).is_file():
        return None, None
    record = Record.load(folder)
    return (
        record.scores.get("dev", {}).get("primary"),
        record.examples.fingerprints.get("dev"),
    )


def _exported(folder: Path, wanted: tuple[str, ...]) -> list[Contender]:
    manifest = read_export(folder)
    backends = [name for name in readers_of(manifest) if name in (wanted or (manifest.runtime,))]
    for name in backends:
        need_extra(name, f"the backend {name}")
    return [
        Contender(
            model=_name_of(folder, manifest),
            backend=backend,
            form=manifest.conversion.name,
            path=folder,
            config=AutoConfig.from_pretrained(folder, trust_remote_code=False),
            inputs=tuple(manifest.inputs),
            score=manifest.measured.scores.get("primary"),
            rows=manifest.gate.fingerprint,
            checksum=manifest.checksums.get(manifest.file),
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
