"""Stored outputs as `limbeck outputs` prints them: a line of a table each, the facts of one, some of its rows.

Part of `limbeck.cli`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.table import Table

from limbeck.support.words import human_size

if TYPE_CHECKING:
    from limbeck.labelling.language_models.answer_journal import AnswerJournal
    from limbeck.outputs import ExamplesManifest, OutputStore, StoredEntry, StoreManifest

ANSWERS = "endpoint answers"
"""What a journal holds, in words."""
SHOWN = 8
"""Letters of a key that are shown: it is told by its beginning."""
_HEADINGS = ("key", "content", "model", "task", "rows", "precision", "size", "last used")
_RIGHT = ("rows", "size")


def stored_table(
    folder: str,
    entries: list[StoredEntry],
    journals: list[AnswerJournal],
    stores: list[OutputStore],
) -> Table:
    """Everything that is stored, with the sum of its sizes."""
    table = Table(title=f"Stored: {folder}")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left")
    for entry in entries:
        table.add_row(entry.key[:SHOWN], *_cells(entry.manifest), _when(entry.used))
    for journal in journals:
        about = (ANSWERS, journal.about.get("model", "?"), "", str(len(journal)), "")
        size = human_size(journal.size)
        table.add_row(journal.key[:SHOWN], *about, size, _when(journal.used))
    for store in stores:
        table.add_row(store.files.url, *_cells(store.manifest), "")
    table.add_section()
    sizes = [entry.bytes for entry in entries] + [journal.size for journal in journals]
    total = sum(sizes) + sum(store.manifest.bytes for store in stores)
    table.add_row("all", "", "", "", "", "", human_size(total), "")
    return table


def facts_table(facts: dict[str, str]) -> Table:
    """Names and what they are, one below the other; what is empty is left out."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in facts.items():
        if text:
            table.add_row(name, text)
    return table


def store_facts(manifest: StoreManifest, place: str) -> dict[str, str]:
    """Whose outputs, about which rows, its columns and size."""
    of = manifest.rows
    rows = _rows_of(manifest)
    if not manifest.complete:
        rows += ": incomplete, the command that made it continues it"
    elif left_out := _left_out(manifest):
        rows += f": {left_out:,} have no outputs"
    columns = [
        f"{column.name} {'×'.join(map(str, column.shape)) or 'one'} {column.dtype}"
        for column in manifest.layout.columns
    ]
    costs = [f"{name} {count:,.6g}" for name, count in manifest.costs.items()]
    return {
        "store": place,
        "teacher": manifest.teacher.name,
        "task": f"{manifest.task or ''} ({manifest.kind})".strip(),
        "rows": rows,
        "not read to their end": f"{manifest.truncated_rows:,}" if manifest.truncated_rows else "",
        "read from": ", ".join(of.source),
        "text columns": ", ".join(of.columns) + (", stored" if manifest.text else ""),
        "classes": ", ".join(manifest.classes),
        "kept of the vocabulary": ""
        if manifest.tokens is None
        else f"{manifest.tokens.kept} of {manifest.tokens.vocabulary:,} tokens",
        "columns": "\n".join(columns),
        "size": f"{human_size(manifest.bytes)} in {_counted(len(manifest.shards), 'shard')}",
        "cost": ", ".join(costs),
        "made with": ", ".join(f"{name} {v}" for name, v in manifest.made_with.items()),
    }


def examples_facts(manifest: ExamplesManifest, place: str) -> dict[str, str]:
    """Which model made how many examples of which task."""
    return {
        "content": manifest.content,
        "folder": place,
        "model": manifest.model,
        "task": manifest.task or "",
        "examples": f"{manifest.rows:,}",
        "size": human_size(manifest.bytes),
    }


def journal_facts(journal: AnswerJournal) -> dict[str, str]:
    """Whose answers, how many, and the tokens that were paid for."""
    read, written = journal.tokens
    return {
        "content": ANSWERS,
        "file": str(journal.path),
        **journal.about,
        "answers": f"{len(journal):,}",
        "tokens": f"{read:,} read, {written:,} written",
        "size": human_size(journal.size),
        "last used": _when(journal.used),
    }


def some_rows(store: OutputStore, count: int) -> Table:
    """The first rows: id, texts, label, and probabilities or logits."""
    ids = store.row_ids[:count]
    texts = [*store.manifest.rows.columns] if store.manifest.text else []
    known = [column.name for column in store.columns]
    shown = next((name for name in ("probabilities", "logits", "votes") if name in known), None)
    label = ["label"] if store.manifest.labelled else []
    found = store.take(ids, [*texts, *label, *([shown] if shown else [])])
    table = Table()
    for heading in ("row", *texts, *label, *([shown] if shown else [])):
        table.add_column(heading, overflow="ellipsis", no_wrap=heading in ("row", shown))
    for place, number in enumerate(ids):
        cells = [str(number), *(str(found[name][place]) for name in texts)]
        if label:
            value = found["label"][place]
            cells.append(store.classes[value] if store.classes else f"{value:.4g}")
        if shown:
            cells.append(" ".join(f"{value:.3f}" for value in found[shown][place].ravel()[:8]))
        table.add_row(*cells)
    return table


def _left_out(manifest: StoreManifest) -> int:
    """How many rows shards were made without, as they have no outputs."""
    return sum(len(shard.missing) for shard in manifest.shards)


def _rows_of(manifest: StoreManifest) -> str:
    """`300`, or `262 of 300` where some have no outputs, or none yet."""
    total = manifest.rows.count
    stored = total - _left_out(manifest) if manifest.complete else manifest.stored_rows
    return f"{total:,}" if stored == total else f"{stored:,} of {total:,}"


def _cells(manifest: StoreManifest | ExamplesManifest) -> list[str]:
    from limbeck.outputs import StoreManifest

    if isinstance(manifest, StoreManifest):
        rows, model = _rows_of(manifest), manifest.teacher.name
    else:
        rows, model = f"{manifest.rows:,}", manifest.model
    precision = manifest.settings.get("precision")
    if precision is None and isinstance(manifest, StoreManifest):
        precision = manifest.teacher.fingerprint.get("precision")
    words = (manifest.content, model, manifest.task, rows, precision)
    return [*(str(word or "?") for word in words), human_size(manifest.bytes)]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
