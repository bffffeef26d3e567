"""Settings of an OpenAI-compatible endpoint. Free of torch and of the client."""

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field

from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.settings import Count, Seed, Settings

KEY_VARIABLE = "OPENAI_API_KEY"
_NO_KEY = "none"  # the client insists on one, and servers without keys read none
_MILLION = 1_000_000


class EndpointAccess(Settings):
    """How to reach an endpoint, and within which limits."""

    url: str = Field(
        description="base URL of an OpenAI-compatible server, such as http://localhost:8000/v1",
        json_schema_extra={"flag": "--endpoint"},
    )
    api_key_env: str | None = Field(
        None, description=f"environment variable that holds the key ({KEY_VARIABLE})"
    )
    concurrency: Count = Field(8, description="requests at the same time")
    requests_per_minute: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="most requests a minute; no limit by default",
        json_schema_extra={"flag": "--rate"},
    )
    price_in: Annotated[float, Field(ge=0)] | None = Field(
        None, description="price of a million tokens read"
    )
    price_out: Annotated[float, Field(ge=0)] | None = Field(
        None, description="price of a million tokens written"
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="stop once this model and prompt have cost so much, in earlier starts and for other rows and "
        "stores too",
    )
    timeout: float = Field(60.0, gt=0, description="seconds that an answer may take")
    retries: int = Field(6, ge=0, le=100, description="repetitions of a failed request")

    @classmethod
    def named(cls, flags: dict[str, Any]) -> Self | None:
        """From a command's flags; None if there are no flags.

        Raises:
            LimbeckError: flags without a URL, or with values that cannot be.
        """
        if flags and "url" not in flags:
            raise LimbeckError(
                f"{', '.join(flags)}: read with an endpoint only", "name one with --endpoint URL"
            )
        return cls.checked(flags, " of the endpoint") if flags else None

    @problem_list
    def problems(self) -> Iterator[Problem]:
        """What cannot work, before anything is sent."""
        parts = urlsplit(self.url)
        plain = not (parts.username or parts.password or parts.query)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            yield Problem(
                "endpoint: it is no plain URL; a user, a password or a query would be recorded",
                "write one like http://localhost:8000/v1; --api-key-env names the variable that contains a key",
            )
        if self.max_cost is not None and (self.price_in is None or self.price_out is None):
            yield Problem(
                f"max_cost: {self.max_cost}, but what tokens cost is not known",
                "give --price-in and --price-out, for a million tokens",
            )
        if self.api_key_env is not None and not os.environ.get(self.api_key_env):
            yield Problem(
                f"api_key_env: the environment variable {self.api_key_env} is not set",
                f"export {self.api_key_env}=KEY",
            )

    def api_key(self) -> str:
        """The key, for the client alone."""
        return os.environ.get(self.api_key_env or KEY_VARIABLE) or _NO_KEY

    def price(self, read: float, written: float) -> float:
        """Cost of this number of tokens, in the currency of the prices."""
        return (read * (self.price_in or 0.0) + written * (self.price_out or 0.0)) / _MILLION


class EndpointSettings(EndpointAccess):
    """An endpoint's address and request settings."""

    model: str = Field(min_length=1, description="name of a model that it serves")
    mode: Literal["auto", "logprobs", "votes"] = Field(
        "auto",
        description="logprobs: read the probabilities of the answers' first tokens; votes: count sampled answers; "
        "auto: log-probabilities where the server gives them",
    )
    votes: int = Field(5, ge=1, le=1000, description="answers sampled for a row")
    temperature: float = Field(1.0, gt=0, le=2, description="temperature of sampled answers")
    top_logprobs: int = Field(
        20, ge=2, le=1000, description="number of most likely tokens to request"
    )
    seed: Seed = Field(0, description="random seed of sampled answers")
