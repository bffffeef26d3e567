"""What `limbeck export` prints at its end: what was tried, and what the shipped file came to."""

from __future__ import annotations

from rich.table import Table

from limbeck.cli.console import output, say
from limbeck.runtimes import ExportManifest

_MB = 1e6
# Classes whose recall is shown: those that lose most.
_SHOWN = 3


def show_export(manifest: ExportManifest) -> None:
    """What was tried, what the shipped file came to, and which classes lost."""
    output().print(_tried(manifest))
    for line in _lines(manifest):
        say(line)


def _tried(manifest: ExportManifest) -> Table:
    table = Table(title=f"Measured on {manifest.gate.rows} rows of {manifest.gate.split}")
    for heading in ("tried", "score", "lost", "agreement", "MB", ""):
        table.add_column(heading, justify="left" if heading in ("tried", "") else "right")
    score = manifest.measured.torch_scores["primary"]
    table.add_row("torch", f"{score:.2f}", "", "", f"{manifest.torch_bytes / _MB:.1f}", "")
    for one in manifest.tried:
        found = one.measured
        if found is None:
            table.add_row(one.conversion.name, "–", "", "", "", one.error[:60])
            continue
        alike = "" if found.agreement is None else f"{100 * found.agreement:.2f} %"
        table.add_row(
            one.conversion.name,
            f"{found.scores['primary']:.2f}",
            f"{found.drop:+.2f}",
            alike,
            f"{one.bytes / _MB:.1f}",
            "shipped" if one.passed else "refused",
        )
    return table


def _lines(manifest: ExportManifest) -> list[str]:
    recall = sorted(manifest.measured.recall.items(), key=lambda one: one[1][1] - one[1][0])
    losing = [(name, *both) for name, both in recall[:_SHOWN] if both[1] < both[0]]
    found = [f"recall of {name}: {before:.1f} → {after:.1f}" for name, before, after in losing]
    found += _constant(manifest)
    if manifest.unchosen is not None:
        found.append(f"score on rows that did not choose the file: {manifest.unchosen:.2f}")
    logits = manifest.measured.logits
    if logits is not None:
        found.append(
            f"logits differ by {logits.largest_difference:.2g} at most "
            f"(standard deviation {logits.scale:.2g})"
        )
    return found


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
