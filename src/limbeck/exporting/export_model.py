"""`export(model)`: a checkpoint as a file for another runtime, shipped only if it keeps its score."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.data import RowsAsked
from limbeck.embedding import modules_of
from limbeck.embedding.folder import BARE
from limbeck.exporting.conversions import ExportSettings, conversions, keeping, recovering
from limbeck.exporting.folder import default_place, finish_folder, folder_in_work, refuse_occupied
from limbeck.exporting.gate import TorchReference, cross_fitted, measure, torch_reference
from limbeck.exporting.int8 import amounts, number_of_groups, ranked
from limbeck.exporting.onnx_graph import generation_of
from limbeck.exporting.workshop import Phase, Workshop
from limbeck.preflight import refuse_beyond
from limbeck.records import versions
from limbeck.records.machine import processor_name
from limbeck.run.report import refresh
from limbeck.runtimes.manifest import (
    Attempt,
    Conversion,
    ExportManifest,
    GateRowsFacts,
    Generation,
    exports_of,
    read_export,
    weight_bytes,
    weights_of,
)
from limbeck.runtimes.sessions import need_extra
from limbeck.scoring.scored_model import (
    TORCH,
    EncodedSplit,
    ScoredModel,
    class_names,
    resolve_class_order,
)
from limbeck.students import resolve_checkpoint
from limbeck.support.errors import LimbeckError, first_line
from limbeck.support.files import at_home, is_full
from limbeck.support.terminal import phases
from limbeck.tasks.text import prompt_of

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime", "openvino", "executorch")
_OF_ROWS = {"split", "text_columns", "label_column", "max_length"}
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
    overwrite: bool = False,
    show: bool = False,
    **settings: Any,
) -> ExportResult:
    """Write a model as ONNX (fp32, fp16, int8), for OpenVINO or ExecuTorch, if it keeps its score there.

    The file is scored by its own runtime on the rows that a run is scored on, beside the torch
    model; beyond `max_drop` points nothing is written.

    Args:
        model: a finished run's folder, or any fine-tuned checkpoint's folder or Hub name.
        task: the task to measure on; a run's own by default.
        data: source of its rows.
        out: the folder to write; by default RUN/exported/FORMAT.
        overwrite: replace an exported model that lies there.
        show: print progress on standard error.
        settings: which rows: split, text_columns, label_column and max_length (tokens that a text is cut to; by
            default what a run was trained with, else what the model can read, at most 512); and those of
            `ExportSettings`: format, precision, fused, scheme, max_drop, calibration_rows, keep_sensitive,
            recover_steps, recover_lr, batch_size, threads.

    Raises:
        LimbeckError: settings, rows or model that cannot be used; a library that is not installed;
            or a model that loses more than `max_drop`, with everything that was tried.
    """
    of_rows = {name: settings.pop(name) for name in _OF_ROWS & settings.keys()}
    asked = RowsAsked(task, data, **of_rows)
    chosen = ExportSettings(**settings)
    chosen.check()
    place = at_home(out) if out is not None else default_place(str(model), chosen.format)
    refuse_occupied(place, overwrite=overwrite)
    for extra in _NEEDED.get(chosen.format, ("onnx",)):
        need_extra(extra, f"export to {chosen.format}")
    # Before they are read, so that a run that is trained again meanwhile is seen to hold another student.
    weights = weights_of(Path(resolve_checkpoint(str(model))))
    source = ScoredModel.open(model, TORCH)
    split = source.rows(asked)
    loaded = source.load(source.kind)
    refuse_beyond(loaded, asked.max_length)
    rows = source.read(split, loaded)
    return _shipped(source, weights, loaded, rows, chosen, place, show=show)


def _shipped(
    source: ScoredModel,
    weights: Mapping[str, str],
    model: PreTrainedModel,
    rows: EncodedSplit,
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
    with phases(shown=show) as begin, folder_in_work(place) as part:
        reference = _reference(model, rows, settings, begin)
        graphs = _written_graphs(source, weights, settings)
        workshop = Workshop(model, rows, reference, settings, part, begin, generation, graphs)
        tried = try_all(workshop)
        if not tried[-1].passed:
            raise refused(source.name, rows, settings, tried)
        workshop.clear()
        manifest = manifest_of(source.name, weights, workshop, tried)
        written = finish_folder(part, place, manifest, model, rows.processor)
    if source.record is not None:
        refresh(at_home(source.name))
    return ExportResult(place, written)


def _generation(
    model: PreTrainedModel, rows: EncodedSplit, settings: ExportSettings
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
    source: ScoredModel, weights: Mapping[str, str], settings: ExportSettings
) -> tuple[Path, ...]:
    """The float graphs of the same student that a run has been exported as; they take a minute to write.

    Nothing where other weights, operators or versions of the libraries made them.
    """
    fused = settings.fused and settings.format.startswith("onnx")
    now = versions(*_LIBRARIES)
    for folder in exports_of(at_home(source.name)) if weights and source.record else ():
        try:
            found = read_export(folder)
        except LimbeckError:
            continue
        made = found.format == "onnx" and found.weights == weights and found.versions == now
        if made and (found.conversion.precision, found.conversion.fused) == ("fp32", fused):
            names = (found.file, found.decoder)
            return tuple(folder / name for name in names if name is not None)
    return ()


def _reference(
    model: PreTrainedModel, rows: EncodedSplit, settings: ExportSettings, begin: Phase
) -> TorchReference:
    """The torch model's own outputs on the gate's rows, its classes checked against theirs."""
    unproven = class_names(rows.task, model.config, side="model")
    step = begin("torch", len(rows.encoded))
    reference = torch_reference(model, rows, settings.batch_size, step)
    labels, split = rows.rows[rows.task.label_column][:], rows.loaded.name
    outputs = reference.compact_outputs
    resolve_class_order(rows.task, unproven, outputs, labels, split, side="model")
    return reference


# How an export ends: refused, with all that was tried, or shipped, with a manifest that says how.


def refused(
    model: str, rows: EncodedSplit, settings: ExportSettings, tried: Sequence[Attempt]
) -> LimbeckError:
    """The error of an export that nothing passed: what was tried, and what it lost."""
    lines = "; ".join(
        f"{one.conversion.name}: "
        + (f"{one.error}" if one.measured is None else f"−{one.measured.drop:.2f}")
        for one in tried
    )
    measured = [one.measured for one in tried if one.measured is not None]
    fixes = "raise --max-drop, or choose --format onnx"
    if settings.format == "onnx-int8" and settings.scheme != "auto":
        fixes += ", or --scheme auto, which tries more"
    if (
        settings.format == "onnx-int8"
        and not settings.recover_steps
        and rows.loaded.training is not None
    ):
        fixes += ", or --recover-steps 200 to train it for int8"
    if not measured:
        return LimbeckError(f"{model} cannot be exported as {settings.format}: {lines}", fixes)
    best = min(measured, key=lambda one: one.drop)
    return LimbeckError(
        f"{model} as {settings.format} loses {best.drop:.2f} points of "
        f"{rows.task.primary} on {rows.loaded.name} (torch {best.torch_scores['primary']:.2f}, exported "
        f"{best.scores['primary']:.2f}), more than max_drop {settings.max_drop:g}: nothing is "
        f"written. Tried: {lines}",
        fixes,
    )


def manifest_of(
    source: str, weights: Mapping[str, str], workshop: Workshop, tried: list[Attempt]
) -> ExportManifest:
    """What an exported folder says of itself, without checksums.

    Args:
        source: the run, folder or Hub name.
        weights: names and checksums of its files of weights.
        workshop: where its files were made.
        tried: all attempts; the last one is shipped.
    """
    model, rows, settings = workshop.model, workshop.rows, workshop.settings
    split = rows.loaded
    shipped = tried[-1]
    assert shipped.measured is not None
    sizes = {id(weight): weight.numel() for weight in model.parameters()}
    return ExportManifest(
        format=settings.format,
        file=workshop.shipped[0].name,
        decoder=workshop.shipped[1].name if workshop.generation else None,
        generation=workshop.generation,
        kind=rows.task.kind.name,
        architecture=type(model).__name__,
        source=source,
        weights=dict(weights),
        labels=_labels(model, rows),
        texts=len(rows.task.text_columns[: rows.task.kind.needed_texts]),
        prompt=prompt_of(rows.task) if workshop.generation else None,
        prompts=_prompts(model),
        max_length=rows.max_length,
        inputs=list(workshop.inputs),
        outputs=list(workshop.outputs),
        conversion=shipped.conversion,
        gate=GateRowsFacts(
            task=str(rows.task.name),
            data=split.data,
            split=split.name,
            rows=len(split.rows),
            fingerprint=split.fingerprint,
            text_columns=list(split.text_columns),
            label_column=split.label_column,
            recipe=dict(split.recipe),
            batch_size=settings.batch_size,
        ),
        measured=shipped.measured,
        cross_fitted=cross_fitted(rows, workshop.reference, workshop.measured, settings.max_drop),
        max_drop=settings.max_drop,
        tried=tried,
        bytes=shipped.bytes,
        torch_bytes=4 * sum(sizes.values()),
        versions=versions(*_LIBRARIES),
        machine=processor_name(),
    )


def _prompts(model: PreTrainedModel) -> dict[str, str]:
    """What an embedding model puts before its texts, if it puts anything before any."""
    modules = modules_of(model.config)
    prompts = BARE if modules is None else modules.text_prompts
    return prompts._asdict() if any(prompts) else {}


def _labels(model: PreTrainedModel, rows: EncodedSplit) -> list[str]:
    """What the model's own configuration calls its classes; none of a model that writes their names."""
    names = dict[Any, str](model.config.id2label or {})
    ordered = [str(names[number]) for number in range(len(names))]
    return [*rows.task.kind.class_names(ordered)]


