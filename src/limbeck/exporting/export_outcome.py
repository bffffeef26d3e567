"""How an export ends: refused, with all that was tried, or shipped, with a manifest that says how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from limbeck.embedding import modules_of
from limbeck.embedding.text_prompts import BARE
from limbeck.exporting.conversions import ExportSettings
from limbeck.exporting.gate import cross_fitted
from limbeck.exporting.workshop import Workshop, library_versions
from limbeck.records import versions
from limbeck.records.machine import processor_name
from limbeck.runtimes import ExportManifest
from limbeck.runtimes.manifest import Attempt, GateRowsFacts
from limbeck.scoring.gate_rows import GateRows
from limbeck.support.errors import LimbeckError
from limbeck.tasks.text import prompt_of


def refused(
    model: str, rows: GateRows, settings: ExportSettings, tried: Sequence[Attempt]
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
    if settings.format == "onnx-int8" and not settings.recover_steps and rows.training is not None:
        fixes += ", or --recover-steps 200 to train it for int8"
    if not measured:
        return LimbeckError(f"{model} cannot be exported as {settings.format}: {lines}", fixes)
    best = min(measured, key=lambda one: one.drop)
    return LimbeckError(
        f"{model} as {settings.format} loses {best.drop:.2f} points of "
        f"{rows.task.primary} on {rows.split} (torch {best.torch_scores['primary']:.2f}, exported "
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
            data=rows.data,
            split=rows.split,
            rows=len(rows.rows),
            fingerprint=rows.fingerprint,
            text_columns=list(rows.text_columns),
            label_column=rows.label_column,
            recipe=dict(rows.recipe),
            batch_size=settings.batch_size,
        ),
        measured=shipped.measured,
        cross_fitted=cross_fitted(rows, workshop.reference, workshop.measured, settings.max_drop),
        max_drop=settings.max_drop,
        tried=tried,
        bytes=shipped.bytes,
        torch_bytes=4 * sum(sizes.values()),
        versions=versions() | library_versions(),
        machine=processor_name(),
    )


def _prompts(model: PreTrainedModel) -> dict[str, str]:
    """What an embedding model puts before its texts, if it puts anything before any."""
    modules = modules_of(model.config)
    prompts = BARE if modules is None else modules.text_prompts
    return prompts._asdict() if any(prompts) else {}


def _labels(model: PreTrainedModel, rows: GateRows) -> list[str]:
    """What the model's own configuration calls its classes; none of a model that writes their names."""
    if not rows.task.labels or rows.task.kind.classes_as_text:
        return []
    names = dict[Any, str](model.config.id2label or {})
    return [str(names[number]) for number in range(len(names))]
