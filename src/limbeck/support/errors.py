"""Errors a user can act on: the mistake, its setting, and how to fix it.

Every part of limbeck reports problems in this one form.
Several problems travel in one exception, because fixing them one run at a time wastes the user's day.
"""

import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, ParamSpec

P = ParamSpec("P")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong (`error`: the run cannot start), suspicious (`warning`), or good to know (`note`)."""

    message: str
    fix: str
    severity: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        label = "" if self.severity == "note" else "fix: "
        return f"{self.message}\n    {label}{self.fix}" if self.fix else self.message


class LimbeckError(Exception):
    """One or more problems the user can fix; the command line prints it without a traceback."""

    def __init__(self, problems: Problem | Iterable[Problem] | str, fix: str = "") -> None:
        if isinstance(problems, str):
            problems = Problem(problems, fix)
        self.problems: list[Problem] = (
            [problems] if isinstance(problems, Problem) else list(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise LimbeckError with all of them, if there are any."""
    if problems:
        raise LimbeckError(problems)


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """Inside, a LimbeckError ends the block and adds its problems to others, which are raised together later."""
    try:
        yield
    except LimbeckError as error:
        problems.extend(error.problems)


def problem_list(check: Callable[P, Iterator[Problem]]) -> Callable[P, list[Problem]]:
    """Turn a check that yields problems into one that returns a list."""

    @functools.wraps(check)
    def listed(*given: P.args, **named: P.kwargs) -> list[Problem]:
        return [*check(*given, **named)]

    return listed


def unknown(setting: str, value: object, choices: Sequence[str]) -> Problem:
    """A value outside its choices, with the nearest choice named: `unknown task 'mrcp'`."""
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return Problem(f"unknown {setting} {value!r}", f"{hint}choices: {', '.join(choices)}")


def check_choice(setting: str, value: str | None, choices: Collection[str]) -> None:
    """Raise LimbeckError for a value outside its choices; None is no value."""
    if value is not None and value not in choices:
        raise LimbeckError(unknown(setting, value, [*choices]))


def first_line(error: BaseException) -> str:
    """The first line of another library's error, or its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