# The conversions of an export, one after the other, until one passes the gate.


_SEARCH_ROWS, _SEARCH_BATCH = 32, 8


def try_all(workshop: Workshop) -> list[Attempt]:
    """Every attempt that was made; the last one passed, or none did."""
    tried: list[Attempt] = []
    for how in conversions(workshop.settings):
        tried.append(_try(workshop, how))
        if tried[-1].passed:
            return tried
    settings = workshop.settings
    if settings.format != "onnx-int8":
        return tried
    if settings.recover_steps and (best := _best(tried)) is not None:
        workshop.recover(best)
        tried.append(_try(workshop, recovering(best, settings.recover_steps)))
        if tried[-1].passed:
            return tried
    best = _best(tried) if settings.keep_sensitive else None
    if best is None:
        return tried
    if not best.recovery_steps:
        workshop.recovered = None
    for nodes in _sensitive(workshop, best):
        tried.append(_try(workshop, keeping(best, nodes)))
        if tried[-1].passed:
            break
    return tried


def _best(tried: Sequence[Attempt]) -> Conversion | None:
    """The conversion that lost least; None where none came out."""
    drops = [(one.measured.drop, place) for place, one in enumerate(tried) if one.measured]
    return tried[min(drops)[1]].conversion if drops else None


def _try(workshop: Workshop, how: Conversion) -> Attempt:
    began = time.perf_counter()
    try:
        workshop.write(how)
        session = workshop.open(workshop.shipped)
    except LimbeckError:
        raise
    # ONNX Runtime's, OpenVINO's and ExecuTorch's converters have no common class of errors; one
    # conversion that does not work is no reason not to try the next.
    except Exception as error:
        if is_full(error):  # nor would the next one have room
            raise
        return Attempt(conversion=how, error=first_line(error), seconds=time.perf_counter() - began)
    workshop.inputs, workshop.outputs = session.inputs, session.outputs
    step = workshop.begin(how.name, len(workshop.rows.encoded))
    measured, outputs = measure(session, workshop.rows, workshop.reference, step)
    workshop.measured.append(outputs)
    return Attempt(
        conversion=how,
        measured=measured,
        passed=measured.drop <= workshop.settings.max_drop,
        bytes=sum(weight_bytes(path) for path in workshop.shipped),
        seconds=time.perf_counter() - began,
    )


def _sensitive(workshop: Workshop, how: Conversion) -> list[list[str]]:
    """Which nodes to leave in float: the most sensitive one, two, four, …"""
    step = workshop.begin("searching sensitive layers", number_of_groups(workshop.sources))
    feeds = workshop.feeds(_SEARCH_ROWS, _SEARCH_BATCH)
    calibration = workshop.calibration(_SEARCH_ROWS) if how.scheme == "static" else None
    groups = ranked(
        workshop.sources,
        workshop.work,
        how,
        feeds,
        workshop.open,
        calibration=calibration,
        step=step,
    )
    return [
        [node for group in groups[:number] for node in group] for number in amounts(len(groups))
    ]
