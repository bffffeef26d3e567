"""What limbeck knows by name, open to the outside: objectives, mappings, task types, data readers.

Below everything that is registered. The package registers its own things the way a user's file or an
installed package does; nothing else decides what a name may be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from limbeck.errors import LimbeckError, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one sort by name, in the order in which they were registered.

    Args:
        what: the sort, as errors call it: `objective`, `data reader`.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that makes a thing known by `name`.

        Raises:
            LimbeckError: the name is taken by another thing. What is defined again in the same place,
                as when a file is read once more, takes the place of its older self.
        """

        def known(thing: T) -> T:
            other = self._known.get(name)
            if other is not None and _place(other) != _place(thing):
                raise LimbeckError(
                    f"{self.what} {name!r}: {_place(thing)} registers it, and {_place(other)} has",
                    "register it by another name",
                )
            self._known[name] = thing
            return thing

        return known

    def get(self, name: str, setting: str | None = None) -> T:
        """The thing of that name; raises LimbeckError with the names there are, after `setting`."""
        if name not in self._known:
            raise LimbeckError(unknown(setting or self.what, name, list(self._known)))
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _place(thing: object) -> str:
    """Where a thing is defined: module and name, for messages and to tell two of one name apart."""
    named = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
