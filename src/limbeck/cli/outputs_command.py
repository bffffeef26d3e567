"""`limbeck outputs list`, `show`, `copy` and `clear`: stored teacher outputs, endpoint answers and augmented examples.

Training's stored outputs, and endpoints' answers, are in one folder under keys; stores that `limbeck label` made are
wherever the user wrote them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from limbeck.cli.console import output, say
from limbeck.support.cells import CellTable, one_line
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems
from limbeck.support.words import count_of, human_size

if TYPE_CHECKING:
    from limbeck.labelling.language_models.answers import AnswerJournal
    from limbeck.outputs.cache import StoredEntry
    from limbeck.outputs.store import OutputStore

    Kept = StoredEntry | AnswerJournal

outputs = typer.Typer(
    help="Stored teacher outputs, of training and of `limbeck label`, endpoint answers, and augmented examples.",
    no_args_is_help=True,
)

_STORE = "A folder or URL that `limbeck label` wrote, or a key as listed."
_ANSWERS = "endpoint answers"
_SHOWN = 8
"""Letters of a key that are shown: its beginning identifies it."""
_LONGEST = 100
"""Characters of a text that are shown."""
_HEADINGS = ("content", "model", "task", "rows", "precision", "size", "last used")
Places = Annotated[list[str] | None, typer.Argument(metavar="STORE", help=_STORE)]


@outputs.command("list")
def list_entries(stores: Places = None) -> None:
    """List the outputs stored for training, most recently used first, endpoint answers, and the given stores."""
    from limbeck.outputs.cache import default_store
    from limbeck.outputs.store import OutputStore, open_store

    folder, kept = default_store().folder, _kept()
    others: list[OutputStore] = []
    problems: list[Problem] = []
    for place in stores or ():  # keys are listed anyway
        with collecting(problems):
            if _is_place(place) or not _begun_by(place, kept):
                others.append(open_store(place, allow_incomplete=True))
    if kept or others:
        cells = [["key", *_HEADINGS]]
        for one in [*kept, *others]:
            key = one.files.url if isinstance(one, OutputStore) else one.key[:_SHOWN]
            facts = _facts(one)
            cells.append([key, *(facts.get(heading) or "–" for heading in _HEADINGS)])
        output().print(CellTable(f"Stored: {folder}", cells, (0, 1, 2, 3, 5, 7)).printed())
        total = sum(map(_size, kept)) + sum(store.manifest.bytes for store in others)
        say(f"all: {human_size(total)}")
    else:
        say(f"nothing is stored in {folder}")
    raise_problems(problems)


@outputs.command()
def show(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    rows: Annotated[int, typer.Option(min=0, help="How many rows of a store to print.")] = 5,
) -> None:
    """Show a store or a key's entry: its teacher, its rows, its columns and size, and some rows."""
    from limbeck.outputs.store import open_store

    for one in [] if _is_place(place) else _named([place], _kept()):
        if _is_journal(one) or not getattr(one.manifest, "row_ids", False):
            _print_facts(_facts(one))
            return
        place = str(one.path)
    store = open_store(place, allow_incomplete=True)
    _print_facts(_facts(store))
    if rows and len(store):
        output().print(_some_rows(store, rows).printed())


@outputs.command()
def copy(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A new folder, or a URL.")],
) -> None:
    """Copy a store, or the outputs that a training stored under a key, to a folder or URL as a store for students.

    Every bit of the outputs stays. A copy that was stopped is continued by the same command.
    """
    from limbeck.outputs.cache import default_store
    from limbeck.outputs.files import StoreFiles
    from limbeck.outputs.store import open_store
    from limbeck.outputs.writer import copy_store
    from limbeck.support.terminal import row_bar

    named = [] if _is_place(place) else _named([place], default_store().entries())
    store = open_store(named[0].path if named else place)
    with row_bar(output(), lambda rows: rows / max(len(store), 1)) as advance:
        made = copy_store(store, StoreFiles(out), advance)
    say(f"{out}: {made.stored_rows:,} rows, {human_size(made.bytes)}")


@outputs.command()
def clear(
    places: Places = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Also all endpoint answers, which were paid for.")
    ] = False,
) -> None:
    """Delete the outputs stored for training, or the given keys and stores; running readers are not interrupted.

    A key may be typed as far as it begins no other one. Endpoint answers go only by their key or with --answers.
    """
    from limbeck.outputs.cache import default_store
    from limbeck.outputs.writer import remove_store

    kept, stores = _kept(), [place for place in places or () if _is_place(place)]
    keys = [place for place in places or () if place not in stores]
    if unknown := [key for key in keys if not _begun_by(key, kept)]:
        raise LimbeckError(
            f"nothing is stored under {', '.join(unknown)}", "limbeck outputs list shows the keys"
        )
    named = {one.key for one in _named(keys, kept)}
    chosen = [
        one for one in kept if one.key in named or (answers if _is_journal(one) else not places)
    ]
    freed = sum(remove_store(place) for place in stores) + sum(map(_size, chosen))
    for one in chosen:
        if _is_journal(one):
            one.remove()
        else:
            default_store().remove(one)
    count = len(chosen) + len(stores)
    output().print(f"removed {count} of {len(kept) + len(stores)} entries, {human_size(freed)}")
    if places:
        return
    default_store().sweep()
    left = sum(map(_is_journal, kept)) - sum(map(_is_journal, chosen))
    if left:
        output().print(f"{_ANSWERS} were paid for and stay ({left}): --answers removes them")


