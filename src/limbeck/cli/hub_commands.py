"""`limbeck card` and `limbeck push`: a run's model card, and a run on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    seeds: Annotated[
        list[str] | None,
        typer.Option(help="Other runs of the task, or folders of runs: spread and paired tests."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The method among them that others are tested against; default: finetune."
        ),
    ] = None,
    base_model: Annotated[
        list[str] | None, typer.Option(help="Hub names of what the student's weights come from.")
    ] = None,
    language: Annotated[list[str] | None, typer.Option(help="Language codes: en de")] = None,
    license: Annotated[
        str | None, typer.Option(help="The Hub's identifier of a licence: apache-2.0")
    ] = None,
    examples: Annotated[
        bool | None,
        typer.Option(
            help="Show the dev rows on which student and teacher disagree most, with their texts; default: no."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Another file than RUN/student/README.md.")
    ] = None,
) -> None:
    """Write a run's model card for the Hub again; what is said here is kept for later cards."""
    from limbeck.cards import CardSettings, write_card

    settings = CardSettings(
        seeds=[str(Path(seed).absolute()) for seed in seeds or ()],
        baseline=baseline,
        base_model=base_model or [],
        language=language or [],
        license=license,
        examples=examples,
    )
    written = write_card(run, settings, out=out)
    say(f"written to {written}")


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
