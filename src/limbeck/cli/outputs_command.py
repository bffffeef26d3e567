"""`limbeck outputs list`, `show`, `copy` and `clear`: stored teacher outputs, endpoint answers and augmented examples.

Those of training, and the answers of endpoints, lie in one folder under keys; stores that `limbeck label` made lie
wherever they were put.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from limbeck.cli.console import output, say
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.words import human_size

if TYPE_CHECKING:
    from limbeck.labelling.language_models.answers import AnswerJournal
    from limbeck.outputs import ExamplesManifest, OutputStore, Store, StoredEntry, StoreManifest

outputs = typer.Typer(
    help="Stored teacher outputs, of training and of `limbeck label`, endpoint answers, and augmented examples.",
    no_args_is_help=True,
)

_STORE = "A folder or URL that `limbeck label` wrote, or a key as listed."
Places = Annotated[list[str] | None, typer.Argument(metavar="STORE", help=_STORE)]


@outputs.command("list")
def list_entries(stores: Places = None) -> None:
    """List what is stored for training, the last used first, endpoint answers, and the stores that are named."""
    kept = _Kept.read()
    others, problems = _opened(stores or (), kept)
    if kept.count or others:
        folder = str(kept.store.folder)
        output().print(stored_table(folder, kept.entries, kept.journals, others))
    else:
        say(f"nothing is stored in {kept.store.folder}")
    if problems:
        raise LimbeckError(problems)


@outputs.command()
def show(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    rows: Annotated[int, typer.Option(min=0, help="How many rows of a store to print.")] = 5,
) -> None:
    """Show a store, or what a key names: whose outputs, about which rows, its columns and size, and some rows."""
    from limbeck.outputs import StoreManifest, open_store

    named = _Kept([], []) if _is_place(place) else _one_each([place], _Kept.read())
    for entry in named.entries[:1]:
        manifest, where = entry.manifest, str(entry.path)
        if not isinstance(manifest, StoreManifest):
            output().print(facts_table(examples_facts(manifest, where)))
            return
        if not manifest.row_ids:
            output().print(facts_table(store_facts(manifest, where)))
            return
        place = where
    for journal in named.journals[:1]:
        output().print(facts_table(journal_facts(journal)))
        return
    store = open_store(place, allow_incomplete=True)
    output().print(facts_table(store_facts(store.manifest, store.files.url)))
    if rows and len(store):
        output().print(some_rows(store, rows))


@outputs.command()
def copy(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A new folder, or a URL.")],
) -> None:
    """Copy a store, or what a training stored under a key, to a folder or URL as a store that students learn from.

    Every bit of the outputs stays. A copy that was stopped is continued by the same command.
    """
    from limbeck.labelling.fill import labelling_progress
    from limbeck.outputs import StoreFiles, copy_store, open_store

    kept = _Kept([] if _is_place(place) else _Kept.read().entries, [])
    named = _one_each([place], kept).entries
    store = open_store(named[0].path if named else place)
    with labelling_progress(output(), len(store), 0) as advance:
        made = copy_store(store, StoreFiles(out), advance)
    say(f"{out}: {made.stored_rows:,} rows, {human_size(made.bytes)}")


@outputs.command()
def clear(
    places: Places = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="Also all endpoint answers, which were paid for."),
    ] = False,
) -> None:
    """Remove what is stored for training, or the keys and stores that are named; who reads it reads on.

    A key may be typed as far as it begins no other one. Endpoint answers go only by their key or with --answers.
    """
    from limbeck.outputs.writer import remove_store

    kept = _Kept.read()
    stores = [place for place in places or () if _is_place(place)]
    keys = [place for place in places or () if place not in stores]
    if unknown := [key for key in keys if not kept.named([key]).count]:
        raise LimbeckError(
            f"nothing is stored under {', '.join(unknown)}", "limbeck outputs list shows the keys"
        )
    chosen = _one_each(keys, kept) if places else _Kept(kept.entries, [])
    freed = sum(remove_store(place) for place in stores)
    journals = kept.journals if answers else chosen.journals
    for entry in chosen.entries:
        kept.store.remove(entry)
    for journal in journals:
        journal.remove()
    if not places:
        kept.store.sweep()
    freed += sum(entry.bytes for entry in chosen.entries)
    freed += sum(journal.size for journal in journals)
    count = len(chosen.entries) + len(journals) + len(stores)
    output().print(f"removed {count} of {kept.count + len(stores)} entries, {human_size(freed)}")
    left = len(kept.journals) - len(journals)
    if left and not places:
        output().print(f"{ANSWERS} were paid for and stay ({left}): --answers removes them")


@dataclass(frozen=True)
class _Kept:
    """What lies under keys: entries of training, and journals of an endpoint's answers."""

    entries: list[StoredEntry]
    journals: list[AnswerJournal]

    @classmethod
    def read(cls) -> _Kept:
        from limbeck.labelling.language_models.answers import JOURNALS, journals_in
        from limbeck.outputs import default_store

        store = default_store()
        return cls(store.entries(), journals_in(store.folder / JOURNALS))

    @property
    def store(self) -> Store:
        from limbeck.outputs import default_store

        return default_store()

    @property
    def count(self) -> int:
        return len(self.entries) + len(self.journals)

    @property
    def keys(self) -> list[str]:
        """Of all of it."""
        return [entry.key for entry in self.entries] + [journal.key for journal in self.journals]

    def named(self, keys: Sequence[str]) -> _Kept:
        """Those whose keys begin so."""
        begins = tuple(key for key in keys if key)
        return _Kept(
            [entry for entry in self.entries if entry.key.startswith(begins)],
            [journal for journal in self.journals if journal.key.startswith(begins)],
        )


def _one_each(keys: Sequence[str], kept: _Kept) -> _Kept:
    """What some keys name, each in full or by a beginning that no other key has; what is not there is left out.

    Raises:
        LimbeckError: beginnings of several keys, with these keys.
    """
    found = {key: kept.named([key]).keys for key in keys}
    problems = [
        Problem(
            f"{key} begins several keys: {', '.join(begun)}", "name one of them, or each in full"
        )
        for key, begun in found.items()
        if len(begun) > 1 and key not in begun
    ]
    if problems:
        raise LimbeckError(problems)
    meant = {key if key in begun else begun[0] for key, begun in found.items() if begun}
    return _Kept(
        [entry for entry in kept.entries if entry.key in meant],
        [journal for journal in kept.journals if journal.key in meant],
    )


def _opened(places: Sequence[str], kept: _Kept) -> tuple[list[OutputStore], list[Problem]]:
    """The stores that are named, and what is wrong with the others; keys are listed anyway."""
    from limbeck.outputs import open_store

    found, problems = [], []
    for place in places:
        try:
            if _is_place(place) or not kept.named([place]).count:
                found.append(open_store(place, allow_incomplete=True))
        except LimbeckError as error:
            problems += error.problems
    return found, problems


def _is_place(place: str) -> bool:
    """Whether a store's folder or URL is named rather than a key."""
    from limbeck.outputs import StoreFiles
    from limbeck.outputs.manifest import MANIFEST

    return "://" in place or StoreFiles(place).exists(MANIFEST)


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