def _kept() -> list[Any]:
    """The entries under keys: outputs for training, and journals of an endpoint's answers."""
    from limbeck.labelling.language_models.answers import JOURNALS, journals_in
    from limbeck.outputs.cache import default_store

    store = default_store()
    return [*store.entries(), *journals_in(store.folder / JOURNALS)]


def _is_journal(one: Kept) -> bool:
    return hasattr(one, "about")


def _size(one: Any) -> int:
    return int(one.size if _is_journal(one) else one.bytes)


def _begun_by(key: str, kept: Iterable[Any]) -> list[str]:
    """The keys that begin so."""
    return [one.key for one in kept if key and one.key.startswith(key)]


def _named(keys: Sequence[str], kept: Sequence[Any]) -> list[Any]:
    """The entries of some keys, each given completely or by a unique beginning; missing entries are left out.

    Raises:
        LimbeckError: beginnings of several keys, with these keys.
    """
    found = {key: _begun_by(key, kept) for key in keys}
    problems = [
        Problem(
            f"{key} begins several keys: {', '.join(begun)}", "name one of them, or each in full"
        )
        for key, begun in found.items()
        if len(begun) > 1 and key not in begun
    ]
    raise_problems(problems)
    meant = {key if key in begun else begun[0] for key, begun in found.items() if begun}
    return [one for one in kept if one.key in meant]


def _is_place(place: str) -> bool:
    """Whether a store's folder or URL is named rather than a key."""
    from limbeck.outputs.files import StoreFiles
    from limbeck.outputs.manifest import MANIFEST

    return "://" in place or StoreFiles(place).exists(MANIFEST)


# ---- as it is printed ----


def _print_facts(facts: dict[str, str]) -> None:
    """Print names and values, one below the other; empty values are left out."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in facts.items():
        if text:
            table.add_row(name, text)
    output().print(table)


def _facts(one: Any) -> dict[str, str]:
    """The facts known about an entry, a store or a journal."""
    from limbeck.outputs.manifest import StoreManifest

    if _is_journal(one):
        read, written = one.tokens
        return {
            "content": _ANSWERS,
            "model": one.about.get("model", ""),
            **one.about,
            "rows": f"{len(one):,}",
            "tokens": f"{read:,} read, {written:,} written",
            "size": human_size(one.size),
            "last used": _when(one.used),
            "place": str(one.path),
        }
    manifest = one.manifest
    known = {
        "content": manifest.content,
        "task": manifest.task or "",
        "size": human_size(manifest.bytes),
        "place": str(getattr(one, "path", "") or one.files.url),
        "last used": _when(one.used) if hasattr(one, "used") else "",
    }
    if not isinstance(manifest, StoreManifest):
        return known | {"model": manifest.model, "rows": f"{manifest.rows:,}"}
    of, rows, shards = manifest.rows, _rows_of(manifest), len(manifest.shards)
    if not manifest.complete and manifest.row_ids:
        rows += ": incomplete, the command that made it continues it"
    elif left_out := len(manifest.missing_rows):
        rows += f": {left_out:,} have no outputs"
    tokens, teacher = manifest.tokens, manifest.teacher
    precision = manifest.settings.get("precision") or teacher.fingerprint.get("precision")
    return known | {
        "model": teacher.name,
        "kind": manifest.kind,
        "rows": rows,
        "precision": str(precision or ""),
        "not read to their end": f"{manifest.truncated_rows:,}" if manifest.truncated_rows else "",
        "read from": ", ".join(of.source),
        "text columns": ", ".join(of.columns) + (", stored" if manifest.text else ""),
        "classes": ", ".join(manifest.classes),
        "kept of the vocabulary": (tokens and f"{tokens.kept} of {tokens.vocabulary:,} tokens")
        or "",
        "columns": "\n".join(
            f"{column.name} {'×'.join(map(str, column.shape)) or 'one'} {column.dtype}"
            for column in manifest.columns
        ),
        "shards": count_of(shards, "shard"),
        "cost": ", ".join(f"{name} {count:,.6g}" for name, count in manifest.costs.items()),
        "made with": ", ".join(f"{name} {v}" for name, v in manifest.made_with.items()),
    }


def _rows_of(manifest: Any) -> str:
    """`300`, or `262 of 300` where some have no outputs, or none yet."""
    total = manifest.rows.count
    left_out = len(manifest.missing_rows)
    stored = total - left_out if manifest.complete else manifest.stored_rows
    return f"{total:,}" if stored == total else f"{stored:,} of {total:,}"


def _some_rows(store: OutputStore, count: int) -> CellTable:
    """The first rows: id, texts, label, and probabilities, logits or votes."""
    from limbeck.outputs.shards import DECIDING, LABEL

    ids = store.row_ids[:count]
    texts = [*store.manifest.rows.columns] if store.manifest.text else []
    known = [column.name for column in store.columns]
    shown = [name for name in DECIDING if name in known][:1]
    label = [LABEL] if store.manifest.labelled else []
    found = store.take(ids, [*texts, *label, *shown])
    cells = [["row", *texts, *label, *shown]]
    for place, number in enumerate(ids):
        row = [str(number), *(one_line(str(found[name][place]))[:_LONGEST] for name in texts)]
        for name in label:
            value = found[name][place]
            row.append(store.classes[value] if store.classes else f"{value:.4g}")
        for name in shown:
            row.append(" ".join(f"{value:.3f}" for value in found[name][place].ravel()[:8]))
        cells.append(row)
    return CellTable("", cells, tuple(range(1, 1 + len(texts) + len(label))))


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
