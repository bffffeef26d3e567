"""`limbeck label`: a teacher's outputs about any rows, in a store that training, and anyone else, reads.

It calls `limbeck.labelling.label`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say, say_command
from limbeck.cli.endpoint_options import EndpointOptions
from limbeck.cli.finished import after_labelling
from limbeck.cli.label_options import LabellingWork, RowsToLabel, StoreToWrite
from limbeck.cli.options import takes_groups, typed
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
    rows: RowsToLabel,
    store: StoreToWrite,
    work: LabellingWork,
    prompt: Annotated[
        Path | None,
        typer.Option(
            help="What a language model is asked, a YAML file; without it a causal model and an endpoint get the "
            "default prompt."
        ),
    ] = None,
    endpoint: EndpointOptions,
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Files of Python that register what labelling needs, a data reader say."),
    ] = None,
) -> None:
    """Store a teacher's outputs about any rows: logits, probabilities, hidden states, and the labels they come to."""
    load_plugins(plugin or ())
    served = endpoint.settings()

    from limbeck.labelling import label as run

    made = run(
        teacher or (),
        **typed(rows),
        **typed(store),
        **typed(work),
        prompt=prompt,
        endpoint=served,
        show=True,
    )
    size = human_size(made.manifest.bytes)
    say(f"{made.files.url}: {len(made):,} rows, {size}")
    say_command("Next:    ", after_labelling(made, teacher or (), rows.data))
