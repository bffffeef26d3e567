"""`limbeck export`: a model for another runtime, if it keeps its score there.

It calls `limbeck.exporting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output, say, say_command
from limbeck.cli.finished import after_export
from limbeck.cli.options import takes_groups, typed
from limbeck.cli.scored_options import Plugins, ScoredRows
from limbeck.runtimes.manifest import ExportManifest
from limbeck.support.cells import CellTable
from limbeck.support.files import at_home
from limbeck.support.registry import load_plugins


@dataclass(frozen=True)
class ConversionOptions:
    """As `limbeck.exporting.ExportSettings` takes them."""

    format: Annotated[
        str,
        typer.Option(
            help="onnx, onnx-int8 or openvino; of static students also numpy, numpy-int8, model2vec or "
            "model2vec-int8 (which sentence-transformers reads too)."
        ),
    ] = "onnx"
    fused: Annotated[
        bool,
        typer.Option(help="With ONNX Runtime's own operators; no other runtime reads them."),
    ] = True
    max_drop: Annotated[
        float,
        typer.Option(help="Points of the primary score that may be lost; beyond it is refused."),
    ] = 0.5
    keep_sensitive: Annotated[
        bool,
        typer.Option(help="Where int8 fails, leave the layers in float that it hurts most."),
    ] = True
    batch_size: Annotated[int, typer.Option(help="Rows of a batch while measuring.")] = 32
    threads: Annotated[
        int | None, typer.Option(help="Threads of the runtime; default: its own choice.")
    ] = None


@takes_groups
def export(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run folder; or any checkpoint's folder or Hub name, with --task, --data.",
        ),
    ],
    conversion: ConversionOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write; default: RUN/exported/FORMAT."),
    ] = None,
    rows: ScoredRows,
    max_length: Annotated[
        int | None,
        typer.Option(help="Tokens a text is cut to; default: the run's, else the model's."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an exported model that lies there.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Write a model for another runtime, scored there beside torch, and refused if it loses too much."""
    load_plugins(plugin or ())

    from limbeck.exporting import export as export_model

    result = export_model(
        model,
        out=out,
        **typed(rows),
        max_length=max_length,
        overwrite=overwrite,
        show=True,
        **typed(conversion),
    )
    show_export(result.manifest)
    say((result.path / "predict.py").read_text(encoding="utf-8").rstrip())
    say(f"Files:   {result.path} (model, tokenizer and the predict.py above)", hang=9)
    command = after_export(result.path, at_home(model))
    if command is not None and result.manifest.runtime != "model2vec":
        say_command("Next:    ", command)


# What is printed at its end: what was tried, and what the shipped file came to.


_MB = 1e6
# Classes whose recall is shown: those that lose most.
_SHOWN = 3


def show_export(manifest: ExportManifest) -> None:
    """What was tried, what the shipped file came to, and which classes lost."""
    measured = manifest.measured
    cells = [["tried", "score", "lost", "agreement", "MB", ""]]
    score = f"{measured.torch_scores['primary']:.2f}"
    cells.append(["torch", score, "", "", f"{manifest.torch_bytes / _MB:.1f}", ""])
    for one in manifest.tried:
        found = one.measured
        if found is None:
            cells.append([one.conversion.name, "–", "", "", "", one.error[:60]])
            continue
        numbers = [f"{found.scores['primary']:.2f}", f"{found.drop:+.2f}"]
        numbers += ["" if found.agreement is None else f"{100 * found.agreement:.2f} %"]
        verdict = "shipped" if one.passed else "refused"
        cells.append([one.conversion.name, *numbers, f"{one.bytes / _MB:.1f}", verdict])
    title = f"Measured on {manifest.gate.rows} rows of {manifest.gate.split}"
    output().print(CellTable(title, cells, (0, 5)).printed())
    recall = sorted(measured.recall.items(), key=lambda one: one[1][1] - one[1][0])
    for name, (before, after) in recall[:_SHOWN]:
        if after < before:
            say(f"recall of {name}: {before:.1f} → {after:.1f}")
    for line in _constant(manifest):
        say(line)
    if manifest.unchosen is not None:
        say(f"score on rows that did not choose the file: {manifest.unchosen:.2f}")
    if (logits := measured.logits) is not None:
        say(
            f"logits differ by {logits.largest_difference:.2g} at most (standard deviation {logits.scale:.2g})"
        )


def _constant(manifest: ExportManifest) -> list[str]:
    """Of a model that predicts one class of every row, what its score at the gate is worth."""
    recall = manifest.measured.recall
    known = sorted((before, name) for name, (before, _) in recall.items())
    if len(known) < 2 or known[-1][0] < 100 or known[-2][0] > 0:
        return []
    return [
        f"note: in torch too the model predicts {known[-1][1]!r} for every row, so that both agree shows "
        "little: train it longer, at another rate or on more rows, and export it then"
    ]
