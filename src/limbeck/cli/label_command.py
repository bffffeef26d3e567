"""`limbeck label`: a teacher's outputs about any rows, in a store that training, and anyone else, reads.

It calls `limbeck.labelling.label`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limbeck.cli.console import say, say_command
from limbeck.cli.finished import after_labelling
from limbeck.cli.options import option, setting, takes_groups, typed
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.registry import load_plugins
from limbeck.support.words import human_size

if TYPE_CHECKING:
    from limbeck.labelling.language_models import EndpointSettings

ROWS, STORE, RUNNING = "Rows", "Store", "Running"


@dataclass(frozen=True)
class RowsToLabel:
    """Which rows are labelled."""

    data: Annotated[
        str | None,
        option(
            ROWS,
            "'hub', 'pocket', a GLUE folder, a file (also .txt, a row a line) or a folder of files; labels are not "
            "looked at.",
        ),
    ] = None
    task: Annotated[str | None, option(ROWS, "A known task: its columns and classes.")] = None
    unlabelled: Annotated[list[str] | None, option(ROWS, "More files or folders of rows.")] = None
    text_columns: Annotated[list[str] | None, setting("text_columns", ROWS)] = None
    max_rows: Annotated[int | None, option(ROWS, "Rows of a file; more are refused.", min=1)] = None
    label_column: Annotated[
        str | None,
        option(
            ROWS,
            "The labels of a file of your own; read for a prompt's examples_per_class, and by a text-to-text teacher.",
        ),
    ] = None


@dataclass(frozen=True)
class StoreToWrite:
    """What is stored of them, and where."""

    out: Annotated[
        str | None,
        option(
            STORE,
            "The store: a folder, or a URL such as s3://bucket/store. The same command again continues it.",
        ),
    ] = None
    to: Annotated[
        str | None,
        option(
            STORE,
            "Also a plain table (.csv, .jsonl, .parquet), a file of this machine: text, label, confidence; without "
            "--out the store lies beside it.",
        ),
    ] = None
    outputs: Annotated[
        list[str] | None,
        option(
            STORE,
            "logits, probabilities, hidden:LAYER\\[:cls|mean|last], attention|scores|query|key|value:LAYER; "
            "layer -1 is the last, :float32 keeps all digits. Of a text-to-text teacher logits:topK or logits:sampleN. "
            "\\[default: logits and probabilities]",
        ),
    ] = None
    with_text: Annotated[
        bool,
        typer.Option("--with-text", help="Store the texts too.", rich_help_panel=STORE),
    ] = False
    shard_rows: Annotated[
        int | None,
        option(
            STORE,
            "Rows of a shard, the work that a kill may cost; by default 64 MiB of them, at most 4096.",
            min=1,
        ),
    ] = None


@dataclass(frozen=True)
class LabellingWork:
    """How it is done."""

    batch_size: Annotated[int | None, option(RUNNING, "Rows of a pass.", min=1)] = None
    max_length: Annotated[
        int | None, option(RUNNING, "Tokens of a row; by default the run's own, or 128.", min=1)
    ] = None
    precision: Annotated[str, option(RUNNING, "fp32 or bf16.")] = "fp32"
    engine: Annotated[
        str,
        option(
            RUNNING,
            "local, or ray: on this machine or the cluster that RAY_ADDRESS names.",
        ),
    ] = "local"
    workers: Annotated[int | None, option(RUNNING, "At most so many processes of Ray.")] = None
    missing_rows: Annotated[
        str,
        option(
            RUNNING,
            "Rows that keep failing: error makes no shard of them and ends by saying so; drop leaves them out of the "
            "store.",
        ),
    ] = "error"


_ENDPOINT = "Endpoint"


def _option(text: str, *names: str, **limits: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=_ENDPOINT, **limits)


@dataclass(frozen=True)
class EndpointOptions:
    """The settings of an endpoint, as far as they were typed."""

    url: Annotated[
        str | None,
        _option("An OpenAI-compatible server's base URL, such as http://localhost:8000/v1.", "--endpoint"),
    ] = None  # fmt: skip
    model: Annotated[str | None, _option("The name of a model that it serves.")] = None
    api_key_env: Annotated[
        str | None,
        _option("The environment variable that holds the key. [dim]\\[default: OPENAI_API_KEY][/dim]"),
    ] = None  # fmt: skip
    mode: Annotated[
        str | None,
        _option(
            "logprobs: read the probabilities of the answers; votes: count sampled answers; auto: what the server can. "
            "[dim]\\[default: auto][/dim]"
        ),
    ] = None
    votes: Annotated[
        int | None, _option("Answers sampled for a row. [dim]\\[default: 5][/dim]", min=1)
    ] = None
    temperature: Annotated[
        float | None, _option("Of sampled answers. [dim]\\[default: 1][/dim]")
    ] = None
    top_logprobs: Annotated[
        int | None, _option("Most likely tokens asked for. [dim]\\[default: 20][/dim]", min=2)
    ] = None
    concurrency: Annotated[
        int | None, _option("Requests at the same time. [dim]\\[default: 8][/dim]", min=1)
    ] = None
    requests_per_minute: Annotated[
        float | None, _option("At most so many requests a minute.", "--rate")
    ] = None
    price_in: Annotated[float | None, _option("Of a million tokens read.")] = None
    price_out: Annotated[float | None, _option("Of a million tokens written.")] = None
    max_cost: Annotated[
        float | None,
        _option(
            "Send no request that may exceed it, with all that this model and prompt have cost, in earlier starts and "
            "for other rows and stores too, as far as the server says; the same command with more continues."
        ),
    ] = None  # fmt: skip
    timeout: Annotated[
        float | None, _option("Seconds that an answer may take. [dim]\\[default: 60][/dim]")
    ] = None
    retries: Annotated[
        int | None, _option("Repetitions of a failed request. [dim]\\[default: 6][/dim]", min=0)
    ] = None
    seed: Annotated[int | None, _option("Of sampled answers. [dim]\\[default: 0][/dim]", min=0)] = (
        None
    )

    def settings(self) -> EndpointSettings | None:
        """The endpoint that the options name, None if none.

        Raises:
            LimbeckError: options of an endpoint without one, no model, or values out of range; all together.
        """
        given = typed(self)
        if self.url is None:
            problems = [
                Problem(
                    f"{_flag(name)} is of an endpoint, and none is named",
                    "name one with --endpoint URL",
                )
                for name in given
            ]
            if problems:
                raise LimbeckError(problems)
            return None
        if self.model is None:
            raise LimbeckError(
                f"endpoint {self.url}: no model is named", "name one that it serves: --model NAME"
            )

        from pydantic import ValidationError

        from limbeck.labelling.language_models import EndpointSettings

        try:
            return EndpointSettings(**given)
        except ValidationError as error:
            raise LimbeckError(
                [
                    Problem(
                        f"{_flag(str(one['loc'][0]))} {one['input']}: {one['msg'].lower()}",
                        "change it",
                    )
                    for one in error.errors()
                ]
            ) from None


_FLAGS = {"url": "endpoint", "requests_per_minute": "rate"}


def _flag(name: str) -> str:
    """How a setting is typed."""
    return "--" + _FLAGS.get(name, name.replace("_", "-"))


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
