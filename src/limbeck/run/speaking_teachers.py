"""Teachers that are asked in words: which of those named are, and the one behind an endpoint. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from limbeck.outputs import default_store
from limbeck.records.runs_meant import members_at
from limbeck.support.errors import LimbeckError, Problem
from limbeck.teachers.labeller import Labeller
from limbeck.teachers.language_models import BoundPrompt, EndpointSettings, is_causal_model
from limbeck.teachers.language_models.answer_journal import JOURNALS

if TYPE_CHECKING:
    from limbeck.teachers.language_models import EndpointLabeller


def speaks(teachers: Sequence[str | Labeller]) -> bool:
    """Whether a teacher is a causal language model, which labels with a prompt alone."""
    paths = [path for one in teachers if isinstance(one, str) for path in members_at(one)]
    return any(is_causal_model(path) for path in paths)


def endpoint_labeller(settings: EndpointSettings, bound: BoundPrompt) -> EndpointLabeller:
    """The labeller of an endpoint, whose answers are kept in the cache.

    Raises:
        LimbeckError: the package of its client is not installed, or as `EndpointLabeller`.
    """
    from limbeck.teachers.language_models import EndpointLabeller

    return EndpointLabeller(settings, bound, journals=default_store().folder / JOURNALS)


def check_speaking(
    teachers: Sequence[str | Labeller],
    prompt: object,
    endpoint: EndpointSettings | None,
    engine: str,
    max_length: int | None,
    precision: str,
) -> None:
    """Raise LimbeckError for settings that nobody would read, all of them together."""
    problems = []
    if (
        endpoint is None
        and prompt is not None
        and not any(isinstance(one, str) for one in teachers)
    ):
        problems.append(
            Problem(
                "prompt: the teacher is no language model that is read from a folder",
                "leave it out, or name a folder or an endpoint",
            )
        )
    if endpoint is not None:
        problems += endpoint.problems()
        unread = {
            "teacher": bool(teachers),
            "max_length": max_length is not None,
            "precision": precision != "fp32",
            "engine ray": engine == "ray",
        }
        problems += [
            Problem(
                f"{name}: nothing that an endpoint reads",
                "leave it out; requests at the same time are --concurrency",
            )
            for name, given in unread.items()
            if given
        ]
    if problems:
        raise LimbeckError(problems)
