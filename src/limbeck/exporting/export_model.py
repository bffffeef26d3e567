"""`export(model)`: a checkpoint as a file for another runtime, shipped only if it keeps its score."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from transformers import PreTrainedModel

from limbeck.data import NOTHING_NAMED, RowsAsked
from limbeck.embedding import modules_of
from limbeck.embedding.folder import BARE
from limbeck.evaluation.model_outputs import outputs_by_batch
from limbeck.exporting import folder, gate, onnx_graph
from limbeck.exporting.settings import QUANTISED, STATIC_FORMATS, ExportSettings, conversions
from limbeck.exporting.workshop import Phase, StaticWorkshop, Workshop
from limbeck.preflight import refuse_beyond
from limbeck.records import versions
from limbeck.records.machine import processor_name
from limbeck.run.finish import refresh
from limbeck.runtimes.manifest import (
    Attempt,
    Conversion,
    ExportManifest,
    HeldOutScores,
    weight_bytes,
    weights_of,
)
from limbeck.runtimes.sessions import need_extra
from limbeck.scoring import scored_model
from limbeck.static import StaticConfig
from limbeck.students import resolve_checkpoint
from limbeck.students.four_bits import in_four_bits
from limbeck.support import files, terminal
from limbeck.support.cores import check_threads
from limbeck.support.errors import LimbeckError, first_line
from limbeck.tasks import join

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime", "openvino")
_OF_ROWS = {"split", "text_columns", "label_column", "max_length"}


@dataclass(frozen=True)
class ExportResult:
    """An exported folder and its measurements."""

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
    graph: Path | None = None,
    **settings: Any,
) -> ExportResult:
    """Write a model as ONNX (fp32, int8 or int4), for OpenVINO or a static reader, if it keeps its score there.

    The file is scored by its own runtime on the rows that a run is scored on, next to the torch
    model; beyond `max_drop` points nothing is written.

    Args:
        model: a finished run's folder, or any fine-tuned checkpoint's folder or Hub name.
        task: the task to measure on; a run's own by default.
        data: source of its rows.
        out: the folder to write; by default RUN/exported/FORMAT.
        overwrite: replace an exported model in the folder.
        show: print progress on standard error.
        graph: a file for the graph in float, which takes most of an export's time: it is written where it is not
            there, and read by exports of the same model to other formats. The caller removes it.
        settings: which rows: split, text_columns, label_column and max_length (most tokens per text; by
            default the run's, otherwise the model's limit, at most 512); and the fields of
            `ExportSettings`: format, embedding_bits, fused, max_drop, keep_sensitive, batch_size, threads.

    Example:
        ```python
        made = limbeck.export("runs/student", format="onnx-int8", max_drop=0.5)
        made.path
        ```

    Raises:
        LimbeckError: settings, rows or model that cannot be used; a library that is not installed;
            or a model that loses more than `max_drop`, with everything that was tried.
    """
    of_rows = {name: settings.pop(name) for name in _OF_ROWS & settings.keys()}
    asked = RowsAsked(task, data, **of_rows)
    chosen = ExportSettings.checked(settings)
    if chosen.embedding_bits is not None and chosen.format != "onnx-int8":
        raise LimbeckError(
            f"embedding_bits: it belongs to format onnx-int8, and the format is {chosen.format}",
            "leave it out, or choose --format onnx-int8",
        )
    if chosen.threads is not None:
        check_threads([chosen.threads])
    place = (
        files.at_home(out) if out is not None else folder.default_place(str(model), chosen.format)
    )
    folder.refuse_occupied(place, overwrite=overwrite)
    static = chosen.format in STATIC_FORMATS
    for extra in ("openvino",) * (chosen.format == "openvino") + ("onnx",) * (not static):
        need_extra(extra, f"export to {chosen.format}")
    # Before they are read, so that a run that is trained again at the same time is seen to have another student.
    weights = weights_of(Path(resolve_checkpoint(str(model))))
    source = scored_model.ScoredModel.open(model, scored_model.TORCH)
    if source.kind.generates:
        raise LimbeckError(
            f"{model} writes its answers token by token, and an export holds one graph",
            f"use optimum: optimum-cli export onnx --model {source.place} FOLDER",
        )
    if static and source.config.model_type != StaticConfig.model_type:
        raise LimbeckError(
            f"format {chosen.format}: {model} is no static student",
            "choose format onnx, onnx-int8, onnx-int4 or openvino, or distill a static student (--static)",
        )
    split = source.rows(asked)
    loaded = source.load(source.kind)
    # The tables of a student that was trained in 4 bits lose nothing in them.
    if chosen.format == "onnx-int8" and not chosen.embedding_bits and in_four_bits(loaded):
        chosen = chosen.model_copy(update={"embedding_bits": 4})
    refuse_beyond(loaded, asked.max_length)
    rows = source.read(split, loaded)
    with terminal.phases(shown=show) as begin, folder.folder_in_work(place) as part:
        reference = _reference(loaded, rows, chosen, begin)
        make = StaticWorkshop if static else Workshop
        workshop = make(loaded, rows, reference, chosen, part, begin, graph)
        tried = try_all(workshop)
        if not tried[-1].passed:
            raise refused(source.name, rows, chosen, tried)
        faster = _times_faster(workshop) if chosen.format in QUANTISED else None
        test = None if asked != NOTHING_NAMED else _tested(source, workshop)
        workshop.clear(tried[-1])
        manifest = _manifest_of(source.name, weights, workshop, tried, faster, test)
        written = folder.finish_folder(part, place, manifest, loaded, rows.processor)
    if source.record is not None:
        refresh(files.at_home(source.name))
    return ExportResult(place, written)


def _reference(
    model: PreTrainedModel, rows: scored_model.EncodedSplit, settings: ExportSettings, begin: Phase
) -> gate.TorchReference:
    """The torch model's own outputs on the gate's rows, its classes checked against theirs."""
    unproven = scored_model.class_names(rows.task, model.config, side="model")
    step = begin("score in torch", len(rows.encoded))
    reference = gate.torch_reference(model, rows, settings.batch_size, step)
    labels, split = rows.loaded.rows[rows.task.label_column][:], rows.loaded.name
    outputs = reference.compact_outputs
    scored_model.resolve_class_order(rows.task, unproven, outputs, labels, split, side="model")
    return reference


def _tested(source: scored_model.ScoredModel, workshop: Workshop) -> HeldOutScores | None:
    """The shipped file's scores on the run's test rows; None without them."""
    known = None if source.record is None else source.record.scores.get("test")
    if known is None:
        return None
    rows = workshop.as_read(source.read(source.rows(RowsAsked(split="test")), workshop.model))
    step, outputs = workshop.begin("score on test rows", len(rows.encoded)), []
    session, batches = workshop.open(workshop.shipped), rows.batches(workshop.settings.batch_size)
    for one in outputs_by_batch(session, batches, rows.task.kind):
        outputs.append(one.kept)
        step(len(one.logits))
    return HeldOutScores(scores=dict(rows.results(join(outputs)).scores), torch_scores=dict(known))


# How an export ends: an error, with all attempts, or a shipped file, with a manifest that describes them.


def refused(
    model: str, rows: scored_model.EncodedSplit, settings: ExportSettings, tried: Sequence[Attempt]
) -> LimbeckError:
    """The error of an export without a passing attempt: all attempts, and their losses."""
    lines = "; ".join(
        f"{one.conversion.name}: {one.error if one.measured is None else f'−{one.measured.drop:.2f}'}"
        for one in tried
    )
    measured = [one.measured for one in tried if one.measured is not None]
    fix = "raise --max-drop, or choose --format onnx"
    if settings.format in STATIC_FORMATS:
        fix = "raise --max-drop, or choose --format numpy"
        if settings.format == "model2vec-int8":
            fix = "raise --max-drop, or choose --format model2vec"
        if settings.format == "model2vec":
            fix += (
                "; model2vec holds no word pairs and reads fewer characters of a text: train with student.pairs=0 "
                "and a larger max_length"
            )
    if not measured:
        return LimbeckError(f"{model} cannot be exported as {settings.format}: {lines}", fix)
    best, count = min(measured, key=lambda one: one.drop), len(rows.loaded.rows)
    if 100 / count > settings.max_drop:
        fix += f"; one of {count} rows alone is about {100 / count:.1f} points: name more rows (--data)"
    return LimbeckError(
        f"{model} as {settings.format} loses {best.drop:.2f} points of "
        f"{rows.task.primary} on {count:,} rows of {rows.loaded.name} (torch {best.torch_scores['primary']:.2f}, "
        f"exported {best.scores['primary']:.2f}), more than max_drop {settings.max_drop:g}: "
        f"nothing is written. Tried: {lines}",
        fix,
    )


def _manifest_of(
    source: str,
    weights: Mapping[str, str],
    workshop: Workshop,
    tried: list[Attempt],
    times_faster: float | None,
    test: HeldOutScores | None,
) -> ExportManifest:
    """The manifest of an exported folder, without checksums.

    Args:
        source: the run, folder or Hub name.
        weights: names and checksums of its files of weights.
        workshop: where its files were made.
        tried: all attempts; the last one is shipped.
        times_faster: than the graph in float.
        test: scores on the run's test rows.
    """
    model, rows, settings = workshop.model, workshop.rows, workshop.settings
    split = rows.loaded
    shipped = tried[-1]
    assert shipped.measured is not None
    behind = modules_of(model.config)
    prompts = BARE if behind is None else behind.text_prompts
    named = dict[Any, str](model.config.id2label or {})
    labels = rows.task.kind.class_names([str(named[number]) for number in range(len(named))])
    sizes = {id(weight): weight.numel() for weight in model.parameters()}
    return ExportManifest(
        format=settings.format,
        file=workshop.shipped.name,
        kind=rows.task.kind.name,
        architecture=type(model).__name__,
        source=source,
        weights=dict(weights),
        labels=[*labels],
        texts=len(rows.task.text_columns[: rows.task.kind.needed_texts]),
        prompts=prompts._asdict() if any(prompts) else {},
        max_length=rows.max_length,
        inputs=list(workshop.inputs),
        conversion=shipped.conversion,
        gate=gate.rows_facts(split, batch_size=settings.batch_size),
        measured=shipped.measured,
        cross_fitted=gate.cross_fitted(
            rows, workshop.reference, workshop.measured, settings.max_drop
        ),
        test=test,
        max_drop=settings.max_drop,
        times_faster=times_faster,
        tried=tried,
        bytes=shipped.bytes,
        torch_bytes=4 * sum(sizes.values()),
        versions=versions(*_LIBRARIES),
        machine=processor_name(),
    )


# The conversions of an export, one after the other, until one passes the gate.


_SEARCH_ROWS, _SEARCH_BATCH = 32, 8
# The first round warms up; slow models get at least two more.
_TIMED_BATCHES, _TIMED_ROUNDS, _TIMED_SECONDS = 2, 8, 5.0


def try_all(workshop: Workshop) -> list[Attempt]:
    """Every attempt that was made; the last one passed, or none did."""
    tried: list[Attempt] = []
    for how in conversions(workshop.settings):
        tried.append(_try(workshop, how))
        if tried[-1].passed:
            return tried
    drops = [(one.measured.drop, place) for place, one in enumerate(tried) if one.measured]
    settings = workshop.settings
    if not drops or settings.format not in QUANTISED or not settings.keep_sensitive:
        return tried
    best = tried[min(drops)[1]].conversion
    groups = _sensitive(workshop, best)
    for power in range((len(groups) - 1).bit_length()):  # 1, 2, 4, … of them, below all
        nodes = [node for group in groups[: 2**power] for node in group]
        named = f"{best.name}, {len(nodes)} in float"
        kept = best.model_copy(update={"name": named, "kept_in_float": nodes})
        tried.append(_try(workshop, kept))
        if tried[-1].passed:
            break
    return tried


def _try(workshop: Workshop, how: Conversion) -> Attempt:
    began = time.perf_counter()
    try:
        workshop.write(how)
        session = workshop.open(workshop.shipped)
    except LimbeckError:
        raise
    # ONNX Runtime's and OpenVINO's converters have no common class of errors; one conversion
    # that does not work is no reason not to try the next.
    except Exception as error:
        if files.is_full(error):  # nor would the next one have room
            raise
        return Attempt(conversion=how, error=first_line(error), seconds=time.perf_counter() - began)
    workshop.inputs = session.inputs
    step = workshop.begin(how.name, len(workshop.rows.encoded))
    measured, outputs = gate.measure(session, workshop.rows, workshop.reference, step)
    workshop.measured.append(outputs)
    return Attempt(
        conversion=how,
        measured=measured,
        passed=measured.drop <= workshop.settings.max_drop,
        bytes=weight_bytes(workshop.shipped),
        seconds=time.perf_counter() - began,
    )


def _times_faster(workshop: Workshop) -> float:
    """The float graph's time over the shipped file's, on rows of the gate in its batches: a median of rounds."""
    sessions = [workshop.open(path) for path in (workshop.source, workshop.shipped)]
    few = [*islice(workshop.rows.batches(workshop.settings.batch_size), _TIMED_BATCHES)]
    feeds = [sessions[0].feed(batch) for batch in few]
    ratios: list[float] = []
    start = time.perf_counter()
    while len(ratios) < _TIMED_ROUNDS:
        seconds = []
        for session in sessions:  # in turns: a machine that slows down slows both
            began = time.perf_counter()
            for feed in feeds:
                session.logits(feed)
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[0] / seconds[1])
        if len(ratios) > 2 and time.perf_counter() - start > _TIMED_SECONDS:
            break
    return median(ratios[1:])


def _sensitive(workshop: Workshop, how: Conversion) -> list[list[str]]:
    """Groups of nodes, the most sensitive first, by the logits of a few rows of the gate."""
    source = workshop.source
    groups = onnx_graph.groups_of_nodes(source, workshop.operators)
    step = workshop.begin("searching sensitive layers", len(groups))
    session = workshop.open(source)
    few = islice(workshop.rows.batches(_SEARCH_BATCH), _SEARCH_ROWS // _SEARCH_BATCH)
    feeds = [session.feed(batch) for batch in few]
    return onnx_graph.ranked(source, workshop.work, how, groups, feeds, workshop.open, step)
