"""`limbeck label`: a teacher's outputs about any rows, in a store that training, and anyone else, reads.

It calls `limbeck.labelling.label_rows.label`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.console import say, say_command
from limbeck.cli.finished import after_labelling
from limbeck.cli.options import settings_flags, takes_groups
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.settings import LabelSettings
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import load_plugins
from limbeck.support.words import human_size


@takes_groups
def label(
    *,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            help="A run folder, or a checkpoint's folder or Hub name; several are a team: the mean of their "
            "outputs is stored, and the outputs of each."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="'hub', 'pocket', a GLUE folder, a file (also .txt, a row a line) or a folder of files; labels are "
            "not looked at."
        ),
    ] = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="More files or folders of rows.")
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            help="What a language model is asked, a YAML file; without it a causal model and an endpoint get the "
            "default prompt."
        ),
    ] = None,
    settings: Annotated[dict[str, Any], settings_flags("Labels", LabelSettings)],
    endpoint: Annotated[dict[str, Any], settings_flags("Endpoint", EndpointSettings)],
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Files of Python that register what labelling needs, a data reader say."),
    ] = None,
) -> None:
    """Store a teacher's outputs about any rows: logits, probabilities, hidden states, and the labels they come to."""
    load_plugins(plugin or ())
    if endpoint and "url" not in endpoint:
        raise LimbeckError(
            f"{', '.join(endpoint)}: read with an endpoint only", "name one with --endpoint URL"
        )
    served = EndpointSettings.checked(endpoint, " of the endpoint") if endpoint else None

    from limbeck.labelling.label_rows import label as run

    made = run(
        teacher or (),
        data,
        unlabelled=unlabelled or (),
        prompt=prompt,
        endpoint=served,
        show=True,
        **settings,
    )
    size = human_size(made.manifest.bytes)
    say(f"{made.files.url}: {len(made):,} rows, {size}")
    say_command("Next:    ", after_labelling(made, teacher or (), data))
