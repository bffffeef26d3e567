"""The options of `limbeck label` that say where a model is served and how it may be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limbeck.cli.options import typed
from limbeck.support.errors import LimbeckError, Problem

if TYPE_CHECKING:
    from limbeck.labelling.language_models import EndpointSettings

_PANEL = "Endpoint"


def _option(text: str, *names: str, **limits: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=_PANEL, **limits)


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
