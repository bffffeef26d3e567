"""`limbeck card` and `limbeck push`: a run's model card, and a run on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cards.settings import CardSettings
from limbeck.cli.console import say
from limbeck.cli.options import settings_flags, takes_groups


@takes_groups
def card(
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    settings: Annotated[dict[str, Any], settings_flags("Options", CardSettings)],
    out: Annotated[
        Path | None, typer.Option(help="Another file than RUN/student/README.md.")
    ] = None,
) -> None:
    """Write a run's model card for the Hub again; what is said here is kept for later cards."""
    from limbeck.cards.card import write_card

    seeds = [str(Path(seed).absolute()) for seed in settings.get("seeds", ())]
    said = CardSettings.checked(settings | {"seeds": seeds})
    say(f"written to {write_card(run, said, out=out)}")


_MB = 1e6


def push(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="USER/NAME on the Hub.")],
    public: Annotated[
        bool, typer.Option("--public", help="For everybody to see; private without it.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and their sizes, and send nothing.")
    ] = False,
) -> None:
    """Upload a run's student, its exports, its card and its record to the Hub, in one commit."""
    from limbeck.cards.push import push as push_run

    result = push_run(run, repo, private=not public, dry_run=dry_run)
    for file in result.files:
        say(f"{file.size / _MB:10.3f} MB  {file.name}")
    total = sum(file.size for file in result.files) / _MB
    where = "public" if public else "private"
    if result.url is None:
        say(
            f"{len(result.files)} files, {total:.1f} MB would go to {repo} ({where}); nothing is sent"
        )
    else:
        say(f"{len(result.files)} files, {total:.1f} MB ({where})")
        say(result.url)
