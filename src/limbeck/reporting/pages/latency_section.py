"""What a bench and the exports add to a run's page. Part of `limbeck.reporting.pages`."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.records import Record
from limbeck.reporting.pages import plots
from limbeck.reporting.pages.sections import Section
from limbeck.runtimes import ExportManifest

_MB = 1e6
_STYLES = {"teacher": 0, "student": 1, "export": 2}


def bench_section(runs: Sequence[Record]) -> Section:
    """The last bench's times, one drawing a condition; of several runs only where one bench timed them all."""
    benches = {run.bench.identity: run.bench for run in runs if run.bench is not None}
    drawings: list[str] = []
    lead = ""
    if len(benches) == 1 and all(run.bench is not None for run in runs):
        (bench,) = benches.values()
        conditions: dict[tuple[int, int, int], dict[str, tuple[str, int, list[float]]]] = {}
        for run in runs:
            assert run.bench is not None
            for row in run.bench.rows:
                found = conditions.setdefault((row.batch_size, row.tokens, row.threads), {})
                # On two lines: a form is long, and labels take their width from the drawing.
                name = f"{row.model} · {row.backend}\n{row.form}"
                found.setdefault(name, (name, _STYLES[row.role], [row.p50]))
        for (batch, tokens, threads), rows in conditions.items():
            plural = "s" if threads > 1 else ""
            title = f"batch {batch}, {tokens} tokens, {threads} thread{plural}"
            drawings.append(plots.dots(title, [*rows.values()], x_label="ms of a pass (p50)"))
        lead = f"Timed in turns by one bench ({bench.identity}, {bench.when}) on {bench.processor}."
        lead += bench.caution
    return Section("latency", "Latency", lead, drawings)


def export_cards(exports: Sequence[ExportManifest]) -> list[dict[str, str]]:
    """Each export at a glance: its size, and its score beside that in torch."""
    cards = []
    for one in exports:
        lines = [f"{one.bytes / _MB:.1f} MB ({100 * one.bytes / one.torch_bytes:.0f} % of torch's)"]
        own, before = (
            scores.get("primary") for scores in (one.measured.scores, one.measured.torch_scores)
        )
        if own is not None and before is not None:
            lines.append(f"score {own:.1f} (in torch {before:.1f})")
        lines.append(one.conversion.name)
        cards.append({"title": "Exported", "big": one.folder.name, "lines": "\n".join(lines)})
    return cards
