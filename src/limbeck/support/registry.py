"""Registries of named things that users can extend: objectives, mappings, task types, data readers.

Below every package that registers something. The package registers its own things the way a user's file or an
installed package does; nothing else decides which names are valid.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import Any, Generic, NamedTuple, TypeVar

from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems, unknown
from limbeck.support.files import checksum

T = TypeVar("T")


GROUP = "limbeck.plugins"
"""The entry points of installed packages that register something when they are loaded."""

BUNDLED = ("limbeck.lab",)
"""Packages that ship with the core and register themselves; an installation may lack them."""


class Registered(NamedTuple):
    """One registration: of what sort, by which name, and the thing."""

    what: str
    name: str
    thing: object


_LOG: list[Registered] = []
_PACKAGES: dict[str, str] = {}
_LATER: dict[str, list[str]] = {}
_looked_for_packages = False


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
            LimbeckError: the name is taken by another thing. A second definition in the same place,
                as when a file is read once more, replaces the first.
        """

        def known(thing: T) -> T:
            other = self._known.get(name)
            if other is not None and _origin(other) != _origin(thing):
                raise LimbeckError(
                    f"{self.what} {name!r}: {_place(thing)} registers it, and {_place(other)} has",
                    "register it by another name",
                )
            self._known[name] = thing
            _LOG.append(Registered(self.what, name, thing))
            return thing

        return known

    def get(self, name: str, setting: str | None = None) -> T:
        """The thing of that name; raises LimbeckError with all names in alphabetical order, after `setting`."""
        if name not in self:
            raise LimbeckError(unknown(setting or self.what, name, sorted(self._known)))
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        """Whether it is known, to an installed package at the latest."""
        if name not in self._known:
            self.load()
        if name not in self._known:
            load_packages()
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        self.load()
        return iter(self._known)

    def __len__(self) -> int:
        self.load()
        return len(self._known)

    def load(self) -> None:
        """Import what bundled packages have of this sort (`register_later`)."""
        load_bundled()
        before = registrations()
        for module in _LATER.get(self.what, ()):
            import_module(module)
        del _LOG[before:]  # shipped entries belong to no plugin


FUNCTIONS: Registry[Callable[..., Any]] = Registry("function")
"""What bundled packages add to `limbeck` itself: `limbeck.submit`."""


def registrations() -> int:
    """How many there have been."""
    return len(_LOG)


def registered_since(count: int) -> list[Registered]:
    """Those after the first `count`."""
    return _LOG[count:]


def register_later(what: str, *modules: str) -> None:
    """Name modules that register things of a sort; they are imported when that sort is first looked through.

    So a package lists its contents, and loads nothing.
    """
    _LATER.setdefault(what, []).extend(modules)


def load_bundled() -> None:
    """Import the bundled packages that are there."""
    for name in BUNDLED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise


def load_packages() -> dict[str, str]:
    """Load what installed packages bring, once; returns each package's name and version.

    Raises:
        LimbeckError: one that fails or registers nothing.
    """
    global _looked_for_packages
    if _looked_for_packages:
        return dict(_PACKAGES)
    _looked_for_packages = True
    for entry in entry_points(group=GROUP):
        package = entry.dist
        name = entry.value if package is None else package.name
        fix = f"fix or uninstall {name}, whose entry point {entry.name} of {GROUP} it is"
        before = registrations()
        try:
            entry.load()
        except Exception as error:  # another package's code: it may fail with anything
            raise LimbeckError(
                f"{entry.value} of package {name} fails: {type(error).__name__}: {error}", fix
            ) from error
        if registrations() == before:
            raise LimbeckError(f"{entry.value} of package {name} registers nothing", fix)
        _PACKAGES[name] = "" if package is None else package.version
    return dict(_PACKAGES)


def _origin(thing: object) -> tuple[str, str]:
    """The file a thing is defined in, and its name there: one file may be imported by two names."""
    named = _named(thing)
    file = getattr(sys.modules.get(named.__module__), "__file__", None)
    return str(file or named.__module__), named.__qualname__


def _place(thing: object) -> str:
    """Where a thing is defined: module and name, for messages."""
    return f"{_named(thing).__module__}.{_named(thing).__qualname__}"


def _named(thing: Any) -> Any:
    return thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)


# Files of Python that register something: losses, mappings, task types of one's own. Loaded once a
# process, when a recipe that is to be run, or a command, names them. Files in a run folder are
# read as data: nothing in it is executed by being looked at.


@dataclass(frozen=True)
class Plugin:
    """One file in the state in which it was loaded, and its registrations."""

    path: Path
    checksum: str
    registered: tuple[Registered, ...]


_LOADED: dict[Path, Plugin] = {}


def load_plugins(paths: Iterable[str | Path]) -> list[Plugin]:
    """Load the files that are not loaded yet, or have changed since.

    Raises:
        LimbeckError: every one that cannot be loaded or registers nothing, with its reason.
    """
    problems: list[Problem] = []
    plugins = []
    for path in paths:
        with collecting(problems):
            plugins.append(load_plugin(path))
    raise_problems(problems)
    return plugins


def load_plugin(path: str | Path) -> Plugin:
    """Execute one file, unless it has been executed as it is.

    Raises:
        LimbeckError: it is no file of Python, fails, registers nothing, or takes a taken name.
    """
    place = Path(path).expanduser().resolve()
    if not place.is_file() or place.suffix != ".py":
        raise LimbeckError(
            f"plugins: {path} is no file of Python",
            "name an existing file that ends in .py; recipes end in .yaml",
        )
    digest = checksum(place)
    known = _LOADED.get(place)
    if known is not None and known.checksum == digest:
        return known
    before = registrations()
    _execute(place)
    found = tuple(registered_since(before))
    if not found:
        raise LimbeckError(
            f"plugins: {path} registers nothing",
            'decorate its classes or functions, @limbeck.objective("NAME"), or leave it out',
        )
    _LOADED[place] = Plugin(place, digest, found)
    return _LOADED[place]


def checksum_of(path: str | Path) -> str:
    """The checksum of a file as it was loaded, or as it is on disk."""
    place = Path(path).expanduser().resolve()
    known = _LOADED.get(place)
    if known is not None:
        return known.checksum
    return checksum(place) if place.is_file() else "missing"


def _execute(place: Path) -> None:
    """Import it as a module of a name of its own: two files may be called alike."""
    name = f"plugin_{place.stem}_{hashlib.sha1(str(place).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None  # its suffix is .py
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file: it may fail with anything
        del sys.modules[name]
        if isinstance(error, LimbeckError):
            raise LimbeckError(
                Problem(f"plugins: {place}: {problem.message}", problem.fix)
                for problem in error.problems
            ) from error
        # The last line of the file itself on the way to the error.
        own = [step for step in extract_tb(error.__traceback__) if step.filename == str(place)]
        number = error.lineno if isinstance(error, SyntaxError) else own[-1].lineno if own else None
        line = f" line {number}" if number else ""
        raise LimbeckError(
            f"plugins: {place}{line} fails: {type(error).__name__}: {error}",
            "fix it, or leave it out",
        ) from error
