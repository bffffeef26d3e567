"""`export(model)`: a checkpoint as a file for another runtime, shipped only if it keeps its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.exporting.attempts import try_all
from limbeck.exporting.conversions import ExportSettings
from limbeck.exporting.export_folder import (
    default_place,
    finish_folder,
    folder_in_work,
    refuse_occupied,
)
from limbeck.exporting.export_outcome import manifest_of, refused
from limbeck.exporting.gate import TorchReference, torch_reference
from limbeck.exporting.showing_export import ExportProgress
from limbeck.exporting.text_to_text_graphs import generation_of
from limbeck.exporting.workshop import Workshop, library_versions
from limbeck.preflight import refuse_unfit
from limbeck.records import RECORD_NAME, versions
from limbeck.run.report import refresh
from limbeck.runtimes import ExportManifest, need_extra, weights_of
from limbeck.runtimes.manifest import Generation, exports_of, read_export
from limbeck.scoring.gate_rows import GateRows, gate_rows
from limbeck.scoring.scored_model import class_names, longest_of, resolve_class_order
from limbeck.students import load_model, read_processor, resolve_checkpoint
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import task_type_of

_NEEDED = {"openvino": ("onnx", "openvino"), "executorch": ("executorch",)}
"""Format → extras; others need onnx alone."""


@dataclass(frozen=True)
class ExportResult:
    """An exported folder and what was measured of it."""

    path: Path
    manifest: ExportManifest


def export(
    model: str | Path,
    task: str | None = None,
    data: str | None = None,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    max_length: int | None = None,
    overwrite: bool = False,
    show: bool = False,
    **settings: Any,
) -> ExportResult:
    """Write a model as ONNX (fp32, fp16, int8), for OpenVINO or ExecuTorch, if it keeps its score there.

    The file is scored by its own runtime on the rows that a run is scored on, beside the torch
    model; beyond `max_drop` points nothing is written.

    Args:
        model: a finished run's folder, or any fine-tuned checkpoint's folder or Hub name.
        task: the task to measure on; a run's own by default. `data`: source of its rows.
        out: the folder to write; by default RUN/exported/FORMAT.
        split: which split; by default the one the task is scored on.
        text_columns: the columns of your own file that hold text.
        label_column: the one that holds the labels.
        max_length: tokens that a text is cut to; by default what a run was trained with, else what
            the model can read, at most 512.
        overwrite: replace an exported model that lies there.
        show: print progress on standard error.
        settings: of `ExportSettings`: format, precision, fused, scheme, max_drop, calibration_rows,
            keep_sensitive, recover_steps, recover_lr, batch_size, threads.

    Raises:
        LimbeckError: settings, rows or model that cannot be used; a library that is not installed;
            or a model that loses more than `max_drop`, with everything that was tried.
    """
    chosen = ExportSettings(**settings)
    chosen.check()
    place = at_home(out) if out is not None else default_place(str(model), chosen.format)
    refuse_occupied(place, overwrite=overwrite)
    for extra in _NEEDED.get(chosen.format, ("onnx",)):
        need_extra(extra, f"export to {chosen.format}")
    # Before they are read, so that a run that is trained again meanwhile is seen to hold another student.
    weights = weights_of(Path(resolve_checkpoint(str(model))))
    loaded = _torch_model(str(model))
    processor = read_processor(model, task_type_of(loaded).reads)
    refuse_unfit(str(model), loaded, processor)
    rows = gate_rows(
        str(model),
        task,
        data,
        split=split,
        text_columns=text_columns,
        label_column=label_column,
        max_length=max_length or (None if _is_run(model) else longest_of(loaded, processor)),
    )
    return _shipped(str(model), weights, loaded, rows, chosen, place, show=show)


def _shipped(
    source: str,
    weights: Mapping[str, str],
    model: PreTrainedModel,
    rows: GateRows,
    settings: ExportSettings,
    place: Path,
    *,
    show: bool,
) -> ExportResult:
    """Try, measure, and write what passes.

    Raises:
        LimbeckError: nothing did.
    """
    generation = _generation(model, rows, settings)
    with ExportProgress(shown=show) as progress, folder_in_work(place) as part:
        reference = _reference(model, rows, settings, progress)
        graphs = _written_graphs(source, weights, settings)
        workshop = Workshop(model, rows, reference, settings, part, progress, generation, graphs)
        tried = try_all(workshop)
        if not tried[-1].passed:
            raise refused(source, rows, settings, tried)
        workshop.clear()
        manifest = manifest_of(source, weights, workshop, tried)
        written = finish_folder(part, place, manifest, model, rows.processor)
    if _is_run(source):
        refresh(at_home(source))
    return ExportResult(place, written)


def _generation(
    model: PreTrainedModel, rows: GateRows, settings: ExportSettings
) -> Generation | None:
    """Where a text-to-text model's answers begin and end; None of others."""
    if not rows.task.kind.classes_as_text:
        return None
    if settings.format == "executorch":
        raise LimbeckError(
            f"format executorch: {type(model).__name__} writes its answers token by token, by an "
            "encoder's and a decoder's graph, and a program holds one",
            "choose format onnx, onnx-int8 or openvino",
        )
    return generation_of(model, rows.task, rows.processor)


def _written_graphs(
    source: str, weights: Mapping[str, str], settings: ExportSettings
) -> tuple[Path, ...]:
    """The float graphs of the same student that a run has been exported as; they take a minute to write.

    Nothing where other weights, operators or versions of the libraries made them.
    """
    fused = settings.fused and settings.format.startswith("onnx")
    now = versions() | library_versions()
    for folder in exports_of(at_home(source)) if weights and _is_run(source) else ():
        try:
            found = read_export(folder)
        except LimbeckError:
            continue
        made = found.format == "onnx" and found.weights == weights and found.versions == now
        if made and (found.conversion.precision, found.conversion.fused) == ("fp32", fused):
            names = (found.file, found.decoder)
            return tuple(folder / name for name in names if name is not None)
    return ()


def _is_run(model: str | Path) -> bool:
    return (at_home(model) / RECORD_NAME).is_file()


def _torch_model(model: str) -> PreTrainedModel:
    """The model in float32 on CPU, with its trained head."""
    return load_model(resolve_checkpoint(model), head="required").eval()


def _reference(
    model: PreTrainedModel, rows: GateRows, settings: ExportSettings, progress: ExportProgress
) -> TorchReference:
    """The torch model's own outputs on the gate's rows, its classes checked against theirs."""
    unproven = class_names(rows.task, model, side="model")
    step = progress.phase("torch", len(rows.encoded))
    reference = torch_reference(model, rows, settings.batch_size, step)
    if unproven:
        labels = rows.rows[rows.task.label_column][:]
        resolve_class_order(
            rows.task, unproven, reference.compact_outputs, labels, rows.split, side="model"
        )
    return reference
