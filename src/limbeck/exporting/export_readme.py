"""The README of an exported folder: what it is, what was measured, and how to run it."""

from __future__ import annotations

from typing import Any

from limbeck.exporting.snippet import modules_of, snippet
from limbeck.runtimes import ExportManifest

_MB = 1e6


def readme(manifest: ExportManifest, processor: Any) -> str:
    """Markdown."""
    gate, measured = manifest.gate, manifest.measured
    lines = [
        f"# {manifest.architecture} as {manifest.format}",
        "",
        f"Exported from `{manifest.source}` ({manifest.conversion.name}): "
        f"{manifest.bytes / _MB:.1f} MB, {manifest.torch_bytes / _MB:.1f} MB in torch.",
        "",
        "## Measured",
        "",
        f"{gate.rows} rows of {gate.task} {gate.split} (fingerprint {gate.fingerprint}), both models "
        f"on the same CPU ({manifest.machine}).",
        "",
        "| score | torch | exported |",
        "|---|---:|---:|",
        *(
            f"| {name} | {_number(measured.torch_scores.get(name))} | {_number(value)} |"
            for name, value in measured.scores.items()
        ),
        "",
    ]
    if measured.agreement is not None:
        lines += [
            f"Both make the same prediction in {100 * measured.agreement:.2f} % of cases.",
            "",
        ]
    if manifest.unchosen is not None:
        lines += [
            f"{len(manifest.tried)} conversions were tried on these rows. On rows that did not choose the file "
            f"the score is {manifest.unchosen:.2f}: each half is scored by the file that the other half chose.",
            "",
        ]
    if measured.logits is not None:
        lines += [
            f"Logits differ by {measured.logits.largest_difference:.2g} at most, by "
            f"{measured.logits.mean_difference:.2g} on average (their standard deviation is "
            f"{measured.logits.scale:.2g}).",
            "",
        ]
    if measured.recall:
        lines += ["| class | recall, torch | recall, exported |", "|---|---:|---:|"]
        lines += [
            f"| {name} | {before:.1f} | {after:.1f} |"
            for name, (before, after) in measured.recall.items()
        ]
        lines.append("")
    lines += [
        "## Use",
        "",
        f"With {', '.join(modules_of(manifest))} alone (`predict.py`):",
        "",
        "```python",
        snippet(manifest, processor).strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
