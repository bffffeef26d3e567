"""`limbeck cache list` and `clear`: stored teacher outputs and augmented examples, and how to remove them."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from limbeck.cli.console import output
from limbeck.errors import LimbeckError

cache = typer.Typer(
    help="What is stored of training rows: teacher outputs and augmented examples.",
    no_args_is_help=True,
)

# A key is told by its beginning.
_SHOWN = 8


@cache.command("list")
def list_entries() -> None:
    """List what is stored, the last used first."""
    from limbeck.teachers.outputs import default_store

    store = default_store()
    entries = store.entries()
    if not entries:
        output().print(f"nothing is stored in {store.folder}", markup=False, soft_wrap=True)
        return
    table = Table(title=f"Stored: {store.folder}")
    for heading in ("key", "content", "model", "task", "rows", "precision", "GiB", "last used"):
        table.add_column(heading, justify="right" if heading in ("rows", "GiB") else "left")
    for entry in entries:
        about = entry.about
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        own = {"content": "teacher outputs", "model": about.get("teacher", "?")} | about
        shown = ("content", "model", "task", "rows", "precision")
        words = [str(own.get(name, "?")) for name in shown]
        table.add_row(entry.key[:_SHOWN], *words, f"{entry.bytes / 2**30:.3f}", used)
    table.add_section()
    total = sum(entry.bytes for entry in entries) / 2**30
    table.add_row("all", "", "", "", "", "", f"{total:.3f}", "")
    output().print(table)


@cache.command()
def clear(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="As listed; all, if none is given.")
    ] = None,
) -> None:
    """Remove what is stored; runs that read it at this moment read on."""
    from limbeck.teachers.outputs import default_store

    store = default_store()
    entries = store.entries()
    chosen = entries if not keys else [e for e in entries if e.key.startswith(tuple(keys))]
    unknown = [key for key in keys or [] if not any(e.key.startswith(key) for e in entries)]
    if unknown:
        raise LimbeckError(
            f"nothing is stored under {', '.join(unknown)}", "limbeck cache list shows the keys"
        )
    for entry in chosen:
        store.remove(entry)
    if not keys:
        store.sweep()
    freed = sum(entry.bytes for entry in chosen) / 2**30
    output().print(f"removed {len(chosen)} of {len(entries)} entries, {freed:.3f} GiB")
